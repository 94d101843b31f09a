"""Cohorts as given, round by round: recorded traces, and hand-made examples."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedviz.parameters import parameter
from fedviz.participation.base import Facts, Ids, Law, Participation, ParticipationParameters

Cohorts = list[list[Annotated[int, Field(ge=0)]]]


class Trace(ParticipationParameters):
    title: ClassVar = "Trace"
    summary: ClassVar = "Exactly the cohorts that are given; an empty one is a round in which nobody took part."
    pattern: Literal["trace"] = "trace"
    cohorts: Cohorts = parameter(
        label="Cohorts",
        help="The client ids (from 0) of every round, as [[0, 3], [1], ...].",
        min_length=1,
        max_length=1_000_000,
    )
    repeat: bool = parameter(
        False, label="Start over at the end", help="Begin the trace again when the rounds outlast it."
    )

    def cohort_size(self, num_clients: int) -> int:
        return max(len(cohort) for cohort in self.cohorts)

    def mean_size(self, num_clients: int) -> float:
        return sum(map(len, self.cohorts)) / len(self.cohorts)

    def window(self, num_clients: int) -> int:
        return len(self.cohorts)

    def problem_with(self, num_clients: int, rounds: int) -> tuple[str, str] | None:
        for number, cohort in enumerate(self.cohorts, start=1):
            if len(set(cohort)) < len(cohort):
                return "cohorts", f"round {number} names a client twice: name each client once"
            if cohort and max(cohort) >= num_clients:
                return "cohorts", f"round {number} names client {max(cohort)}, allowed 0 to {num_clients - 1}"
        if rounds > len(self.cohorts) and not self.repeat:
            return (
                "cohorts",
                f"got {len(self.cohorts)} cohorts for {rounds} rounds: give more, run fewer rounds, or set repeat",
            )
        return None

    def facts(self, num_clients: int) -> Facts:
        empty = sum(not cohort for cohort in self.cohorts) / len(self.cohorts)
        return Facts(len(self.cohorts), None, None, empty)

    def build(self, num_clients: int, seed: int, labels: Ids | None = None) -> Participation:
        return TraceParticipation(self, num_clients, seed)


class TraceParticipation(Participation):
    def law(self, round: int) -> Law:
        cohort = self.parameters.cohorts[(round - 1) % len(self.parameters.cohorts)]
        return Law.fixed(np.array(sorted(cohort), dtype=np.int64), len(cohort))


def read_csv(lines: Iterable[str]) -> list[list[int]]:
    """Cohorts from CSV lines of round,client (rounds from 1, clients from 0; a header is allowed; rounds not named are empty).

    Raises ValueError with the line and the column that are wrong.
    """
    visits: list[tuple[int, int]] = []
    for number, row in enumerate(csv.reader(lines), start=1):
        if not row or (number == 1 and [cell.strip().lower() for cell in row] == ["round", "client"]):
            continue
        if len(row) != 2:
            raise ValueError(f"line {number} has {len(row)} columns, expected 2: round,client")
        values = []
        for column, (name, cell, least) in enumerate(zip(("round", "client"), row, (1, 0), strict=True), start=1):
            if not cell.strip().isdecimal() or int(cell) < least or int(cell) > 1_000_000:
                raise ValueError(
                    f"line {number}, column {column} ({name}): got {cell!r}, expected a whole number from {least} to 1,000,000"
                )
            values.append(int(cell))
        visits.append((values[0], values[1]))
    if not visits:
        raise ValueError("line 1: there are no rows, expected lines of round,client")
    cohorts: list[list[int]] = [[] for _ in range(max(round for round, _ in visits))]
    for round, client in visits:
        cohorts[round - 1].append(client)
    return cohorts
