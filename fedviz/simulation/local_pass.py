"""The clients' work of a round: what the cohort brings back.

Delta_i is the mean of the steps of a local pass in gradient units (`problems/local_sgd.py`); an algorithm without a pass (`local` is
"gradient") has Delta_i = grad f_i(w) instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import torch

from fedviz.algorithms import LocalResult
from fedviz.problems.local_sgd import Rule, local_sgd

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
    correction = algorithm.correction(state, torch.as_tensor(ids, device=w.device))
    rule = Rule(config.steps, config.client_lr, correction, algorithm.mu)
    if full_batch:

        def gradient(u: Tensor, _step: int, out: Tensor) -> None:
            between_steps()
            out.copy_(problem.client_gradients(u, ids))

        updates, raw = local_sgd(w.expand(len(ids), -1), gradient, rule)
    else:
        updates, raw = problem.local_passes(w, ids, rule, round, replica, between_steps)
    training = not replica and not full_batch
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
