"""The clients' work of a round: local SGD, batched over the cohort.

    u_0 = w,  u_{k+1} = u_k - eta_c (g_i(u_k) + correction_i + mu (u_k - w)),  Delta_i = the mean of the brackets over the pass

Delta_i is accumulated, not won back from (w - u) / (eta_c steps): in float32 that difference loses up to all its digits.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from fedviz.algorithms import LocalResult

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from fedviz.problems import Problem


def local_pass(
    problem: Problem,
    w: Tensor,
    clients: NDArray[np.int64],
    *,
    round: int,
    steps: int,
    client_lr: float,
    correction: Tensor | None = None,
    mu: float = 0.0,
    needs: Collection[str] = (),
    replica: int = 0,
) -> LocalResult:
    """What `clients` [S] bring back from a pass that starts at w [d]; correction [S, d] is fixed during it.

    replica 0 is the training run; others are independent repetitions of the round with fresh minibatches.
    """
    draws = problem.draws(clients, round, steps, replica)
    u = w.expand(len(clients), -1).clone()
    total, gradient = u.new_zeros(u.shape), u.new_empty(u.shape)  # total: of raw gradients
    pull = u.new_zeros(u.shape) if mu else None  # of mu (u - w)
    for step in range(steps):
        problem.gradient(u, draws, step, gradient)
        total += gradient
        if correction is not None:
            gradient += correction
        if pull is not None:
            prox = (u - w).mul_(mu)
            pull += prox
            gradient += prox
        u.sub_(gradient, alpha=client_lr)
    raw = total / steps
    updates = raw.clone() if "gradients" in needs else raw
    if correction is not None:
        updates += correction
    if pull is not None:
        updates += pull / steps
    return LocalResult(
        updates=updates,
        gradients=raw if "gradients" in needs else None,
        anchors=problem.client_gradients(w, clients) if "anchors" in needs else None,
    )
