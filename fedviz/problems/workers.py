"""The threads that share compiled work: one for each core, for all runs of the process together.

Work goes to them only where it leaves the interpreter's lock alone. How it is shared out changes no result.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
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
def at_most(count: int) -> Iterator[None]:
    """Share out work to `count` threads meanwhile; for the whole process."""
    global _limit
    before, _limit = _limit, count
    try:
        yield
    finally:
        _limit = before


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="fedviz-compute")


def in_parallel(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """work(item) of each item, in order. Raises what the first of them raises, once all have ended.

    Within work that is shared out already, one item after the other.
    """
    if len(items) < 2 or cores() == 1 or getattr(_inside, "work", False):
        return [work(item) for item in items]

    def shared(item: T) -> R:
        _inside.work = True
        return work(item)

    futures = [_threads(cores()).submit(shared, item) for item in items]
    failures = [failure for future in futures if (failure := future.exception())]
    if failures:
        raise failures[0]
    return [future.result() for future in futures]
