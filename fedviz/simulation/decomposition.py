"""Where the server's error comes from: E|v - grad f(w)|^2 split into its parts, measured without disturbing the run.

Given the state before the round and the clients that are available (n of them, M drawn uniformly), with z_i = N p_i (Delta_i - memory_i),
kappa the method's gain, m = E Delta, H and V the dispersion of E z_i and the mean minibatch variance of z_i over the available clients:

    participation = kappa^2 [ (n - M) / (M (n - 1)) H + (1/M - 1/n) V ]      who was drawn
    noise         = kappa^2 V / n                                            minibatches, even if all the available took part
    beta          = offset + kappa mean_available E z - m,  bias = |beta|^2  the available are not everybody; a method's own bias
    drift         = |m - grad f|^2                                           local models move away during the pass
    interaction   = |beta + m - grad f|^2 - bias - drift
    total         = participation + noise + |beta + m - grad f|^2

Here m includes the bias that noise itself causes along a pass (mode "cheap": no full-batch passes). Everything is estimated without
bias from J independent repetitions of the pass of the probed clients, with minibatches of their own: all clients up to `MOST_CLIENTS`,
else a subset drawn from the available and from the others apart. FedVARP paper; PAPERS.md sections 6 and 9 of the derivation in
ARCHITECTURE.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedviz.keyed_random import Purpose, subset
from fedviz.simulation.local_pass import local_pass
from fedviz.simulation.records import Decomposition

if TYPE_CHECKING:
    from fedviz.algorithms import Algorithm, State
    from fedviz.config import SimulationConfig
    from fedviz.participation import Law
    from fedviz.problems import Problem

REPLICAS = 2  # J
MOST_CLIENTS = 100  # Q
AT_ONCE = 128  # clients whose passes or gradients are held at a time

Ids = NDArray[np.int64]


def wide(x: Tensor) -> Tensor:
    """x in float64; on the CPU where the device has none."""
    return x.cpu().double() if x.device.type == "mps" else x.double()


@dataclass(frozen=True)
class Stratum:
    """A group of `size` clients, of which `ids` (all, or a uniform subset) were probed; at rows `rows` of the probe."""

    size: int
    ids: Ids
    rows: slice


@dataclass(frozen=True)
class Sample:
    """Repetitions x [J, Q, ...] of vectors of the probed clients, with unbiased estimates of functions of their means E x_i."""

    x: Tensor

    @cached_property
    def mean(self) -> Tensor:
        """[Q, ...] mean over the repetitions."""
        return self.x.mean(0)

    @cached_property
    def variances(self) -> Tensor:
        """[Q] unbiased trace of the covariance of x_i."""
        return (self.x - self.mean).square().flatten(2).sum((0, 2)) / (len(self.x) - 1)

    def dispersion(self, part: Stratum) -> float:
        """(1/n) sum |E x_i - mean E x|^2 over the n clients of `part`."""
        return (part.size - 1) / part.size * self._spread(part) if part.size > 1 else 0.0

    def _spread(self, part: Stratum) -> float:
        """The same with n - 1 for n: what the variance of a uniform subset's mean is made of."""
        mean, probed = self.mean[part.rows], len(part.ids)
        seen = (mean - mean.mean(0)).square().sum() / (probed - 1)
        return float(seen - self.variances[part.rows].mean() / len(self.x))

    def combination(self, constant: Tensor, strata: list[tuple[Stratum, Tensor]]) -> Tensor:
        """constant + sum over all clients of a_i E x_i, [...]; each stratum with the coefficients a [Q_h] of its probed clients."""
        total = constant.clone()
        for part, a in strata:
            total += part.size / len(part.ids) * torch.tensordot(a, self.mean[part.rows], 1)
        return total

    def squared_norm(self, constant: Tensor, strata: list[tuple[Stratum, Tensor]]) -> float:
        """|constant + sum_i a_i E x_i|^2, the noise of repetitions and of probing a subset taken off."""
        value = self.combination(constant, strata).square().sum()
        for part, a in strata:
            scale = part.size / len(part.ids)
            value -= (scale * a).square() @ self.variances[part.rows] / len(self.x)
            if len(part.ids) < part.size:
                shape = (-1, *[1] * (self.x.dim() - 2))
                weighted = Sample(self.x[:, part.rows] * a.view(shape))
                every = Stratum(part.size, part.ids, slice(None))
                value -= part.size**2 * (1 / len(part.ids) - 1 / part.size) * weighted._spread(every)
        return float(value)


