"""Which device a run uses: a fixed rule, never timing or load."""

import torch

from fedviz.config import SimulationConfig
from fedviz.problems import ProblemError


def choose(config: SimulationConfig) -> str:
    """One of cuda, mps, cpu. Analytic problems are in float64 and tiny: always on the CPU. Raises ProblemError."""
    if config.problem.kind != "classification":
        return "cpu"
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if config.device == "auto":
        return next(name for name, available in there.items() if available)
    if not there[config.device]:
        found = ", ".join(name for name, available in there.items() if available)
        raise ProblemError(
            f'This machine has no device "{config.device}": found {found}. Choose one of them, or "auto".'
        )
    return config.device


def describe(config: SimulationConfig) -> str:
    """The device in words, for the page: "CPU", "NVIDIA H200", "Apple GPU"."""
    device = choose(config)
    if device == "cuda":
        return torch.cuda.get_device_name()
    return {"mps": "Apple GPU", "cpu": "CPU"}[device]
