"""The gate through which a run and its reference go, round by round: pause, step, pace and stop for both at once.

A member asks before every round whether it may compute it, and waits inside the gate until it may. The rules:

    together    nobody is more than one round ahead of another member
    paused      no round above the limit, which is the furthest round that anybody had begun: the laggard catches up, so
                that all stop after the same round; a step raises the limit by one
    pace        round r begins no sooner than 1/pace after round r - 1 began, for all members alike
    stopped     no further round

A member that has ended leaves, and no longer holds the others back. The gate is settled when it is paused and all
members wait at the limit; from then on nothing moves until somebody resumes, steps or stops.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

# After a hitch a run may catch up with its pace by so many seconds' worth of rounds, not more: no bursts.
_CATCH_UP = 0.1


class Gate:
    """Controls `members` runs together. A member calls `when_settled` on finding that the gate has settled."""

    def __init__(self, members: int = 1, when_settled: Callable[[], None] = lambda: None) -> None:
        self._changed = threading.Condition()
        self._begun = dict.fromkeys(range(members), -1)  # the last round that each present member was let into
        self._done = dict.fromkeys(range(members), -1)  # ... and has finished
        self._limit: int | None = None
        self._stopped = False
        self._pace: float | None = None
        self._newest = -1  # the furthest round begun, and when its turn was
        self._newest_time = -math.inf
        self._moved = time.monotonic()
        self._when_settled = when_settled

    # --- for the members

    def wait_for(self, member: int, round: int) -> bool:
        """Say that `round - 1` is done and wait until `round` may be computed. False: stop instead."""
        with self._changed:
            self._done[member] = round - 1
            self._changed.notify_all()
            settled = self._is_settled()
        if settled:
            self._when_settled()
        with self._changed:
            while not self._stopped:
                delay = self._delay(member, round)
                if delay == 0:
                    self._begin(member, round)
                    return True
                self._changed.wait(None if delay == math.inf else min(delay, 60.0))
            return False

    def leave(self, member: int) -> None:
        """The member has ended. Harmless when repeated."""
        with self._changed:
            self._begun.pop(member, None)
            self._done.pop(member, None)
            self._changed.notify_all()

    # --- for whoever controls; all harmless when repeated

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

    def _is_settled(self) -> bool:
        limit = self._limit
        return limit is not None and not self._stopped and bool(self._done) and min(self._done.values()) >= limit

    def _delay(self, member: int, round: int) -> float:
        """Seconds until `member` may begin `round`: 0 for now, infinity for not before something changes."""
        if self._limit is not None and round > self._limit:
            return math.inf
        if any(done < round - 1 for done in self._done.values()):
            return math.inf
        if self._limit is not None or self._pace is None or round <= self._newest or round == 0:
            return 0  # a step, a laggard and the starting point do not wait for the clock
        return max(0.0, self._newest_time + 1 / self._pace - time.monotonic())

    def _begin(self, member: int, round: int) -> None:
        self._begun[member] = round
        if round > self._newest:
            turn = self._newest_time + 1 / self._pace if self._pace else math.inf
            now = time.monotonic()
            self._newest, self._newest_time = round, min(now, max(turn, now - _CATCH_UP))
