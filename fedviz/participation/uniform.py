"""Everybody, or a fresh uniform draw each round."""

from typing import ClassVar, Literal

import numpy as np

from fedviz.parameters import parameter
from fedviz.participation.base import Law, ParticipationParameters


class Full(ParticipationParameters):
    title: ClassVar = "Everyone"
    summary: ClassVar = "All clients take part in every round."
    pattern: Literal["full"] = "full"

    def cohort_size(self, num_clients: int) -> int:
        return num_clients

    def law(self, round: int, num_clients: int, seed: int) -> Law:
        return Law(np.arange(num_clients), num_clients)


def too_few(drawn: int, available: int, of: str) -> tuple[str, str] | None:
    if drawn <= available:
        return None
    return (
        "clients_per_round",
        f"got {drawn}, allowed 1 to {available} ({of}): lower it, or raise the number of clients",
    )


class Uniform(ParticipationParameters):
    title: ClassVar = "Uniform"
    summary: ClassVar = "Each round draws S of the N clients, all equally likely."
    pattern: Literal["uniform"] = "uniform"
    clients_per_round: int = parameter(
        5, label="Clients per round", symbol="S", help="How many clients take part in a round.", ge=1, le=100_000
    )

    def cohort_size(self, num_clients: int) -> int:
        return self.clients_per_round

    def problem_with(self, num_clients: int, rounds: int) -> tuple[str, str] | None:
        return too_few(self.clients_per_round, num_clients, "the number of clients")

    def law(self, round: int, num_clients: int, seed: int) -> Law:
        return Law(np.arange(num_clients), self.clients_per_round)
