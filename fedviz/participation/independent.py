"""Clients that come and go by themselves: independently in every round, or staying on and off for a while."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedviz.keyed_random import Purpose, uniforms
from fedviz.parameters import parameter
from fedviz.participation.base import Facts, Ids, Law, Participation, ParticipationParameters


class Bernoulli(ParticipationParameters):
    title: ClassVar = "Independent"
    summary: ClassVar = (
        "Each client takes part with the same chance, independently, so that the number of participants varies."
    )
    formula: ClassVar = r"\Pr(i\in\mathcal S_r)=a,\quad q_r^i=\frac1{|\mathcal S_r|}\ \text{ or }\ \frac1{Na}"
    pattern: Literal["bernoulli"] = "bernoulli"
    chance: float = parameter(
        0.05, label="Chance to take part", symbol="a", help="Of each client in each round.", gt=0, le=1
    )
    weighting: Literal["average", "inverse"] = parameter(
        "average",
        label="Participants are",
        help="average: divided by how many came; inverse: by how many were expected (unbiased).",
        choices={"average": "averaged", "inverse": "divided by N a"},
    )

    def cohort_size(self, num_clients: int) -> int:
        # Not more than five standard deviations above the mean, for the estimate of memory.
        return min(
            num_clients, int(num_clients * self.chance + 5 * (num_clients * self.chance * (1 - self.chance)) ** 0.5) + 1
        )

    def mean_size(self, num_clients: int) -> float:
        return num_clients * self.chance

    def facts(self, num_clients: int) -> Facts:
        return Facts(1, None, self.chance, (1 - self.chance) ** num_clients)

    def build(self, num_clients: int, seed: int, labels: Ids | None = None) -> Participation:
        return BernoulliParticipation(self, num_clients, seed)


class BernoulliParticipation(Participation):
    """Given that M clients take part, they are a uniform draw; M is binomial, here given that it is not 0."""

    def __init__(self, parameters: Bernoulli, num_clients: int, seed: int) -> None:
        super().__init__(parameters, num_clients, seed)
        sizes = np.arange(1, num_clients + 1)
        chances = _binomial(num_clients, parameters.chance)[1:]
        kept = chances > chances.max() * 1e-18  # sizes that cannot be told from impossible are left out
        self.sizes, self.chances = sizes[kept], chances[kept] / chances[kept].sum()
        self.gains = np.array([self.gain(int(size)) for size in self.sizes])

    def law(self, round: int) -> Law:
        return Law(np.arange(self.num_clients), self.sizes, self.chances, self.gains)

    def expected_age(self, states: Ids) -> float | None:
        sizes = np.unique(states, return_counts=True)[1]
        return float(np.average(1 / _any_of(self.parameters.chance, sizes), weights=sizes))

    def gain(self, size: int) -> float:
        return 1.0 if self.parameters.weighting == "average" else size / (self.num_clients * self.parameters.chance)

    def cohort(self, round: int) -> Ids:
        draws = uniforms(self.seed, Purpose.AVAILABILITY, round=round, client=np.arange(self.num_clients), size=1)[:, 0]
        return np.flatnonzero(draws < self.parameters.chance)


def _any_of(chance: float, count: Ids) -> NDArray[np.float64]:
    """1 - (1 - chance)^count, also where it is tiny."""
    with np.errstate(divide="ignore"):
        return -np.expm1(count * np.log1p(-chance))


def _binomial(n: int, chance: float) -> NDArray[np.float64]:
    """[n + 1] chances of 0 ... n successes, by logarithms so that large n is no trouble."""
    if chance == 1:
        return np.eye(n + 1)[n]
    k = np.arange(1, n + 1)
    ratios = np.log((n - k + 1) / k) + np.log(chance / (1 - chance))
    logs = np.concatenate([[n * np.log1p(-chance)], n * np.log1p(-chance) + np.cumsum(ratios)])
    return np.exp(logs)


class Markov(ParticipationParameters):
    title: ClassVar = "On and off"
    summary: ClassVar = (
        "Each client stays available for a while, then away for a while; whoever is available takes part."
    )
    formula: ClassVar = (
        r"\begin{aligned}&\Pr(\text{leaves})=\frac1{T_{\mathrm{on}}},\quad\Pr(\text{comes})=\frac1{T_{\mathrm{off}}}\\[3pt]"
        r"&\Pr(i\in\mathcal S_r)=\frac{T_{\mathrm{on}}}{T_{\mathrm{on}}+T_{\mathrm{off}}}\end{aligned}"
    )
    pattern: Literal["markov"] = "markov"
    mean_on: float = parameter(
        5.0,
        label="Mean time on",
        symbol="T_on",
        help="Rounds that a client stays, on average.",
        ge=1,
        le=1e6,
        suggested=(1, 100),
    )
    mean_off: float = parameter(
        95.0,
        label="Mean time off",
        symbol="T_off",
        help="Rounds that a client is away, on average.",
        ge=1,
        le=1e6,
        suggested=(1, 200),
    )

    def mean_size(self, num_clients: int) -> float:
        return num_clients * self.mean_on / (self.mean_on + self.mean_off)

    def cohort_size(self, num_clients: int) -> int:
        share = self.mean_on / (self.mean_on + self.mean_off)
        return min(num_clients, int(num_clients * share + 5 * (num_clients * share * (1 - share)) ** 0.5) + 1)

    def facts(self, num_clients: int) -> Facts:
        share = self.mean_on / (self.mean_on + self.mean_off)
        return Facts(1, None, share, (1 - share) ** num_clients)

    def build(self, num_clients: int, seed: int, labels: Ids | None = None) -> Participation:
        return MarkovParticipation(self, num_clients, seed)


class MarkovParticipation(Participation):
    """A two-state chain for each client, started from its long-run share: leaves with chance 1/mean_on, comes with 1/mean_off."""

    def __init__(self, parameters: Any, num_clients: int, seed: int) -> None:
        super().__init__(parameters, num_clients, seed)
        self.at = 0  # the round that was last asked for: a history of all rounds could fill the memory
        self.on = np.zeros(num_clients, dtype=bool)  # [N] who is available in it

    def expected_age(self, states: Ids) -> float | None:
        """All n of a memory are away with chance (1 - share)^n, and one round more with (1 - 1/mean_off)^n each time."""
        p, sizes = self.parameters, np.unique(states, return_counts=True)[1]
        away = (p.mean_off / (p.mean_on + p.mean_off)) ** sizes
        return float(np.average(1 + away / _any_of(1 / p.mean_off, sizes), weights=sizes))

    def law(self, round: int) -> Law:
        p = self.parameters
        if round < self.at:
            self.at = 0  # from the start again
        while self.at < round:
            self.at += 1
            draws = uniforms(
                self.seed, Purpose.AVAILABILITY, round=self.at, client=np.arange(self.num_clients), size=1
            )[:, 0]
            if self.at == 1:
                self.on = draws < p.mean_on / (p.mean_on + p.mean_off)
            else:
                self.on = np.where(self.on, draws >= 1 / p.mean_on, draws < 1 / p.mean_off)
        available = np.flatnonzero(self.on)
        return Law.fixed(available, len(available))
