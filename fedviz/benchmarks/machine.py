"""What the machine is and what it can do: its name, the speed of matrix products and of memory, and what bounds a computation.

The roofline: work that needs F floating-point operations and moves B bytes takes at least F / peak and at least B / bandwidth seconds.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import torch

from fedviz import __version__
from fedviz.benchmarks.images import at_hand
from fedviz.benchmarks.tables import shown
from fedviz.benchmarks.timing import in_turn, repeated
from fedviz.config import SimulationConfig
from fedviz.problems import Classification, workers
from fedviz.simulation.loop import Simulation

ROOT = Path(__file__).parents[2]


@contextmanager
def threads(compute: int, torch_threads: int = 1) -> Iterator[None]:
    """Within it, fedviz shares out work to `compute` threads, and an operation of PyTorch uses `torch_threads`."""
    before = torch.get_num_threads()
    torch.set_num_threads(torch_threads)
    try:
        with workers.at_most(compute):
            yield
    finally:
        torch.set_num_threads(before)


def synchronise(device: str) -> None:
    """Wait until the device has done what it was told."""
    if device == "cuda":
        torch.cuda.synchronize()


def peak(device: str, count: int, seconds: float, size: int = 0) -> float:
    """FLOP/s of a product of two float32 matrices [size, size]: the best of three blocks, with `count` threads."""
    size = size or (8192 if device == "cuda" else 1024)
    a, b, out = (torch.ones(size, size, device=device) for _ in range(3))
    return 2 * size**3 / _shortest(device, count, seconds, lambda: torch.mm(a, b, out=out))


def bandwidth(device: str, count: int, seconds: float, size: int = 0) -> float:
    """Bytes per second that a copy of `size` bytes reads and writes: the best of three blocks, with `count` threads."""
    size = size or (2**30 if device == "cuda" else 2**28)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / _shortest(device, count, seconds, lambda: target.copy_(source))


def _shortest(device: str, count: int, seconds: float, once: Any) -> float:
    with threads(count, torch_threads=count):
        return min(in_turn({"": repeated(once)}, seconds, ready=lambda: synchronise(device))[""])


@dataclass(frozen=True)
class Roofline:
    """All in seconds of one unit."""

    arithmetic: float  # the floor that arithmetic sets
    memory: float  # the floor that memory sets
    measured: float

    @property
    def gap(self) -> float:
        """How many times the higher floor it takes."""
        return self.measured / max(self.arithmetic, self.memory)

    @property
    def bound(self) -> str:
        """What bounds it: the higher floor where it takes less than twice that, else neither."""
        if self.gap >= 2:
            return "neither"
        return "arithmetic" if self.arithmetic >= self.memory else "memory"

    def sentence(self) -> str:
        if self.bound != "neither":
            return f"bound by {self.bound}, it takes {shown(self.gap)} times what that alone needs."
        floor = "arithmetic" if self.arithmetic >= self.memory else "memory"
        return (
            f"of the two floors {floor} is the higher, and it takes {shown(self.gap)} times that: small products run well below the speed "
            "of large ones, and the rest goes to what lies between them."
        )


def roofline(flops: float, moved: float, peak: float, bandwidth: float, seconds: float) -> Roofline:
    """flops and moved (bytes) of a unit that takes `seconds`, where `peak` FLOP/s and `bandwidth` bytes per second can be had."""
    return Roofline(flops / peak, moved / bandwidth, seconds)


def describe(device: str) -> dict[str, str]:
    """The machine and the versions that a measurement depends on, in words."""
    cores = workers.cores()
    memory = psutil.virtual_memory().total / 2**30
    load = f", load {os.getloadavg()[0]:.1f} at the end" if hasattr(os, "getloadavg") else ""
    machine = (
        f"{_processor()}, {cores} core{'' if cores == 1 else 's'} used of {os.cpu_count()}, {memory:.0f} GiB{load}"
    )
    if device == "cuda":
        machine = f"{torch.cuda.get_device_name()}; {machine}"
    versions = {name: version(name) for name in ("torch", "numpy", "numba")}
    text = ", ".join(f"{name} {number}" for name, number in versions.items())
    system = f"{platform.system()} {platform.machine()}"
    return {
        "machine": machine,
        "versions": f"fedviz {__version__}, {text}, Python {platform.python_version()}, {system}",
    }


def _processor() -> str:
    """The processor's name, as its maker gives it where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def peak_memory() -> int:
    """The most bytes that this process has held so far; where the system does not tell, those it holds now."""
    try:  # not getrusage, which counts a parent's memory in with a child's
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        held = psutil.Process().memory_info()
        return int(getattr(held, "peak_wset", held.rss))


def memory_of(config: str, rounds: int) -> int:
    """The most bytes that this process has held, after the first rounds of a classification run; config: as JSON."""
    chosen = SimulationConfig.read(config)
    assert isinstance(chosen.problem, Classification)
    with at_hand(chosen.problem.dataset):
        run = Simulation(chosen)
        run.begin()
        for round in range(1, rounds + 1):
            run.advance(round)
    return peak_memory()


def in_fresh_process(code: str) -> float:
    """The number that Python `code` prints in a process of its own."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)
