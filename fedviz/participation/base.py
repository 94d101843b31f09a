"""What a participation pattern is: for every round, who is available and who is drawn from them.

The law of a round is "M of the available clients, uniformly without replacement, given who is available". The decomposition of the
server's error conditions on exactly that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedviz.keyed_random import Purpose, subset
from fedviz.parameters import Parameters

Ids = NDArray[np.int64]


class ParticipationParameters(Parameters):
    """The parameter model of a pattern, with what the pages say about it."""

    title: ClassVar[str]
    summary: ClassVar[str]
    pattern: str

    def cohort_size(self, num_clients: int) -> int:
        """M, the most clients that take part in one round."""
        raise NotImplementedError

    def problem_with(self, num_clients: int, rounds: int) -> tuple[str, str] | None:
        """(field, message) of the first setting that does not fit N clients and R rounds, None if all do."""
        return None

    def law(self, round: int, num_clients: int, seed: int) -> Law:
        """Who is available in `round` (1-based), and how many of them are drawn."""
        raise NotImplementedError


@dataclass(frozen=True)
class Law:
    """M = `drawn` of the `available` ids (sorted), uniformly without replacement."""

    available: Ids
    drawn: int


class Participation:
    """A pattern at work on N clients under a seed."""

    def __init__(self, parameters: ParticipationParameters, num_clients: int, seed: int) -> None:
        self.parameters, self.num_clients, self.seed = parameters, num_clients, seed

    def law(self, round: int) -> Law:
        return self.parameters.law(round, self.num_clients, self.seed)

    def cohort(self, round: int) -> Ids:
        """[S] sorted ids of the clients that take part in `round` (1-based)."""
        law = self.law(round)
        return subset(self.seed, Purpose.COHORT, law.available, law.drawn, round=round)
