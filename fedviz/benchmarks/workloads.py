"""What is measured: each workload times something that users wait for, and gives tables of numbers.

W1 and W2 set the whole round loop (cohorts, minibatches, local steps, aggregation, records) against the plain loop of `plain`, and
against the floors that arithmetic and memory set. Nothing is evaluated or decomposed within them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch

from fedviz import parameters
from fedviz.benchmarks import machine, plain
from fedviz.benchmarks.images import at_hand
from fedviz.benchmarks.tables import Cell, Result, Table
from fedviz.benchmarks.timing import Work, counted, in_turn, repeated, speedup, spread
from fedviz.config import SimulationConfig, fill_in
from fedviz.papers.claims import merged
from fedviz.problems import Classification, workers
from fedviz.problems.architectures import TITLES
from fedviz.simulation.errors import Diverged
from fedviz.simulation.lockstep import simulate_many
from fedviz.simulation.loop import Simulation, simulate

CACHE_BYTES = 2**20  # about what a core keeps to itself: a model that fits is not read anew in every step


@dataclass(frozen=True)
class Plan:
    """How to measure. tiny: on little data and few clients, to see that everything works; its numbers mean nothing."""

    device: str = "cpu"
    seconds: float = 1.0  # of a block
    blocks: int = 3
    tiny: bool = False

    def in_turn(self, contestants: dict[Any, Work], share: float = 1.0) -> dict[Any, list[float]]:
        """Seconds a unit of each, by block; blocks last a `share` of the usual time."""
        return in_turn(contestants, share * self.seconds, self.blocks, lambda: machine.synchronise(self.device))

    def threads(self) -> list[int]:
        """One and all; on a GPU the number of threads is no matter."""
        return sorted({1, workers.cores()}) if self.device == "cpu" else [1]

    def config(self, values: dict[str, Any], tiny: dict[str, Any] | None = None) -> SimulationConfig:
        """A run without measurements and without end; in a tiny plan with the changes that make it small."""
        base = {"device": self.device, "rounds": 1_000_000, "eval_every": 0, "probe_every": 0}
        changes = (TINY if tiny is None else tiny) if self.tiny else {}
        return SimulationConfig.read(fill_in(merged(merged(base, **values), **changes)))


TINY: dict[str, Any] = {
    "problem": {"dataset": "digits", "model": "softmax"},
    "participation": {"clients_per_round": 3},
    "num_clients": 20,
    "local_steps": 2,
    "batch_size": 8,
}


def device_for(asked: str) -> str:
    """The device to measure: "auto" is an NVIDIA GPU where there is one. Raises ValueError."""
    there = {"cuda": torch.cuda.is_available(), "cpu": True}
    if asked == "auto":
        return next(name for name, available in there.items() if available)
    if not there.get(asked):
        found = ", ".join(name for name, available in there.items() if available)
        raise ValueError(f'--device: got "{asked}", allowed auto, or one of what this machine has: {found}.')
    return asked


def w1(plan: Plan, algorithm: str) -> SimulationConfig:
    values = {
        "problem": {"dataset": "fashion_mnist"},
        "algorithm": {"name": algorithm},
        "participation": {"clients_per_round": 10},
        "num_clients": 250,
        "local_steps": 30,
        "batch_size": 32,
    }
    return plan.config(values)


def w2(plan: Plan, algorithm: str) -> SimulationConfig:
    values = {
        "problem": {"dataset": "cifar10", "model": "fedavg_cnn"},
        "algorithm": {"name": algorithm},
        "participation": {"clients_per_round": 10},
        "num_clients": 250,
        "local_steps": 5,
        "batch_size": 32,
    }
    return plan.config(values, merged(TINY, problem={"model": "cnn"}))


def started(config: SimulationConfig) -> Simulation:
    """A run before its first round."""
    run = Simulation(config)
    run.begin()
    return run


# --- against the plain loop and the floors ----------------------------------------------------------------------------


def against_the_plain_loop(plan: Plan, configs: list[SimulationConfig], plain_threads: list[int]) -> Result:
    """Ratios of the whole round loop to the plain loop, which is given these numbers of threads as well as one; and what bounds it."""
    ratios: list[list[Cell]] = []
    floors: list[list[Cell]] = []
    notes = []
    with at_hand(_problem(configs[0]).dataset) as images:
        for config in configs:
            seconds = _race(plan, config, plain_threads)
            yardstick, title = seconds["plain loop", 1], config.algorithm.title
            for (what, count), values in seconds.items():
                ratio = speedup(yardstick, values)
                rates = spread([1 / value for value in values])
                ratios.append([title, what, count, ratio.median, ratio.low, ratio.high, rates.median])
            for count in plan.threads():
                line, cells = _floors(plan, config, count, median(seconds["fedviz", count]))
                floors.append([title, count, *cells])
                notes.append(f"{title} with {count} thread{'' if count == 1 else 's'}: {line.sentence()}")
    return Result(
        [
            Table(
                "How many times as fast as the plain loop with 1 thread",
                ["algorithm", "what", "threads", "times the plain loop", "lowest", "highest", "rounds per second"],
                ratios,
            ),
            Table("Against the floors, a round", ["algorithm", "threads", *_FLOORS], floors),
        ],
        [*notes, f"Data: {images}. Computed by {configs[0].problem.backend(plan.device)}."],
    )


def _race(plan: Plan, config: SimulationConfig, plain_threads: list[int]) -> dict[tuple[str, int], list[float]]:
    """Seconds a round by (what, threads), by block."""
    run = started(config)
    ours, theirs = counted(run.advance), counted(plain.PlainLoop(config, run.w).advance)

    def loop(count: int, units: int) -> None:
        with machine.threads(1, torch_threads=count):
            theirs(units)

    def product(count: int, units: int) -> None:
        with machine.threads(count):
            ours(units)

    contestants: dict[tuple[str, int], Work] = {}
    contestants |= {("plain loop", count): partial(loop, count) for count in sorted({1, *plain_threads})}
    contestants |= {("fedviz", count): partial(product, count) for count in plan.threads()}
    return plan.in_turn(contestants)


_FLOORS = [
    "GFLOP",
    "MB",
    "sgemm GFLOP/s",
    "memory GB/s",
    "floor of arithmetic, ms",
    "floor of memory, ms",
    "measured, ms",
    "times the higher floor",
    "bound by",
]


def _floors(plan: Plan, config: SimulationConfig, count: int, seconds: float) -> tuple[machine.Roofline, list[Cell]]:
    peak = machine.peak(plan.device, count, plan.seconds / 4, 64 if plan.tiny else 0)
    bandwidth = machine.bandwidth(plan.device, count, plan.seconds / 4, 2**16 if plan.tiny else 0)
    flops, moved = needed(config)
    line = machine.roofline(flops, moved, peak, bandwidth, seconds)
    milliseconds = [1000 * value for value in (line.arithmetic, line.memory, line.measured)]
    return line, [flops / 1e9, moved / 1e6, peak / 1e9, bandwidth / 1e9, *milliseconds, line.gap, line.bound]


def needed(config: SimulationConfig) -> tuple[float, float]:
    """(floating-point operations, bytes moved) of a round of a classification run at least, clients holding equally many images.

    Operations: the matrix products and convolutions of every sample gradient, as direct sums (`winograd` takes fewer). Bytes: each
    client reads the images it uses once, gets and sends its vectors; a model that fits no core's cache is also read twice (gradient,
    step) and written once in every step.
    """
    problem, steps = _problem(config), config.local_steps
    cohort = _cohort(config)
    held = problem.info.train // config.num_clients
    batch = min(config.batch_size, held)
    per_sample = plain.flops(problem.model, problem.info.image, len(problem.info.labels))[1]
    images = min(steps * batch, held) * int(np.prod(problem.info.image))
    vectors = config.algorithm.vectors_up + config.algorithm.vectors_down
    if problem.dimension() * problem.itemsize() > CACHE_BYTES:
        vectors += 3 * steps
    return cohort * steps * batch * per_sample, cohort * problem.itemsize() * (images + vectors * problem.dimension())


def _problem(config: SimulationConfig) -> Classification:
    assert isinstance(config.problem, Classification)
    return config.problem


def _cohort(config: SimulationConfig) -> int:
    return int(config.participation.clients_per_round)  # type: ignore[union-attr]  # of the pattern "uniform"


def run_w1(plan: Plan) -> Result:
    return against_the_plain_loop(plan, [w1(plan, name) for name in ("fedavg", "scaffold")], [1])


def run_w2(plan: Plan) -> Result:
    return against_the_plain_loop(plan, [w2(plan, "fedavg")], plan.threads())


# --- what the page does -----------------------------------------------------------------------------------------------


def run_default(plan: Plan) -> Result:
    """The run that the page opens with, and its reference: each alone, and both in two threads as the page runs them."""
    changes = merged(TINY, rounds=4) if plan.tiny else {}
    base = merged({"device": plan.device}, **changes)
    main, reference = (SimulationConfig.read(fill_in(merged(base, **more))) for more in ({}, _FEDAVG))
    with machine.threads(workers.cores()):
        seconds = plan.in_turn(
            {
                main.algorithm.title: repeated(lambda: finish(main)),
                reference.algorithm.title: repeated(lambda: finish(reference)),
                "both, side by side": repeated(lambda: _side_by_side([main, reference])),
            }
        )
    rows: list[list[Cell]] = [
        [what, main.rounds * (2 if what.startswith("both") else 1) / median(values), *_three(values)]
        for what, values in seconds.items()
    ]
    columns = ["run", "rounds per second", "seconds in all", "lowest", "highest"]
    return Result(
        [Table(f"{main.rounds} rounds, evaluated and decomposed as on the page", columns, rows)],
        ["Data in memory. Side by side, the rounds of both count."],
    )


_FEDAVG = {"algorithm": {"name": "fedavg"}}


def finish(config: SimulationConfig) -> None:
    """A whole run."""
    for _ in simulate(config):
        pass


def _side_by_side(configs: list[SimulationConfig]) -> None:
    together = [threading.Thread(target=finish, args=(config,)) for config in configs]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()


def _three(values: list[float]) -> list[float]:
    found = spread(values)
    return [found.median, found.low, found.high]


def run_decomposition(plan: Plan) -> Result:
    """Sample gradients per second of training and of measuring where the server's error comes from."""
    values = {"probe": {"check_every": 0}, "num_clients": 100}
    runs = {
        "training": started(plan.config(values)),
        "both": started(plan.config({**values, "probe_every": 1})),
    }
    with machine.threads(workers.cores()):
        seconds = plan.in_turn({what: counted(run.advance) for what, run in runs.items()})
    costs = runs["both"].costs
    measuring = costs.probe_evaluations / runs["both"].round
    training = costs.gradient_evaluations / runs["both"].round
    rates = rates_of_both(training, measuring, seconds["training"], seconds["both"])
    rows: list[list[Cell]] = [
        ["training", training, rates[0], 1.0],
        ["measuring", measuring, rates[1], None if rates[1] is None else rates[1] / rates[0]],
    ]
    columns = ["what", "sample gradients a round", "sample gradients per second", "times training's"]
    title = f"The default run with {runs['both'].config.num_clients} clients, all probed, mode cheap"
    return Result([Table(title, columns, rows)], ["Measuring takes what a round with it takes more than one without."])


