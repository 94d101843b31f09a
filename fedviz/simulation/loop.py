"""`simulate(config)`: a run as a generator of `RoundRecord`s.

Pausing is not asking for the next one; stepping is asking for one; cancelling is closing the generator. Everything that runs a
simulation drives this one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedviz.algorithms import Algorithm, Cohort, LocalResult, Setting
from fedviz.problems.transfer import Fetched, sent
from fedviz.simulation import windows
from fedviz.simulation.clients import clusters_of, participation_of
from fedviz.simulation.decomposition import Probe
from fedviz.simulation.device import choose
from fedviz.simulation.errors import Diverged
from fedviz.simulation.local_pass import Pass, evaluations
from fedviz.simulation.records import Checkpoint, Costs, Decomposition, RoundRecord, WindowDecomposition

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fedviz.algorithms import State
    from fedviz.config import SimulationConfig
    from fedviz.problems import Evaluation, Problem, Progress


def simulate(
    config: SimulationConfig,
    *,
    resume_from: Checkpoint | None = None,
    progress: Progress = lambda _: None,
    between_steps: Callable[[], None] = lambda: None,
) -> Iterator[RoundRecord]:
    """Record 0, then one record a round; with `resume_from`, the records after the checkpoint's round, as if never stopped.

    progress is told, in words, what is being prepared; between_steps is called between local steps, and may raise to leave a round
    that takes long. Raises ProblemError (data), Diverged (after the last finite record).
    """
    run = Simulation(config, progress, between_steps)
    if resume_from is None:
        yield run.first()
    else:
        run.restore(resume_from)
    for round in range(run.round + 1, config.rounds + 1):
        yield run.advance(round)


@dataclass(frozen=True)
class Begun:
    """A round whose local passes are still to be made."""

    round: int
    ids: NDArray[np.int64]
    weights: list[float]  # of the cohort
    cohort: Cohort
    probe: Probe
    decomposition: Decomposition | None
    work: Pass | None  # None where nobody takes part
    seconds: float  # so far


class Simulation:
    """The moving parts of one run: problem, algorithm, w, state, costs."""

    def __init__(
        self,
        config: SimulationConfig,
        progress: Progress = lambda _: None,
        between_steps: Callable[[], None] = lambda: None,
    ) -> None:
        began = time.perf_counter()
        self.config, self.between_steps = config, between_steps
        self.problem: Problem = config.problem.build(config, choose(config), progress)
        self.participation = participation_of(config)
        self.clusters = clusters_of(config)
        self.w: Tensor = self.problem.start()
        self.client_weights = self.problem.client_weights.cpu().numpy()  # on this side of the device
        self.algorithm: Algorithm = config.algorithm.build(self._setting())
        self.state: State = {}
        self.renewed_in = np.zeros(config.num_clients, dtype=np.int64)
        self.costs, self.round = Costs(), 0
        self.window: windows.Sums = {}
        self.measured_clusters = self.clusters
        if self.clusters is None:
            majority = config.problem.majority_labels(config.num_clients, config.seed)
            self.measured_clusters = None if majority is None else np.unique(majority, return_inverse=True)[1]
        self.expected_staleness = self._expected_staleness()
        self.seconds = time.perf_counter() - began

    def _setting(self) -> Setting:
        config, problem, everyone = self.config, self.problem, np.arange(self.config.num_clients)
        return Setting(
            num_clients=config.num_clients,
            client_lr=config.client_lr,
            server_lr=config.server_lr,
            steps=config.steps,
            window=config.participation.window(config.num_clients),
            client_weights=self.problem.client_weights,
            clusters=None if self.clusters is None else torch.as_tensor(self.clusters, device=self.w.device),
            start_gradients=lambda: problem.client_gradients(problem.start(), everyone),
        )

    def begin(self) -> None:
        self.state = self.algorithm.init(self.w)
        if self.algorithm.starts_warm:  # everybody is sent the start and sends a gradient
            self.costs = replace(
                self.costs,
                gradient_evaluations=self.problem.full_evaluations(np.arange(self.config.num_clients)),
                floats_up=self.config.num_clients * len(self.w),
                floats_down=self.config.num_clients * len(self.w),
            )

    def restore(self, checkpoint: Checkpoint) -> None:
        self.w = checkpoint.w.to(self.w.device).clone()
        self.state = {name: tensor.to(self.w.device).clone() for name, tensor in checkpoint.state.items()}
        self.renewed_in, self.costs, self.round = checkpoint.renewed_in.copy(), checkpoint.costs, checkpoint.round
        self.window = dict(checkpoint.window)

    def take_over(self, before: Simulation) -> str:
        """Go on from where `before`, a run on the same clients and data, stands; what was carried over, as a sentence.

        The model, the costs and those parts of the algorithm's state that both have under one name and in one shape are
        carried over; all else starts as the algorithm's `init` says at this model.
        """
        self.w = before.w.to(self.w.device, self.w.dtype).clone()
        self.begin()
        fits = self._shared_with(before)
        self.state |= {name: before.state[name].to(self.w.device, self.w.dtype).clone() for name in fits}
        warm = self.algorithm.starts_warm and fits != self.state.keys()
        began = self.costs if warm else Costs()
        self.costs = replace(
            before.costs,
            gradient_evaluations=before.costs.gradient_evaluations + began.gradient_evaluations,
            floats_up=before.costs.floats_up + began.floats_up,
            floats_down=before.costs.floats_down + began.floats_down,
        )
        if fits and self.algorithm.remembers == before.algorithm.remembers:
            self.renewed_in = before.renewed_in.copy()
        self.round = before.round
        anew = sorted(self.state.keys() - fits)
        carried = ", ".join(["the model", *(name.replace("_", " ") for name in sorted(fits))])
        started = f"; started anew: {', '.join(name.replace('_', ' ') for name in anew)}" if anew else ""
        return f"Carried over: {carried}{started}."

    def _shared_with(self, before: Simulation) -> set[str]:
        """The parts of the algorithm's state that mean the same in `before`. Parts belong together: where one has another shape,
        or clusters or windows are others, none does.
        """
        shared = self.state.keys() & before.state.keys()
        windows = {getattr(algorithm, "window", None) for algorithm in (self.algorithm, before.algorithm)} - {None}
        clusters = {None if c is None else c.tobytes() for c in (self.clusters, before.clusters)}
        alike = all(self.state[name].shape == before.state[name].shape for name in shared)
        return shared if alike and len(windows) < 2 and len(clusters) == 1 else set()

    def first(self) -> RoundRecord:
        """Record 0: the starting point, evaluated."""
        self.begin()
        return self.record(0, np.empty(0, dtype=np.int64), [], None, self.seconds)

    def advance(self, round: int) -> RoundRecord:
        """One round: measure if due, draw the cohort, train, step."""
        begun = self.begin_round(round)
        return self.end_round(begun, None if begun.work is None else begun.work.make())

    def begin_round(self, round: int) -> Begun:
        """Everything up to the cohort's local passes, which somebody else may make."""
        began, config = time.perf_counter(), self.config
        decomposition, law = None, self.participation.law(round)
        probe = Probe(
            config,
            self.problem,
            self.algorithm,
            self.state,
            self.w,
            law,
            round,
            self.measured_clusters,
            self.between_steps,
        )
        if config.probe_every and round % config.probe_every == 0:
            decomposition, spent = probe.measure()
            self._charge_probe(spent)
        ids = self.participation.cohort(round)
        scale = float(config.num_clients * self.participation.gain(len(ids)) / max(1, len(ids)))  # N times q_i
        weights = self.client_weights[ids] * scale
        cohort = Cohort(round, sent(ids, self.w.device), sent(weights, self.w.device))
        work = None
        if len(ids):
            work = Pass(
                config, self.problem, self.algorithm, self.state, self.w, ids, round, between_steps=self.between_steps
            )
        return Begun(round, ids, weights.tolist(), cohort, probe, decomposition, work, time.perf_counter() - began)

    def end_round(self, begun: Begun, result: LocalResult | None) -> RoundRecord:
        """The rest of a round, from what its passes brought; None where nobody took part. Raises Diverged."""
        began, ids, cohort = time.perf_counter(), begun.ids, begun.cohort
        if len(ids):
            self._charge(ids)
        if self.algorithm.remembers:
            renewed = self.algorithm.renewed(self.state, cohort)
            self.renewed_in[ids if renewed is cohort.clients else renewed.cpu().numpy()] = begun.round
        window = self._measure_window(begun.probe, cohort, result)
        self.w, self.state = self.algorithm.step(self.state, self.w, cohort, result)
        seconds = begun.seconds + (0.0 if begun.work is None else begun.work.seconds) + time.perf_counter() - began
        return self.record(begun.round, ids, begun.weights, begun.decomposition, seconds, window)

    def _measure_window(self, probe: Probe, cohort: Cohort, result: LocalResult | None) -> WindowDecomposition | None:
        """The parts of the window that ends with this round, if it is one that is measured."""
        length = getattr(self.algorithm, "window", None)
        if length is None or not windows.is_measured(self.config, length, probe.round):
            return None
        self.window, spent = windows.add_round(probe, cohort, result, self.window)
        self._charge_probe(spent)
        if probe.round % length:
            return None
        found, self.window = windows.end(self.window, length), {}
        return found

    def _charge_probe(self, spent: int) -> None:
        self.costs = replace(self.costs, probe_evaluations=self.costs.probe_evaluations + spent)

    def _charge(self, ids: NDArray[np.int64]) -> None:
        algorithm, vectors = self.config.algorithm, len(ids) * len(self.w)
        self.costs = replace(
            self.costs,
            gradient_evaluations=self.costs.gradient_evaluations
            + evaluations(self.config, self.problem, ids, needs=self.algorithm.needs),
            floats_up=self.costs.floats_up + algorithm.vectors_up * vectors,
            floats_down=self.costs.floats_down + algorithm.vectors_down * vectors,
        )

    def record(
        self,
        round: int,
        ids: NDArray[np.int64],
        weights: list[float],
        decomposition: Decomposition | None,
        seconds: float,
        window: WindowDecomposition | None = None,
    ) -> RoundRecord:
        began, config = time.perf_counter(), self.config
        due = config.eval_every and (round % config.eval_every == 0 or round == config.rounds)
        # All that a record needs is queued before the first of it is waited for: a device stands still once in a round.
        finite = Fetched(torch.isfinite(self.w).all()[None])
        evaluated = self.problem.evaluating(self.w) if due else None
        if not all(finite.read()):
            raise Diverged(round, self._hint(round))
        evaluation = evaluated() if evaluated is not None else None
        if evaluation is not None and not _is_finite(evaluation):
            raise Diverged(round, self._hint(round))
        self.round = round
        self.costs = replace(self.costs, seconds=self.costs.seconds + seconds + time.perf_counter() - began)
        w, costs, window_sums = self.w, self.costs, self.window

        def checkpoint() -> Checkpoint:
            copies = {name: tensor.clone() for name, tensor in self.state.items()}
            return Checkpoint(config, round, w.clone(), copies, self.renewed_in.copy(), costs, dict(window_sums))

        return RoundRecord(
            round=round,
            cohort=ids.tolist(),
            weights=weights,
            evaluation=evaluation,
            # Squares overflow before the model does: what cannot be measured is left out, and changes nothing about the run.
            decomposition=decomposition if decomposition is not None and _is_finite(decomposition) else None,
            costs=costs,
            diagnostics=self._diagnostics(round),
            window=window if window is not None and _is_finite(window) else None,
            w=w,
            checkpoint=checkpoint,
        )

    def _expected_staleness(self) -> float | None:
        """What chance lets expect of `staleness` in the long run; None without memories, or where there is no formula for it."""
        windowed = hasattr(self.algorithm, "window")  # renews its memories at the ends of windows alone
        if self.algorithm.remembers is None or windowed:
            return None
        own = np.arange(self.config.num_clients)
        return self.participation.expected_age(own if self.clusters is None else self.clusters)

    def _diagnostics(self, round: int) -> dict[str, float]:
        """For a method with memories: their mean age in rounds, and the share of clients whose memory is still empty.

        The mean is over memories that are filled, so it is below the expected one as long as the run is young.
        """
        if self.algorithm.remembers is None:
            return {}
        expected = {} if self.expected_staleness is None else {"expected_staleness": self.expected_staleness}
        last = self.renewed_in
        if self.algorithm.remembers == "cluster":
            assert self.clusters is not None
            newest = np.zeros(int(self.clusters.max()) + 1, dtype=np.int64)
            np.maximum.at(newest, self.clusters, last)
            last = newest[self.clusters]
        warm = (last > 0) | self.algorithm.starts_warm
        ages = round + 1 - last[warm]  # the age that the next round will find
        measured = {"staleness": float(ages.mean())} if len(ages) else {}
        return {"cold": float(1 - warm.mean()), **measured, **expected}

    def _hint(self, round: int) -> str:
        if round == 0:
            return "The starting point itself is beyond what the numbers can hold: choose a smaller start or smaller coefficients."
        reach = self.config.client_lr * self.config.steps
        return (
            f"The steps are too long: client rate times local steps is {reach:.3g}, server rate {self.config.server_lr:.3g}. "
            "Lower the client rate, the local steps or the server rate."
        )


def _is_finite(measured: Evaluation | Decomposition | WindowDecomposition) -> bool:
    return all(math.isfinite(value) for value in asdict(measured).values() if isinstance(value, float))
