"""A local pass, batched over clients: the reference that every faster way is held to.

    u_0 = w,  u_{k+1} = u_k - eta_c (g_i(u_k) + correction_i + mu (u_k - w)),  Delta_i = the mean of the brackets over the pass

Delta_i is accumulated, not won back from (w - u) / (eta_c steps): in float32 that difference loses up to all its digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Rule:
    """What a local pass does with its gradients."""

    steps: int
    client_lr: float | Tensor  # eta_c; [S, 1] where clients of several runs pass together
    correction: Tensor | None = None  # [S, d], fixed during the pass
    mu: float | Tensor = 0.0


def local_sgd(start: Tensor, gradient: Callable[[Tensor, int, Tensor], object], rule: Rule) -> tuple[Tensor, Tensor]:
    """(Delta_i, mean raw gradient), both [S, d], of passes from `start` [S, d].

    gradient(u, step, out) writes the gradients at u [S, d] in `step` (from 0) into out [S, d].
    """
    u = start.clone()
    total, step_by = u.new_zeros(u.shape), u.new_empty(u.shape)  # total: of raw gradients
    pull = u.new_zeros(u.shape) if not isinstance(rule.mu, float) or rule.mu else None  # of mu (u - w)
    for step in range(rule.steps):
        gradient(u, step, step_by)
        total += step_by
        if rule.correction is not None:
            step_by += rule.correction
        if pull is not None:
            prox = (u - start).mul_(rule.mu)
            pull += prox
            step_by += prox
        u -= step_by.mul_(rule.client_lr)
    raw = total / rule.steps
    updates = raw.clone()
    if rule.correction is not None:
        updates += rule.correction
    if pull is not None:
        updates += pull / rule.steps
    return updates, raw
