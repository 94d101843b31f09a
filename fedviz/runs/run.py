"""A run as pages see it: its config, its state, its records so far.

A live run is written by the one thread that supervises it and read by anybody; a run from an earlier process is read
from the store.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from fedviz import __version__
from fedviz.runs.columns import Columns, Records

if TYPE_CHECKING:
    from fedviz.config import SimulationConfig
    from fedviz.runs.gate import Gate


class RunState(StrEnum):
    QUEUED = "queued"
    PREPARING = "preparing"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    DIVERGED = "diverged"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def live(self) -> bool:
        """Whether it can still get further by itself or by a click."""
        return self in LIVE


WAITING = "It starts when a place is free."
ELSEWHERE = "It runs in another fedviz on this machine: control it there, and reload this page to see how far it is."
RESUMABLE = frozenset(
    {RunState.INTERRUPTED, RunState.STOPPED}
)  # ended before its time, with nothing wrong with the run itself
LIVE = frozenset({RunState.QUEUED, RunState.PREPARING, RunState.RUNNING, RunState.PAUSED})


class Run:
    """One run. Read the state before the records: once the state is final, the records are complete."""

    def __init__(
        self,
        id: str,
        config: SimulationConfig,
        *,
        created: datetime,
        version: str,
        state: RunState = RunState.QUEUED,
        message: str = WAITING,
        device: str | None = None,
        reference: Run | None = None,
        load: Callable[[], Records] | None = None,
    ) -> None:
        """`load` gives the records of a run that is in the store; without it the run is live and starts empty."""
        self.id, self.config, self.created, self.version, self.reference = id, config, created, version, reference
        self.device = device
        self.owner = "local"  # the id of the visitor who started it; never shown
        self.title = ""  # given by its owner
        self.published = False
        self.parent_id: str | None = None  # the run that it continues, and after which round
        self.forked_at: int | None = None
        self.note = ""  # what a fork carried over
        self.config_key: str | None = None  # equal for runs that will have equal records; None: not known
        self.is_reference = False
        self.imported = False  # its records came from a file, and were not computed here
        self.ended_at: datetime | None = None
        self.unwatched = False  # paused because nobody looked
        self.in_the_way = ""  # what is to be said while others wait for it, who goes slowly
        self.queue_position: int | None = None  # 1 is next; None where it does not stand in line
        self.foreign = load is not None and state.live  # goes on in another process: can be looked at, not controlled
        self._state, self._message = state, ELSEWHERE if self.foreign else message
        self._columns = Columns()
        self._load, self._loaded = load, None if load else self._columns.view
        self._gate: Gate | None = None
        self._meter = _Meter()

    # --- for readers

    @property
    def state(self) -> RunState:
        state, gate = self._state, self._gate
        if state is RunState.RUNNING and self.queue_position is not None:
            return RunState.QUEUED  # it was paused, and waits for a place to go on
        return RunState.PAUSED if state is RunState.RUNNING and gate is not None and gate.settled else state

    @property
    def ended(self) -> bool:
        """Whether this run itself will get no further."""
        return not self._state.live

    @property
    def live(self) -> bool:
        """Whether this run or its reference can still get further here: as long as it is, the controls work on both."""
        if self.foreign:
            return False
        return not self.ended or (self.reference is not None and not self.reference.ended)

    @property
    def can_resume_itself(self) -> bool:
        """Whether this run has ended before its time and can be continued, whatever its reference can."""
        return self._state in RESUMABLE and self.version == __version__

    @property
    def can_resume(self) -> bool:
        """Whether this run or its reference has ended before its time and can be continued by `RunManager.resume`.

        A reference goes on with its run; one without an owner was deleted, and is there for those that continue it.
        """
        if self.is_reference or not self.owner:
            return False
        runs = [self, *([self.reference] if self.reference is not None else [])]
        return not self.live and any(run.can_resume_itself for run in runs)

    @property
    def message(self) -> str:
        """One sentence for the user: what happened, or what is being done; may be empty while all goes well."""
        gate, state = self._gate, self.state
        if gate is None or not state.live or state is RunState.QUEUED:
            return self._message
        if gate.stopped:
            return "Stopping."
        if state is RunState.PAUSED:
            why = ", for nobody was watching. Resume continues it" if self.unwatched else ""
            return f"Paused after round {self.round:,}{why}."
        if state is RunState.RUNNING and gate.limit is not None:
            return f"Pausing after round {gate.limit:,}."
        if state is RunState.RUNNING and self.in_the_way:
            return self.in_the_way
        if state is RunState.PREPARING and gate.limit is not None:
            return f"{self._message.rstrip('.')}. Then it pauses."
        return self._message

    @property
    def records(self) -> Records:
        """All records so far. Raises StoreError where they have to be read from the database and cannot."""
        if self._loaded is None:
            assert self._load is not None
            records = self._load()
            self._loaded = lambda: records
        return self._loaded()

    @property
    def round(self) -> int:
        """The last round that is done; -1 before the starting point."""
        last = self.records.last("round")
        return -1 if last is None else int(last)

    @property
    def pace(self) -> float | None:
        """The most rounds per second that are allowed, None for as fast as it goes."""
        return self._gate.pace if self._gate is not None else None

    @property
    def rounds_per_second(self) -> float | None:
        """Over the last second or two of computing; None while that is not known or nothing moves."""
        return self._meter.rate if self.state is RunState.RUNNING else None

    @property
    def seconds_left(self) -> float | None:
        rate = self.rounds_per_second
        return (self.config.rounds - self.round) / rate if rate else None

    # --- for the run manager

    def begin_with(self, records: Iterable[dict[str, Any]]) -> None:
        """Take in records that were computed before."""
        for record in records:
            self._columns.append(record)

    def append(self, record: dict[str, Any]) -> None:
        self._columns.append(record)
        self._meter.tick(record["round"], since=self._gate.moved if self._gate is not None else 0.0)

    def enter(self, state: RunState, message: str = "") -> None:
        # The message first: who reads a new state reads its message.
        self._message, self._state = message, state
        self.ended_at = None if state.live else self.ended_at or datetime.now(UTC)

    def take_up(self) -> None:
        """Make a stored run that has ended a waiting one again, with the records that it has."""
        self.begin_with(self.records.dicts())
        self._load, self._loaded = None, self._columns.view
        self.enter(RunState.QUEUED, WAITING)

    def join(self, gate: Gate) -> None:
        self._gate = gate


class _Meter:
    """Rounds per second: between the latest round and, where there is one, a round that was done a second before it."""

    def __init__(self) -> None:
        self.rate: float | None = None
        self._older = self._newer = (math.inf, 0)  # (time, round); infinity before the first

    def tick(self, round: int, since: float) -> None:
        """`round` is done; `since` is when a pause ended or the pace changed: what was before does not count."""
        now = time.monotonic()
        if self._older[0] == math.inf:  # what came before it is preparation
            self._older = self._newer = (now, round)
        elif self._older[0] < since:
            self._older = self._newer = (since, round - 1)
        elif now - self._newer[0] >= 1:
            self._older, self._newer = self._newer, (now, round)
        elapsed = now - self._older[0]
        if elapsed >= 0.1:  # less is chance
            self.rate = (round - self._older[1]) / elapsed
