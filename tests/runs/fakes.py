"""Runs without torch: an executor whose rounds a test scripts."""

import threading
import time
from collections.abc import Callable, Iterator

from fedviz.config import SimulationConfig


def config(algorithm: str = "fedavg", rounds: int = 20, **settings) -> SimulationConfig:
    """A tiny run: two quadratics in two dimensions."""
    return SimulationConfig.read(
        {
            "problem": {
                "kind": "quadratics",
                "curvature": [[1.0, 1.0], [1.0, 2.0]],
                "linear": [[1.0, 0.0], [0.0, 1.0]],
                "start": [1.0, 1.0],
            },
            "algorithm": {"name": algorithm},
            "participation": {"pattern": "uniform", "clients_per_round": 1},
            "num_clients": 2,
            "local_steps": 2,
            "client_lr": 0.1,
            "rounds": rounds,
            **settings,
        }
    )


def record(round: int) -> dict:
    """As RoundRecord.to_dict gives them: every fifth one evaluated, every tenth one decomposed."""
    evaluation = {"train_loss": 2.0 / (round + 1), "test_loss": None, "test_accuracy": None, "distance": 0.1 + round}
    return {
        "round": round,
        "cohort": [] if round == 0 else [round % 2, 2 + round % 3],
        "weights": [] if round == 0 else [0.25, 1 / 3],
        "evaluation": evaluation if round % 5 == 0 else None,
        "decomposition": {"drift": 0.5, "mode": "cheap", "clusters": 2} if round % 10 == 1 else None,
        "costs": {"gradient_evaluations": 480 * round, "seconds": 0.125 * round},
        "diagnostics": {"cold": 1.0, "staleness": 2.5} if round > 2 else {},
    }


class Scripted:
    """An executor: `script(config, round, progress)` is called before each round and may wait or raise."""

    def __init__(self, script: Callable = lambda *_: time.sleep(0.001)) -> None:
        self.script = script
        self.closed = 0

    def records(self, config, *, progress, device, between_steps) -> Iterator[dict]:
        try:
            device("a device")
            for round in range(config.rounds + 1):
                self.script(config, round, progress)
                yield record(round)
        finally:
            self.closed += 1


class Held(Scripted):
    """Rounds wait until they are let through: `let(n)` allows rounds up to n, for all runs."""

    def __init__(self) -> None:
        super().__init__(self._wait)
        self.limit, self.changed, self.begun = -1, threading.Condition(), {}

    def let(self, limit: int) -> None:
        with self.changed:
            self.limit = limit
            self.changed.notify_all()

    def _wait(self, config, round, progress) -> None:
        with self.changed:
            self.begun[config.algorithm.name] = round
            assert self.changed.wait_for(lambda: round <= self.limit, 10)


def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


def own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("fedviz")]
