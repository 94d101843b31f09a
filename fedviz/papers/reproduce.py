"""Trying claims: which runs they need, making these runs side by side, and the verdict on each claim.

A run that several claims need is made once. Seeds go round in turn, so that a budget of time that ends early leaves fewer seeds,
not fewer arms.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import signal
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from fedviz.config import SimulationConfig
from fedviz.papers.claims import COSTS, Claim, Cost
from fedviz.papers.statistics import Statistic
from fedviz.problems import Classification, ProblemError

if TYPE_CHECKING:
    from fedviz.simulation.records import RoundRecord

Series = dict[str, list[tuple[int, float]]]  # (round, value) by measure
Verdict = Literal["reproduced", "not reproduced", "not comparable", "not run"]
TIME_UP = "the time was up"
TOGETHER = 25  # runs at most in lockstep: a time that is up is up for all of them


@dataclass(frozen=True)
class Job:
    """One run, and the numbers to take from it."""

    config: dict[str, Any]
    statistics: tuple[Statistic, ...]


@dataclass(frozen=True)
class Outcome:
    """What came of a job. Without values it did not run, and `failure` says why."""

    values: tuple[float, ...] = ()  # of the job's statistics
    seconds: float = 0.0
    device: str = ""
    failure: str = ""


@dataclass(frozen=True)
class Result:
    """A claim, tried."""

    claim: Claim
    verdict: Verdict
    why: str
    seeds: list[int] = field(default_factory=list)  # those for which every arm ran
    values: Mapping[str, list[float]] = field(default_factory=dict)  # by arm, one a seed
    seconds: float = 0.0  # of all its runs, one after the other
    device: str = ""
    seeds_wanted: int = 0  # more than `seeds` where the time was up


def chosen(claims: Sequence[Claim], *, paper: str, ids: Sequence[str], cost: Cost, must_run: bool) -> list[Claim]:
    """The claims asked for: those named, or all of a paper (or of "all") that cost no more, or the must-run list."""
    there = [claim for claim in claims if paper in ("all", claim.paper)]
    if ids:
        unknown = sorted(set(ids) - {claim.id for claim in there})
        if unknown:
            raise ValueError(
                f"there is no claim {', '.join(unknown)} of {paper}; there are: {', '.join(claim.id for claim in there)}"
            )
        return [claim for claim in there if claim.id in ids]
    if must_run:
        return [claim for claim in there if claim.must_run_seeds]
    return [claim for claim in there if COSTS.index(claim.cost) <= COSTS.index(cost)]


def seeds_of(claim: Claim, seeds: int | None, must_run: bool) -> int:
    """How many seeds to try a claim with. One that does not depend on chance is tried once."""
    if claim.seeds == 1:
        return 1
    return seeds or (claim.must_run_seeds if must_run else claim.seeds)


def jobs_for(claims: Sequence[Claim], seeds: Mapping[str, int]) -> dict[str, Job]:
    """The distinct runs that the claims need, by key, in the order in which to make them."""
    needed: dict[str, tuple[dict[str, Any], list[Statistic]]] = {}
    tried = [claim for claim in claims if claim.arms]
    for seed in range(max((seeds[claim.id] for claim in tried), default=0)):
        for claim in tried:
            for arm in claim.arms if seed < seeds[claim.id] else ():
                assert claim.statistic is not None
                config = claim.config(arm, seed)
                _, statistics = needed.setdefault(key_of(config), (config.to_dict(), []))
                if claim.statistic not in statistics:
                    statistics.append(claim.statistic)
    return {key: Job(config, tuple(statistics)) for key, (config, statistics) in needed.items()}


def key_of(config: SimulationConfig) -> str:
    return json.dumps(config.to_dict(), sort_keys=True)


def measure(job: Job, deadline: float = math.inf) -> Outcome:
    """Make the run of a job. `deadline` is a time.time(), after which the run is given up."""
    return measure_together([job], deadline)[0]


def measure_together(jobs: Sequence[Job], deadline: float = math.inf) -> list[Outcome]:
    """The same of several jobs, whose runs go in lockstep."""
    from fedviz.simulation.device import describe
    from fedviz.simulation.lockstep import simulate_many

    import_module("torch").set_num_threads(1)  # as every run; by name: only the simulation knows how torch is used
    configs, began = [SimulationConfig.read(job.config) for job in jobs], time.perf_counter()
    measured: list[Series] = [{name: [] for s in job.statistics for name in s.measures} for job in jobs]

    def settled(which: int, record: RoundRecord) -> bool:
        for name, series in measured[which].items():
            group, field_name = name.split(".")
            value = getattr(getattr(record, group), field_name, None)
            if value is not None:
                series.append((record.round, value))
        return all(statistic.is_settled(measured[which]) for statistic in jobs[which].statistics)

    try:
        devices = [describe(config) for config in configs]
        # A run that diverges just ends: what it reached before counts, a threshold passed or none.
        for _ in simulate_many(configs, enough=settled):
            if time.time() > deadline:
                return [Outcome(failure=TIME_UP)] * len(jobs)
    except ProblemError as error:
        return [Outcome(failure=str(error))] * len(jobs)
    seconds = (time.perf_counter() - began) / len(jobs)
    return [
        Outcome(tuple(statistic.of(series, config.rounds) for statistic in job.statistics), seconds, device)
        for job, config, series, device in zip(jobs, configs, measured, devices, strict=True)
    ]


def make(
    jobs: Mapping[str, Job], *, workers: int, deadline: float = math.inf
) -> Generator[tuple[str, Outcome], None, None]:
    """(key, outcome) of each job as it is done: on a GPU in lockstep, in this process; on a CPU side by side, see `carry_out`.

    On a CPU, processes of their own are faster: runs in lockstep have one interpreter among them.
    """
    batched = batches(jobs)
    for keys in batched:
        if time.time() > deadline:
            return
        yield from zip(keys, measure_together([jobs[key] for key in keys], deadline), strict=True)
    done = {key for keys in batched for key in keys}
    yield from carry_out({key: job for key, job in jobs.items() if key not in done}, workers=workers, deadline=deadline)


def batches(jobs: Mapping[str, Job]) -> list[list[str]]:
    """The keys of those jobs that compute on a GPU, up to `TOGETHER` at a time that train the same model for as long."""
    from fedviz.simulation.device import choose

    found: list[list[str]] = []
    latest: dict[tuple[str, str, int, int], list[str]] = {}
    for key, job in jobs.items():
        config = SimulationConfig.read(job.config)
        try:
            if not isinstance(config.problem, Classification) or choose(config) == "cpu":
                continue
        except ProblemError:  # told when its turn comes
            continue
        alike = config.problem.dataset, config.problem.model, config.steps, config.rounds
        if len(latest.get(alike, [])) in (0, TOGETHER):
            latest[alike] = []
            found.append(latest[alike])
        latest[alike].append(key)
    return found


def carry_out(
    jobs: Mapping[str, Job],
    *,
    workers: int,
    deadline: float = math.inf,
    do: Callable[[Job, float], Outcome] | None = None,
) -> Generator[tuple[str, Outcome], None, None]:
    """(key, outcome) of each job as it is done, in `workers` processes (1: in this one). None is begun after the deadline.

    do: makes one run; `measure` unless told otherwise. Closing the iterator stops the runs under way.
    """
    do = do or measure
    waiting = iter(jobs.items())
    if workers == 1:
        for key, job in waiting:
            if time.time() > deadline:
                return
            yield key, do(job, deadline)
        return
    # Spawned, not forked: PyTorch's threads do not survive a fork. Ctrl-C, which a terminal sends to all, is this process's to answer.
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
    running: dict[Future[Outcome], str] = {}
    try:
        while True:
            while len(running) < workers and time.time() <= deadline and (next_job := next(waiting, None)):
                running[pool.submit(do, next_job[1], deadline)] = next_job[0]
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
    except BaseException:  # stopped: a run under way may have hours to go, and nobody waits for it any more
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def conclude(claim: Claim, seeds: int, jobs: Mapping[str, Job], outcomes: Mapping[str, Outcome]) -> Result:
    """The verdict on a claim, from the seeds for which every arm ran."""
    if claim.incomparable or claim.statistic is None or claim.expectation is None:
        return Result(claim, "not comparable", claim.incomparable)
    values: dict[str, list[float]] = {arm: [] for arm in claim.arms}
    complete, seconds, device, failures = [], 0.0, "", []
    for seed in range(seeds):
        keys = {arm: key_of(claim.config(arm, seed)) for arm in claim.arms}
        there = {arm: outcomes[key] for arm, key in keys.items() if key in outcomes}
        failures += [outcome.failure for outcome in there.values() if outcome.failure]
        if len(there) < len(keys) or any(outcome.failure for outcome in there.values()):
            continue
        complete.append(seed)
        for arm, outcome in there.items():
            values[arm].append(outcome.values[jobs[keys[arm]].statistics.index(claim.statistic)])
            seconds, device = seconds + outcome.seconds, outcome.device
    if not complete:
        return Result(claim, "not run", failures[0] if failures else TIME_UP)
    as_expected, why = claim.expectation.judge(values)
    verdict: Verdict = "reproduced" if as_expected else "not reproduced"
    return Result(claim, verdict, why, complete, values, seconds, device, seeds)


def shortcomings(results: Iterable[Result], *, named: bool) -> list[str]:
    """What makes the command fail: a claim that should hold and does not, or one that had to run and did not."""
    found = []
    for result in results:
        claim = result.claim
        if result.verdict == "not reproduced" and claim.should_hold:
            found.append(f"{claim.id} should hold and was not reproduced: {result.why}")
        elif result.verdict == "not run" and (named or claim.must_run_seeds):
            found.append(f"{claim.id} did not run: {result.why}")
    return found