def rates_of_both(
    training: float, measuring: float, alone: list[float], both: list[float]
) -> tuple[float, float | None]:
    """Sample gradients per second of (training, measuring), from their number a round and the seconds of rounds without and with measuring.

    None where measuring took no time that could be told.
    """
    more = median(b - a for a, b in zip(alone, both, strict=True))
    return training / median(alone), measuring / more if more > 0 else None


def run_evaluation(plan: Plan) -> Result:
    """Loss, gradient and accuracy on all data, against the speed of matrix products."""
    rows: list[list[Cell]] = []
    notes = []
    for name in ("digits",) if plan.tiny else ("fashion_mnist_mini", "fashion_mnist"):
        with at_hand(name) as images:
            config = plan.config({"problem": {"dataset": name}})
            problem, run = _problem(config), started(config)
            forward, gradient = plain.flops(problem.model, problem.info.image, len(problem.info.labels))
            flops = gradient * problem.info.train + forward * problem.info.test
            notes.append(images)
            for count in plan.threads():
                with machine.threads(count):
                    measured = plan.in_turn({"": repeated(partial(run.problem.evaluate, run.w))}, 0.5)[""]
                peak = machine.peak(plan.device, count, plan.seconds / 4, 64 if plan.tiny else 0)
                rate = flops / median(measured)
                rows.append([problem.dataset, count, rate / peak, rate / 1e9, peak / 1e9, 1000 * median(measured)])
    columns = ["data set", "threads", "share of sgemm", "GFLOP/s", "sgemm GFLOP/s", "ms"]
    return Result(
        [Table("Softmax regression on all training and test data", columns, rows)], [f"Data: {'; '.join(notes)}."]
    )