def probe(
    config: SimulationConfig,
    problem: Problem,
    algorithm: Algorithm,
    state: State,
    w: Tensor,
    law: Law,
    round: int,
    clusters: Ids | None,
) -> tuple[Decomposition, int]:
    """(the decomposition at w before the step of `round`, sample gradients it took). Changes nothing."""
    gradients = full_gradients(problem, w, clusters)
    strata = choose(law.available, problem.num_clients, config.seed, round)
    ids = np.concatenate([part.ids for part in strata])
    updates = wide(replicas(config, problem, algorithm, state, w, ids, round))
    evaluations = problem.full_evaluations(np.arange(problem.num_clients)) + REPLICAS * problem.pass_evaluations(
        ids, config.local_steps
    )
    return decompose(updates, strata, algorithm, state, problem, law, gradients), evaluations


def choose(available: Ids, num_clients: int, seed: int, round: int) -> list[Stratum]:
    """The clients to probe: first of the available, then of the others; an empty group has no stratum."""
    others = np.setdiff1d(np.arange(num_clients), available)
    groups = [group for group in (available, others) if len(group)]
    if num_clients <= MOST_CLIENTS:
        chosen = groups
    else:
        # Half for each of two groups, or all of a group that is smaller than that; two at least, for a spread.
        half = MOST_CLIENTS // len(groups)
        quota = [
            min(len(group), max(half, MOST_CLIENTS - sum(len(g) for g in groups if g is not group))) for group in groups
        ]
        chosen = [
            subset(seed, Purpose.PROBE_CLIENTS, group, q, round=round) for group, q in zip(groups, quota, strict=True)
        ]
    ends = np.cumsum([len(ids) for ids in chosen])
    return [
        Stratum(len(group), ids, slice(int(end) - len(ids), int(end)))
        for group, ids, end in zip(groups, chosen, ends, strict=True)
    ]


def replicas(
    config: SimulationConfig, problem: Problem, algorithm: Algorithm, state: State, w: Tensor, ids: Ids, round: int
) -> Tensor:
    """[J, Q, d] Delta_i of fresh repetitions of the pass of clients `ids` [Q]."""

    def one(chunk: Ids, replica: int) -> Tensor:
        clients = torch.as_tensor(chunk, device=w.device)
        return local_pass(
            problem,
            w,
            chunk,
            round=round,
            steps=config.local_steps,
            client_lr=config.client_lr,
            correction=algorithm.correction(state, clients),
            mu=algorithm.mu,
            replica=replica,
        ).updates

    chunks = np.split(ids, range(AT_ONCE, len(ids), AT_ONCE))
    return torch.stack([torch.cat([one(chunk, replica) for chunk in chunks]) for replica in range(1, REPLICAS + 1)])


@dataclass(frozen=True)
class FullGradients:
    """What is known of the clients' full-data gradients at w."""

    mean: Tensor  # [d] grad f, float64
    dissimilarity: float  # sigma_g^2
    within: float | None  # sigma_K^2
    clusters: int | None


def full_gradients(problem: Problem, w: Tensor, clusters: Ids | None) -> FullGradients:
    """grad f with the spread of the clients' gradients around it and around the means of their `clusters` [N]."""
    everyone, p = np.arange(problem.num_clients), wide(problem.client_weights)
    d = len(w)
    mean = p.new_zeros(d)
    labels = None if clusters is None else p.new_tensor(clusters).long()
    sums = None if labels is None else p.new_zeros(int(labels.max()) + 1, d)
    chunks = np.split(everyone, range(AT_ONCE, len(everyone), AT_ONCE))
    norms = 0.0
    for chunk in chunks:
        weighted, g = p[chunk], wide(problem.client_gradients(w, chunk))
        mean += weighted @ g
        norms += float(weighted @ g.square().sum(1))
        if sums is not None and labels is not None:
            sums.index_add_(0, labels[chunk], weighted[:, None] * g)
    within = None
    if sums is not None and labels is not None:
        totals = p.new_zeros(len(sums)).index_add_(0, labels, p)
        within = norms - float((sums.square().sum(1) / totals).sum())
    return FullGradients(mean, norms - float(mean @ mean), within, None if sums is None else len(sums))


