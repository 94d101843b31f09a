"""What a participation pattern is: for every round, who is available and who is drawn from them.

The law of a round is "M of the available clients, uniformly without replacement, given who is available". The decomposition of the
server's error conditions on exactly that. The clients in order, `order`, are what contiguous groups are cut from: by id, by majority
label, or at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedviz.keyed_random import Purpose, subset
from fedviz.parameters import Parameters

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Law:
    """M of the `available` ids (sorted), uniformly without replacement; M itself may be random.

    A cohort of M clients enters the direction as gain(M) times its mean: 1 where weights are averaged.
    """

    available: Ids
    sizes: NDArray[np.int64]  # the values that M >= 1 can take; empty where nobody can take part
    chances: NDArray[np.float64]  # of each, given that somebody takes part; they sum to 1
    gains: NDArray[np.float64]  # gain(M) of each

    @classmethod
    def fixed(cls, available: Ids, drawn: int) -> Law:
        """Always min(drawn, available) clients, averaged."""
        size = min(drawn, len(available))
        return cls(available, np.array([size] if size else [], dtype=np.int64), *([np.ones(1 if size else 0)] * 2))


@dataclass(frozen=True)
class Facts:
    """What the theory asks of a pattern; None where it is not defined."""

    window: int  # P
    rho_squared: float | None  # bound on sum_i (q_r^i)^2
    seen_in_window: float | None  # p_sample: chance that a client takes part at least once in a window
    empty: float  # chance of an empty cohort in a round


class ParticipationParameters(Parameters):
    """The parameter model of a pattern, with what the pages say about it."""

    title: ClassVar[str]
    summary: ClassVar[str]
    formula: ClassVar[str]  # LaTeX: who takes part in round r
    pattern: str

    def cohort_size(self, num_clients: int) -> int:
        """The most clients that take part in one round."""
        raise NotImplementedError

    def mean_size(self, num_clients: int) -> float:
        """How many clients take part in a round, on average."""
        return self.cohort_size(num_clients)

    def phrase(self, num_clients: int) -> str:
        """Who takes part in a round, as in "5 of 100 clients"."""
        size = self.mean_size(num_clients)
        if size >= num_clients:
            return f"all {num_clients:,} clients"
        if not round(size):
            return f"{'on average less than 1' if size else 'none'} of {num_clients:,} clients"
        about = "" if size == self.cohort_size(num_clients) else "about "
        return f"{about}{round(size):,} of {num_clients:,} clients"

    def window(self, num_clients: int) -> int:
        """P, after how many rounds the pattern has given everybody a turn; 1 where every round does."""
        return 1

    def problem_with(self, num_clients: int, rounds: int) -> tuple[str, str] | None:
        """(field, message) of the first setting that does not fit N clients and R rounds, None if all do."""
        return None

    def facts(self, num_clients: int) -> Facts:
        """P, rho^2, p_sample and the chance of an empty cohort."""
        raise NotImplementedError

    def build(self, num_clients: int, seed: int, labels: Ids | None = None) -> Participation:
        """The pattern at work. labels [N]: the majority label of each client, for groups in label order."""
        raise NotImplementedError


class Participation:
    """A pattern at work on N clients under a seed."""

    def __init__(self, parameters: Any, num_clients: int, seed: int) -> None:
        self.parameters, self.num_clients, self.seed = parameters, num_clients, seed

    def law(self, round: int) -> Law:
        """Who is available in `round` (1-based), and how many of them are drawn."""
        raise NotImplementedError

    def on_duty(self, round: int) -> Ids | None:
        """The sorted ids of the group whose turn it is, None for a pattern without turns."""
        return None

    def cohort(self, round: int) -> Ids:
        """[S] sorted ids of the clients that take part in `round` (1-based)."""
        law = self.law(round)
        if not len(law.sizes):
            return law.available[:0]
        return subset(self.seed, Purpose.COHORT, law.available, int(law.sizes[0]), round=round)

    def expected_age(self, states: Ids) -> float | None:
        """The mean over clients of the age of their memories, in rounds, in the long run; None where there is no formula for it.

        states [N]: the memory of each client; clients with equal numbers share one, which is renewed when any of them takes part.
        A memory renewed in the last round has age 1. Where clients take turns it is the mean over a whole window.
        With G the rounds from one renewal to the next, it is (E G^2 / E G + 1) / 2; where rounds are independent, 1 / Pr(renewed).
        """
        return None

    def gain(self, size: int) -> float:
        """What a cohort of `size` clients counts for: 1 where it is averaged."""
        return 1.0


def none_drawn(available: int, drawn: int, members: Ids) -> NDArray[np.float64]:
    """[...] chance that none of `members` clients is among `drawn` of `available`, C(n - m, M) / C(n, M) for m = members [...]."""
    j = np.arange(available)
    with np.errstate(divide="ignore"):  # log 0 where not all of so many can be missed
        steps = np.log(np.maximum(available - drawn - j, 0) / (available - j))
    return np.exp(np.concatenate([[0.0], np.cumsum(steps)]))[members]


def too_few(drawn: int, available: int, of: str) -> tuple[str, str] | None:
    """The complaint about more clients drawn than there are."""
    if drawn <= available:
        return None
    return (
        "clients_per_round",
        f"got {drawn:,}, allowed 1 to {available:,} ({of}): lower it, or raise the number of clients",
    )
