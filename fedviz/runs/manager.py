"""Owns all runs of a process: the queue, one supervising thread for each run, the controls.

A run and its reference are a pair: they start together, go through one gate, and are paused, stepped and stopped
together; each ends by itself. At most `limits.concurrent` pairs compute at a time, the others wait their turn, fairly
among visitors. A pair that is paused or paced gives up its place, so that somebody who pauses and leaves holds nobody
up; when it goes on, it does so at once.

On a hosted server only the visitor who started a run, and admins, control it. Everybody may look at a run whose id they have.

Locks are taken in this order: the manager's, then a pair's, then a gate's or the journal's. A gate calls back with its lock released.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import math
import shutil
import threading
import time
from collections import OrderedDict
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fedviz import __version__
from fedviz.config import ConfigError, SimulationConfig
from fedviz.problems import ProblemError
from fedviz.runs import admission, imports
from fedviz.runs.admission import Refused
from fedviz.runs.computation import Leg, Work
from fedviz.runs.executors import Died, Executor, Failed, ThreadExecutor
from fedviz.runs.gate import Gate
from fedviz.runs.imports import LONGEST_TITLE
from fedviz.runs.journal import Journal
from fedviz.runs.limits import Limits
from fedviz.runs.overview import Overview, memory_used
from fedviz.runs.processes import ProcessExecutor
from fedviz.runs.queue import FairQueue
from fedviz.runs.rows import config_key, new_run, row_of, run_of
from fedviz.runs.run import RESUMABLE, Run, RunState
from fedviz.runs.store import Row, RunStore, StoreError
from fedviz.runs.visitor import NotYours, Visitor
from fedviz.simulation import checkpoints
from fedviz.simulation.errors import Diverged

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_KEPT: Final = 32  # ended runs that are held in memory because somebody is likely to look at them
_MOST_FORKS: Final = 50  # runs continued one from another
_PATIENCE: Final = 5.0  # seconds that a shutdown waits for rounds in flight
_HOUSEKEEPING: Final = 60.0  # seconds between looks for what has expired

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Pair:
    """Runs that are controlled together."""

    runs: tuple[Run, ...]
    gate: Gate
    visitor: str
    first: tuple[int, ...]  # of each run, the first round that has no record yet
    started: bool = False
    threads: int = 0  # that compute for it, also when it has been stopped and they have not noticed
    seen: float = field(default_factory=time.monotonic)  # when somebody last looked
    # Held while a record is taken in or a run ends, so that nothing is recorded of a run that has ended.
    recording: threading.Lock = field(default_factory=threading.Lock)

    @property
    def ended(self) -> bool:
        return all(run.ended for run in self.runs)

    def attended(self) -> None:
        """Somebody is there again."""
        self.seen = time.monotonic()
        for run in self.runs:
            run.unwatched = False

    @property
    def main(self) -> Run:
        return self.runs[0]


class _Stopped(BaseException):
    """Leaves what nobody waits for any more; not an Exception, so that nothing on the way takes it for a failure."""


class RunManager:
    """All methods may be called from any thread, and those that control a run any number of times.

    Those that control a run raise KeyError where there is none, and NotYours where the visitor may not.
    """

    def __init__(self, store: RunStore, *, limits: Limits | None = None, executor: Executor | None = None) -> None:
        """executor: where runs compute; by default what the limits name."""
        self._store = store
        self.limits = limits or Limits()
        self._executor: Executor = executor or (
            ProcessExecutor() if self.limits.executor == "process" else ThreadExecutor()
        )
        self._checkpoints = store.path.parent / "checkpoints"
        self._lock = threading.RLock()
        self._queue: FairQueue[_Pair] = FairQueue()
        self._live: dict[str, _Pair] = {}  # by the id of each run of a pair, until both have ended
        self._started: list[_Pair] = []  # until their threads are gone
        self._kept: OrderedDict[str, Run] = OrderedDict()  # least recently used first
        self._threads: set[threading.Thread] = set()
        self._closed = threading.Event()
        self._journal = Journal(store, self._cannot_save)
        if self.limits.pause_unwatched_after or self.limits.expire_after:
            keeper = threading.Thread(target=self._keep_house, name="fedviz-keeper", daemon=True)
            self._threads.add(keeper)
            keeper.start()
        atexit.register(self.shutdown)

    # --- starting

    def submit(self, config: SimulationConfig, reference: SimulationConfig | None = None, *, visitor: Visitor) -> Run:
        """Take on a run, with a reference to compare it with. Raises Refused (budgets, memory, queue), ConfigError (data)."""
        admission.check(config, reference, limits=self.limits)
        key, owner = config_key(config, reference), visitor.id
        other = None if reference is None else new_run(reference, owner=owner, is_reference=True)
        run = new_run(config, owner=owner, reference=other, config_key=key)
        self._take_on((run,) if other is None else (run, other))
        return run

    def fork(self, run_id: str, round: int, config: SimulationConfig, *, visitor: Visitor) -> Run:
        """A new run that continues another, anybody's, after `round` with changed settings; up to there it has its records.

        Raises Refused, KeyError, ConfigError (not the same problem, clients and seed, or no rounds left), StoreError.
        """
        parent = self.get(run_id)
        if parent is None:
            raise KeyError(f"There is no run {run_id}.")
        if parent.version != __version__:
            raise Refused(_other_version(parent, "continued from"))
        if not 0 <= round <= parent.round:
            raise ConfigError([("round", f"got {round}, allowed 0 to {parent.round}: the rounds that the run has")])
        for name in ("problem", "num_clients", "seed"):
            if getattr(config, name) != getattr(parent.config, name):
                raise ConfigError([(name, "must be as in the run that is continued; start a new run instead")])
        if config.rounds <= round:
            raise ConfigError([("rounds", f"got {config.rounds}, allowed more than {round}, after which it continues")])
        if self._depth(parent) >= _MOST_FORKS:
            raise Refused(f"The run was continued {_MOST_FORKS} times, one run from another: start a new one instead.")
        admission.check(config, limits=self.limits)
        run = new_run(config, owner=visitor.id, parent_id=parent.id, forked_at=round)
        run.begin_with(parent.records.dicts()[: round + 1])
        self._take_on((run,))
        return run

    def _depth(self, run: Run) -> int:
        """How many runs a run was continued from, one after the other."""
        depth, above = 0, run
        while above.parent_id and depth < _MOST_FORKS:
            found = self.get(above.parent_id)
            if found is None:
                break
            depth, above = depth + 1, found
        return depth

    def import_run(self, data: bytes, visitor: Visitor) -> Run:
        """Keep an exported run, with its reference, as a visitor's. Raises Refused with what is wrong with it, StoreError."""
        imported = imports.read(data)
        if self.limits.hosted:  # who continues it has it computed here
            for each in imports.with_reference(imported):
                try:
                    admission.check(each.config, limits=self.limits)
                except ConfigError as error:
                    raise Refused(str(error)) from error
        kept: Run | None = None
        for each in reversed(imports.with_reference(imported)):  # the reference first: the other one names it
            run = new_run(each.config, owner=visitor.id, reference=kept, is_reference=each is not imported)
            run.version, run.device, run.title = each.version, each.device, each.title
            run.begin_with(each.records)
            run.enter(each.state, each.message)
            texts = [(run.id, record["round"], _as_text(record)) for record in each.records]
            self._store.insert(row_of(run), texts)
            self._keep(run)
            kept = run
        assert kept is not None
        return kept

    # --- looking

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

    def same(self, config: SimulationConfig, reference: SimulationConfig | None = None) -> Run | None:
        """The newest run, running or finished, that will have the very records that this one would; None if there is none.

        Raises StoreError.
        """
        key = config_key(config, reference)
        with self._lock:
            live = [pair.main for pair in self._live.values() if pair.main.config_key == key and not pair.main.ended]
        if live:
            return max(live, key=lambda run: run.created)
        for row in self._store.same(key):
            run = self.get(row.id)
            if run is not None and (run.state.live or run.state is RunState.FINISHED):
                return run
        return None

    def runs(self, visitor: Visitor, *, everyone: bool = False, limit: int | None = None) -> list[Run]:
        """A visitor's runs and those that are published, newest first; with `everyone`, which is for admins, all of them.

        Their records are read only when they are asked for. Raises StoreError, NotYours.
        """
        if everyone and self.limits.hosted and not visitor.admin:
            raise NotYours("Only admins see the runs of everybody.")
        rows = self._store.listed(None if everyone else visitor.id, limit)
        with self._lock:  # those that are too new to be stored
            found = {
                run.id: run
                for run in [*(pair.main for pair in self._live.values()), *self._kept.values()]
                if not run.is_reference and (everyone or run.published or run.owner == visitor.id)
            }
        for row in rows:
            try:
                found[row.id] = self._in_memory(row.id) or self._stored(row, None)
            except StoreError as error:  # one run that cannot be read hides no others
                _log.warning("%s", error)
        return sorted(found.values(), key=lambda run: run.created, reverse=True)[:limit]

    def may_control(self, run: Run, visitor: Visitor) -> bool:
        """Whether the visitor may pause, stop, rename and so on."""
        return not self.limits.hosted or visitor.admin or run.owner == visitor.id

    def watch(self, run_id: str) -> None:
        """Somebody looks at the run right now. Harmless for any id."""
        pair = self._live.get(run_id)
        if pair is not None:
            pair.seen = time.monotonic()

    def overview(self) -> Overview:
        """What goes on, for admins. Raises StoreError."""
        with self._lock:
            queued = [pair.main for pair in self._queue]
            pairs = {id(pair): pair for pair in self._live.values() if pair.started}
        runs, stored = self._store.size()
        stored += sum(file.stat().st_size for file in self._checkpoints.glob("*.safetensors"))
        return Overview(
            queued=queued,
            computing=[pair.main for pair in pairs.values()],
            memory_free=admission.free_bytes(),
            memory_used=memory_used(),
            disk_free=shutil.disk_usage(self._store.path.parent).free,
            stored_runs=runs,
            stored_bytes=stored,
            limits=self.limits,
        )

    # --- controlling

    def pause(self, run_id: str, visitor: Visitor) -> None:
        """Hold the run and its reference after the same round; if it still prepares, at its starting point."""
        self._control(run_id, visitor, Gate.pause)
        self._start_next()

    def resume(self, run_id: str, visitor: Visitor) -> None:
        """Go on with a paused run; also with one that was interrupted or stopped, as the same run and to the same bits.

        Raises Refused where that cannot be, StoreError.
        """
        pair = self._control(run_id, visitor, Gate.resume)
        if pair is not None:
            pair.attended()
        else:
            self._continue(run_id)

    def step(self, run_id: str, visitor: Visitor) -> None:
        """Exactly one round more of a paused run and its reference. A run that still moves is paused instead."""
        pair = self._control(run_id, visitor, Gate.step)
        if pair is not None:
            pair.attended()
        self._start_next()

    def set_pace(self, run_id: str, visitor: Visitor, rounds_per_second: float | None) -> None:
        """At most so many rounds per second from now on; None for as fast as it goes. Raises ValueError."""
        self._control(run_id, visitor, partial(Gate.set_pace, rounds_per_second=rounds_per_second))
        self._start_next()

    def stop(self, run_id: str, visitor: Visitor) -> None:
        """End the run and its reference, at once; what they have recorded stays."""
        pair = self._control(run_id, visitor, lambda _: None)
        if pair is not None:
            self._stop(pair, RunState.STOPPED, "Stopped {where}.")

    def rename(self, run_id: str, title: str, visitor: Visitor) -> None:
        """Give the run a title, of one line; an empty one takes it away. Raises Refused, StoreError."""
        title = " ".join(title.split())
        if len(title) > LONGEST_TITLE or not title.isprintable():
            raise Refused(
                f"The title has {len(title)} characters; allowed are up to {LONGEST_TITLE}, all of them visible."
            )
        self._change(run_id, visitor, title=title)

    def publish(self, run_id: str, yes: bool, visitor: Visitor) -> None:
        """List the run for everybody, or no longer. Raises StoreError."""
        self._change(run_id, visitor, published=yes)

    def delete(self, run_id: str, visitor: Visitor) -> None:
        """Delete an ended run and its reference. Raises Refused where it still runs, StoreError.

        As long as other runs continue it their records begin with its own, so it then loses its owner and its title, and is
        deleted with the last of them.
        """
        self._controlled(run_id, visitor)
        with self._lock:
            if run_id in self._live or any(run_id in [run.id for run in pair.runs] for pair in self._started):
                raise Refused("The run has not ended: stop it, and delete it a moment later.")
        row = self._written(run_id)
        if row is not None:
            if row.state.live:
                raise Refused("The run goes on in another fedviz on this machine: stop it there.")
            self._delete(row)

    def shutdown(self) -> None:
        """End all runs as interrupted and write what is left. Harmless when repeated; called when the process exits."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            pairs, threads = list(self._live.values()), list(self._threads)
        atexit.unregister(self.shutdown)
        for pair in pairs:
            self._stop(pair, RunState.INTERRUPTED, "Interrupted {where}: the server ended. Resume continues it.")
        deadline = time.monotonic() + _PATIENCE
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._executor.close()
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
        return run_of(row, reference, partial(self._store.records, row.id))

    def _controlled(self, run_id: str, visitor: Visitor) -> None:
        """Raise KeyError where there is no such run, NotYours where the visitor may not control it."""
        run = self._in_memory(run_id)
        owner = run.owner if run is not None else None
        if owner is None:
            row = self._store.load(run_id)
            if row is None:
                raise KeyError(f"There is no run {run_id}.")
            owner = row.owner
        if self.limits.hosted and not visitor.admin and owner != visitor.id:
            raise NotYours("This run was started by somebody else: you can watch it, and run its settings yourself.")

    def _control(self, run_id: str, visitor: Visitor, act: Callable[[Gate], None]) -> _Pair | None:
        """The pair of a live run, acted upon; None for one that has ended."""
        self._controlled(run_id, visitor)
        with self._lock:
            pair = self._live.get(run_id)
        if pair is not None:
            act(pair.gate)
        return pair

    def _change(self, run_id: str, visitor: Visitor, **values: str | bool) -> None:
        self._controlled(run_id, visitor)
        with self._lock:
            run = self._in_memory(run_id)
            for name, value in values.items():
                if run is not None:
                    setattr(run, name, value)
            if run is not None and run_id in self._live:
                self._journal.row(row_of(run))
                return
        self._journal.settle(run_id)
        self._store.change(run_id, **values)

    def _delete(self, row: Row) -> None:
        """Delete an ended run, with its reference, and with a parent that only waited for that."""
        with self._lock:
            self._kept.pop(row.id, None)
        if self._store.children(row.id):
            self._store.change(row.id, owner="", title="", published=False)
            return
        self._store.delete(row.id)
        checkpoints.remove(self._checkpoints, row.id)
        for other_id in (row.reference_id, row.parent_id):
            other = self._store.load(other_id) if other_id else None
            if other is not None and (other_id == row.reference_id or not other.owner):
                self._delete(other)

    # --- starting and ending

    def _take_on(self, runs: tuple[Run, ...]) -> None:
        """Put new or continued runs, which are together, into the queue; those that have ended already stay so. Raises Refused."""
        with self._lock:
            owner = runs[0].owner
            if self._closed.is_set():
                raise Refused("The server is shutting down: start the run again in a minute.")
            if len(self._queue) >= self.limits.queue_length:
                raise Refused(f"{len(self._queue)} runs are waiting already, and no more are taken: try again later.")
            if self._queue.of(owner) >= self.limits.queued_per_visitor:
                raise Refused(
                    f"{self._queue.of(owner)} of your runs are waiting, which is the most for one visitor: wait or stop one."
                )
            if any(run.id in self._live for run in runs):  # continued by somebody else at the same moment
                return
            gate = Gate([run.round for run in runs], when_settled=self._start_next)
            pair = _Pair(runs, gate, owner, tuple(run.round + 1 for run in runs))
            for member, run in enumerate(runs):
                run.join(gate)
                self._kept.pop(run.id, None)
                self._live[run.id] = pair
                if run.ended:
                    gate.leave(member)
                else:
                    self._journal.row(row_of(run))
            self._queue.put(owner, pair)
            self._start_next()

    def _continue(self, run_id: str) -> None:
        """Take up a run that has ended before its time, and its reference where that has, too."""
        row = self._written(run_id)
        if row is None:
            raise Refused("The run was never written to the disk: start it anew.")
        other = self._written(row.reference_id) if row.reference_id else None
        reference = None if other is None else self._taken_up(self._stored(other, None))
        run = self._taken_up(self._stored(row, reference))
        members = (run,) if reference is None else (run, reference)
        if any(member.foreign for member in members):
            return
        if all(member.ended for member in members):
            if any(member.state in RESUMABLE and member.version != __version__ for member in members):
                raise Refused(_other_version(run, "continued"))
            return  # nothing is left to do, as when Resume is pressed on a finished run
        admission.check(*(member.config for member in members if not member.ended), limits=self.limits)
        self._take_on(members)

    def _written(self, run_id: str) -> Row | None:
        """The row of a run, when all of the run is on the disk; None if there is none. Raises Refused, StoreError."""
        if not self._journal.settle(run_id):
            raise Refused("The run is still being written: try again in a moment.")
        return self._store.load(run_id)

    def _taken_up(self, run: Run) -> Run:
        """A stored run, ready to be continued from its last stored record where that makes sense."""
        if run.can_resume_itself:
            run.take_up()
        return run

    def _start_next(self) -> None:
        """Start waiting pairs while there are places. Harmless at any time."""
        with self._lock:
            while len(self._queue) and not self._closed.is_set() and self._computing() < self.limits.concurrent:
                pair = self._queue.take()
                pair.started = True
                try:
                    admission.check(*(run.config for run in pair.runs))  # again: it may have waited for long
                except (Refused, ConfigError) as error:
                    for member in range(len(pair.runs)):
                        self._end(pair, member, RunState.FAILED, str(error))
                    continue
                self._started.append(pair)
                for member, run in enumerate(pair.runs):
                    if not run.ended:
                        self._start(pair, member)
                self._forget_ended(pair)
            for position, pair in enumerate(self._queue, start=1):
                for run in pair.runs:
                    run.queue_position = position

    def _computing(self) -> int:
        # A run that is held back to be watched leaves most of the time to others.
        return sum(pair.ended or (not pair.gate.settled and pair.gate.pace is None) for pair in self._started)

    def _start(self, pair: _Pair, member: int) -> None:
        run = pair.runs[member]
        run.queue_position = None
        run.enter(RunState.PREPARING, "Starting.")
        thread = threading.Thread(
            target=self._supervise, args=(pair, member), name=f"fedviz-run-{run.id[:6]}", daemon=True
        )
        try:
            self._threads.add(thread)
            pair.threads += 1
            thread.start()
        except RuntimeError as error:  # the system gives no more threads
            self._threads.discard(thread)
            pair.threads -= 1
            self._end(pair, member, RunState.FAILED, f"The run could not be started: {error}.")

    def _forget_ended(self, pair: _Pair) -> None:
        if not pair.threads and pair in self._started:
            self._started.remove(pair)

    def _stop(self, pair: _Pair, state: RunState, message: str) -> None:
        """End all runs of a pair at once. Their threads, which may be in the midst of something long, end by themselves; until then
        the pair keeps its place.
        """
        with self._lock:
            pair.gate.stop()
            self._queue.remove(pair)
            for member in range(len(pair.runs)):
                self._end(pair, member, state, message)

    def _end(self, pair: _Pair, member: int, state: RunState, message: str) -> None:
        """End a run, if it has not ended before. "{where}" in the message becomes its last round."""
        run = pair.runs[member]
        with self._lock:
            with pair.recording:
                if run.ended:
                    return
                run.queue_position = None
                run.enter(state, message.replace("{where}", _where(run)))
            self._journal.row(row_of(run))
            pair.gate.leave(member)
            if pair.ended:
                for each in pair.runs:
                    self._live.pop(each.id, None)
                    self._keep(each)
            self._start_next()

    def _cannot_save(self, run_id: str, reason: str) -> None:
        remark = f"The records cannot be saved ({reason}); they can be seen and downloaded until the server ends."
        with self._lock:
            pair, ended = self._live.get(run_id), self._kept.get(run_id)
            if pair is not None:
                self._stop(
                    pair, RunState.INTERRUPTED, f"Interrupted {{where}}. {remark} Resume continues when that is mended."
                )
            elif ended is not None:
                ended.enter(ended.state, f"{ended.message} {remark}")

    # --- in a run's own thread

    def _supervise(self, pair: _Pair, member: int) -> None:
        run = pair.runs[member]
        try:
            state, message = self._follow(pair, member)
        except _Stopped:
            state, message = RunState.STOPPED, "Stopped {where}."
        except Diverged as error:
            state, message = RunState.DIVERGED, str(error)
        except ProblemError as error:
            state, message = RunState.FAILED, str(error)
        except Died as error:
            state, message = RunState.INTERRUPTED, f"Interrupted {{where}}: {error}. Resume continues it."
        except BaseException as error:  # nothing is above this thread: whatever it was, the run must not seem to go on
            what = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
            _log.exception("Run %s failed %s", run.id, _where(run))
            state, message = RunState.FAILED, f"Failed {{where}}: {what}. The server's log says more."
        self._end(pair, member, state, message)
        with contextlib.suppress(OSError):
            checkpoints.prune(self._checkpoints)
        with self._lock:
            self._threads.discard(threading.current_thread())
            pair.threads -= 1
            self._forget_ended(pair)
            self._start_next()

    def _follow(self, pair: _Pair, member: int) -> tuple[RunState, str]:
        """Drive the run through the gate to its end."""
        run, gate, first = pair.runs[member], pair.gate, pair.first[member]
        prepared = False

        def progress(text: str) -> None:
            between_steps()
            if not prepared:
                self._tell(pair, run, RunState.PREPARING, text)

        def device(name: str) -> None:
            run.device = name

        def note(text: str) -> None:
            run.note = text

        def between_steps() -> None:
            if gate.stopped:
                raise _Stopped

        def let_in(done: int, span: int = 1, patience: float = math.inf) -> int | None:
            return gate.let_in(member, done, span, patience)

        round, before = first - 1, run.records.dicts() if first else []
        work = Work(self._legs(run), first, self._checkpoints)
        computation = self._executor.records(
            work, progress=progress, device=device, note=note, between_steps=between_steps, let_in=let_in
        )
        with closing(computation) as records:
            for record in records:
                text = _as_text(record)
                if record["round"] < first:
                    _compare(record, before[record["round"]])
                    continue
                with pair.recording:
                    if run.ended:
                        raise _Stopped
                    run.append(record)
                    self._journal.record(run.id, record["round"], text)
                round = record["round"]
                if not prepared:
                    prepared = True
                    self._tell(pair, run, RunState.RUNNING, "")
                    self._journal.row(row_of(run))
        if gate.stopped:
            raise _Stopped
        if round < run.config.rounds:
            raise RuntimeError(f"the simulation ended before round {round + 1} of {run.config.rounds}")
        return RunState.FINISHED, f"All {run.config.rounds} rounds are done."

    def _tell(self, pair: _Pair, run: Run, state: RunState, message: str) -> None:
        with pair.recording:
            if run.ended:
                raise _Stopped
            run.enter(state, message)

    def _legs(self, run: Run) -> tuple[Leg, ...]:
        """The way to a run's state, through the runs that it continues. Raises StoreError."""
        legs, each, until = [], run, run.config.rounds
        while True:
            if each.forked_at is None or until > each.forked_at:  # else it was left before it had a round of its own
                legs.append(Leg(each.id, each.config, until))
            if each.parent_id is None or each.forked_at is None:
                return tuple(reversed(legs))
            until = min(until, each.forked_at)
            parent = self._in_memory(each.parent_id)
            if parent is None:
                row = self._store.load(each.parent_id)
                if row is None:
                    raise StoreError(f"Run {each.parent_id}, which this one continues, is no longer there.")
                parent = self._stored(row, None)
            each = parent

    # --- housekeeping, in a thread of its own

    def _keep_house(self) -> None:
        after = self.limits.pause_unwatched_after
        while not self._closed.wait(min(_HOUSEKEEPING, after / 4 if after else _HOUSEKEEPING)):
            try:
                if after:
                    self._pause_unwatched(after)
                if self.limits.expire_after:
                    self._delete_expired(self.limits.expire_after)
            except Exception:  # whatever it is, it is tried again
                _log.exception("Housekeeping failed")

    def _pause_unwatched(self, after: float) -> None:
        with self._lock:
            pairs = {id(pair): pair for pair in self._live.values() if pair.started}
        for pair in pairs.values():
            if time.monotonic() - pair.seen > after and pair.gate.limit is None:
                for run in pair.runs:
                    run.unwatched = True
                pair.gate.pause()
        self._start_next()

    def _delete_expired(self, after: float) -> None:
        for row in self._store.ended_before(datetime.now(UTC) - timedelta(seconds=after)):
            with self._lock:
                live = row.id in self._live
            if not live and row.owner:
                self._delete(row)


def _as_text(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"))


def _compare(again: dict[str, Any], before: dict[str, Any]) -> None:
    """Raise Failed where a record that was computed again is not what it was."""
    texts = [json.dumps({**each, "costs": {**each["costs"], "seconds": 0}}, sort_keys=True) for each in (again, before)]
    if texts[0] != texts[1]:
        raise Failed(
            f"round {again['round']}, computed again, is not what was recorded: the hardware or the libraries are others now, "
            "or the record was changed. Start the run anew"
        )


def _other_version(run: Run, what: str) -> str:
    return f"This run was made by fedviz {run.version} and cannot be {what} exactly by this one, {__version__}. Start it anew."


def _where(run: Run) -> str:
    return f"after round {run.round}" if run.round >= 0 else "before its first record"
