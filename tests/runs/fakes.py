"""Runs without torch: an executor whose rounds a test scripts."""

import threading
import time
from collections.abc import Callable, Iterator

from fedviz.config import SimulationConfig
from fedviz.runs import LOCAL, RunManager


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


class Local(RunManager):
    """A manager whose every visitor sits at the machine."""

    def submit(self, config, reference=None, *, visitor=LOCAL):
        return super().submit(config, reference, visitor=visitor)

    def pause(self, run_id, visitor=LOCAL):
        super().pause(run_id, visitor)

    def resume(self, run_id, visitor=LOCAL):
        super().resume(run_id, visitor)

    def step(self, run_id, visitor=LOCAL):
        super().step(run_id, visitor)

    def stop(self, run_id, visitor=LOCAL):
        super().stop(run_id, visitor)

    def set_pace(self, run_id, *visitor_and_pace):
        super().set_pace(run_id, LOCAL, visitor_and_pace[-1])

    def fork(self, run_id, round, config, *, visitor=LOCAL):
        return super().fork(run_id, round, config, visitor=visitor)

    def runs(self, visitor=LOCAL, **options):
        return super().runs(visitor, **options)


class Scripted:
    """An executor: `script(config, round, progress)` is called before each round and may wait or raise."""

    def __init__(self, script: Callable = lambda *_: time.sleep(0.001)) -> None:
        self.script = script
        self.closed = 0

    def records(self, work, supervisor) -> Iterator[dict]:
        try:
            supervisor.begin()
            supervisor.device("a device")
            for round in range(work.first, work.config.rounds + 1):
                if supervisor.let_in(round - 1) is None:
                    return
                self.script(work.config, round, supervisor.progress)
                yield record(round)
        finally:
            self.closed += 1

    def close(self) -> None:
        pass


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
    """Names of the threads that runs have; those that compute for all runs of the process stay with it."""
    names = (thread.name for thread in threading.enumerate())
    return [name for name in names if name.startswith("fedviz") and not name.startswith("fedviz-compute")]
