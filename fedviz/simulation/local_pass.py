"""The clients' work of a round: what the cohort brings back.

Delta_i is the mean of the steps of a local pass in gradient units (`problems/local_sgd.py`); an algorithm without a pass (`local` is
"gradient") has Delta_i = grad f_i(w) instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedviz.algorithms import LocalResult
from fedviz.problems.local_sgd import Rule, local_sgd
from fedviz.problems.transfer import sent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from fedviz.algorithms import Algorithm, State
    from fedviz.config import SimulationConfig
    from fedviz.problems import Problem


@dataclass
class Pass:
    """The local passes of clients `ids` [S] in `round` from w [d], as the algorithm asks for them. Making them changes nothing else.

    replica 0 is the training run; others are independent repetitions of the round with fresh minibatches, and bring updates alone.
    full_batch: every local step takes the full-data gradient instead of a minibatch's. between_steps may raise to leave.
    """

    config: SimulationConfig
    problem: Problem
    algorithm: Algorithm
    state: State
    w: Tensor
    ids: NDArray[np.int64]
    round: int
    replica: int = 0
    full_batch: bool = False
    between_steps: Callable[[], None] = lambda: None
    seconds: float = 0.0  # that making it took

    def make(self) -> LocalResult:
        """What the clients bring back."""
        began = time.perf_counter()
        if self.config.algorithm.local == "gradient":
            result = LocalResult(self.problem.client_gradients(self.w, self.ids))
        elif self.full_batch:

            def gradient(u: Tensor, _step: int, out: Tensor) -> None:
                self.between_steps()
                out.copy_(self.problem.client_gradients(u, self.ids))

            result = self._brought(*local_sgd(self.w.expand(len(self.ids), -1), gradient, self.rule()))
        else:
            passed = self.problem.local_passes(
                self.w, self.ids, self.rule(), self.round, self.replica, self.between_steps
            )
            result = self._brought(*passed)
        self.seconds = time.perf_counter() - began
        return result

    def rule(self) -> Rule:
        correction = self.algorithm.correction(self.state, sent(self.ids, self.w.device))
        return Rule(self.config.steps, self.config.client_lr, correction, self.algorithm.mu)

    def _brought(self, updates: Tensor, raw: Tensor) -> LocalResult:
        training = not self.replica and not self.full_batch
        needs = self.algorithm.needs if training else ()
        return LocalResult(
            updates=updates,
            gradients=raw if "gradients" in needs else None,
            anchors=self.problem.client_gradients(self.w, self.ids) if "anchors" in needs else None,
        )

    def fits_with(self) -> Hashable:
        """Equal for passes that can be one batch: the same steps of the same model on the same images."""
        if self.config.algorithm.local == "gradient":
            return id(self)
        return self.problem.batch_key(), self.config.steps

    @staticmethod
    def make_together(passes: Sequence[Pass]) -> list[LocalResult]:
        """What each of several passes that fit together brings back, made as one batch."""
        if len(passes) == 1:
            return [passes[0].make()]
        began = time.perf_counter()
        merged = passes[0].problem.together([(p.problem, p.w, p.ids, p.rule(), p.round) for p in passes])
        for one in passes:
            one.seconds = (time.perf_counter() - began) / len(passes)
        return [one._brought(*brought) for one, brought in zip(passes, merged, strict=True)]


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
