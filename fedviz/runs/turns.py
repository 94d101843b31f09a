"""Who computes at this moment: all pairs of runs that have begun share the places, in turns.

A pair keeps its turn as long as it computes and nobody else wants one; else for a moment, and between two rounds at least.
So a run at two rounds a second gets its place when its time has come, whoever computes, and holds it for a round only.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from fedviz.runs.queue import FairQueue

if TYPE_CHECKING:
    from fedviz.runs.gate import Gate

LENGTH: Final = 0.25  # seconds of a turn that others wait for


class Turns:
    """For all threads. Gates call it with their own lock released, and it calls them."""

    def __init__(self, places: int, length: float = LENGTH) -> None:
        self.length = length
        self.wanted = False  # whether anybody waits
        self._places = places
        self._lock = threading.Lock()
        self._holding: set[Gate] = set()
        self._line: FairQueue[Gate] = FairQueue()

    def want(self, gate: Gate) -> None:
        """Stand in line, at most once; the gate is told when its turn begins."""
        with self._lock:
            if gate not in self._holding and gate not in self._line:
                self._line.put(gate.visitor, gate)
                self._deal()

    def rest(self, gate: Gate) -> None:
        """Give the turn back, if nobody computes in it."""
        with self._lock:
            if gate in self._holding and gate.end_turn():
                self._holding.remove(gate)
                self._deal()

    def leave(self, gate: Gate) -> None:
        """The pair has ended, and nothing computes for it any more."""
        with self._lock:
            self._line.remove(gate)
            self._holding.discard(gate)
            self._deal()

    def _deal(self) -> None:
        while len(self._line) and len(self._holding) < self._places:
            gate = self._line.take()
            self._holding.add(gate)
            gate.begin_turn()
        self.wanted = len(self._line) > 0
