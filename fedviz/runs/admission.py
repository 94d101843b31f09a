"""What a run will need, estimated from its config alone, without torch and before any data is loaded; and whether that
is there and allowed.

    memories    itemsize d (vectors that the algorithm remembers + the server's own)
    cohort      itemsize d for each of a pass's arrays of S clients, and their minibatches
    data        the data set, as read and as computed with
    probe       itemsize + 8 (float64) for each of J Q d updates, in about three copies, and a pass of Q clients
    records     what is kept of every round

Beside these bytes of memory: the sample gradients that it takes, and the bytes that it leaves on the disk.

Everything is counted as main memory; on a GPU most of it lies in the GPU's, so the estimate is on the safe side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from fedviz.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fedviz.config import SimulationConfig
    from fedviz.runs.computation import Leg
    from fedviz.runs.limits import Limits

SHARE: Final = 0.8  # of the free memory that runs may take

_SERVER_VECTORS: Final = 4  # w, its successor, the direction, a mean
_PASS_COPIES: Final = 6  # local models, gradients, their sum, updates, memories, and their difference
_AT_ONCE: Final = 128  # clients whose passes a probe takes at a time
_PROBE_COPIES: Final = 3
_RECORD_BYTES: Final = 2 * 8 * 40  # 40 numbers in columns that may be twice as long as needed
_PARTICIPANT_BYTES: Final = 2 * (8 + 8)  # id and weight of one client in one round

_CHECK_COHORTS: Final = 64  # whose passes check a decomposition
# As JSON: a round by itself, one participant, one evaluation, one decomposition.
_STORED_ROUND, _STORED_PARTICIPANT, _STORED_EVALUATION, _STORED_DECOMPOSITION = 400, 26, 160, 800
_STORED_CHECKPOINTS: Final = 2  # the newest and the one before


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


def gradient_evaluations(config: SimulationConfig) -> int:
    """Sample gradients that a run of `config` will take, its measurements included. At most, but for windows and warm starts."""
    problem, clients = config.problem, config.num_clients
    samples = problem.sample_count(clients)
    full = math.ceil(samples / clients)  # of one client's full gradient
    one_pass = full if config.algorithm.local == "gradient" else config.steps * problem.batch(config.batch_size, full)
    anchors = full if getattr(config.algorithm, "option", None) == "I" else 0  # SCAFFOLD's variates from full gradients
    training = config.rounds * config.participation.cohort_size(clients) * (one_pass + anchors)
    if not config.probe_every:
        return training
    probes, probed = config.rounds // config.probe_every, min(clients, config.probe.clients)
    passes = probed * config.probe.replicas * one_pass
    if config.probe.mode == "full":
        passes += probed * config.steps * full
    checked = 0
    if config.probe.check_every:
        cohorts = _CHECK_COHORTS * config.participation.cohort_size(clients)
        checked = (probes // config.probe.check_every) * cohorts * one_pass
    return training + probes * (samples + passes) + checked


def stored_bytes(config: SimulationConfig) -> int:
    """Bytes that a run of `config` will leave on the disk: records as JSON, and checkpoints."""
    problem, clients = config.problem, config.num_clients
    round = _STORED_ROUND + _STORED_PARTICIPANT * config.participation.cohort_size(clients)
    evaluations = config.rounds // config.eval_every + 1 if config.eval_every else 0
    probes = config.rounds // config.probe_every + 1 if config.probe_every else 0
    records = config.rounds * round + evaluations * _STORED_EVALUATION + probes * _STORED_DECOMPOSITION
    vectors = config.algorithm.state_vectors(clients) + 1
    return records + _STORED_CHECKPOINTS * problem.dimension() * problem.itemsize() * vectors


def check(
    config: SimulationConfig,
    *others: SimulationConfig | None,
    free: int | None = None,
    limits: Limits | None = None,
    one_process: bool = False,
    before: Sequence[Leg] = (),
) -> None:
    """Raise Refused where a run and what runs with it (its reference) need more than `limits` allow or more than 80 % of `free`
    (bytes; default: what is free now), and ConfigError where the data cannot be dealt as asked.

    one_process: they share the data, which counts once for each data set.
    before: the way to the run through those that it continues, which may have to be computed again.
    """
    configs = [config, *(each for each in others if each is not None)]
    if limits is not None and not limits.downloads and (name := config.problem.to_download()):
        raise ConfigError(
            [
                (
                    "problem.dataset",
                    f"{name} is not on this server, which downloads nothing for visitors: choose another one, or ask who runs "
                    "the server to put its files there (FEDVIZ_DATA) or to allow downloads (FEDVIZ_DOWNLOAD=1)",
                )
            ]
        )
    for each in configs:
        found = each.problem.problem_with_data(each.num_clients, each.seed)
        if found:
            raise ConfigError([found])
    if limits is not None:
        _check_budgets(configs, limits, before)
    needed, there = Estimate(0, 0, 0, 0, 0), set()
    for each in configs:
        own = estimate(each)
        data_set = getattr(each.problem, "dataset", None)
        needed += replace(own, data=0) if one_process and data_set in there else own
        there.add(data_set)
    free = free_bytes() if free is None else free
    if needed.total <= SHARE * free:
        return
    parts = ", ".join(f"{field.name} {in_words(getattr(needed, field.name))}" for field in fields(needed))
    who = f"These {len(configs)} runs need" if one_process and len(configs) > 1 else "This run needs"
    raise Refused(
        f"{who} about {in_words(needed.total)} of memory ({parts}), but only {in_words(SHARE * free)} may be "
        f"used: 80 % of the {in_words(free)} that are free. Lower what takes most, or wait until other runs have ended."
    )


def _work(legs: Iterable[tuple[SimulationConfig, int]]) -> int:
    """Sample gradients on a way of (config, the last round with it)."""
    work, begun = 0, 0
    for config, until in legs:
        upto, from_there = (gradient_evaluations(config.model_copy(update={"rounds": r})) for r in (until, begun))
        work, begun = work + upto - from_there, until
    return work


def _check_budgets(configs: list[SimulationConfig], limits: Limits, before: Sequence[Leg]) -> None:
    rounds = max(config.rounds for config in configs)
    if limits.rounds is not None and rounds > limits.rounds:
        raise Refused(f"This run has {rounds:,} rounds; this server allows {limits.rounds:,}. Lower the rounds.")
    legs = [(leg.config, leg.until) for leg in before]
    again = _work(legs)
    gradients = _work([*legs, (configs[0], configs[0].rounds)]) + sum(map(gradient_evaluations, configs[1:]))
    if limits.gradient_evaluations is not None and gradients > limits.gradient_evaluations:
        what = f" ({again:,} of them to compute again what it continues)" if again else ""
        raise Refused(
            f"This run would take about {gradients:,} sample gradients with its measurements{what}; this server allows "
            f"{limits.gradient_evaluations:,}. Lower rounds, clients a round, local steps or batch size, or measure less often."
        )
    memory = max(sum(estimate(config).total for config in configs), *(estimate(leg.config).total for leg in before), 0)
    if limits.memory_bytes is not None and memory > limits.memory_bytes:
        raise Refused(
            f"This run would need about {in_words(memory)} of memory; this server allows {in_words(limits.memory_bytes)}. "
            "Choose a smaller model, fewer clients, or fewer clients that are measured."
        )
    stored = sum(map(stored_bytes, configs))
    if limits.stored_bytes is not None and stored > limits.stored_bytes:
        raise Refused(
            f"This run would leave about {in_words(stored)} on the disk; this server allows "
            f"{in_words(limits.stored_bytes)}. Lower the rounds, the clients a round or the clients in all."
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