def run_lockstep(plan: Plan) -> Result:
    """Runs of W1 that differ in one rate, one after the other and together."""
    columns = ["runs", "times one after the other", "lowest", "highest", "rounds per second together"]
    title = "Runs of W1 in lockstep, against the same runs one after the other"
    rounds = 2 if plan.tiny else 20
    rows: list[list[Cell]] = []
    for count in (1, 2) if plan.tiny else (1, 5, 25):
        alone = w1(plan, "fedavg").model_copy(update={"rounds": rounds})
        configs = [alone.model_copy(update={"client_lr": 0.01 * (1 + i / count)}) for i in range(count)]
        with at_hand(_problem(alone).dataset), machine.threads(workers.cores()):
            seconds = plan.in_turn(
                {
                    "singles": repeated(partial(_finish_in_turn, configs)),
                    "together": repeated(partial(_finish_together, configs)),
                }
            )
        ratio = speedup(seconds["singles"], seconds["together"])
        rows.append([count, ratio.median, ratio.low, ratio.high, count * rounds / median(seconds["together"])])
    return Result([Table(title, columns, rows)], [f"{rounds} rounds each, nothing evaluated; the data is in memory."])


def _finish_in_turn(configs: list[SimulationConfig]) -> None:
    for config in configs:
        finish(config)


