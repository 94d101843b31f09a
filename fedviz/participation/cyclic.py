"""Groups of clients take turns, as time zones do.

The clients, in order, are cut into equal groups; group floor((round - 1 + o) / g) mod groups is on duty, with offset o in
0 ... g - 1; S of its clients are drawn each round. Window P = g * groups. Crawshaw, Liu, NeurIPS 2024 (Amplified SCAFFOLD), section 4.

The stochastic form is fedviz's own reading of that paper's appendix, which does not define it: each client is available with chance
a_on if its group is on duty, else a_off; min(S, available) of them are drawn. By symmetry everybody takes part equally over a window.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from fedviz.keyed_random import Purpose, bits, shuffles, uniforms
from fedviz.parameters import parameter
from fedviz.participation.base import Facts, Ids, Law, Participation, ParticipationParameters, none_drawn, too_few

MOST_AGES = 20_000_000  # groups x memories whose ages are followed: beyond, it would hold up the start of a run


class Turns(ParticipationParameters):
    """What both forms have in common."""

    clients_per_round: int = parameter(
        5, label="Clients per round", symbol="S", help="How many of the available clients take part.", ge=1, le=100_000
    )
    groups: int = parameter(
        5, label="Groups", symbol="K̄", help="How many groups take turns.", ge=1, le=10_000, suggested=(1, 20)
    )
    availability: int = parameter(
        4,
        label="Rounds on duty",
        symbol="g",
        help="For how many rounds a group stays on duty.",
        ge=1,
        le=100_000,
        suggested=(1, 50),
    )
    grouping: Literal["id", "label", "random"] = parameter(
        "id",
        label="Groups by",
        help="Who is in a group with whom: neighbours by id, by majority label, or by chance.",
        choices={"id": "id", "label": "label", "random": "chance"},
    )
    offset: Literal["random", "none"] = parameter(
        "random",
        label="First turn",
        help="random: the first group may start in the middle of its turn, as in the paper's code.",
        choices={"random": "random start", "none": "full first turn"},
    )

    def cohort_size(self, num_clients: int) -> int:
        return self.clients_per_round

    def window(self, num_clients: int) -> int:
        return self.groups * self.availability

    def problem_with(self, num_clients: int, rounds: int) -> tuple[str, str] | None:
        if self.groups > num_clients:
            return "groups", f"got {self.groups:,}, allowed 1 to {num_clients:,} (the number of clients): lower it"
        return None


class Cyclic(Turns):
    title: ClassVar = "Cyclic"
    summary: ClassVar = "Groups of clients take turns; each round draws S clients of the group on duty."
    formula: ClassVar = (
        r"\begin{aligned}&\text{on duty: group }\lfloor(r-1+o)/g\rfloor\bmod\bar K\\"
        r"&\Pr(i\in\mathcal S_r\mid\text{on duty})=S\bar K/N,\quad P=g\bar K\end{aligned}"
    )
    pattern: Literal["cyclic"] = "cyclic"
    sampler: Literal["iid", "permutation"] = parameter(
        "iid",
        label="Drawn",
        help="iid: afresh each round; permutation: from one shuffled list of all, as the paper's code does.",
        choices={"iid": "afresh each round", "permutation": "from a shuffled list"},
    )

    def problem_with(self, num_clients: int, rounds: int) -> tuple[str, str] | None:
        smallest = num_clients // self.groups
        return super().problem_with(num_clients, rounds) or too_few(
            self.clients_per_round, smallest, f"the smallest of {self.groups} groups"
        )

    def facts(self, num_clients: int) -> Facts:
        largest = -(-num_clients // self.groups)  # whose clients are drawn least often
        seen = 1 - (1 - self.clients_per_round / largest) ** self.availability
        # What a shuffled list draws in one round depends on what it drew before: no closed form.
        return Facts(self.window(num_clients), 1 / self.clients_per_round, seen if self.sampler == "iid" else None, 0.0)

    def build(self, num_clients: int, seed: int, labels: Ids | None = None) -> Participation:
        return CyclicParticipation(self, num_clients, seed, labels)


class StochasticCyclic(Turns):
    title: ClassVar = "Cyclic, by chance"
    summary: ClassVar = (
        "Groups take turns, but loosely: clients are likely to be there on duty, and may be there off duty."
    )
    formula: ClassVar = (
        r"\begin{aligned}&\Pr(i\text{ available})=\begin{cases}a_{\mathrm{on}}&\text{on duty}\\"
        r"a_{\mathrm{off}}&\text{off duty}\end{cases}\\[3pt]"
        r"&|\mathcal S_r|=\min(S,\text{available}),\quad P=g\bar K\end{aligned}"
    )
    pattern: Literal["stochastic_cyclic"] = "stochastic_cyclic"
    on_duty: float = parameter(
        0.8, label="Available on duty", symbol="a_on", help="Chance in each round on duty.", gt=0, le=1
    )
    off_duty: float = parameter(
        0.1, label="Available off duty", symbol="a_off", help="Chance in each other round.", ge=0, le=1
    )

    def problem_with(self, num_clients: int, rounds: int) -> tuple[str, str] | None:
        if self.off_duty > self.on_duty:
            return "off_duty", f"got {self.off_duty:g}, allowed 0 to {self.on_duty:g} (available on duty)"
        return super().problem_with(num_clients, rounds) or too_few(
            self.clients_per_round, num_clients, "the number of clients"
        )

    def facts(self, num_clients: int) -> Facts:
        size = num_clients // self.groups
        return Facts(
            self.window(num_clients),
            None,
            None,
            (1 - self.on_duty) ** size * (1 - self.off_duty) ** (num_clients - size),
        )

    def build(self, num_clients: int, seed: int, labels: Ids | None = None) -> Participation:
        return StochasticCyclicParticipation(self, num_clients, seed, labels)


class CyclicParticipation(Participation):
    def __init__(self, parameters: Any, num_clients: int, seed: int, labels: Ids | None) -> None:
        super().__init__(parameters, num_clients, seed)
        order = np.arange(num_clients)
        if parameters.grouping == "label" and labels is not None:
            order = np.argsort(labels, kind="stable")
        elif parameters.grouping == "random":
            order = shuffles(seed, Purpose.AVAILABILITY, lengths=num_clients, client=1)
        self.groups = [np.sort(group) for group in np.array_split(order, parameters.groups)]
        first = int(bits(seed, Purpose.AVAILABILITY, size=1)[0]) % parameters.availability
        self.offset = first if parameters.offset == "random" else 0
        self._begin_lists()

    def _begin_lists(self) -> None:
        """The permutation sampler before round 1. It keeps its last round alone: a history of all could fill the memory."""
        self.at, self.listed = 0, np.empty(0, dtype=np.int64)  # the round last asked for, and its cohort
        self.rest: list[int] = []  # what is left of the current list
        self.lists = 0

    def on_duty(self, round: int) -> Ids:
        """The sorted ids of the group whose turn it is."""
        return self.groups[(round - 1 + self.offset) // self.parameters.availability % self.parameters.groups]

    def law(self, round: int) -> Law:
        """For the permutation sampler this is the law over all lists; given the list so far, some are likelier than others."""
        return Law.fixed(self.on_duty(round), self.parameters.clients_per_round)

    def expected_age(self, states: Ids) -> float | None:
        """The age E after a round in which the memory is missed with chance q is 1 + q E: followed through all turns and back to E."""
        groups, g = len(self.groups), self.parameters.availability
        index, sizes = np.unique(states, return_inverse=True, return_counts=True)[1:]
        if self.parameters.sampler != "iid" or groups * len(sizes) > MOST_AGES:
            return None
        # After the turns so far E is fixed + kept E_0; the sum over their rounds is summed + passed E_0.
        fixed, kept, summed, passed = np.zeros((4, len(sizes)))
        kept += 1
        for group in self.groups:
            members = np.bincount(index[group], minlength=len(sizes))
            q = none_drawn(len(group), self.parameters.clients_per_round, members)
            away = members == 0
            p = np.where(away, 1, 1 - q)
            power = q**g
            grown = np.where(away, g, (1 - power) / p)  # sum of q^(t-1), t = 1 ... g
            carried = q * grown  # sum of q^t
            alone = np.where(away, g * (g + 1) / 2, (g - carried) / p)  # sum of 1 + q + ... + q^(t-1)
            summed, passed = summed + alone + carried * fixed, passed + carried * kept
            fixed, kept = grown + power * fixed, power * kept
        ages = (summed + passed * fixed / (1 - kept)) / (groups * g)
        return float(np.average(ages, weights=sizes))

    def cohort(self, round: int) -> Ids:
        if self.parameters.sampler == "iid":
            return super().cohort(round)
        if round < self.at:
            self._begin_lists()
        while self.at < round:
            self.at += 1
            self.listed = self._from_the_list(set(self.on_duty(self.at).tolist()))
        return self.listed

    def _from_the_list(self, available: set[int]) -> Ids:
        """The next available ids of the list; unavailable ones before them are dropped, and a new list begins when it is used up."""
        chosen: set[int] = set()
        while len(chosen) < self.parameters.clients_per_round:
            if not self.rest:
                self.lists += 1
                self.rest = shuffles(self.seed, Purpose.COHORT, lengths=self.num_clients, round=self.lists).tolist()
            client = self.rest.pop(0)
            if client in available:
                chosen.add(client)
        return np.array(sorted(chosen), dtype=np.int64)


class StochasticCyclicParticipation(CyclicParticipation):
    def expected_age(self, states: Ids) -> float | None:
        return None  # how many others are there changes a client's chance in every round

    def law(self, round: int) -> Law:
        chance = np.full(self.num_clients, self.parameters.off_duty)
        chance[self.on_duty(round)] = self.parameters.on_duty
        draws = uniforms(self.seed, Purpose.AVAILABILITY, round=round, client=np.arange(self.num_clients), size=1)[:, 0]
        return Law.fixed(np.flatnonzero(draws < chance), self.parameters.clients_per_round)

    def cohort(self, round: int) -> Ids:
        return Participation.cohort(self, round)
