"""Where a run computes. An executor gives the records of a run one by one; asking for the next one computes the next
round.

`ThreadExecutor` computes in the thread that asks. Others (a worker process, a cluster) offer the same one method.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fedviz.config import SimulationConfig


class Executor(Protocol):
    def records(
        self,
        config: SimulationConfig,
        *,
        progress: Callable[[str], None],
        device: Callable[[str], None],
        between_steps: Callable[[], None],
    ) -> Generator[dict[str, Any], None, None]:
        """Record 0, then one a round, as plain dicts; closing the generator ends the computation.

        progress is told, in words, what is being prepared, and may raise to end the preparation; device is told where
        the run computes; between_steps is called within a round, and may raise to leave it. Raises what `simulate` raises.
        """
        ...


class ThreadExecutor:
    def records(
        self,
        config: SimulationConfig,
        *,
        progress: Callable[[str], None],
        device: Callable[[str], None],
        between_steps: Callable[[], None],
    ) -> Generator[dict[str, Any], None, None]:
        progress("Starting PyTorch.")
        # Here and not above: a server whose visitors only look at runs never needs torch.
        from fedviz.simulation.device import describe
        from fedviz.simulation.loop import simulate

        # One thread for each run, as on the command line: models of this size gain nothing from more, and the same number
        # everywhere gives the same records everywhere. By name: only the simulation knows how torch is used.
        import_module("torch").set_num_threads(1)
        device(describe(config))
        for record in simulate(config, progress=progress, between_steps=between_steps):
            yield record.to_dict()
