"""What a server allows, from the environment. FEDVIZ_HOSTED=1 stands for strict defaults, each of which can be set apart.

    FEDVIZ_HOSTED               1: strangers come; only the visitor who started a run controls it
    FEDVIZ_EXECUTOR             thread or process: where runs compute (hosted: process)
    FEDVIZ_CONCURRENT           runs, each with its reference, that compute at a time
    FEDVIZ_BEGUN                runs that may have begun, those included that are paused or paced: they hold memory
    FEDVIZ_BEGUN_PER_VISITOR    ... of one visitor, whose next one then waits (hosted: half of them)
    FEDVIZ_PUT_AWAY             seconds after which a paused run that nobody looks at gives that up, to be resumed; 0: never
    FEDVIZ_QUEUE                runs that may wait
    FEDVIZ_QUEUED_PER_VISITOR   ... of one visitor
    FEDVIZ_RUN_MEMORY           bytes that a run and its reference may need
    FEDVIZ_RUN_GRADIENTS        sample gradients that they may take
    FEDVIZ_RUN_ROUNDS           rounds
    FEDVIZ_RUN_BYTES            bytes that they may leave on the disk
    FEDVIZ_STORED_RUNS          runs that are kept of one visitor
    FEDVIZ_STORED_BYTES         bytes that are kept of all together
    FEDVIZ_DOWNLOAD             1: a run may have a data set downloaded that is not there (hosted: 0)
    FEDVIZ_PAUSE_UNWATCHED      seconds after which a run that nobody watches is paused; 0: never
    FEDVIZ_EXPIRE               days after which an ended run that is not published is deleted; 0: never
    FEDVIZ_ADMIN_TOKEN          what unlocks the view of everything; none: nobody can

A budget of 0 is no limit. Numbers may be written as 2e9.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, cast

from fedviz.runs.admission import in_words

ExecutorName = Literal["thread", "process"]
_DAY: Final = 86_400.0
_SHORTEST_TOKEN: Final = 12


class LimitError(ValueError):
    """A variable of the environment that cannot be used; the message names it, what it says and what is allowed."""


@dataclass(frozen=True)
class Limits:
    """What a server allows. A budget of None is no limit."""

    hosted: bool = False
    executor: ExecutorName = "thread"
    concurrent: int = field(default_factory=lambda: _places())  # pairs of a run and its reference
    queue_length: int = 32
    queued_per_visitor: int = 32
    memory_bytes: int | None = None
    gradient_evaluations: int | None = None
    rounds: int | None = None
    stored_bytes: int | None = None
    pause_unwatched_after: float | None = None  # seconds
    expire_after: float | None = None  # seconds
    admin_token: str | None = field(default=None, repr=False)
    begun: int = 0  # pairs that hold memory; 0: four times as many as compute
    begun_per_visitor: int = 0  # 0: all of them
    put_away_after: float | None = None  # seconds
    kept_runs: int | None = None  # of one visitor
    kept_bytes: int | None = None  # of all
    downloads: bool = True  # of data sets

    def __post_init__(self) -> None:
        if not self.begun:
            object.__setattr__(self, "begun", 4 * self.concurrent)
        if not self.begun_per_visitor:
            object.__setattr__(self, "begun_per_visitor", self.begun)
        if self.begun < self.concurrent:
            raise LimitError(
                f"FEDVIZ_BEGUN is {self.begun}; allowed is a whole number from {self.concurrent}, which is how many may compute."
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Limits:
        """The limits that the environment asks for. Raises LimitError."""
        read = _Reader(os.environ if environment is None else environment)
        hosted = read.choice("FEDVIZ_HOSTED", {"": False, "0": False, "1": True})
        name = read.choice(
            "FEDVIZ_EXECUTOR", {"": "process" if hosted else "thread", "thread": "thread", "process": "process"}
        )
        concurrent = read.whole("FEDVIZ_CONCURRENT", _places(), least=1)
        begun = read.whole("FEDVIZ_BEGUN", 4 * concurrent, least=1)
        queue = read.whole("FEDVIZ_QUEUE", 32, least=1)
        expire = read.budget("FEDVIZ_EXPIRE", 0)
        return cls(
            hosted=bool(hosted),
            executor=cast("ExecutorName", name),
            concurrent=concurrent,
            begun=begun,
            begun_per_visitor=read.whole("FEDVIZ_BEGUN_PER_VISITOR", max(1, begun // 2) if hosted else begun, least=1),
            kept_runs=read.budget("FEDVIZ_STORED_RUNS", 200 if hosted else 0),
            kept_bytes=read.budget("FEDVIZ_STORED_BYTES", 10_000_000_000 if hosted else 0),
            downloads=bool(read.choice("FEDVIZ_DOWNLOAD", {"": not hosted, "0": False, "1": True})),
            put_away_after=read.budget("FEDVIZ_PUT_AWAY", 600 if hosted else 0),
            queue_length=queue,
            queued_per_visitor=read.whole("FEDVIZ_QUEUED_PER_VISITOR", min(queue, 3) if hosted else queue, least=1),
            memory_bytes=read.budget("FEDVIZ_RUN_MEMORY", 2_000_000_000 if hosted else 0),
            gradient_evaluations=read.budget("FEDVIZ_RUN_GRADIENTS", 1_000_000_000 if hosted else 0),
            rounds=read.budget("FEDVIZ_RUN_ROUNDS", 20_000 if hosted else 0),
            stored_bytes=read.budget("FEDVIZ_RUN_BYTES", 200_000_000 if hosted else 0),
            pause_unwatched_after=read.budget("FEDVIZ_PAUSE_UNWATCHED", 0),
            expire_after=expire * _DAY if expire is not None else None,
            admin_token=read.token("FEDVIZ_ADMIN_TOKEN"),
        )

    def describe(self) -> list[str]:
        """Lines for the log of a start and for admins; the token is not among them."""
        runs = "run computes" if self.concurrent == 1 else "runs compute"
        where = "a process each" if self.executor == "process" else "threads of the server"
        return [
            "hosted: only the visitor who started a run controls it"
            if self.hosted
            else "local: everybody controls all",
            f"{self.concurrent} {runs} at a time, in {where}",
            f"up to {self.begun} have begun, those included that are paused or paced, "
            f"{min(self.begun, self.begun_per_visitor)} of one visitor",
            "paused runs that nobody looks at, and paced ones for which others wait, are put away: "
            f"{_after(self.put_away_after, 1, 'seconds')}",
            f"up to {self.queue_length} wait, {self.queued_per_visitor} of one visitor",
            f"memory of a run: {_most(self.memory_bytes, in_words)}",
            f"sample gradients of a run: {_most(self.gradient_evaluations)}",
            f"rounds of a run: {_most(self.rounds)}",
            f"stored bytes of a run: {_most(self.stored_bytes, in_words)}",
            f"stored runs of one visitor: {_most(self.kept_runs)}",
            f"stored bytes of all runs: {_most(self.kept_bytes, in_words)}",
            f"data sets that are not there: {'downloaded' if self.downloads else 'refused'}",
            f"runs that nobody watches are paused: {_after(self.pause_unwatched_after, 1, 'seconds')}",
            f"ended runs that are not published are deleted: {_after(self.expire_after, _DAY, 'days')}",
            f"admin view: {'unlocked by FEDVIZ_ADMIN_TOKEN' if self.admin_token else 'off'}",
        ]


class _Reader:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def choice(self, name: str, allowed: Mapping[str, bool | str]) -> bool | str:
        got = self._text(name)
        if got not in allowed:
            words = " or ".join(value for value in allowed if value)
            raise LimitError(f"{name} is {got!r}; allowed is {words}. Set it anew or unset it.")
        return allowed[got]

    def whole(self, name: str, default: int, *, least: int) -> int:
        number = self._number(name, default)
        if number < least or number != int(number):
            raise LimitError(f"{name} is {self._text(name)!r}; allowed is a whole number from {least}.")
        return int(number)

    def budget(self, name: str, default: int) -> int | None:
        return self.whole(name, default, least=0) or None

    def token(self, name: str) -> str | None:
        got = self._text(name)
        if got and len(got) < _SHORTEST_TOKEN:
            raise LimitError(
                f"{name} has {len(got)} characters; allowed are {_SHORTEST_TOKEN} or more: it must not be guessed."
            )
        return got or None

    def _number(self, name: str, default: int) -> float:
        got = self._text(name)
        try:
            number = float(got or default)
            int(number)  # refuses what is not finite
        except (ValueError, OverflowError):
            raise LimitError(f"{name} is {got!r}; allowed is a number, as in 8 or 2e9.") from None
        return number

    def _text(self, name: str) -> str:
        return self._environment.get(name, "").strip()


def cores() -> int:
    """Those that this process may use, which in a container are often fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _places() -> int:
    """One run on a GPU, else half the number of cores, for a run and its reference are two. Asks no torch: it takes seconds."""
    gpu = Path("/dev/nvidia0").exists() and os.environ.get("CUDA_VISIBLE_DEVICES") != ""
    return 1 if gpu else max(1, cores() // 2)


def _most(budget: int | None, words: object = None) -> str:
    if budget is None:
        return "no limit"
    return f"up to {words(budget) if callable(words) else f'{budget:,}'}"


def _after(seconds: float | None, unit: float, name: str) -> str:
    return "never" if seconds is None else f"after {seconds / unit:g} {name}"
