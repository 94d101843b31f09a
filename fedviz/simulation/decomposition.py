"""Where the server's error comes from: E|v - grad f(w)|^2 split into its parts, measured without disturbing the run.

Given the state before the round and the clients that are available (n of them, M drawn uniformly), with z_i = N p_i (Delta_i - memory_i),
kappa the method's gain, m = sum_i p_i E Delta_i, v_fb the same with full-batch local steps, H and V the dispersion of E z_i and the mean
minibatch variance of z_i over the available:

    participation = kappa^2 [ (n - M) / (M (n - 1)) H + (1/M - 1/n) V ]      who was drawn; where M varies, the mean over M, plus
                    var(kappa_M) |mean_available E z|^2
    noise         = kappa^2 V / n                                            minibatches, even if all the available took part
    beta          = offset + kappa mean_available E z - m,  bias = |beta|^2  the available are not everybody; a method's own bias
    drift         = |m - grad f|^2 (mode "cheap") or |v_fb - grad f|^2       local models move away during the pass
    interaction   = |beta + m - grad f|^2 - bias - drift
    total         = participation + noise + |beta + m - grad f|^2

Mode "cheap" counts the bias that noise itself causes along a pass, b = m - v_fb, as drift; mode "full" takes full-batch passes as well
and leaves b in the interaction. Everything is estimated without bias from J independent repetitions of the pass of the probed clients.
The `check` is an independent estimate of the total: random cohorts of the law, each with minibatches of its own, through the
algorithm's own `direction`. How the formulas come about: ARCHITECTURE.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedviz.algorithms import Cohort, LocalResult
from fedviz.keyed_random import Purpose, subset, uniforms
from fedviz.simulation.estimators import Ids, Sample, Stratum, choose
from fedviz.simulation.local_pass import Pass, evaluations
from fedviz.simulation.records import Decomposition

if TYPE_CHECKING:
    from fedviz.algorithms import Algorithm, State
    from fedviz.config import SimulationConfig
    from fedviz.participation import Law
    from fedviz.problems import Problem

AT_ONCE = 128  # clients whose passes or gradients are held at a time
CHECK_COHORTS = 64
CHECK_REPLICA = 64  # the first of the check's own repetitions; those of the parts are 1 ... 16


def wide(x: Tensor) -> Tensor:
    """x in float64; on the CPU where the device has none."""
    return x.cpu().double() if x.device.type == "mps" else x.double()


def in_chunks(ids: Ids) -> list[Ids]:
    """`ids` in order, at most AT_ONCE at a time."""
    return np.split(ids, range(AT_ONCE, len(ids), AT_ONCE))


@dataclass(frozen=True)
class Probe:
    """A moment of a run to be measured: the state before the step of `round`. Measuring changes nothing."""

    config: SimulationConfig
    problem: Problem
    algorithm: Algorithm
    state: State
    w: Tensor
    law: Law
    round: int
    clusters: Ids | None  # [N] behind sigma_K^2
    between_steps: Callable[[], None] = lambda: None

    def measure(self) -> tuple[Decomposition, int]:
        """(the decomposition, sample gradients that it took)."""
        settings, everybody = self.config.probe, np.arange(self.problem.num_clients)
        gradients = self.full_gradients()
        strata = choose(self.law.available, len(everybody), settings.clients, self.config.seed, self.round)
        ids = np.concatenate([part.ids for part in strata])
        updates = wide(torch.stack([self.passes(ids, replica=j) for j in range(1, settings.replicas + 1)]))
        spent = self.problem.full_evaluations(everybody)
        spent += settings.replicas * evaluations(self.config, self.problem, ids)
        full = None
        if settings.mode == "full":
            full = Sample(wide(self.passes(ids, full_batch=True))[None])
            spent += evaluations(self.config, self.problem, ids, full_batch=True)
        check = check_error = None
        every = settings.check_every * (self.config.probe_every or 0)
        if every and self.round % every == 0 and len(self.law.sizes):
            check, check_error, more = self.check(gradients.mean)
            spent += more
        return self.decompose(Sample(updates), full, strata, gradients, check, check_error), spent

    def passes(self, ids: Ids, *, replica: int = 0, full_batch: bool = False) -> Tensor:
        """[Q, d] Delta_i of a repetition of the round's passes of clients `ids`."""
        what = (self.config, self.problem, self.algorithm, self.state, self.w)
        how: Any = {"replica": replica, "full_batch": full_batch, "between_steps": self.between_steps}
        parts = [Pass(*what, chunk, self.round, **how).make() for chunk in in_chunks(ids)]
        return torch.cat([part.updates for part in parts])

    def full_gradients(self) -> FullGradients:
        """grad f with the spread of the clients' gradients around it, around their clusters' means, and around the memories."""
        p, d = wide(self.problem.client_weights), len(self.w)
        mean = p.new_zeros(d)
        labels = None if self.clusters is None else p.new_tensor(self.clusters).long()
        sums = None if labels is None else p.new_zeros(int(labels.max()) + 1, d)
        norms = p.new_zeros(self.problem.num_clients)
        state_error: float | None = 0.0
        for chunk in in_chunks(np.arange(self.problem.num_clients)):
            weighted, g = p[chunk], wide(self.problem.client_gradients(self.w, chunk))
            mean += weighted @ g
            norms[chunk] = g.square().sum(1)
            if sums is not None and labels is not None:
                sums.index_add_(0, labels[chunk], weighted[:, None] * g)
            stand_in = self.algorithm.stand_in(self.state, torch.as_tensor(chunk, device=self.w.device))
            if stand_in is None:
                state_error = None
            elif state_error is not None:
                state_error += float(weighted @ (wide(stand_in) - g).square().sum(1))
        within = largest = clusters = None
        if sums is not None and labels is not None:
            totals = p.new_zeros(len(sums)).index_add_(0, labels, p)
            inside = p.new_zeros(len(sums)).index_add_(0, labels, p * norms) - sums.square().sum(1) / totals
            within, largest, clusters = float(inside.sum()), float((inside / totals).max()), len(sums)
        dissimilarity = float(p @ norms) - float(mean @ mean)
        return FullGradients(mean, dissimilarity, within, largest, clusters, state_error)

    def check(self, gradient: Tensor) -> tuple[float, float, int]:
        """(mean of |v - grad f|^2 over random cohorts with fresh minibatches, its standard error, sample gradients taken)."""
        seed, law = self.config.seed, self.law
        lottery = uniforms(seed, Purpose.CHECK, round=self.round, client=np.arange(CHECK_COHORTS), size=1)[:, 0]
        sizes = law.sizes[np.searchsorted(np.cumsum(law.chances), lottery).clip(max=len(law.sizes) - 1)]
        errors, spent = [], 0
        for number, size in enumerate(sizes.tolist()):
            replica = CHECK_REPLICA + number
            ids = subset(seed, Purpose.CHECK, law.available, size, round=self.round, replica=replica)
            clients = torch.as_tensor(ids, device=self.w.device)
            gain = float(law.gains[law.sizes == size][0])
            weights = self.problem.client_weights[clients] * (self.problem.num_clients * gain / size)
            result = LocalResult(self.passes(ids, replica=replica))
            v = self.algorithm.direction(self.state, Cohort(self.round, clients, weights), result)
            errors.append(float((wide(v) - gradient).square().sum()))
            spent += evaluations(self.config, self.problem, ids)
        return float(np.mean(errors)), float(np.std(errors, ddof=1) / CHECK_COHORTS**0.5), spent

    def decompose(
        self,
        delta: Sample,
        full: Sample | None,
        strata: list[Stratum],
        gradients: FullGradients,
        check: float | None = None,
        check_error: float | None = None,
    ) -> Decomposition:
        """The parts, from repetitions of Delta_i (float64) of the clients of `strata`, the available first."""
        algorithm, law, n = self.algorithm, self.law, len(self.law.available)
        p, zero = wide(self.problem.client_weights), gradients.mean.new_zeros(gradients.mean.shape)
        ids = np.concatenate([part.ids for part in strata])
        scale = self.problem.num_clients * p  # [N] N p_i
        everyone = [(part, p[part.ids]) for part in strata]
        from_all = delta if full is None else full  # what v_fb, or m in mode "cheap", is made of
        moved = delta.squared_norm(-gradients.mean, everyone)  # |m - grad f|^2
        drift = moved if full is None else full.squared_norm(-gradients.mean, everyone)
        noise_drift = None if full is None else Sample(delta.x - full.x).squared_norm(zero, everyone)

        participation = sampling = noise = bias = 0.0
        missed = moved  # |beta + m - grad f|^2
        if n:  # otherwise nobody can take part: the server stands still, and there is no direction to take apart
            M, chance = law.sizes, law.chances
            gains = law.gains * [algorithm.gain(int(size)) for size in M]
            gain = float(chance @ gains)
            gain_variance = float(chance @ (gains - gain) ** 2)
            squared = chance * gains**2
            memory = algorithm.memory(self.state, torch.as_tensor(ids, device=self.w.device))
            z = Sample((delta.x if memory is None else delta.x - wide(memory)) * scale[ids, None])
            present = strata[0]
            variance = float(z.variances[present.rows].mean())
            sampling = float(squared @ ((n - M) / (M * max(1, n - 1)))) * z.dispersion(present)
            if gain_variance > 0:  # how many come changes how far the server goes
                sampling += gain_variance * z.squared_norm(zero, [(present, torch.full_like(p[present.ids], 1 / n))])
            participation = sampling + float(squared @ (1 / M - 1 / n)) * variance
            noise = float(squared.sum()) * variance / n

            remembered = algorithm.offset(self.state)
            offset = zero if remembered is None else wide(remembered)
            missed = z.squared_norm(offset - gradients.mean, [(present, torch.full_like(p[present.ids], gain / n))])
            # beta as constant + sum_i a_i Delta_i: where all are available, the a_i vanish and so does the noise of its estimate.
            in_use = torch.zeros_like(p)
            in_use[law.available] = gain / n
            a = scale * in_use - p
            constant = offset - self._mean_memory(scale * in_use)
            bias = delta.squared_norm(constant, [(part, a[part.ids]) for part in strata])

        direction_sq = from_all.squared_norm(zero, everyone)
        gradient_sq = float(gradients.mean @ gradients.mean)
        shrinkage = cosine = perpendicular = None
        if gradient_sq > 0:
            axis = gradients.mean / gradient_sq**0.5
            along = Sample((from_all.x @ axis).unsqueeze(-1))
            length = float(along.combination(zero.new_zeros(1), everyone))
            shrinkage = length / gradient_sq**0.5
            perpendicular = direction_sq - along.squared_norm(zero.new_zeros(1), everyone)
            if direction_sq > 0:
                cosine = float(np.clip(length / direction_sq**0.5, -1, 1))
        return Decomposition(
            participation=participation,
            participation_sampling=sampling,
            noise=noise,
            bias=bias,
            drift=drift,
            interaction=missed - bias - drift,
            total=participation + noise + missed,
            mode="cheap" if full is None else "full",
            noise_drift=noise_drift,
            gradient_norm_sq=gradient_sq,
            direction_norm_sq=direction_sq,
            shrinkage=shrinkage,
            cosine=cosine,
            perpendicular=perpendicular,
            dissimilarity=gradients.dissimilarity,
            within_cluster_dissimilarity=gradients.within,
            largest_cluster_dissimilarity=gradients.largest,
            clusters=gradients.clusters,
            state_error=gradients.state_error,
            probed_clients=len(ids),
            check=check,
            check_error=check_error,
        )

    def _mean_memory(self, coefficients: Tensor) -> Tensor:
        """[d] sum of coefficients_i memory_i over the available clients, a chunk at a time."""
        total = coefficients.new_zeros(len(self.w))
        for chunk in in_chunks(self.law.available):
            memory = self.algorithm.memory(self.state, torch.as_tensor(chunk, device=self.w.device))
            if memory is None:
                break
            total += coefficients[chunk] @ wide(memory)
        return total


@dataclass(frozen=True)
class FullGradients:
    """What is known of the clients' full-data gradients at w."""

    mean: Tensor  # [d] grad f, float64
    dissimilarity: float  # sigma_g^2
    within: float | None  # sigma_K^2, the mean over clients
    largest: float | None  # the same of the cluster where it is largest
    clusters: int | None
    state_error: float | None  # mean over clients of |memory - grad f_i|^2
