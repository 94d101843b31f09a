"""Carries records and states from the supervising threads to the store, in batches, so that no run ever waits for the
disk.

One thread writes. What it is given is committed together a quarter of a second later, each run in one transaction: a
stored final state therefore never stands without its last record. What cannot be written is told once to `on_error`
and tried again a few times.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

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


class Journal:
    def __init__(self, store: RunStore, on_error: Callable[[str, str], None]) -> None:
        """`on_error(run id, reason)` is called from the journal's thread."""
        self._store, self._on_error = store, on_error
        self._changed = threading.Condition()
        self._waiting: dict[str, _Entry] = {}
        self._writing: set[str] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="fedviz-journal", daemon=True)
        self._thread.start()

    def row(self, row: Row) -> None:
        """Keep a run's row as it is now."""
        with self._changed:
            self._waiting.setdefault(row.id, _Entry()).row = row
            self._changed.notify_all()

    def record(self, run_id: str, round: int, text: str) -> None:
        """Keep the record (JSON text) of a round."""
        with self._changed:
            self._waiting.setdefault(run_id, _Entry()).records.append((run_id, round, text))
            self._changed.notify_all()

    def settle(self, run_id: str, timeout: float = 3.0) -> bool:
        """Wait until nothing of a run waits to be written; False where that takes longer than `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: run_id not in self._waiting and run_id not in self._writing, timeout)

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
                self._writing = set(batch)
            failed = {run_id: entry for run_id, entry in batch.items() if not self._write(run_id, entry)}
            pause = _RETRY_AFTER if failed else INTERVAL
            with self._changed:
                self._writing = set()
                self._changed.notify_all()
                for run_id, entry in failed.items():
                    newer = self._waiting.pop(run_id, _Entry())
                    self._waiting[run_id] = _Entry(
                        newer.row or entry.row, entry.records + newer.records, entry.failures
                    )

    def _write(self, run_id: str, entry: _Entry) -> bool:
        """Whether there is nothing left to do for this entry."""
        try:
            self._store.save(entry.row, entry.records)
            return True
        except Exception as error:  # whatever it is, the other runs' records must go on being written
            entry.failures += 1
            if entry.failures == 1:
                _log.error("Run %s cannot be saved: %s", run_id, error)
                self._on_error(run_id, str(error))
            # A server that shuts down does not wait for a disk that will not have it.
            return self._closing or entry.failures >= _TRIES
