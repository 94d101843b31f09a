"""What a claim expects of the numbers, and the verdict on them.

`values` are the numbers of each arm, one a seed, in the order of seeds. An expectation compares medians over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

Values = Mapping[str, list[float]]  # of each arm, one a seed
Judgement = tuple[bool, str]  # (whether it is as expected, why in words)


def median(values: list[float]) -> float:
    """Infinite where half of the seeds never got there; NaN where a run gave no number."""
    return math.nan if any(math.isnan(value) for value in values) else float(np.median(values))


def number(value: float) -> str:
    """Four digits; words for what is not a number."""
    if math.isnan(value):
        return "no value"
    return "never" if math.isinf(value) else f"{value:.4g}"


class Expectation:
    def judge(self, values: Values) -> Judgement:
        raise NotImplementedError

    def expected_of(self, arm: str) -> str:
        """The paper's value for the arm, in a few words."""
        raise NotImplementedError

    @property
    def arms(self) -> list[str]:
        """The arms it speaks of."""
        raise NotImplementedError


@dataclass(frozen=True)
class Levels(Expectation):
    """Each arm's median is the given value, within a tolerance that is absolute or a share of the value."""

    values: Mapping[str, float]
    absolute: float = 0.0
    relative: float = 0.0

    def judge(self, values: Values) -> Judgement:
        wrong = []
        for arm, expected in self.values.items():
            here = median(values[arm])
            # Written so that a NaN is wrong.
            if not abs(here - expected) <= max(self.absolute, self.relative * abs(expected)):
                wrong.append(f"{arm} {number(here)}, expected {number(expected)}{self._tolerance()}")
        return not wrong, "; ".join(wrong) or f"as expected{self._tolerance()}"

    def _tolerance(self) -> str:
        if self.relative:
            return f" ± {self.relative:.2g} of it"
        return f" ± {self.absolute:g}" if self.absolute else ""

    def expected_of(self, arm: str) -> str:
        return number(self.values[arm])

    @property
    def arms(self) -> list[str]:
        return list(self.values)


@dataclass(frozen=True)
class Bounds(Expectation):
    """Each arm's median lies between two values."""

    values: Mapping[str, tuple[float, float]]

    def judge(self, values: Values) -> Judgement:
        wrong = [
            f"{arm} {number(median(values[arm]))}, expected {self.expected_of(arm)}"
            for arm, (low, high) in self.values.items()
            if not low <= median(values[arm]) <= high
        ]
        return not wrong, "; ".join(wrong) or "within bounds"

    def expected_of(self, arm: str) -> str:
        low, high = self.values[arm]
        if math.isinf(high):
            return f"≥ {number(low)}"
        return f"≤ {number(high)}" if low <= 0 else f"{number(low)} to {number(high)}"

    @property
    def arms(self) -> list[str]:
        return list(self.values)


@dataclass(frozen=True)
class Ordering(Expectation):
    """Medians in this order, best first. Arms in one group are alike; every arm of a group is better than all of the next."""

    best_first: tuple[tuple[str, ...], ...]
    higher_is_better: bool
    alike_within: float = math.inf  # how far the medians of a group may lie apart

    def judge(self, values: Values) -> Judgement:
        medians = {arm: median(values[arm]) for arm in self.arms}
        missing = [arm for arm, value in medians.items() if math.isnan(value)]
        if missing:
            return False, f"no value for {', '.join(missing)}"
        sign = -1 if self.higher_is_better else 1
        wrong = [
            f"{a} ({number(medians[a])}) is not better than {b} ({number(medians[b])})"
            for better, worse in pairwise(self.best_first)
            for a in better
            for b in worse
            if not sign * medians[a] < sign * medians[b]
        ]
        for group in self.best_first:
            found = [medians[arm] for arm in group]
            if len(group) > 1 and not max(found) - min(found) <= self.alike_within:
                wrong.append(f"{' and '.join(group)} are further apart than {self.alike_within:g}")
        return not wrong, "; ".join(wrong) or "in this order"

    def expected_of(self, arm: str) -> str:
        place = next(n for n, group in enumerate(self.best_first, start=1) if arm in group)
        return f"rank {place}"

    @property
    def arms(self) -> list[str]:
        return [arm for group in self.best_first for arm in group]


@dataclass(frozen=True)
class Same(Expectation):
    """All arms have the same value, up to rounding."""

    of: tuple[str, ...]
    relative: float

    def judge(self, values: Values) -> Judgement:
        medians = np.array([median(values[arm]) for arm in self.of])
        largest = np.abs(medians).max()  # unlike Python's own max, numpy's lets a NaN through
        apart = float(np.ptp(medians) / largest) if largest else 0.0
        return bool(apart <= self.relative), f"relative difference {apart:.1e}, allowed {self.relative:.0e}"

    def expected_of(self, arm: str) -> str:
        return "the same" if arm != self.of[0] else "-"

    @property
    def arms(self) -> list[str]:
        return list(self.of)


@dataclass(frozen=True)
class Fraction(Expectation):
    """One arm's median is at most a fraction of another's."""

    arm: str
    of: str
    at_most: float

    def judge(self, values: Values) -> Judgement:
        part, whole = median(values[self.arm]), median(values[self.of])
        fraction = part / whole if whole else math.nan
        return fraction <= self.at_most, f"{self.arm} is {number(fraction)} of {self.of}, allowed {self.at_most:g}"

    def expected_of(self, arm: str) -> str:
        return f"≤ {self.at_most:g} of {self.of}" if arm == self.arm else "-"

    @property
    def arms(self) -> list[str]:
        return [self.of, self.arm]


@dataclass(frozen=True)
class SmallestDrop(Expectation):
    """The first method loses at most so much between two arms, and less than every other method loses."""

    drops: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # method -> (from, to)
    at_most: float = math.inf

    def judge(self, values: Values) -> Judgement:
        lost = {method: median(values[a]) - median(values[b]) for method, (a, b) in self.drops.items()}
        first, *others = lost
        wrong = (
            [] if lost[first] <= self.at_most else [f"{first} loses {number(lost[first])}, allowed {self.at_most:g}"]
        )
        wrong += [f"{other} loses only {number(lost[other])}" for other in others if not lost[other] > lost[first]]
        told = ", ".join(f"{method} {number(value)}" for method, value in lost.items())
        return not wrong, "; ".join(wrong) or f"losses: {told}"

    def expected_of(self, arm: str) -> str:
        first, last = next(iter(self.drops.values()))
        return f"at most {self.at_most:g} below {first}" if arm == last else "-"

    @property
    def arms(self) -> list[str]:
        return [arm for pair in self.drops.values() for arm in pair]
