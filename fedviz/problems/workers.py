"""The threads that share compiled work: one for each core, for all runs of the process together.

Work goes to them only where it leaves the interpreter's lock alone. How it is shared out changes no result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """The cores that this process may use; fewer where the environment's OMP_NUM_THREADS says so."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(there, int(asked)) if asked.isdecimal() and int(asked) else there


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="fedviz-compute")


def in_parallel(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """work(item) of each item, in order. Raises what the first of them raises, once all have ended."""
    if len(items) < 2 or cores() == 1:
        return [work(item) for item in items]
    futures = [_threads().submit(work, item) for item in items]
    failures = [failure for future in futures if (failure := future.exception())]
    if failures:
        raise failures[0]
    return [future.result() for future in futures]
