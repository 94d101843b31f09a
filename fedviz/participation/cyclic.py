"""Groups of clients take turns, as time zones do.

The clients are cut, by id, into equal groups; group floor((round - 1 + o) / g) mod groups is on duty, with a random offset o in
0 ... g - 1; S of its clients are drawn each round. Window P = g * groups. Amplified SCAFFOLD, NeurIPS 2024, section 4.
"""

from typing import ClassVar, Literal

import numpy as np

from fedviz.keyed_random import Purpose, bits
from fedviz.parameters import parameter
from fedviz.participation.base import Law, ParticipationParameters
from fedviz.participation.uniform import too_few


class Cyclic(ParticipationParameters):
    title: ClassVar = "Cyclic"
    summary: ClassVar = "Groups of clients take turns; each round draws S clients of the group on duty."
    pattern: Literal["cyclic"] = "cyclic"
    clients_per_round: int = parameter(
        5,
        label="Clients per round",
        symbol="S",
        help="How many clients of the group on duty take part.",
        ge=1,
        le=100_000,
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

    def cohort_size(self, num_clients: int) -> int:
        return self.clients_per_round

    def problem_with(self, num_clients: int, rounds: int) -> tuple[str, str] | None:
        if self.groups > num_clients:
            return "groups", f"got {self.groups}, allowed 1 to {num_clients} (the number of clients): lower it"
        return too_few(self.clients_per_round, num_clients // self.groups, f"the smallest of {self.groups} groups")

    def law(self, round: int, num_clients: int, seed: int) -> Law:
        offset = int(bits(seed, Purpose.AVAILABILITY, size=1)[0]) % self.availability
        on_duty = (round - 1 + offset) // self.availability % self.groups
        # Equal groups; where N is no multiple, the first ones have one client more.
        size, longer = divmod(num_clients, self.groups)
        start = on_duty * size + min(on_duty, longer)
        return Law(np.arange(start, start + size + (on_duty < longer)), self.clients_per_round)
