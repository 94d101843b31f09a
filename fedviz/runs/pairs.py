"""The runs that are live here: who waits, who computes, and one supervising thread for each run.

A run and its reference are a pair: they start together, go through one gate, and are paused, stepped and stopped together;
each ends by itself.

    waiting     in the fair queue, for one of `limits.concurrent` places: new pairs, and those that go on after a pause
    begun       with threads, memory and, where runs compute in processes, workers: at most `limits.begun` pairs, and
                `limits.begun_per_visitor` of one visitor
    place       of a begun pair that goes on by itself. One that is paused has none, and a paced one needs none: it has so
                little to do. Whatever has begun takes turns (`turns.py`), so that never more than `limits.concurrent` compute

So somebody who watches slowly, or pauses and leaves, holds up nobody for long: where no more may begin, a pair that is in the way
is put away as interrupted, to be resumed at any time. One that is paused goes at once, the one that was left alone for longest
first. One that is paced has a while from when others wait, whatever its owner does meanwhile; then the oldest goes first.

Locks are taken in this order: this module's, then a pair's, then the turns', then a gate's or the journal's. A gate calls
back with its lock released.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedviz.config import ConfigError
from fedviz.problems import ProblemError
from fedviz.runs import admission
from fedviz.runs.admission import Refused
from fedviz.runs.computation import Supervisor, Work
from fedviz.runs.executors import Died, Failed
from fedviz.runs.gate import Gate
from fedviz.runs.queue import FairQueue
from fedviz.runs.rows import row_of
from fedviz.runs.run import WAITING, Run, RunState
from fedviz.runs.turns import Turns
from fedviz.simulation import checkpoints
from fedviz.simulation.errors import Diverged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedviz.runs.computation import Leg
    from fedviz.runs.executors import Executor
    from fedviz.runs.journal import Journal
    from fedviz.runs.limits import Limits

_log = logging.getLogger(__name__)

ATTENDED = 30.0  # seconds without a look after which a paced run counts as left alone


@dataclass(eq=False)
class Pair:
    """Runs that are controlled together."""

    runs: tuple[Run, ...]
    gate: Gate
    visitor: str
    first: tuple[int, ...]  # of each run, the first round that has no record yet
    begun: bool = False
    has_place: bool = False
    threads: int = 0  # that compute for it, also when it has been stopped and they have not noticed
    seen: float = field(default_factory=time.monotonic)  # when somebody last looked, or pressed a button
    in_the_way: float | None = None  # since when others wait for it, who went slowly then; None: nobody does
    # Held while a record is taken in or a run ends, so that nothing is recorded of a run that has ended.
    recording: threading.Lock = field(default_factory=threading.Lock)

    @property
    def main(self) -> Run:
        return self.runs[0]

    @property
    def ended(self) -> bool:
        return all(run.ended for run in self.runs)

    @property
    def leaves(self) -> bool:
        """Whether it has ended, or is being stopped: its runs end one after the other."""
        return self.gate.stopped or self.ended

    @property
    def needs_place(self) -> bool:
        """Whether it goes on by itself, as fast as it can."""
        gate = self.gate
        return not gate.arrived or (gate.limit is None and gate.pace is None)

    @property
    def goes_slowly(self) -> bool:
        """Whether it goes on without a place; not one that is paused, or about to be."""
        return not self.needs_place and self.gate.limit is None

    @property
    def left_alone(self) -> float:
        """Seconds since somebody looked at it or pressed a button."""
        return time.monotonic() - self.seen

    def attended(self) -> None:
        """Somebody is there again."""
        self.seen = time.monotonic()
        for run in self.runs:
            run.unwatched = False


class Stopped(BaseException):
    """Leaves what nobody waits for any more; not an Exception, so that nothing on the way takes it for a failure."""


class Pairs:
    """All that is live. Methods may be called from any thread."""

    def __init__(
        self,
        limits: Limits,
        executor: Executor,
        journal: Journal,
        folder: Path,
        legs: Callable[[Run], tuple[Leg, ...]],
        keep: Callable[[Run], None],
    ) -> None:
        """folder: of checkpoints; legs: the way to a run's state; keep: told of runs that have ended."""
        self._limits, self._executor, self._journal, self._folder = limits, executor, journal, folder
        self._legs, self._keep = legs, keep
        self._lock = threading.RLock()
        self._queue: FairQueue[Pair] = FairQueue()
        self._live: dict[str, Pair] = {}  # by the id of each run of a pair, until both have ended
        self._begun: list[Pair] = []  # until their threads are gone
        self._turns = Turns(limits.concurrent)
        self._threads: set[threading.Thread] = set()
        self._closed = False

    # --- looking

    def of(self, run_id: str) -> Pair | None:
        """The pair of a live run."""
        return self._live.get(run_id)

    def is_live(self, run_id: str) -> bool:
        return run_id in self._live

    def run(self, run_id: str) -> Run | None:
        """A run that is live, or whose pair is."""
        pair = self._live.get(run_id)
        return None if pair is None else next(run for run in pair.runs if run.id == run_id)

    def alive(self) -> list[Pair]:
        """All of them, those that wait included."""
        with self._lock:
            return list({id(pair): pair for pair in self._live.values()}.values())

    def queued(self) -> list[Run]:
        """Those that wait, in the order in which they will get a place."""
        with self._lock:
            return [pair.main for pair in self._queue]

    def in_use(self, run_id: str) -> bool:
        """Whether a run is live, or something still computes for it."""
        with self._lock:
            return run_id in self._live or any(run_id in [run.id for run in pair.runs] for pair in self._begun)

    # --- controlling

    def take_on(self, runs: tuple[Run, ...], pace: float | None = None) -> None:
        """Put new or continued runs, which are together, into the queue; those that have ended already stay so. Raises Refused."""
        with self._lock:
            owner = runs[0].owner
            if self._closed:
                raise Refused("The server is shutting down: start the run again in a minute.")
            if len(self._queue) >= self._limits.queue_length:
                raise Refused(f"{len(self._queue):,} runs are waiting already, and no more are taken: try again later.")
            if self._queue.of(owner) >= self._limits.queued_per_visitor:
                raise Refused(
                    f"{self._queue.of(owner)} of your runs are waiting, which is the most for one visitor: wait or stop one."
                )
            live = {self._live.get(run.id) for run in runs}
            if len(live) > 1:  # nothing but a whole pair is controlled and ends together
                raise Refused("A part of this run goes on already: stop that, and resume the run then.")
            if live != {None}:  # continued by somebody else at the same moment
                return
            rounds = [run.round for run in runs]
            gate = Gate(rounds, turns=self._turns, visitor=owner, when_there=self.arrange)
            gate.set_pace(pace)
            pair = Pair(runs, gate, owner, tuple(round + 1 for round in rounds))
            for member, run in enumerate(runs):
                run.join(gate)
                self._live[run.id] = pair
                if run.ended:
                    gate.leave(member)
                else:
                    self._journal.row(row_of(run))
            self._queue.put(owner, pair)
            self.arrange()

    def control(self, run_id: str, act: Callable[[Gate], None]) -> Pair | None:
        """The pair of a live run, acted upon; None for one that has ended."""
        with self._lock:
            pair = self._live.get(run_id)
            if pair is not None:
                pair.attended()
                pair.gate.hold(not pair.has_place)  # until it is clear whether it needs one
                try:
                    act(pair.gate)
                finally:
                    self.arrange()
            return pair

    def change(self, run_id: str, **values: str | bool) -> bool:
        """Give a live run a title and so on; False where it is not live."""
        with self._lock:
            run = self.run(run_id)
            if run is None:
                return False
            for name, value in values.items():
                setattr(run, name, value)
            self._journal.row(row_of(run))
            return True

    def stop(self, pair: Pair, state: RunState, message: str) -> None:
        """End all runs of a pair at once. Their threads, which may be in the midst of something long, end by themselves; until then
        the pair keeps its place and its turn.
        """
        with self._lock:
            pair.gate.stop()
            self._queue.remove(pair)
            for member in range(len(pair.runs)):
                self._end(pair, member, state, message)

    def close(self, patience: float) -> None:
        """End all as interrupted, and wait at most `patience` seconds for what still computes."""
        with self._lock:
            self._closed = True
            pairs, threads = self.alive(), list(self._threads)
        for pair in pairs:
            self.stop(pair, RunState.INTERRUPTED, "Interrupted {where}: the server ended. Resume continues it.")
        deadline = time.monotonic() + patience
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    # --- who has a place

    def arrange(self) -> None:
        """Take places from those that need none, and give them to those whose turn it is. Harmless at any time."""
        with self._lock:
            for pair in [pair for pair in self._begun if not pair.leaves]:
                if not pair.needs_place:
                    pair.has_place = False
                    self._queue.remove(pair)
                elif not pair.has_place and pair not in self._queue:
                    self._queue.put(pair.visitor, pair, behind=lambda other: other.begun)
            while not self._closed and self._free():
                next_one = self._next()
                if next_one is None:
                    break
                next_one.has_place = True
                if not next_one.begun:
                    self._begin(next_one)
            self._tell_who_waits()
            in_the_way = self._those_in_the_way()
            for pair in self._begun:
                if pair not in in_the_way:
                    pair.in_the_way = None
                elif pair.goes_slowly and pair.in_the_way is None and self._free():
                    pair.in_the_way = time.monotonic()  # from then on, also if it should be fast for a moment
            if in_the_way and self._free() and not self._closed:
                self._put_away_one_of(in_the_way)
            for pair in self._begun:
                for run in pair.runs:
                    run.in_the_way = self._others_wait() if pair.in_the_way is not None and pair.goes_slowly else ""

    def pause_unwatched(self, after: float) -> None:
        """Pause pairs that nobody has looked at for so many seconds."""
        with self._lock:  # nobody presses a button meanwhile
            for pair in self.alive():
                if pair.begun and time.monotonic() - pair.seen > after and pair.gate.limit is None:
                    for run in pair.runs:
                        run.unwatched = True
                    pair.gate.pause()
            self.arrange()

    def put_away_paused(self, after: float) -> None:
        """Put away pairs that are paused and that nobody has looked at for so many seconds, and whoever is in the way."""
        with self._lock:  # nobody presses a button meanwhile
            for pair in self.alive():
                if pair.gate.settled and pair.left_alone > after:
                    self._put_away(pair, "it was paused, and nobody came back")
            self.arrange()

    def _put_away(self, pair: Pair, why: str) -> None:
        """Free what a pair holds that does not go on. There is a checkpoint of it: whatever waits leaves one."""
        self.stop(pair, RunState.INTERRUPTED, f"Interrupted {{where}}: {why}. Resume continues it.")

    def _tell_who_waits(self) -> None:
        in_line = [pair for pair in self._queue if pair.begun or not self._has_begun_its_share(pair.visitor)]
        position = {id(pair): place for place, pair in enumerate(in_line, start=1)}
        for pair in self.alive():
            pair.gate.hold(pair.begun and id(pair) in position)
            for run in pair.runs:
                run.queue_position = position.get(id(pair))
                if not pair.begun and not run.ended:
                    run.enter(RunState.QUEUED, self._why_it_waits() if id(pair) in position else self._share_in_words())

    def _why_it_waits(self) -> str:
        slow = any(pair.goes_slowly for pair in self._begun)
        if not slow or self._limits.put_away_after is None or not self._free() or len(self._begun) < self._limits.begun:
            return WAITING
        return f"It starts when there is room: slow runs make some after {_minutes(self._limits.put_away_after)}."

    def _others_wait(self) -> str:
        if self._limits.put_away_after is None:
            return ""
        return f"Others are waiting: a run this slow is put away after {_minutes(self._limits.put_away_after)}. At max it stays."

    def _share_in_words(self) -> str:
        share = self._limits.begun_per_visitor
        begun = "A run of this visitor has" if share == 1 else f"{share} runs of this visitor have"
        return f"{begun} begun, which is the most for one: it starts when one of them ends."

    def _free(self) -> bool:
        return sum(pair.has_place for pair in self._begun) < self._limits.concurrent

    def _next(self) -> Pair | None:
        try:
            return self._queue.take(lambda pair: pair.begun or self._may_begin(pair.visitor))
        except IndexError:
            return None

    def _may_begin(self, visitor: str) -> bool:
        return len(self._begun) < self._limits.begun and not self._has_begun_its_share(visitor)

    def _has_begun_its_share(self, visitor: str) -> bool:
        return sum(pair.visitor == visitor for pair in self._begun) >= self._limits.begun_per_visitor

    def _those_in_the_way(self) -> list[Pair]:
        """Begun pairs, one of which would have to end for those that wait and have not begun; none where nobody does."""
        waiting = {pair.visitor for pair in self._queue if not pair.begun}
        # Whoever has begun as many as one visitor may waits for runs of their own, whatever others do.
        own = all(map(self._has_begun_its_share, waiting))
        return [pair for pair in self._begun if waiting and (pair.visitor in waiting or not own)]

    def _put_away_one_of(self, in_the_way: list[Pair]) -> None:
        """Others wait although there are places. Paused ones go first, paced ones not before a while."""
        if any(pair.leaves for pair in in_the_way):  # there is room in a moment
            return
        if paused := [pair for pair in in_the_way if pair.gate.settled]:
            self._put_away(max(paused, key=lambda pair: pair.left_alone), "others were waiting, and it was paused")
            return
        least = self._limits.put_away_after or math.inf  # None: paced ones stay
        paced = [
            (pair.left_alone < ATTENDED, pair.in_the_way, place, pair)
            for place, pair in enumerate(in_the_way)
            if pair.goes_slowly and pair.in_the_way is not None and time.monotonic() - pair.in_the_way >= least
        ]
        if paced:
            self._put_away(min(paced)[-1], "others were waiting, and it went slowly")

    # --- starting and ending

    def _begin(self, pair: Pair) -> None:
        pair.begun = True
        self._begun.append(pair)
        members = [member for member, run in enumerate(pair.runs) if not run.ended]
        for member in members:
            pair.runs[member].enter(RunState.PREPARING, "Starting.")
        for member in members:
            self._start(pair, member, leads=member == members[0])
        self._forget_ended(pair)

    def _start(self, pair: Pair, member: int, *, leads: bool) -> None:
        """Start the thread of a run; the one that leads answers for the pair until it computes."""
        if pair.ended:  # the other one could not be started
            return
        thread = threading.Thread(
            target=self._supervise,
            args=(pair, member, leads),
            name=f"fedviz-run-{pair.runs[member].id[:6]}",
            daemon=True,
        )
        try:
            self._threads.add(thread)
            pair.threads += 1
            thread.start()
        except RuntimeError as error:  # the system gives no more threads
            self._threads.discard(thread)
            pair.threads -= 1
            self.stop(pair, RunState.FAILED, f"The run could not be started: {error}.")

    def _forget_ended(self, pair: Pair) -> None:
        if not pair.threads and pair in self._begun:
            self._begun.remove(pair)
            self._turns.leave(pair.gate)

    def _end(self, pair: Pair, member: int, state: RunState, message: str) -> None:
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
                    self._keep(each)
                    self._live.pop(each.id, None)
            self.arrange()

    # --- in a run's own thread

    def _supervise(self, pair: Pair, member: int, leads: bool) -> None:
        run = pair.runs[member]
        try:
            state, message = self._follow(pair, member, leads)
        except Stopped:
            state, message = RunState.STOPPED, "Stopped {where}."
        except Diverged as error:
            state, message = RunState.DIVERGED, str(error)
        except ProblemError as error:
            state, message = RunState.FAILED, str(error)
        except (Refused, ConfigError) as error:  # what holds for both
            self.stop(pair, RunState.FAILED, str(error))
            state, message = RunState.FAILED, str(error)
        except Died as error:
            state, message = RunState.INTERRUPTED, f"Interrupted {{where}}: {error}. Resume continues it."
        except BaseException as error:  # nothing is above this thread: whatever it was, the run must not seem to go on
            what = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
            _log.exception("Run %s failed %s", run.id, _where(run))
            state, message = RunState.FAILED, f"Failed {{where}}: {what}. The server's log says more."
        self._end(pair, member, state, message)
        with suppress(OSError):
            checkpoints.prune(self._folder)
        with self._lock:
            self._threads.discard(threading.current_thread())
            pair.threads -= 1
            self._forget_ended(pair)
            self.arrange()

    def _follow(self, pair: Pair, member: int, leads: bool) -> tuple[RunState, str]:
        """Drive the run through the gate to its end."""
        run, gate, first = pair.runs[member], pair.gate, pair.first[member]
        prepared = False

        def begin() -> None:
            if not gate.wait_for_turn(member):
                raise Stopped
            if leads:  # Again, for it may have waited for long; here, for dealing the data may take seconds.
                admission.check(*(each.config for each in pair.runs if not each.ended))

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
                raise Stopped

        def let_in(done: int, span: int = 1, patience: float = math.inf) -> int | None:
            return gate.let_in(member, done, span, patience)

        round, before = first - 1, run.records.dicts() if first else []
        work = Work(self._legs(run), first, self._folder)
        with closing(
            self._executor.records(work, Supervisor(begin, progress, device, note, between_steps, let_in))
        ) as records:
            for record in records:
                text = as_text(record)
                if record["round"] < first:
                    _compare(record, before[record["round"]])
                    continue
                with pair.recording:
                    if run.ended:
                        raise Stopped
                    run.append(record)
                    self._journal.record(run.id, record["round"], text)
                round = record["round"]
                if not prepared:
                    prepared = True
                    self._tell(pair, run, RunState.RUNNING, "", journal=True)
        if gate.stopped:
            raise Stopped
        if round < run.config.rounds:
            raise RuntimeError(f"the simulation ended before round {round + 1:,} of {run.config.rounds:,}")
        return RunState.FINISHED, f"All {run.config.rounds:,} rounds are done."

    def _tell(self, pair: Pair, run: Run, state: RunState, message: str, *, journal: bool = False) -> None:
        with pair.recording:
            if run.ended:
                raise Stopped
            run.enter(state, message)
            if journal:  # here: a run may have ended, been written and be deleted a moment later
                self._journal.row(row_of(run))


def as_text(record: dict[str, Any]) -> str:
    """A record as it is stored."""
    return json.dumps(record, separators=(",", ":"))


def _compare(again: dict[str, Any], before: dict[str, Any]) -> None:
    """Raise Failed where a record that was computed again is not what it was."""
    texts = [json.dumps({**each, "costs": {**each["costs"], "seconds": 0}}, sort_keys=True) for each in (again, before)]
    if texts[0] != texts[1]:
        raise Failed(
            f"round {again['round']:,}, computed again, is not what was recorded: the hardware or the libraries are others now, "
            "or the record was changed. Start the run anew"
        )


def _minutes(seconds: float) -> str:
    minutes = max(1, math.ceil(seconds / 60))
    return f"{minutes} minute{'s' if minutes > 1 else ''}"


def _where(run: Run) -> str:
    return f"after round {run.round:,}" if run.round >= 0 else "before its first record"
