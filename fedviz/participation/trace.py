"""Cohorts as given, round by round: recorded traces, and hand-made examples."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedviz.parameters import parameter
from fedviz.participation.base import Law, ParticipationParameters

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

    def law(self, round: int, num_clients: int, seed: int) -> Law:
        cohort = self.cohorts[(round - 1) % len(self.cohorts)]
        return Law(np.array(sorted(cohort), dtype=np.int64), len(cohort))
