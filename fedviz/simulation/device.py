"""Which device and back end a run uses: a fixed rule, never timing or load."""

import torch

from fedviz.config import SimulationConfig
from fedviz.problems import ProblemError


def choose(config: SimulationConfig) -> str:
    """One of cuda, mps, cpu. Raises ProblemError."""
    device = _chosen(config)
    found = config.problem.problem_on(device)
    if found:
        raise ProblemError(f"problem.{found[0]}: {found[1]}.")
    return device


def _chosen(config: SimulationConfig) -> str:
    """Analytic problems are in float64 and tiny: always on the CPU."""
    if config.problem.kind != "classification":
        return "cpu"
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if config.problem.itemsize() > 4:
        there["mps"] = False  # Apple's GPUs have no float64
    if config.backend == "numba":
        return "cpu"
    if config.device == "auto":
        return next(name for name, available in there.items() if available)
    if not there[config.device]:
        found = ", ".join(name for name, available in there.items() if available)
        raise ProblemError(
            f'This machine has no device "{config.device}" for this run: found {found}. Choose one of them, or "auto".'
        )
    return config.device


def backend(config: SimulationConfig) -> str:
    """What computes: "torch" or "numba"."""
    return config.problem.backend(choose(config)) if config.backend == "auto" else config.backend


def describe(config: SimulationConfig) -> str:
    """Device and back end in words, for the page: "CPU with Numba", "NVIDIA H200 with PyTorch"."""
    device = choose(config)
    name = torch.cuda.get_device_name() if device == "cuda" else {"mps": "Apple GPU", "cpu": "CPU"}[device]
    return f"{name} with {'Numba' if backend(config) == 'numba' else 'PyTorch'}"
