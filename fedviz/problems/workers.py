"""The threads that share compiled work: with the one that asks for it, one for each core, for all runs of the process together.

Work goes to them only where it leaves the interpreter's lock alone. How it is shared out changes no result.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_limit: int | None = None
_inside = threading.local()  # .work: this thread is one of those that work is shared out to


def cores() -> int:
    """The cores that this process may use; fewer where the environment's OMP_NUM_THREADS says so."""
    if _limit is not None:
        return _limit
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(there, int(asked)) if asked.isdecimal() and int(asked) else there


@contextmanager
def at_most(threads: int) -> Iterator[None]:
    """Share out work to so many threads meanwhile; for the whole process."""
    global _limit
    before, _limit = _limit, threads
    try:
        yield
    finally:
        _limit = before


@cache
def _threads(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, thread_name_prefix="fedviz-compute")


def in_parallel(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """work(item) of each item, in order. Raises what the first of them raises, once all have ended.

    The calling thread works too: where all others are busy with other runs, it does everything itself. Within work that is shared out
    already, it does one item after the other.
    """
    threads = cores()
    others = min(len(items), threads) - 1
    if others < 1 or getattr(_inside, "work", False):
        return [work(item) for item in items]
    results: dict[int, R] = {}
    failures: dict[int, BaseException] = {}
    places = count()

    def share() -> None:
        _inside.work = True
        try:
            while (place := next(places)) < len(items):
                try:
                    results[place] = work(items[place])
                except BaseException as failure:
                    failures[place] = failure
        finally:
            _inside.work = False

    futures = [_threads(threads - 1).submit(share) for _ in range(others)]
    share()
    for future in futures:
        if not future.cancel():  # one that has not begun has nothing left to do
            future.result()
    if failures:
        raise failures[min(failures)]
    return [results[place] for place in range(len(items))]
