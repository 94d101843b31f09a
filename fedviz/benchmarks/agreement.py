"""Do a device's runs give the CPU's records? Every model, a few rounds of SCAFFOLD, all that is measured."""

from __future__ import annotations

from typing import Any

from fedviz.benchmarks import machine
from fedviz.benchmarks.tables import Cell, Table
from fedviz.benchmarks.workloads import Plan
from fedviz.config import SimulationConfig, fill_in
from fedviz.problems import workers
from fedviz.problems.architectures import TITLES
from fedviz.simulation.device import describe
from fedviz.simulation.loop import simulate

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
