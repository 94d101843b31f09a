"""Unbiased estimates from repeated passes of some of the clients.

The estimates concern the means E x_i of random vectors x_i of all clients. Seen are J independent repetitions of each of the probed
clients: all clients, or subsets drawn uniformly from groups of them (strata).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedviz.keyed_random import Purpose, subset

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Stratum:
    """A group of `size` clients, of which `ids` (all, or a uniform subset) were probed; at rows `rows` of the probe."""

    size: int
    ids: Ids
    rows: slice


def choose(available: Ids, num_clients: int, most: int, seed: int, round: int) -> list[Stratum]:
    """At most `most` clients to probe: first of the available, then of the others; an empty group has no stratum."""
    others = np.setdiff1d(np.arange(num_clients), available)
    groups = [group for group in (available, others) if len(group)]
    if num_clients <= most:
        chosen = groups
    else:
        # Half for each of two groups, or all of a group that is smaller than that.
        half = most // len(groups)
        quota = [min(len(group), max(half, most - sum(len(g) for g in groups if g is not group))) for group in groups]
        chosen = [
            subset(seed, Purpose.PROBE_CLIENTS, group, q, round=round) for group, q in zip(groups, quota, strict=True)
        ]
    ends = np.cumsum([len(ids) for ids in chosen])
    return [
        Stratum(len(group), ids, slice(int(end) - len(ids), int(end)))
        for group, ids, end in zip(groups, chosen, ends, strict=True)
    ]


@dataclass(frozen=True)
class Sample:
    """Repetitions x [J, Q, ...] of vectors of the probed clients; J = 1 for vectors without noise."""

    x: Tensor

    @cached_property
    def mean(self) -> Tensor:
        """[Q, ...] mean over the repetitions."""
        return self.x.mean(0)

    @cached_property
    def variances(self) -> Tensor:
        """[Q] unbiased trace of the covariance of x_i."""
        return (self.x - self.mean).square().flatten(2).sum((0, 2)) / max(1, len(self.x) - 1)

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