def decompose(
    updates: Tensor,
    strata: list[Stratum],
    algorithm: Algorithm,
    state: State,
    problem: Problem,
    law: Law,
    gradients: FullGradients,
) -> Decomposition:
    """The parts from repetitions `updates` [J, Q, d] (float64) of the clients of `strata`, the available first."""
    n, M = len(law.available), law.drawn
    p, zero = wide(problem.client_weights), gradients.mean.new_zeros(gradients.mean.shape)
    ids = np.concatenate([part.ids for part in strata])
    scale = problem.num_clients * p  # [N] N p_i
    delta = Sample(updates)
    everyone = [(part, p[part.ids]) for part in strata]
    drift = delta.squared_norm(-gradients.mean, everyone)
    direction_sq = delta.squared_norm(zero, everyone)

    participation = sampling = noise = bias = interaction = 0.0
    total = drift
    if n:  # otherwise nobody can take part: the server stands still, and there is no direction to take apart
        gain = algorithm.gain(M)
        memory = algorithm.memory(state, torch.as_tensor(ids, device=problem.client_weights.device))
        z = Sample((updates if memory is None else updates - wide(memory)) * scale[ids, None])
        present = strata[0]
        spread, variance = z.dispersion(present), float(z.variances[present.rows].mean())
        factor = (n - M) / (M * (n - 1)) if n > 1 else 0.0
        sampling = gain**2 * factor * spread
        participation = sampling + gain**2 * (1 / M - 1 / n) * variance
        noise = gain**2 * variance / n

        remembered = algorithm.offset(state)
        offset = zero if remembered is None else wide(remembered)
        mean_of_present = [(present, torch.full_like(p[present.ids], gain / n))]
        missed = z.squared_norm(offset - gradients.mean, mean_of_present)  # |beta + m - grad f|^2
        # beta as constant + sum_i a_i Delta_i: where all are available, the a_i vanish and so does the noise of its estimate.
        in_use = torch.zeros_like(p)
        in_use[law.available] = gain / n
        a = scale * in_use - p
        constant = offset - _mean_memory(algorithm, state, law.available, scale * in_use, zero)
        bias = delta.squared_norm(constant, [(part, a[part.ids]) for part in strata])
        interaction = missed - bias - drift
        total = participation + noise + missed

    gradient_sq = float(gradients.mean @ gradients.mean)
    shrinkage = cosine = perpendicular = None
    if gradient_sq > 0:
        axis = gradients.mean / gradient_sq**0.5
        along = Sample((updates @ axis).unsqueeze(-1))
        length = along.combination(zero.new_zeros(1), everyone)
        shrinkage = float(length) / gradient_sq**0.5
        perpendicular = direction_sq - along.squared_norm(zero.new_zeros(1), everyone)
        if direction_sq > 0:
            cosine = float(np.clip(float(length) / direction_sq**0.5, -1, 1))
    return Decomposition(
        participation=participation,
        participation_sampling=sampling,
        noise=noise,
        bias=bias,
        drift=drift,
        interaction=interaction,
        total=total,
        mode="cheap",
        gradient_norm_sq=gradient_sq,
        direction_norm_sq=direction_sq,
        shrinkage=shrinkage,
        cosine=cosine,
        perpendicular=perpendicular,
        dissimilarity=gradients.dissimilarity,
        within_cluster_dissimilarity=gradients.within,
        clusters=gradients.clusters,
        probed_clients=len(ids),
    )


def _mean_memory(algorithm: Algorithm, state: State, clients: Ids, coefficients: Tensor, zero: Tensor) -> Tensor:
    """[d] sum of coefficients_i memory_i over `clients`, a chunk at a time."""
    total = zero.clone()
    for chunk in np.split(clients, range(AT_ONCE, len(clients), AT_ONCE)):
        memory = algorithm.memory(
            state, torch.as_tensor(chunk, device=next(iter(state.values())).device if state else None)
        )
        if memory is None:
            return total
        total += coefficients[chunk] @ wide(memory)
    return total
