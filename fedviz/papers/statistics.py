"""Numbers that sum up a run: when a measure first passed a threshold, where it ended, how steady it was.

A statistic names the measures it needs by their dotted path in a record ("evaluation.objective") and makes one number of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

Series = list[tuple[int, float]]  # (round, value), in the order of rounds
Measured = Mapping[str, Series]  # by measure

_WORDS = {
    "evaluation.train_loss": "training loss",
    "evaluation.test_accuracy": "test accuracy",
    "evaluation.objective": "objective",
    "evaluation.distance": "distance to the optimum",
    "decomposition.participation": "error of who took part",
    "decomposition.total": "whole error",
    "decomposition.within_cluster_dissimilarity": "dissimilarity within clusters",
}


@dataclass(frozen=True)
class Statistic:
    """A number made of the measures of a run of R rounds; NaN where they do not give one."""

    measure: str

    @property
    def measures(self) -> tuple[str, ...]:
        return (self.measure,)

    def of(self, measured: Measured, rounds: int) -> float:
        raise NotImplementedError

    def is_settled(self, measured: Measured) -> bool:
        """Whether later rounds can no longer change it, so that the run may end early."""
        return False

    def late(self, measured: Measured, rounds: int, share: float) -> list[float]:
        """The values of the last `share` of the rounds."""
        return [value for round, value in measured[self.measure] if round > rounds * (1 - share)]


@dataclass(frozen=True)
class FirstHit(Statistic):
    """The first round at which the measure was seen at or below the threshold (or at or above it); infinite if never.

    It depends on how often the measure is taken: a run that is looked at every 100 rounds hits at a multiple of 100.
    """

    threshold: float
    above: bool = False

    def of(self, measured: Measured, rounds: int) -> float:
        hits = (r for r, v in measured[self.measure] if (v >= self.threshold if self.above else v <= self.threshold))
        return next(hits, math.inf)

    def is_settled(self, measured: Measured) -> bool:
        return math.isfinite(self.of(measured, 0))

    def __str__(self) -> str:
        return f"first round with {_WORDS[self.measure]} {'≥' if self.above else '≤'} {self.threshold:g}"


@dataclass(frozen=True)
class Late(Statistic):
    """The mean, or a percentile, over the last tenth of the rounds."""

    percentile: float | None = None
    share: float = 0.1

    def of(self, measured: Measured, rounds: int) -> float:
        values = self.late(measured, rounds, self.share)
        if not values:
            return math.nan
        return float(np.mean(values) if self.percentile is None else np.percentile(values, self.percentile))

    def __str__(self) -> str:
        how = "mean" if self.percentile is None else f"{self.percentile:g}th percentile of the"
        return f"{how} {_WORDS[self.measure]} over the last {self.share:.0%} of the rounds"


@dataclass(frozen=True)
class LateShare(Statistic):
    """What share of another measure it makes up over the last half of the rounds."""

    of_measure: str

    @property
    def measures(self) -> tuple[str, ...]:
        return (self.measure, self.of_measure)

    def of(self, measured: Measured, rounds: int) -> float:
        part, whole = (
            sum(value for round, value in measured[name] if round > rounds / 2)
            for name in (self.measure, self.of_measure)
        )
        return part / whole if whole else math.nan

    def __str__(self) -> str:
        return f"{_WORDS[self.measure]} as a share of the {_WORDS[self.of_measure]}, last half of the rounds"


@dataclass(frozen=True)
class Best(Statistic):
    """The highest value of the run."""

    def of(self, measured: Measured, rounds: int) -> float:
        return max((value for _, value in measured[self.measure]), default=math.nan)

    def __str__(self) -> str:
        return f"best {_WORDS[self.measure]} of the run"


@dataclass(frozen=True)
class Final(Statistic):
    """The value at the end."""

    def of(self, measured: Measured, rounds: int) -> float:
        return next((value for round, value in measured[self.measure] if round == rounds), math.nan)

    def __str__(self) -> str:
        return f"{_WORDS[self.measure]} at the end"


@dataclass(frozen=True)
class PathMean(Statistic):
    """The mean over the whole run: equal for two runs that took the same path."""

    def of(self, measured: Measured, rounds: int) -> float:
        return float(np.mean([value for _, value in measured[self.measure]])) if measured[self.measure] else math.nan

    def __str__(self) -> str:
        return f"mean {_WORDS[self.measure]} along the path"
