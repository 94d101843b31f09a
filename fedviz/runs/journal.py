"""Carries records and states from the supervising threads to the store, in batches, so that no run ever waits for the
disk.

One thread writes. What it is given is committed together a quarter of a second later, each run in one transaction: a
stored final state therefore never stands without its last record. What cannot be written is told once to `on_error`
and tried again: records for a while, a row, which is small and says what became of the run, until it is written.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from fedviz.runs.run import RunState
from fedviz.runs.store import Row, RunStore

INTERVAL: Final = 0.25  # seconds from the first waiting record to its commit
_RETRY_AFTER: Final = 1.0
_TRIES: Final = 10

_log = logging.getLogger(__name__)


@dataclass
class _Entry:
    """What waits to be written of one run."""

    row: Row | None = None
    records: list[tuple[str, int, str]] = field(default_factory=list)
    failures: int = 0
    oldest: int = 0  # number of the first thing in it, of all that was ever given
    reason: str = ""  # why it could not be written so far

    def give_up_records(self) -> None:
        """A run is then interrupted after its last stored record, whatever it was: its stored state never lacks records."""
        if self.records and self.row is not None and self.row.state is not RunState.INTERRUPTED:
            message = "Interrupted: its last records could not be saved. Resume continues after the last that was."
            self.row = replace(self.row, state=RunState.INTERRUPTED, message=message)
        self.records = []


class Journal:
    def __init__(self, store: RunStore, on_error: Callable[[str, str], None]) -> None:
        """`on_error(run id, reason)` is called from the journal's thread."""
        self._store, self._on_error = store, on_error
        self._changed = threading.Condition()
        self._waiting: dict[str, _Entry] = {}
        self._writing: dict[str, _Entry] = {}
        self._given = 0
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="fedviz-journal", daemon=True)
        self._thread.start()

    def row(self, row: Row) -> None:
        """Keep a run's row as it is now."""
        with self._changed:
            self._entry(row.id).row = row

    def record(self, run_id: str, round: int, text: str) -> None:
        """Keep the record (JSON text) of a round."""
        with self._changed:
            self._entry(run_id).records.append((run_id, round, text))

    def settle(self, run_id: str, timeout: float = 3.0) -> bool:
        """Wait until all that was given of a run so far is written; False where that takes longer than `timeout` seconds."""
        with self._changed:
            last = self._given
            return self._changed.wait_for(
                lambda: all(
                    run_id not in each or each[run_id].oldest > last for each in (self._waiting, self._writing)
                ),
                timeout,
            )

    def pending(self, run_id: str) -> Row | None:
        """The row that waits to be written, which is newer than the stored one."""
        with self._changed:
            entries = [each[run_id] for each in (self._waiting, self._writing) if run_id in each]
            return next((entry.row for entry in entries if entry.row is not None), None)

    def reason(self, run_id: str) -> str:
        """Why what waits of a run could not be written so far; may be empty."""
        with self._changed:
            entries = [each[run_id] for each in (self._waiting, self._writing) if run_id in each]
            return next((entry.reason for entry in entries if entry.reason), "")

    def _entry(self, run_id: str) -> _Entry:
        self._given += 1
        self._changed.notify_all()
        return self._waiting.setdefault(run_id, _Entry(oldest=self._given))

    def close(self, timeout: float) -> None:
        """Write what is waiting and end: the store is no longer used, unless the disk hangs longer than `timeout`."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout)

    def _work(self) -> None:
        pause = INTERVAL
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                self._changed.wait_for(lambda: self._closing, timeout=pause)
                if self._closing and not self._waiting:
                    return
                batch, self._waiting = self._waiting, {}
                self._writing = batch
            failed = {run_id: entry for run_id, entry in batch.items() if not self._write(run_id, entry)}
            pause = _RETRY_AFTER if failed else INTERVAL
            with self._changed:
                self._writing = {}
                self._changed.notify_all()
                for run_id, entry in failed.items():
                    newer = self._waiting.pop(run_id, _Entry())
                    self._waiting[run_id] = _Entry(
                        newer.row or entry.row,
                        entry.records + newer.records,
                        entry.failures,
                        entry.oldest,
                        entry.reason,
                    )

    def _write(self, run_id: str, entry: _Entry) -> bool:
        """Whether there is nothing left to do for this entry."""
        try:
            self._store.save(entry.row, entry.records)
            return True
        except Exception as error:  # whatever it is, the other runs' records must go on being written
            entry.failures, entry.reason = entry.failures + 1, str(error)
            if entry.failures == 1:
                _log.error("Run %s cannot be saved: %s", run_id, error)
                self._on_error(run_id, str(error))
            if entry.failures == _TRIES:
                entry.give_up_records()
            # A server that shuts down does not wait for a disk that will not have it.
            return self._closing or (entry.row is None and not entry.records)
