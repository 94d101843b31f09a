"""Models as gradients over a batch of clients.

Softmax regression: logits = W x + b, loss = cross-entropy. The parameter vector is W [C, D] row by row, then b [C], so that one
client's W is contiguous and a cohort is one batched matrix product.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Softmax:
    """Softmax regression from `inputs` D to `labels` C; d = C (D + 1). Starts at zero."""

    def __init__(self, inputs: int, labels: int) -> None:
        self.inputs, self.labels = inputs, labels
        self.dimension = labels * (inputs + 1)

    def start(self, like: Tensor) -> Tensor:
        """w_0 [d] of the dtype and device of `like`."""
        return like.new_zeros(self.dimension)

    def _parts(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Views W [..., C, D] and b [..., C] of u [..., d]."""
        split = self.labels * self.inputs
        return u[..., :split].unflatten(-1, (self.labels, self.inputs)), u[..., split:]

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """[n, C] for one model w [d] on x [n, D]."""
        weight, bias = self._parts(w)
        return torch.addmm(bias, x, weight.T)

    def gradients(self, u: Tensor, x: Tensor, y: Tensor, sample_weights: Tensor, out: Tensor) -> Tensor:
        """Into out [S, d]: gradients of sum_b sample_weights_sb loss_sb for S models u [S, d] on x [S, B, D], y [S, B].

        Label-major products, [S, C, B]: both matrix products then run along rows as they lie in memory.
        """
        weight, bias = self._parts(u)
        residual = torch.baddbmm(bias.unsqueeze(-1), weight, x.transpose(1, 2)).softmax(1)
        residual.scatter_add_(1, y.unsqueeze(1), residual.new_full((), -1.0).expand(len(y), 1, y.shape[1]))
        residual *= sample_weights.unsqueeze(1)
        weight_gradient, bias_gradient = self._parts(out)
        torch.bmm(residual, x, out=weight_gradient)
        torch.sum(residual, 2, out=bias_gradient)
        return out


MODELS = {"softmax": Softmax}