def _finish_together(configs: list[SimulationConfig]) -> None:
    for _, record in simulate_many(configs):
        if isinstance(record, Diverged):
            raise record


def run_scaling(plan: Plan) -> Result:
    """How the time of a round grows with cohort, clients, model and local steps."""
    dataset, cohorts, clients, steps = "fashion_mnist", (1, 10, 100), (10, 100, 1_000, 10_000), (10, 30, 100)
    if plan.tiny:
        dataset, cohorts, clients, steps = "digits", (1, 3, 10), (10, 20, 40, 80), (1, 2, 3)
    some = cohorts[1]
    base = {
        "problem": {"dataset": dataset, "partition": {"name": "iid"}},
        **_FEDAVG,
        "participation": {"clients_per_round": some},
        "num_clients": clients[-2],
        "local_steps": steps[1],
        "batch_size": 32,
    }
    varied: dict[tuple[str, int], dict[str, Any]] = {}
    varied |= {("cohort S", n): {"participation": {"clients_per_round": n}} for n in cohorts}
    varied |= {("clients N", n): {"num_clients": n} for n in clients}
    varied |= {("local steps τ", n): {"local_steps": n} for n in steps}
    rows: list[list[Cell]] = []
    with at_hand(dataset) as images:
        configs = {name: plan.config(merged(base, **change), {}) for name, change in varied.items()}
        for name in dict.fromkeys(("digits", dataset)):
            config = plan.config(merged(base, problem={"dataset": name}, num_clients=some), {})
            configs["parameters d", config.problem.dimension()] = config
        runs = {name: started(config) for name, config in configs.items()}
        with machine.threads(workers.cores()):
            seconds = plan.in_turn({name: counted(run.advance) for name, run in runs.items()}, 0.25)
    for varied_value, config in configs.items():
        problem, taken = _problem(config), median(seconds[varied_value])
        batch = min(config.batch_size, problem.info.train // config.num_clients)
        passes = _cohort(config) * config.local_steps
        rows.append([*varied_value, 1000 * taken, 1e6 * taken / passes, batch])
    columns = ["varied", "value", "ms a round", "µs a client's step", "images a step"]
    setting = (
        f"S = {some}, N = {clients[-2]:,}, τ = {steps[1]}, softmax, FedAvg, unless varied; d is varied at N = {some}"
    )
    return Result([Table(setting, columns, rows)], [f"Data: {images}; dealt at random. {workers.cores()} threads."])


def run_start(plan: Plan) -> Result:
    """What one waits for before the first round, and how much memory a run takes."""
    clock = "import time; began = time.perf_counter(); import {}; print(time.perf_counter() - began)"
    rows: list[list[Cell]] = []
    for module in ("fedviz", "fedviz.config", "fedviz.simulation.loop"):
        values = [machine.in_fresh_process(clock.format(module)) for _ in range(1 if plan.tiny else 3)]
        rows.append([f"import {module}, in a fresh process", "s", *_three(values)])
    config = w1(plan, "fedavg")
    with at_hand(_problem(config).dataset), machine.threads(workers.cores()):
        seconds = plan.in_turn(
            {
                "start the default run, data in memory": repeated(lambda: started(plan.config({}))),
                "start W1, data in memory": repeated(lambda: started(config)),
            },
            0.25,
        )
        rows += [[what, "s", *_three(values)] for what, values in seconds.items()]
    code = f"from fedviz.benchmarks.machine import memory_of; print(memory_of({config.model_dump_json()!r}, rounds=5))"
    rows.append(["most memory of W1, in a fresh process", "MB", *_three([machine.in_fresh_process(code) / 1e6])])
    return Result([Table("Start and memory", ["what", "unit", "median", "lowest", "highest"], rows)], [])


def run_backends(plan: Plan) -> Result:
    """Every model with every back end that can compute it here, and with the plain loop."""
    rows: list[list[Cell]] = []
    values: dict[str, Any] = {
        **_FEDAVG,
        "problem": {"dataset": "fashion_mnist_mini"},
        "participation": {"clients_per_round": 5},
        "num_clients": 20,
        "local_steps": 10,
        "batch_size": 16,
    }
    tiny = {"participation": {"clients_per_round": 2}, "batch_size": 4}  # the digits are too small for LeNet-5
    for model in TITLES:
        config = plan.config(merged(values, problem={"model": model}), tiny)
        chosen = config.problem.backend(plan.device)
        runs = {name: started(other) for name, other in with_backends(config).items()}
        contestants: dict[str, Work] = {name: counted(run.advance) for name, run in runs.items()}
        contestants["plain loop"] = counted(plain.PlainLoop(config, runs[chosen].w).advance)
        with machine.threads(1):
            seconds = plan.in_turn(contestants, 0.3)
        for name, taken in seconds.items():
            ratio = speedup(seconds["plain loop"], taken).median
            rows.append([model, name, "yes" if name == chosen else "", ratio, 1 / median(taken)])
    columns = ["model", "back end", "chosen", "times the plain loop", "rounds per second"]
    return Result([Table("5 of 20 clients, 10 local steps of 16 images, 1 thread, FedAvg", columns, rows)], [])


def with_backends(config: SimulationConfig) -> dict[str, SimulationConfig]:
    """The same run with each back end that can compute it."""
    offered = parameters.shown(SimulationConfig, "backend")["choices"]
    found: dict[str, SimulationConfig] = {}
    for name in offered:
        if name != "auto":
            try:
                found[name] = SimulationConfig.read({**config.to_dict(), "backend": name})
            except ValueError:  # not this model, or not on this device
                continue
    return found


@dataclass(frozen=True)
class Workload:
    title: str
    measure: Callable[[Plan], Result]


WORKLOADS: dict[str, Workload] = {
    "w1": Workload(
        "W1: softmax regression on Fashion-MNIST, 10 of 250 clients a round, 30 local steps of 32 images", run_w1
    ),
    "w2": Workload("W2: the CNN of the FedAvg paper on 3 × 32 × 32, 10 of 250 clients, 5 local steps of 32", run_w2),
    "default": Workload("The default run of the dashboard", run_default),
    "decomposition": Workload("Taking the server's error apart", run_decomposition),
    "evaluation": Workload("Evaluating on all data", run_evaluation),
    "lockstep": Workload("Several runs at once", run_lockstep),
    "scaling": Workload("How the time of a round grows", run_scaling),
    "start": Workload("Start and memory", run_start),
    "backends": Workload("Back ends and models", run_backends),
}
