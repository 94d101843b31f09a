"""Everybody, a fresh uniform draw each round, or everybody once in a window."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from fedviz.keyed_random import Purpose, shuffles
from fedviz.parameters import parameter
from fedviz.participation.base import Facts, Ids, Law, Participation, ParticipationParameters, none_drawn, too_few


class Full(ParticipationParameters):
    title: ClassVar = "Everyone"
    summary: ClassVar = "All clients take part in every round."
    formula: ClassVar = r"\mathcal S_r=\{1,\dots,N\},\quad q_r^i=\frac1N"
    pattern: Literal["full"] = "full"

    def cohort_size(self, num_clients: int) -> int:
        return num_clients

    def facts(self, num_clients: int) -> Facts:
        return Facts(1, 1 / num_clients, 1.0, 0.0)

    def build(self, num_clients: int, seed: int, labels: Ids | None = None) -> Participation:
        return UniformParticipation(num_clients, num_clients, seed)


class Uniform(ParticipationParameters):
    title: ClassVar = "Uniform"
    summary: ClassVar = "Each round draws S of the N clients, all equally likely."
    formula: ClassVar = (
        r"\begin{aligned}&\mathcal S_r\ \text{ uniform among the }\tbinom NS\text{ sets of }S\\"
        r"&\Pr(i\in\mathcal S_r)=S/N,\quad q_r^i=1/S\end{aligned}"
    )
    pattern: Literal["uniform"] = "uniform"
    clients_per_round: int = parameter(
        5, label="Clients per round", symbol="S", help="How many clients take part in a round.", ge=1, le=100_000
    )

    def cohort_size(self, num_clients: int) -> int:
        return self.clients_per_round

    def problem_with(self, num_clients: int, rounds: int) -> tuple[str, str] | None:
        return too_few(self.clients_per_round, num_clients, "the number of clients")

    def facts(self, num_clients: int) -> Facts:
        return Facts(1, 1 / self.clients_per_round, self.clients_per_round / num_clients, 0.0)

    def build(self, num_clients: int, seed: int, labels: Ids | None = None) -> Participation:
        return UniformParticipation(self.clients_per_round, num_clients, seed)


class UniformParticipation(Participation):
    """`parameters` is S itself."""

    def law(self, round: int) -> Law:
        return Law.fixed(np.arange(self.num_clients), self.parameters)

    def expected_age(self, states: Ids) -> float | None:
        sizes = np.unique(states, return_counts=True)[1]
        renewed = 1 - none_drawn(self.num_clients, self.parameters, sizes)
        return float(np.average(1 / renewed, weights=sizes))


class Regularized(ParticipationParameters):
    title: ClassVar = "Everybody once"
    summary: ClassVar = (
        "Clients are shuffled and take part in turn, S at a time, until all have; then they are shuffled again."
    )
    formula: ClassVar = r"\frac1P\sum_{r\,\in\,\text{window}}q_r^i=\frac1N\ \text{ for all }i,\quad P=\frac NS"
    pattern: Literal["regularized"] = "regularized"
    clients_per_round: int = parameter(
        5,
        label="Clients per round",
        symbol="S",
        help="How many clients take part in a round; a divisor of N.",
        ge=1,
        le=100_000,
    )

    def cohort_size(self, num_clients: int) -> int:
        return self.clients_per_round

    def window(self, num_clients: int) -> int:
        return num_clients // self.clients_per_round

    def problem_with(self, num_clients: int, rounds: int) -> tuple[str, str] | None:
        wrong = too_few(self.clients_per_round, num_clients, "the number of clients")
        if wrong is None and num_clients % self.clients_per_round:
            fitting = [s for s in range(1, num_clients + 1) if num_clients % s == 0]
            below = max(s for s in fitting if s < self.clients_per_round)
            above = min(s for s in fitting if s > self.clients_per_round)
            wrong = (
                "clients_per_round",
                f"got {self.clients_per_round:,}, which does not divide {num_clients:,}: use {below:,} or {above:,}",
            )
        return wrong

    def facts(self, num_clients: int) -> Facts:
        return Facts(self.window(num_clients), 1 / self.clients_per_round, 1.0, 0.0)

    def build(self, num_clients: int, seed: int, labels: Ids | None = None) -> Participation:
        return RegularizedParticipation(self, num_clients, seed)


class RegularizedParticipation(Participation):
    """Given the window so far, a round's cohort is a uniform draw from the clients whose turn is still to come."""

    def _from_here_on(self, round: int) -> Ids:
        """The clients of this and the later rounds of the window, in the order of their turns."""
        size, window = self.parameters.clients_per_round, self.parameters.window(self.num_clients)
        order = shuffles(self.seed, Purpose.AVAILABILITY, lengths=self.num_clients, round=(round - 1) // window)
        return order[(round - 1) % window * size :]

    def expected_age(self, states: Ids) -> float | None:
        """Sum over a of Pr(older than a rounds), averaged over the place in the window: h(a) within it, h(t) h(b) b rounds before it.

        h(m): chance that m rounds of a window, with m S of the clients, have none of the memory's.
        """
        window = self.parameters.window(self.num_clients)
        seen = self.parameters.clients_per_round * np.arange(window + 1)
        sizes, how_many = np.unique(np.unique(states, return_counts=True)[1], return_counts=True)
        ages = []
        for size in sizes:
            h = none_drawn(self.num_clients, int(size), seen)
            within = np.cumsum(h)[:window]  # [t] for t rounds of the window behind us, 0 ... P - 1
            ages.append(float(np.mean(within + h[:window] * h[1:].sum())))
        return float(np.average(ages, weights=sizes * how_many))

    def law(self, round: int) -> Law:
        return Law.fixed(np.sort(self._from_here_on(round)), self.parameters.clients_per_round)

    def cohort(self, round: int) -> Ids:
        return np.sort(self._from_here_on(round)[: self.parameters.clients_per_round])
