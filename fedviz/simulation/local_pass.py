"""The clients' work of a round: local SGD, batched over the cohort.

    u_0 = w,  u_{k+1} = u_k - eta_c (g_i(u_k) + correction_i + mu (u_k - w)),  Delta_i = the mean of the brackets over the pass

Delta_i is accumulated, not won back from (w - u) / (eta_c steps): in float32 that difference loses up to all its digits. An algorithm
without a pass (`local` is "gradient") has Delta_i = grad f_i(w) instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import torch

from fedviz.algorithms import LocalResult

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from fedviz.algorithms import Algorithm, State
    from fedviz.config import SimulationConfig
    from fedviz.problems import Problem


def bring_back(
    config: SimulationConfig,
    problem: Problem,
    algorithm: Algorithm,
    state: State,
    w: Tensor,
    ids: NDArray[np.int64],
    round: int,
    *,
    replica: int = 0,
    full_batch: bool = False,
    between_steps: Callable[[], None] = lambda: None,
) -> LocalResult:
    """What clients `ids` [S] bring back in `round` from w [d], as the algorithm asks for it. Changes nothing.

    replica 0 is the training run; others are independent repetitions of the round with fresh minibatches, and bring updates alone.
    full_batch: every local step takes the full-data gradient instead of a minibatch's. between_steps may raise to leave.
    """
    if config.algorithm.local == "gradient":
        return LocalResult(problem.client_gradients(w, ids))
    draws = None if full_batch else problem.draws(ids, round, config.steps, replica)

    def gradient(u: Tensor, step: int, out: Tensor) -> None:
        between_steps()
        if full_batch:
            out.copy_(problem.client_gradients(u, ids))
        else:
            problem.gradient(u, draws, step, out)

    training = not replica and not full_batch
    correction = algorithm.correction(state, torch.as_tensor(ids, device=w.device))
    start = w.expand(len(ids), -1)
    updates, raw = local_pass(start, gradient, config.steps, config.client_lr, correction=correction, mu=algorithm.mu)
    return LocalResult(
        updates=updates,
        gradients=raw if training and "gradients" in algorithm.needs else None,
        anchors=problem.client_gradients(w, ids) if training and "anchors" in algorithm.needs else None,
    )


def evaluations(
    config: SimulationConfig,
    problem: Problem,
    ids: NDArray[np.int64],
    *,
    needs: Collection[str] = (),
    full_batch: bool = False,
) -> int:
    """Gradients of single samples that `bring_back` takes for clients `ids`."""
    if config.algorithm.local == "gradient":
        return problem.full_evaluations(ids)
    if full_batch:
        return config.steps * problem.full_evaluations(ids)
    return problem.pass_evaluations(ids, config.steps) + ("anchors" in needs) * problem.full_evaluations(ids)


def local_pass(
    start: Tensor,
    gradient: Callable[[Tensor, int, Tensor], None],
    steps: int,
    client_lr: float,
    *,
    correction: Tensor | None = None,
    mu: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """(Delta_i, mean raw gradient), both [S, d], of passes from `start` [S, d].

    gradient(u, step, out) writes the gradients at u [S, d] in `step` (from 0) into out [S, d]; correction [S, d] is fixed.
    """
    u = start.clone()
    total, step_by = u.new_zeros(u.shape), u.new_empty(u.shape)  # total: of raw gradients
    pull = u.new_zeros(u.shape) if mu else None  # of mu (u - w)
    for step in range(steps):
        gradient(u, step, step_by)
        total += step_by
        if correction is not None:
            step_by += correction
        if pull is not None:
            prox = (u - start).mul_(mu)
            pull += prox
            step_by += prox
        u.sub_(step_by, alpha=client_lr)
    raw = total / steps
    updates = raw.clone()
    if correction is not None:
        updates += correction
    if pull is not None:
        updates += pull / steps
    return updates, raw
