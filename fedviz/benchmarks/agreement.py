"""Do a device's runs give the CPU's records? Every model, a few rounds of SCAFFOLD, all that is measured. And what else is promised of a
GPU: that a round does not wait for it, and what lower precision brings and costs.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import torch

from fedviz.benchmarks import machine
from fedviz.benchmarks.images import at_hand
from fedviz.benchmarks.tables import Cell, Table
from fedviz.benchmarks.timing import counted, speedup
from fedviz.benchmarks.workloads import TINY, Plan, started, w2
from fedviz.config import SimulationConfig, fill_in
from fedviz.papers.claims import merged
from fedviz.problems import Classification, workers
from fedviz.problems.architectures import TITLES
from fedviz.simulation.device import describe
from fedviz.simulation.loop import Simulation, simulate

TOLERANCE = 1e-5  # of float32: absolute, relative where a number is above 1


def agreement(plan: Plan) -> Table:
    """For every model the largest difference between the records on `plan.device`, by PyTorch, and the CPU's own choice."""
    rows: list[list[Cell]] = []
    for model in TITLES:
        values: dict[str, Any] = {
            "problem": {"model": model},
            "algorithm": {"name": "scaffold"},
            "participation": {"clients_per_round": 2 if plan.tiny else 4},
            "num_clients": 20,
            "local_steps": 3,
            "batch_size": 16,
            "rounds": 1 if plan.tiny else 3,
            "eval_every": 0 if plan.tiny else 3,
            "probe_every": 0 if plan.tiny else 3,
        }
        here, there = (
            SimulationConfig.read(fill_in({**values, **where}))
            for where in ({"device": "cpu"}, {"device": plan.device, "backend": "torch"})
        )
        with machine.threads(workers.cores(), torch_threads=workers.cores()):
            apart = difference(here, there)
        rows.append([model, f"{describe(there)} against {describe(here)}", apart])
    return Table(f"Largest difference of all numbers (allowed {TOLERANCE:g})", ["model", "what", "difference"], rows)


def waits(plan: Plan) -> Table:
    """Whether a round waits for the device anywhere but for its record, as PyTorch tells of an NVIDIA GPU."""
    rows: list[list[Cell]] = []
    for name in ("fedavg", "scaffold", "fedvarp"):
        run = started(plan.config({"algorithm": {"name": name}, "eval_every": 2}))
        for round in (1, 2):  # the second records its passes
            run.advance(round)
        rows.append([name, _waiting(plan, run)])
    return Table("Waiting for the device within rounds", ["algorithm", "found"], rows)


def _waiting(plan: Plan, run: Simulation) -> str:
    """What is found in two rounds more, with an evaluation and without."""
    told = plan.device == "cuda"
    try:
        if told:
            torch.cuda.set_sync_debug_mode("error")
        for _ in range(2):
            run.advance(run.round + 1)
    except RuntimeError as error:
        return f"waits: {str(error).splitlines()[0]}"
    finally:
        if told:
            torch.cuda.set_sync_debug_mode("default")
    return "none" if told else "not told of this device"


def precision(plan: Plan) -> Table:
    """W2 and the two-layer network in single and in mixed precision: speed, and how far apart the models are after a few rounds."""
    rows: list[list[Cell]] = []
    two_layers = plan.config({"problem": {"model": "mlp"}}, merged(TINY, problem={"model": "mlp"}))
    with at_hand("digits" if plan.tiny else "cifar10"):
        for config in (w2(plan, "fedavg"), two_layers):
            assert isinstance(config.problem, Classification)
            runs = {}
            for dtype in ("float32", "mixed_bfloat16"):
                problem = config.problem.model_copy(update={"dtype": dtype})
                runs[dtype] = started(config.model_copy(update={"problem": problem}))
            for run in runs.values():
                for round in range(1, 4):
                    run.advance(round)
            single, mixed = (run.w.double() for run in runs.values())
            apart = float((single - mixed).norm() / single.norm())
            seconds = plan.in_turn({name: counted(run.advance) for name, run in runs.items()})
            ratio = speedup(seconds["float32"], seconds["mixed_bfloat16"])
            rates = [1 / median(values) for values in seconds.values()]
            rows.append([config.problem.model, *rates, ratio.median, apart])
    columns = [
        "model",
        "float32, rounds per second",
        "mixed, rounds per second",
        "times as fast",
        "models apart, relative",
    ]
    return Table("Mixed precision (bfloat16) against single", columns, rows)


def difference(one: SimulationConfig, other: SimulationConfig) -> float:
    """The largest |a - b| / max(1, |a|) over models and all that the records tell but for seconds.

    Infinity where one tells what the other does not.
    """
    largest = 0.0
    for a, b in zip(simulate(one), simulate(other), strict=True):
        assert a.w is not None
        assert b.w is not None
        gap = (a.w.cpu() - b.w.cpu()).abs() / a.w.cpu().abs().clamp(min=1)
        largest = max(largest, float(gap.max()))
        first, second = a.to_dict(), b.to_dict()
        del first["costs"]["seconds"], second["costs"]["seconds"]
        largest = max(largest, _apart(first, second))
    return largest


def _apart(a: Any, b: Any) -> float:
    """The same of two nested values."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return max((_apart(a[name], b[name]) for name in a), default=0.0)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return max(map(_apart, a, b), default=0.0)
    if isinstance(a, int | float) and isinstance(b, int | float):
        gap = abs(a - b) / max(1.0, abs(a))
        return gap if gap == gap else float("inf")  # a number that is none agrees with nothing
    return 0.0 if a == b else float("inf")
