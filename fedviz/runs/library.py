"""The runs that have ended: found, kept at hand, continued from, counted and deleted.

Records of a run that continues another begin with the other's, so whatever depends on stored runs staying as they are (to
continue one, to fork one, to delete one) is done under `changing`, one at a time.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

from fedviz.runs.admission import Refused
from fedviz.runs.computation import Leg
from fedviz.runs.rows import run_of
from fedviz.runs.store import StoreError
from fedviz.simulation import checkpoints

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from fedviz.runs.journal import Journal
    from fedviz.runs.run import Run
    from fedviz.runs.store import Row, RunStore

_DEEPEST: Final = 1000  # runs continued one from another; far more than are allowed
_KEPT: Final = 32  # ended runs that are held in memory because somebody is likely to look at them
_KEPT_BYTES: Final = 256_000_000  # ... and what their records may take, but for the newest

_log = logging.getLogger(__name__)


class Library:
    """For all threads. Methods raise StoreError where the database cannot be used."""

    def __init__(self, store: RunStore, journal: Journal, folder: Path) -> None:
        """folder: of checkpoints."""
        self.changing = threading.RLock()
        self._store, self._journal, self._folder = store, journal, folder
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Run] = OrderedDict()  # least recently used first
        self._deletions = 0

    # --- looking

    def get(self, run_id: str) -> Run | None:
        """A run with its records at hand; None if there is none."""
        run = self.at_hand(run_id)
        if run is not None:
            return run
        deletions = self._deletions
        row = self._store.load(run_id) or self._journal.pending(run_id)
        if row is None:
            return None
        run = self.stored(row, self.get(row.reference_id) if row.reference_id else None)
        _ = run.records  # read now, while errors can be told as what they are
        if not run.foreign:  # else it goes on, and what is kept would soon be old
            self.keep(run, deletions)
        return run

    def at_hand(self, run_id: str) -> Run | None:
        """A run that need not be read."""
        with self._lock:
            if run_id in self._kept:
                self._kept.move_to_end(run_id)
            return self._kept.get(run_id)

    def all_at_hand(self) -> list[Run]:
        with self._lock:
            return list(self._kept.values())

    def keep(self, run: Run, deletions: int | None = None) -> None:
        """Have a run at hand. deletions: how many there had been when it was read: if there were more since, it may be gone."""
        with self._lock:
            if deletions is not None and deletions != self._deletions:
                return
            self._kept[run.id] = run
            self._kept.move_to_end(run.id)
            size = sum(each.records.nbytes for each in self._kept.values())
            while len(self._kept) > _KEPT or (size > _KEPT_BYTES and len(self._kept) > 1):
                _, oldest = self._kept.popitem(last=False)
                size -= oldest.records.nbytes

    def stored(self, row: Row, reference: Run | None = None) -> Run:
        """The run of a row, or of a newer one that waits to be written; its records are read when they are asked for."""
        return run_of(self._journal.pending(row.id) or row, reference, partial(self._store.records, row.id))

    def written(self, run_id: str) -> Row | None:
        """The row of a run, when all of it so far is on the disk; None if there is none. Raises Refused."""
        if not self._journal.settle(run_id):
            raise Refused("The run is still being written: try again in a moment.")
        return self._store.load(run_id)

    # --- continuing

    def legs(self, run: Run) -> tuple[Leg, ...]:
        """The way to a run's state, through the runs that it continues."""
        legs: list[Leg] = []
        each, until = run, run.config.rounds
        for _ in range(_DEEPEST):
            if each.forked_at is None or until > each.forked_at:  # else it was left before it had a round of its own
                legs.append(Leg(each.id, each.config, until))
            if each.parent_id is None or each.forked_at is None:
                return tuple(reversed(legs))
            until = min(until, each.forked_at)
            each = self._parent(each)
        raise StoreError(f"Run {run.id} continues more than {_DEEPEST} runs, one from another. Start it anew.")

    def depth(self, run: Run) -> int:
        """How many runs a run was continued from, one after the other."""
        depth, each = 0, run
        while each.parent_id is not None and depth < _DEEPEST:
            depth, each = depth + 1, self._parent(each)
        return depth

    def _parent(self, run: Run) -> Run:
        row = self._store.load(str(run.parent_id))
        if row is None:
            raise StoreError(f"Run {run.parent_id}, which run {run.id} continues, is no longer there. Start it anew.")
        return self.stored(row)

    # --- deleting

    def delete(self, row: Row) -> None:
        """Delete an ended run, with its reference, and with a parent that only waited for that.

        As long as other runs continue it their records begin with its own, so it then loses its owner and its title only.
        """
        with self.changing:
            left = [row]
            while left:
                row = left.pop()
                self.forget(row.id)
                if self._store.children(row.id):
                    self._store.change(row.id, owner="", title="", published=False)
                    continue
                self._store.delete(row.id)
                self.forget(row.id)
                checkpoints.remove(self._folder, row.id)
                for other_id in (row.reference_id, row.parent_id):
                    other = self._store.load(other_id) if other_id else None
                    if other is not None and (other_id == row.reference_id or not other.owner):
                        left.append(other)

    def forget(self, run_id: str) -> None:
        """Have a run at hand no longer, also one that somebody is just reading."""
        with self._lock:
            self._deletions += 1
            self._kept.pop(run_id, None)

    def ended_before(self, when: datetime) -> list[Row]:
        """Runs with an owner that ended before `when` and that nobody has published."""
        return [row for row in self._store.ended_before(when) if row.owner]

    def size(self) -> tuple[int, int]:
        """(stored runs, references included; bytes of the database and the checkpoints)."""
        runs, stored = self._store.size()
        return runs, stored + sum(_size(file) for file in self._folder.glob("*.safetensors"))


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # gone meanwhile
        return 0
