"""Where a run computes. An executor gives the records of a run one by one, each round computed only when it is let in.

`ThreadExecutor` computes in the thread that asks, `ProcessExecutor` (`processes.py`) in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol

from fedviz.runs.computation import Computation, LetIn, Work, drive


class Executor(Protocol):
    def records(
        self,
        work: Work,
        *,
        progress: Callable[[str], None],
        device: Callable[[str], None],
        note: Callable[[str], None],
        between_steps: Callable[[], None],
        let_in: LetIn,
    ) -> Generator[dict[str, Any], None, None]:
        """The records of `work`, as plain dicts, in order; closing the generator ends the computation.

        let_in is asked before each round from `work.first` on, and has the generator end by saying None. The others are
        as in `Computation`: progress, device and note are told something, progress and between_steps may raise to leave.
        Raises what `simulate` raises, and Died.
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
    def records(
        self,
        work: Work,
        *,
        progress: Callable[[str], None],
        device: Callable[[str], None],
        note: Callable[[str], None],
        between_steps: Callable[[], None],
        let_in: LetIn,
    ) -> Generator[dict[str, Any], None, None]:
        computation = Computation(work, progress=progress, device=device, note=note, between_steps=between_steps)
        yield from drive(computation, work, let_in)

    def close(self) -> None:
        pass
