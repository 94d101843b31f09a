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
from fedviz.runs.store import DEEPEST, StoreError
from fedviz.simulation import checkpoints

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from fedviz.runs.journal import Journal
    from fedviz.runs.run import Run
    from fedviz.runs.store import Row, RunStore

_KEPT: Final = 32  # ended runs that are held in memory because somebody is likely to look at them
_KEPT_BYTES: Final = 256_000_000  # ... and what their records may take, but for the newest

_log = logging.getLogger(__name__)


class Library:
    """For all threads. Methods raise StoreError where the database cannot be used."""

    def __init__(
        self,
        store: RunStore,
        journal: Journal,
        folder: Path,
        *,
        is_live: Callable[[str], bool],
        in_use: Callable[[str], bool],
    ) -> None:
        """folder: of checkpoints; is_live, in_use: as of `Pairs`. What is live is not kept at hand, what is in use not deleted."""
        self.changing = threading.RLock()
        self._is_live, self._in_use = is_live, in_use
        self._store, self._journal, self._folder = store, journal, folder
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Run] = OrderedDict()  # least recently used first
        # By run, whoever began last to read it, unless what they read is old by now.
        self._reading: dict[str, object] = {}

    # --- looking

    def get(self, run_id: str) -> Run | None:
        """A run with its records at hand; None if there is none."""
        reader = object()
        with self._lock:
            run = self._at_hand(run_id)
            if run is not None:
                return run
            self._reading[run_id] = reader
        try:
            whole = self._is_written(run_id)
            row = self._store.load(run_id) or self._journal.pending(run_id)
            if row is None:
                return None
            run = self.stored(row, self.get(row.reference_id) if row.reference_id else None)
            _ = run.records  # read now, while errors can be told as what they are
            with self._lock:
                # One that goes on, here or elsewhere, would soon be old. Here it is live until its end is at hand.
                ended = not run.foreign and not self._is_live(run_id)
                if whole and ended and self._reading.get(run_id) is reader:
                    self._keep(run)
            return run
        finally:
            with self._lock:
                if self._reading.get(run_id) is reader:
                    del self._reading[run_id]

    def at_hand(self, run_id: str) -> Run | None:
        """A run that need not be read."""
        with self._lock:
            return self._at_hand(run_id)

    def all_at_hand(self) -> list[Run]:
        with self._lock:
            return list(self._kept.values())

    def keep(self, run: Run) -> None:
        """Have a run at hand as it is now, whatever somebody is just reading of it."""
        with self._lock:
            self._keep(run)

    def _at_hand(self, run_id: str) -> Run | None:
        if run_id in self._kept:
            self._kept.move_to_end(run_id)
        return self._kept.get(run_id)

    def _keep(self, run: Run) -> None:
        self._reading.pop(run.id, None)
        self._kept[run.id] = run
        self._kept.move_to_end(run.id)
        size = sum(each.records.nbytes for each in self._kept.values())
        while len(self._kept) > _KEPT or size > _KEPT_BYTES:
            others = [run_id for run_id in self._kept if run_id != run.id]
            # What is not on the disk is nowhere else. A disk that fails for long must not fill the memory, though.
            gives_way = next(filter(self._is_written, others), others[0] if others and size > _KEPT_BYTES else None)
            if gives_way is None:
                break
            size -= self._kept.pop(gives_way).records.nbytes

    def stored(self, row: Row, reference: Run | None = None) -> Run:
        """The run of a row, or of a newer one that waits to be written; its records are read when they are asked for."""
        return run_of(self._journal.pending(row.id) or row, reference, partial(self._store.records, row.id))

    def _is_written(self, run_id: str) -> bool:
        return self._journal.settle(run_id, timeout=0)

    def written(self, run_id: str) -> Row | None:
        """The row of a run, when all of it so far is on the disk; None if there is none. Raises Refused."""
        if not self._journal.settle(run_id):
            reason = self._journal.reason(run_id)
            why = f", and could not be so far ({reason})" if reason else ""
            raise Refused(f"The run is still being written{why}: try again in a moment.")
        return self._store.load(run_id)

    # --- continuing

    def legs(self, run: Run) -> tuple[Leg, ...]:
        """The way to a run's state, through the runs that it continues."""
        legs: list[Leg] = []
        each, until = run, run.config.rounds
        for _ in range(DEEPEST):
            if each.forked_at is None or until > each.forked_at:  # else it was left before it had a round of its own
                legs.append(Leg(each.id, each.config, until))
            if each.parent_id is None or each.forked_at is None:
                return tuple(reversed(legs))
            until = min(until, each.forked_at)
            each = self._parent(each)
        raise StoreError(f"Run {run.id} continues more than {DEEPEST} runs, one from another. Start it anew.")

    def depth(self, run: Run) -> int:
        """How many runs a run was continued from, one after the other."""
        depth, each = 0, run
        while each.parent_id is not None and depth < DEEPEST:
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
        Raises Refused, with nothing deleted, where it or its reference goes on or is still being written.
        """
        with self.changing:
            for each, continued in self._with(row):
                self.forget(each.id)
                if continued:
                    self._store.change(each.id, owner="", title="", published=False)
                    continue
                self._store.delete(each.id)
                self.forget(each.id)
                checkpoints.remove(self._folder, each.id)

    def _with(self, row: Row) -> list[tuple[Row, bool]]:
        """What goes with a run, itself first: (row, whether others continue it, so that it has to stay). Raises Refused."""
        if self._goes_on(row):
            raise Refused("The run has not ended, or its reference has not: stop it, and delete it a moment later.")
        found: list[tuple[Row, bool]] = []
        gone: set[str] = set()
        left = [row]
        while left:
            row = left.pop()
            continued = any(child.id not in gone for child in self._store.children(row.id))
            found.append((row, continued))
            if continued:
                continue
            gone.add(row.id)
            reference, parent = self._other(row.reference_id), self._other(row.parent_id)
            if reference is not None:
                left.append(reference)
            if parent is not None and not parent.owner and not self._goes_on(parent):
                left.append(parent)
        return found

    def _goes_on(self, row: Row) -> bool:
        """Whether a run or its reference is live, here or elsewhere, or something still computes for it."""
        other = self._other(row.reference_id)
        rows = (row,) if other is None else (row, other)
        ids = (row.id, row.reference_id) if row.reference_id else (row.id,)
        return any(each.state.live for each in rows) or any(map(self._in_use, ids))

    def _other(self, run_id: str | None) -> Row | None:
        """A row that another one names; None where it cannot be read, for it hinders nobody who deletes the other. Raises Refused."""
        try:
            return self.written(run_id) if run_id else None
        except StoreError as error:
            _log.warning("%s", error)
            return None

    def forget(self, run_id: str) -> None:
        """Have a run at hand no longer, also one that somebody is just reading."""
        with self._lock:
            self._reading.pop(run_id, None)
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
