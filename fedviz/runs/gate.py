"""The gate through which a run and its reference go, round by round: pause, step, pace and stop for both at once.

A member asks before it computes which round it may go to, and waits inside the gate until it may go further. A member
in another process asks for several rounds at once, its `span`, as far as it gets in the tenth of a second. The rules:

    together    nobody is more than a span ahead of another member: one round where all ask round by round
    paused      no round above the limit, which is the furthest round that anybody had begun: the laggard catches up, so
                that all stop after the same round; a step raises the limit by one
    pace        round r begins no sooner than 1/pace after round r - 1 began, for all members alike
    held        no round until there is a place for the pair
    turn        no round without the pair's turn (`turns.py`); it is given back as soon as nobody computes and nobody may begin
    stopped     no further round

A member arrives when it asks for the first time: until then it prepares, which is computing as well. One that has ended
leaves, and no longer holds the others back. The gate is settled when it is paused and all members wait at the limit; from
then on nothing moves until somebody resumes, steps or stops.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedviz.runs.turns import Turns

# After a hitch a run may catch up with its pace by so many seconds' worth of rounds, not more: no bursts.
_CATCH_UP = 0.1
_LONG = 60.0  # seconds; clocks of systems do not take infinity


class Gate:
    """Controls several runs together. A member calls `when_there` on finding that all have arrived, or wait at the limit."""

    def __init__(
        self,
        done: Sequence[int] = (-1,),
        *,
        turns: Turns | None = None,
        visitor: str = "",
        when_there: Callable[[], None] = lambda: None,
    ) -> None:
        """done: the last round that each member has behind it, -1 for none. turns: shared with others; None: always its turn."""
        self._changed = threading.Condition()
        self._begun = dict(enumerate(done))  # the last round that each present member was let into
        self._done = dict(enumerate(done))  # ... and has finished
        self._ready: set[int] = set()  # to prepare
        self._arrived: set[int] = set()
        self._limit: int | None = None
        self._stopped = self._held = False
        self._pace: float | None = None
        self._newest = max(done)  # the furthest round begun, and when its turn was
        self._newest_time = -math.inf
        self._moved = time.monotonic()
        self._turns, self.visitor = turns, visitor
        self._turn, self._asked = turns is None, False  # whether it is the pair's, and whether it stands in line for it
        self._turn_began = 0.0
        self._when_there = when_there

    # --- for the members

    def wait_for(self, member: int, round: int) -> bool:
        """Say that `round - 1` is done and wait until `round` may be computed. False: stop instead."""
        return self.let_in(member, round - 1) is not None

    def wait_for_turn(self, member: int) -> bool:
        """Wait until preparing may begin: the pair's first turn comes when all its members could use it. False: stop instead."""
        with self._changed:
            self._ready.add(member)
            self._changed.notify_all()
        while True:
            with self._changed:
                if self._turn or self._stopped:
                    return not self._stopped
                if self._asked or self._turns is None or not self._begun.keys() <= self._ready:
                    self._changed.wait(_LONG)
                    continue
                self._asked = True
            self._turns.want(self)

    def let_in(self, member: int, done: int, span: int = 1, patience: float = math.inf) -> int | None:
        """Say that round `done` is done. The last round that may be computed, at most `span` further; None: stop instead.

        It is further than `done` unless `patience`, in seconds, is over before that is allowed.
        """
        with self._changed:
            if member not in self._done:  # it has left: its run was ended meanwhile
                return None
            was_settled, last_to_come = self._is_settled(), member not in self._arrived
            self._done[member] = done
            self._arrived.add(member)
            last_to_come = (last_to_come and self._all_arrived()) or self._is_settled() > was_settled
            self._changed.notify_all()
        if last_to_come:
            self._when_there()
        until = time.monotonic() + patience
        while True:
            with self._changed:
                if self._stopped:
                    return None
                allowed, delay = self._allowed(member, done + span)
                ask = None if allowed > done else self._to_ask(delay)
                left = until - time.monotonic()
                if ask is None:
                    if allowed > done or left <= 0:
                        return allowed
                    self._changed.wait(min(delay or _LONG, left, _LONG))
            if ask is not None:
                ask(self)  # with the lock released: it may call back

    def leave(self, member: int) -> None:
        """The member has ended. Harmless when repeated."""
        with self._changed:
            self._begun.pop(member, None)
            self._done.pop(member, None)
            self._changed.notify_all()

    # --- for the turns

    def begin_turn(self) -> None:
        with self._changed:
            self._turn, self._asked, self._turn_began = True, False, time.monotonic()
            self._changed.notify_all()

    def end_turn(self) -> bool:
        """Whether that could be: not while somebody computes."""
        with self._changed:
            if self._computing():
                return False
            self._turn = False
            self._changed.notify_all()
            return True

    # --- for whoever controls; all harmless when repeated

    def hold(self, yes: bool) -> None:
        """Let nobody begin a round, or no longer, for want of a place."""
        with self._changed:
            if self._held != yes:
                self._held = yes
                self._moved = time.monotonic()
                self._changed.notify_all()

    def pause(self) -> None:
        with self._changed:
            if self._limit is None and self._begun:
                # Round 0 is the starting point: a run that is paused before it still prepares and shows it.
                self._limit = max(0, *self._begun.values())
                self._changed.notify_all()

    def resume(self) -> None:
        with self._changed:
            if self._limit is not None:
                self._limit, self._moved = None, time.monotonic()
                self._changed.notify_all()

    def step(self) -> None:
        """Exactly one more round for every member, if the gate is settled; if it is not, pause."""
        with self._changed:
            if self._limit is not None and self._is_settled():
                self._limit, self._moved = self._limit + 1, time.monotonic()
                self._changed.notify_all()
                return
        self.pause()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def set_pace(self, rounds_per_second: float | None) -> None:
        """At most so many rounds a second, at once; None for as fast as it goes. Raises ValueError."""
        if rounds_per_second is not None and not 0 < rounds_per_second < math.inf:
            raise ValueError(
                f"The pace is {rounds_per_second}; allowed is a number of rounds per second above 0, or None."
            )
        with self._changed:
            self._pace, self._moved = rounds_per_second, time.monotonic()
            self._changed.notify_all()

    # --- for whoever watches

    @property
    def settled(self) -> bool:
        """Paused, and everybody has arrived at the limit."""
        with self._changed:
            return self._is_settled()

    @property
    def arrived(self) -> bool:
        """Whether nobody prepares any more."""
        with self._changed:
            return self._all_arrived()

    @property
    def limit(self) -> int | None:
        """The round after which a pause takes effect, None when not paused."""
        return self._limit

    @property
    def stopped(self) -> bool:
        return self._stopped

    @property
    def pace(self) -> float | None:
        return self._pace

    @property
    def moved(self) -> float:
        """When (monotonic clock) rounds last began to come at another speed: after a pause, or at another pace."""
        return self._moved

    # --- under the lock

    def _all_arrived(self) -> bool:
        return self._done.keys() <= self._arrived

    def _is_settled(self) -> bool:
        limit = self._limit
        return (
            limit is not None
            and not self._stopped
            and bool(self._done)
            and self._all_arrived()
            and min(self._done.values()) >= limit
        )

    def _computing(self) -> bool:
        return not self._all_arrived() or any(done < self._begun[member] for member, done in self._done.items())

    def _to_ask(self, delay: float) -> Callable[[Gate], None] | None:
        """What a member that may not begin has to ask of the turns: a turn, or to take back one that nobody can use."""
        if self._turns is None:
            return None
        if self._turn:
            if self._computing() or (self._has_turn() and self._anybody_may_begin()):
                return None
            return self._turns.rest
        if delay or self._asked:
            return None
        self._asked = True
        return self._turns.want

    def _anybody_may_begin(self) -> bool:
        """Whether a member that is not in the gate at this moment will find that it may compute: a laggard, say."""
        return any(self._delay(begun + 1, 1) == 0 for begun in self._begun.values())

    def _has_turn(self) -> bool:
        return self._turn and not (
            self._turns is not None and self._turns.wanted and time.monotonic() - self._turn_began > self._turns.length
        )

    def _allowed(self, member: int, upto: int) -> tuple[int, float]:
        """Let a member into as many rounds up to `upto` as it may begin now: (the last of them, seconds until the next may begin;
        infinity: not before something changes; 0: as soon as it is the pair's turn).
        """
        span = upto - self._done[member]
        while (round := self._begun[member] + 1) <= upto:
            delay = self._delay(round, span)
            if delay or not self._has_turn():
                return self._begun[member], delay
            self._begin(member, round)
        return self._begun[member], math.inf

    def _delay(self, round: int, span: int) -> float:
        """Seconds until a member may begin `round`: 0 for now, infinity for not before something changes."""
        if self._held or (self._limit is not None and round > self._limit):
            return math.inf
        if any(done < round - span for done in self._done.values()):
            return math.inf
        if self._limit is not None or self._pace is None or round <= self._newest or round == 0:
            return 0  # a step, a laggard and the starting point do not wait for the clock
        return max(0.0, self._newest_time + 1 / self._pace - time.monotonic())

    def _begin(self, member: int, round: int) -> None:
        self._begun[member] = round
        if round > self._newest:
            first = self._newest_time == -math.inf
            turn = self._newest_time + 1 / self._pace if self._pace and not first else math.inf
            now = time.monotonic()
            self._newest, self._newest_time = round, min(now, max(turn, now - _CATCH_UP))
