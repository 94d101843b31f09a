"""Timing that survives a busy machine: contestants take turns, block by block, and are compared within each block.

A block is as many units (rounds, runs, ...) as fill the seconds asked for. Reported are medians over blocks, with their range.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import TypeVar

Work = Callable[[int], object]  # does so many units
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Spread:
    """A number measured several times."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


def speedup(slow: Sequence[float], fast: Sequence[float]) -> Spread:
    """How many times as fast as `slow` the other is: the ratio within each block, so that what slows a whole block drops out.

    slow, fast: seconds a unit, a block each, in the same order.
    """
    return spread([a / b for a, b in zip(slow, fast, strict=True)])


def counted(advance: Callable[[int], object]) -> Work:
    """Work that calls advance(1), advance(2), ... and goes on from where it was."""
    rounds = count(1)

    def work(units: int) -> None:
        for _ in range(units):
            advance(next(rounds))

    return work


def repeated(once: Callable[[], object]) -> Work:
    """Work whose unit is one call."""
    return counted(lambda _: once())


def in_turn(
    contestants: Mapping[Name, Work],
    seconds: float,
    blocks: int = 3,
    ready: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Name, list[float]]:
    """Seconds a unit of each contestant, one number a block. Each does one unit untimed first, which compiles and loads what it needs.

    seconds: about how long a block lasts; one unit at least. ready: waits until the device has done what it was told.
    """

    def timed(work: Work, units: int) -> float:
        ready()
        began = clock()
        work(units)
        ready()
        return clock() - began

    units = {}
    for name, work in contestants.items():
        work(1)
        units[name] = max(1, math.ceil(seconds / max(timed(work, 1), 1e-9)))
    found: dict[Name, list[float]] = {name: [] for name in contestants}
    for _ in range(blocks):
        for name, work in contestants.items():
            found[name].append(timed(work, units[name]) / units[name])
    return found
