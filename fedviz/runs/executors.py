"""Where a run computes. An executor gives the records of a run one by one, each round computed only when it is let in.

`ThreadExecutor` computes in the thread that asks, `ProcessExecutor` (`processes.py`) in a process of its own.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol

from fedviz.runs.computation import Supervisor, Work, drive


class Executor(Protocol):
    def records(self, work: Work, supervisor: Supervisor) -> Generator[dict[str, Any], None, None]:
        """The records of `work`, as plain dicts, in order; closing the generator ends the computation.

        let_in is asked before each round from `work.first` on, but not before all is prepared, and has the generator end by
        saying None. Raises what `simulate` raises, and Died.
        """
        ...

    def close(self) -> None:
        """No further work will come."""
        ...


class Died(RuntimeError):  # noqa: N818 - what happened to a process
    """The process that computed a run is gone; the message says how."""


class Failed(RuntimeError):  # noqa: N818 - what happened in a process
    """What went wrong where the run computed, as text."""


class ThreadExecutor:
    def records(self, work: Work, supervisor: Supervisor) -> Generator[dict[str, Any], None, None]:
        yield from drive(work, supervisor)

    def close(self) -> None:
        pass
