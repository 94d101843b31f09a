"""A local pass recorded once and replayed: on a CUDA device, all local steps of a round are one graph, launched at once.

A step of a small model is a dozen kernels of a few microseconds; launched one by one they leave the device idle most of the time. A graph
needs its tensors in place, so a pass is copied in, replayed, and copied out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from fedviz.problems.local_sgd import Rule, local_sgd

if TYPE_CHECKING:
    from torch import Tensor

    from fedviz.problems.classifier_torch import Draws

# gradient(u [S, d], draws, step, out [S, d]) writes the gradients of a step into out.
Gradient = Callable[["Tensor", "Draws", int, "Tensor"], object]


_CAPTURING = threading.Lock()  # a process can record one graph at a time; runs have threads of their own


class RecordedPass:
    """Passes of S clients like the given ones: the same numbers of steps, clients and samples, the same rates."""

    def __init__(self, gradient: Gradient, w: Tensor, draws: Draws, rule: Rule, *, capture: bool) -> None:
        """w [d] or [S, d], draws and rule are an example; nothing of them is kept. capture: as a CUDA graph, on the device of w."""
        self.start = w.new_zeros(draws.weights.shape[0], w.shape[-1])
        self.draws = replace(draws, rows=torch.zeros_like(draws.rows), weights=torch.zeros_like(draws.weights))
        self.rule = replace(rule, correction=None if rule.correction is None else torch.zeros_like(self.start))
        self.gradient = gradient
        self.graph: torch.cuda.CUDAGraph | None = None
        if capture:
            with _CAPTURING:
                self._capture()

    def _capture(self) -> None:
        """Record the pass on buffers that stay."""
        beside = torch.cuda.Stream()  # libraries choose their kernels in two passes outside the recording
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(2):
                self._pass()
        torch.cuda.current_stream().wait_stream(beside)
        self.graph = torch.cuda.CUDAGraph()
        # Other runs' threads may use the device meanwhile.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.result = self._pass()

    def _pass(self) -> tuple[Tensor, Tensor]:
        return local_sgd(self.start, lambda u, step, out: self.gradient(u, self.draws, step, out), self.rule)

    def __call__(self, w: Tensor, draws: Draws, correction: Tensor | None) -> tuple[Tensor, Tensor]:
        """(Delta_i, mean raw gradient), both [S, d], of passes from w: [d], or [S, d] one for each client."""
        self.start.copy_(w)
        self.draws.rows.copy_(draws.rows)
        self.draws.weights.copy_(draws.weights)
        if self.rule.correction is not None and correction is not None:
            self.rule.correction.copy_(correction)
        if self.graph is None:
            self.result = self._pass()
        else:
            self.graph.replay()
        updates, raw = self.result
        return updates.clone(), raw.clone()
