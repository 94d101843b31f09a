"""Whether there is memory for a run, estimated from its config alone, without torch and before any data is loaded.

    memories    itemsize d (vectors that the algorithm remembers + the server's own)
    cohort      itemsize d for each of a pass's arrays of S clients, and their minibatches
    data        the data set, as read and as computed with
    probe       itemsize + 8 (float64) for each of J Q d updates, in about three copies, and a pass of Q clients
    records     what is kept of every round

Everything is counted as main memory; on a GPU most of it lies in the GPU's, so the estimate is on the safe side.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from fedviz.config import ConfigError

if TYPE_CHECKING:
    from fedviz.config import SimulationConfig

SHARE: Final = 0.8  # of the free memory that runs may take

_SERVER_VECTORS: Final = 4  # w, its successor, the direction, a mean
_PASS_COPIES: Final = 6  # local models, gradients, their sum, updates, memories, and their difference
_AT_ONCE: Final = 128  # clients whose passes a probe takes at a time
_PROBE_COPIES: Final = 3
_RECORD_BYTES: Final = 2 * 8 * 40  # 40 numbers in columns that may be twice as long as needed
_PARTICIPANT_BYTES: Final = 2 * (8 + 8)  # id and weight of one client in one round


class Refused(RuntimeError):  # noqa: N818 - an answer, not a fault
    """A run that is not taken on; the message says why and what to do."""


@dataclass(frozen=True)
class Estimate:
    """Bytes that a run will need."""

    memories: int
    cohort: int
    data: int
    probe: int
    records: int

    @property
    def total(self) -> int:
        return sum(getattr(self, field.name) for field in fields(self))

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


def estimate(config: SimulationConfig) -> Estimate:
    """What a run of `config` will need."""
    problem, clients = config.problem, config.num_clients
    d, size = problem.dimension(), problem.itemsize()
    cohort, probed = config.participation.cohort_size(clients), min(clients, config.probe.clients)

    def one_pass(of: int) -> int:
        drawn = problem.draw_bytes(config.steps, config.batch_size, clients, config.seed)
        return of * (_PASS_COPIES * d * size + drawn)

    probe = 0
    if config.probe_every:
        probe = config.probe.replicas * probed * d * (size + 8) * _PROBE_COPIES + one_pass(min(probed, _AT_ONCE))
    return Estimate(
        memories=d * size * (config.algorithm.state_vectors(clients) + _SERVER_VECTORS),
        cohort=one_pass(cohort),
        data=problem.data_bytes(clients),
        probe=probe,
        records=(config.rounds + 1) * (_RECORD_BYTES + _PARTICIPANT_BYTES * cohort),
    )


def check(config: SimulationConfig, reference: SimulationConfig | None = None, *, free: int | None = None) -> None:
    """Raise Refused where a run and its reference need more than 80 % of `free` (bytes; default: what is free now), and
    ConfigError where the data cannot be dealt as asked.
    """
    found = config.problem.problem_with_data(config.num_clients, config.seed)
    if found:
        raise ConfigError([found])
    needed = estimate(config) + estimate(reference) if reference is not None else estimate(config)
    free = free_bytes() if free is None else free
    if needed.total <= SHARE * free:
        return
    parts = ", ".join(f"{field.name} {in_words(getattr(needed, field.name))}" for field in fields(needed))
    raise Refused(
        f"This run needs about {in_words(needed.total)} of memory ({parts}), but only {in_words(SHARE * free)} may be "
        f"used: 80 % of the {in_words(free)} that are free. Lower what takes most, or wait until other runs have ended."
    )


def free_bytes() -> int:
    """Memory that can be had now: the system's, or what a container's limit leaves where that is less."""
    return min([psutil.virtual_memory().available, *_left_by_limits()])


def _left_by_limits(files: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> list[int]:
    """What each memory limit on this process (Linux control groups, both versions) leaves, in bytes."""
    try:
        groups = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:  # not Linux
        return []
    left = []
    for _, controllers, path in groups:
        if controllers == "":
            root, limit_name, usage_name = files, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            root, limit_name, usage_name = files / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        # A limit may stand on the group or on any above it; inside a container only the root may be visible.
        group = root / path.lstrip("/")
        for folder in [group, *(parent for parent in group.parents if parent.is_relative_to(root))]:
            try:
                limit, usage = int((folder / limit_name).read_text()), int((folder / usage_name).read_text())
                statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            except (OSError, ValueError):  # no such group here, or "max": no limit
                continue
            left.append(max(0, limit - usage + int(statistics.get("inactive_file", 0))))  # file cache gives way
    return left


def in_words(size: float) -> str:
    """Bytes as people say them: 3 significant digits, decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
