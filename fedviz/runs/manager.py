"""Owns all runs of a process: the queue, one supervising thread for each run, the controls.

A run and its reference are a pair: they start together, go through one gate, and are paused, stepped and stopped
together; each ends by itself. At most `concurrent` pairs compute at a time, the others wait their turn. A pair that is
paused or paced gives up its place, so that somebody who pauses and leaves holds nobody up; when it goes on, it does so at once.

Locks are taken in this order: the manager's, then a gate's or the journal's. A gate calls back with its lock released.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import secrets
import threading
import time
from collections import OrderedDict, deque
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from fedviz import __version__
from fedviz.config import ConfigError, SimulationConfig
from fedviz.problems import ProblemError
from fedviz.runs import admission
from fedviz.runs.admission import Refused
from fedviz.runs.executors import Executor, ThreadExecutor
from fedviz.runs.gate import Gate
from fedviz.runs.journal import Journal
from fedviz.runs.run import Run, RunState
from fedviz.runs.store import Row, RunStore, StoreError, interruption
from fedviz.simulation.errors import Diverged

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

MOST_QUEUED: Final = 32
_KEPT: Final = 32  # ended runs that are held in memory because somebody is likely to look at them
_PATIENCE: Final = 5.0  # seconds that a shutdown waits for rounds in flight

_log = logging.getLogger(__name__)


@dataclass
class _Pair:
    """Runs that are controlled together."""

    runs: tuple[Run, ...]
    gate: Gate
    started: bool = False
    # Why the gate was stopped, as state and message; "{where}" becomes the last round. The first reason counts.
    ending: tuple[RunState, str] | None = None

    def stop(self, state: RunState, message: str) -> None:
        self.ending = self.ending or (state, message)
        self.gate.stop()


class _Stopped(BaseException):
    """Leaves what nobody waits for any more; not an Exception, so that nothing on the way takes it for a failure."""


class RunManager:
    """All methods may be called from any thread, and those that control a run any number of times."""

    def __init__(self, store: RunStore, *, concurrent: int | None = None, executor: Executor | None = None) -> None:
        """concurrent: pairs that compute at a time; by default half the number of cores, for a pair is two threads."""
        self._store = store
        self._executor: Executor = executor or ThreadExecutor()
        self._concurrent = concurrent or max(1, _cores() // 2)
        self._lock = threading.RLock()
        self._queue: deque[_Pair] = deque()
        self._live: dict[str, _Pair] = {}  # by the id of each run of a pair, until both have ended
        self._kept: OrderedDict[str, Run] = OrderedDict()  # least recently used first
        self._threads: set[threading.Thread] = set()
        self._closed = False
        self._journal = Journal(store, self._cannot_save)
        atexit.register(self.shutdown)

    # --- for pages and programs

    def submit(self, config: SimulationConfig, reference: SimulationConfig | None = None) -> Run:
        """Take on a run, with a reference to compare it with. Raises Refused (memory, queue), ConfigError (data)."""
        admission.check(config, reference)
        with self._lock:
            if self._closed:
                raise Refused("The server is shutting down: start the run again in a minute.")
            if len(self._queue) >= MOST_QUEUED:
                raise Refused(f"{MOST_QUEUED} runs are waiting already, and no more are taken: try again later.")
            gate = Gate(1 if reference is None else 2, when_settled=self._start_next)
            other = None if reference is None else _new_run(reference, gate)
            run = _new_run(config, gate, other)
            pair = _Pair((run,) if other is None else (run, other), gate)
            for member in pair.runs:
                self._live[member.id] = pair
                self._journal.row(_row(member))
            self._queue.append(pair)
            self._start_next()
        return run

    def get(self, run_id: str) -> Run | None:
        """The run, live or stored, with its records at hand; None if there is none. Raises StoreError."""
        run = self._in_memory(run_id)
        if run is not None:
            return run
        row = self._store.load(run_id)
        if row is None:
            return None
        run = self._stored(row, self.get(row.reference_id) if row.reference_id else None)
        _ = run.records  # read now, while errors can be told as what they are
        if not run.foreign:  # else it goes on, and what is kept would soon be old
            self._keep(run)
        return run

    def recent(self, limit: int) -> list[Run]:
        """The newest runs, newest first, without those that are only references. Raises StoreError."""
        found = []
        for row in self._store.recent(limit):
            try:
                found.append(self._in_memory(row.id) or self._stored(row, None))
            except StoreError as error:  # one run that cannot be read hides no others
                _log.warning("%s", error)
        return found

    def pause(self, run_id: str) -> None:
        """Hold the run and its reference after the same round; if it still prepares, at its starting point."""
        self._control(run_id, Gate.pause)
        self._start_next()

    def resume(self, run_id: str) -> None:
        self._control(run_id, Gate.resume)

    def step(self, run_id: str) -> None:
        """Exactly one round more of a paused run and its reference. A run that still moves is paused instead."""
        self._control(run_id, Gate.step)
        self._start_next()

    def set_pace(self, run_id: str, rounds_per_second: float | None) -> None:
        """At most so many rounds per second from now on; None for as fast as it goes. Raises ValueError."""
        self._control(run_id, partial(Gate.set_pace, rounds_per_second=rounds_per_second))
        self._start_next()

    def stop(self, run_id: str) -> None:
        """End the run and its reference, at the next local step; what they have recorded stays."""
        pair = self._pair(run_id)
        if pair is not None:
            self._stop(pair, RunState.STOPPED, "Stopped {where}.")

    def shutdown(self) -> None:
        """End all runs as interrupted and write what is left. Harmless when repeated; called when the process exits."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            pairs, threads = list(self._live.values()), list(self._threads)
        atexit.unregister(self.shutdown)
        for pair in pairs:
            self._stop(pair, RunState.INTERRUPTED, "")
        deadline = time.monotonic() + _PATIENCE
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for pair in pairs:  # whose round takes longer than that
            for member, run in enumerate(pair.runs):
                self._end(pair, member, RunState.INTERRUPTED, interruption(run.round))
        self._journal.close(_PATIENCE)
        self._store.close()

    def __enter__(self) -> RunManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    # --- looking up

    def _in_memory(self, run_id: str) -> Run | None:
        with self._lock:
            pair = self._live.get(run_id)
            if pair is not None:
                return next(run for run in pair.runs if run.id == run_id)
            if run_id in self._kept:
                self._kept.move_to_end(run_id)
            return self._kept.get(run_id)

    def _keep(self, run: Run) -> None:
        with self._lock:
            self._kept[run.id] = run
            self._kept.move_to_end(run.id)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)

    def _stored(self, row: Row, reference: Run | None) -> Run:
        try:
            config = SimulationConfig.read(row.config)
        except ConfigError as error:
            raise StoreError(
                f"Run {row.id} was made by fedviz {row.version}; its settings do not fit this version, {__version__}: "
                f"{error}"
            ) from error
        return Run(
            row.id,
            config,
            created=row.created,
            version=row.version,
            state=row.state,
            message=row.message,
            device=row.device,
            reference=reference,
            load=partial(self._store.records, row.id),
        )

    def _pair(self, run_id: str) -> _Pair | None:
        """The pair of a live run, None for one that has ended. Raises KeyError."""
        with self._lock:
            pair = self._live.get(run_id)
            if pair is not None or run_id in self._kept:
                return pair
        if self._store.load(run_id) is None:
            raise KeyError(f"There is no run {run_id}.")
        return None

    def _control(self, run_id: str, act: Callable[[Gate], None]) -> None:
        pair = self._pair(run_id)
        if pair is not None:
            act(pair.gate)

    # --- starting and ending

    def _start_next(self) -> None:
        """Start waiting pairs while there are places. Harmless at any time."""
        with self._lock:
            while self._queue and not self._closed and self._computing() < self._concurrent:
                pair = self._queue.popleft()
                pair.started = True
                try:
                    admission.check(*(run.config for run in pair.runs))  # again: it may have waited for long
                except (Refused, ConfigError) as error:
                    for member in range(len(pair.runs)):
                        self._end(pair, member, RunState.FAILED, str(error))
                    continue
                for member in range(len(pair.runs)):
                    self._start(pair, member)
            for position, pair in enumerate(self._queue, start=1):
                for run in pair.runs:
                    run.queue_position = position

    def _computing(self) -> int:
        pairs = {id(pair): pair for pair in self._live.values()}.values()
        # A run that is held back to be watched leaves most of the time to others.
        return sum(pair.started and not pair.gate.settled and pair.gate.pace is None for pair in pairs)

    def _start(self, pair: _Pair, member: int) -> None:
        run = pair.runs[member]
        run.queue_position = None
        run.enter(RunState.PREPARING, "Starting.")
        thread = threading.Thread(
            target=self._supervise, args=(pair, member), name=f"fedviz-run-{run.id[:6]}", daemon=True
        )
        try:
            self._threads.add(thread)
            thread.start()
        except RuntimeError as error:  # the system gives no more threads
            self._threads.discard(thread)
            self._end(pair, member, RunState.FAILED, f"The run could not be started: {error}.")

    def _stop(self, pair: _Pair, state: RunState, message: str) -> None:
        with self._lock:
            pair.stop(state, message)
            if pair in self._queue:
                self._queue.remove(pair)
                for member in range(len(pair.runs)):
                    self._end(pair, member, *_ending(pair, pair.runs[member]))

    def _end(self, pair: _Pair, member: int, state: RunState, message: str) -> None:
        run = pair.runs[member]
        with self._lock:
            if run.ended:
                return
            run.queue_position = None
            run.enter(state, message)
            self._journal.row(_row(run))
            pair.gate.leave(member)
            if all(each.ended for each in pair.runs):
                for each in pair.runs:
                    self._live.pop(each.id)
                    self._keep(each)
            self._start_next()

    def _cannot_save(self, run_id: str, reason: str) -> None:
        remark = f"The records cannot be saved ({reason}); they can be seen and downloaded until the server ends."
        with self._lock:
            pair, ended = self._live.get(run_id), self._kept.get(run_id)
            if pair is not None:
                self._stop(pair, RunState.FAILED, f"Failed {{where}}. {remark}")
            elif ended is not None:
                ended.enter(ended.state, f"{ended.message} {remark}")

    # --- in a run's own thread

    def _supervise(self, pair: _Pair, member: int) -> None:
        run = pair.runs[member]
        try:
            state, message = self._follow(pair, member)
        except _Stopped:
            state, message = _ending(pair, run)
        except Diverged as error:
            state, message = RunState.DIVERGED, str(error)
        except ProblemError as error:
            state, message = RunState.FAILED, str(error)
        except BaseException as error:  # nothing is above this thread: whatever it was, the run must not seem to go on
            _log.exception("Run %s failed %s", run.id, _where(run))
            state = RunState.FAILED
            message = f"Failed {_where(run)}: {type(error).__name__}: {error}. The server's log says more."
        self._end(pair, member, state, message)
        with self._lock:
            self._threads.discard(threading.current_thread())

    def _follow(self, pair: _Pair, member: int) -> tuple[RunState, str]:
        """Drive the run through the gate to its end."""
        run, gate, prepared = pair.runs[member], pair.gate, False

        def progress(text: str) -> None:
            if gate.stopped:
                raise _Stopped
            if not prepared:
                run.enter(RunState.PREPARING, text)

        def device(name: str) -> None:
            run.device = name

        def between_steps() -> None:
            if gate.stopped:
                raise _Stopped

        computation = self._executor.records(run.config, progress=progress, device=device, between_steps=between_steps)
        with closing(computation) as records:
            for round in range(run.config.rounds + 1):
                if not gate.wait_for(member, round):
                    raise _Stopped
                record = next(records, None)
                if record is None:
                    raise RuntimeError(f"the simulation ended before round {round} of {run.config.rounds}")
                text = json.dumps(record, separators=(",", ":"))
                run.append(record)
                self._journal.record(run.id, round, text)
                if not prepared:
                    prepared = True
                    run.enter(RunState.RUNNING)
                    self._journal.row(_row(run))
        return RunState.FINISHED, f"All {run.config.rounds} rounds are done."


def _new_run(config: SimulationConfig, gate: Gate, reference: Run | None = None) -> Run:
    run = Run(secrets.token_urlsafe(16), config, created=datetime.now(UTC), version=__version__, reference=reference)
    run.join(gate)
    return run


def _row(run: Run) -> Row:
    reference = run.reference.id if run.reference is not None else None
    config = run.config.model_dump_json()
    return Row(run.id, run.created, run.state, run.message, config, reference, run.version, run.device)


def _ending(pair: _Pair, run: Run) -> tuple[RunState, str]:
    """State and message of a run that the gate has stopped."""
    state, message = pair.ending or (RunState.STOPPED, "Stopped {where}.")
    if state is RunState.INTERRUPTED:
        return state, interruption(run.round)
    return state, message.replace("{where}", _where(run))


def _where(run: Run) -> str:
    return f"after round {run.round}" if run.round >= 0 else "before its first record"


def _cores() -> int:
    """Those that this process may use, which in a container are often fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
