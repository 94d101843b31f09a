"""Models as gradients over a batch of clients: parameters are flat vectors, a cohort's models one [S, d] tensor.

Products are taken in the precision of the images, which may be lower than that of the parameters; losses in that of the parameters.

Softmax regression has its gradient written out, as two batched matrix products. The networks' gradients are autograd's, mapped over
the clients. No model has state beside its parameters, and none normalises over a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from fedviz.keyed_random import Purpose, uniforms
from fedviz.problems.architectures import Shape, many_channels, shapes

Convolve = Callable[..., Tensor]  # as F.conv2d


class Model:
    """A classifier of images (channels, height, width) into `labels`; `dimension` is d."""

    convolves: ClassVar[bool] = False

    def __init__(self, name: str, image: tuple[int, int, int], labels: int) -> None:
        self.image, self.labels = image, labels
        self.shapes: list[Shape] = shapes(name, image, labels)
        self.sizes = [math.prod(shape) for shape in self.shapes]
        self.dimension = sum(self.sizes)

    def parts(self, u: Tensor) -> list[Tensor]:
        """Views of the parameters in u [..., d]."""
        return [piece.unflatten(-1, shape) for piece, shape in zip(u.split(self.sizes, -1), self.shapes, strict=True)]

    def start(self, like: Tensor, seed: int) -> Tensor:
        """w_0 [d] of the dtype and device of `like`: uniform in +-1/sqrt(inputs of the layer), torch's own default."""
        pieces = []
        for layer in range(0, len(self.shapes), 2):
            bound = 1 / math.sqrt(math.prod(self.shapes[layer][1:]))
            size = self.sizes[layer] + self.sizes[layer + 1]
            pieces.append(bound * (2 * uniforms(seed, Purpose.INITIAL, client=layer, size=size) - 1))
        return like.new_tensor(np.concatenate(pieces))

    def prepare(self, x: Tensor) -> Tensor:
        """Flat images x [n, D] in the form that `logits` and `gradients` take."""
        return x

    def images(self, x: Tensor) -> Tensor:
        """Images [n, channels, height, width] from flat ones [n, D]; unchanged if they are that already."""
        return x if x.dim() == 4 else x.unflatten(-1, self.image)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """[n, C] of one model w [d] on prepared images x [n, D]."""
        return self._alone(self.parts(w), x)

    def forward(self, parts: list[Tensor], x: Tensor, convolve: Convolve = F.conv2d) -> Tensor:
        """[n, C] of one model, given as its parameters, on prepared images x [n, D]; `convolve` stands in for `F.conv2d`."""
        raise NotImplementedError

    def _alone(self, parts: list[Tensor], x: Tensor) -> Tensor:
        """`forward` in the precision of the images, the fastest way for one model that is not mapped over clients."""
        parts = [part.to(x.dtype) for part in parts]
        if not self.convolves:
            return self.forward(parts, x)
        # Convolutions run faster with the channels of a pixel side by side.
        side_by_side = {"memory_format": torch.channels_last}
        x = self.images(x).contiguous(**side_by_side)
        parts = [part.contiguous(**side_by_side) if part.dim() == 4 else part for part in parts]
        if x.device.type != "cpu" or x.dtype is torch.bfloat16 or not any(map(many_channels, self.shapes)):
            return self.forward(parts, x)
        from fedviz.problems.winograd import convolve  # with Numba, which others do without

        return self.forward(parts, x, convolve)

    def gradients(self, u: Tensor, x: Tensor, targets: Tensor, sample_weights: Tensor, out: Tensor) -> Tensor:
        """Into out [S, d]: gradients of sum_b sample_weights_sb loss_sb for S models u [S, d].

        x [S, B, D] prepared images, targets [S, B, C] one-hot labels, sample_weights [S, B]; the loss is the cross-entropy.
        """
        out.copy_(torch.func.vmap(torch.func.grad(self._weighted_loss))(u, x, targets, sample_weights))
        return out

    def loss_and_gradient(self, w: Tensor, x: Tensor, targets: Tensor, sample_weights: Tensor) -> tuple[Tensor, Tensor]:
        """(sum_b sample_weights_b loss_b, its gradient [d]) of one model w [d] on x [n, D], targets [n, C], sample_weights [n]."""
        leaves = self.leaves(w)
        loss, gradients = self.loss_and_gradients(leaves, x, targets, sample_weights)
        return loss, torch.cat([gradient.flatten() for gradient in gradients])

    def leaves(self, w: Tensor) -> list[Tensor]:
        """The parameters in w [d], to be differentiated by; they share its memory."""
        return [part.detach().requires_grad_() for part in self.parts(w)]

    def loss_and_gradients(
        self, leaves: list[Tensor], x: Tensor, targets: Tensor, sample_weights: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """`loss_and_gradient` by each of the `leaves`."""
        with torch.enable_grad():
            logits = self._alone(leaves, x)
            loss = -(logits.log_softmax(-1, dtype=targets.dtype) * targets).sum(-1) @ sample_weights
        return loss.detach(), torch.autograd.grad(loss, leaves)

    def _weighted_loss(self, w: Tensor, x: Tensor, targets: Tensor, sample_weights: Tensor) -> Tensor:
        logits = self.forward([part.to(x.dtype) for part in self.parts(w)], x)
        return -(logits.log_softmax(-1, dtype=targets.dtype) * targets).sum(-1) @ sample_weights


class Softmax(Model):
    """logits = W x + b, from zero. Row c of the parameters is (W_c, b_c), and every image ends with a 1: one matrix product each way."""

    def prepare(self, x: Tensor) -> Tensor:
        return torch.cat([x, x.new_ones(len(x), 1)], 1)

    def start(self, like: Tensor, seed: int) -> Tensor:
        return like.new_zeros(self.dimension)

    def forward(self, parts: list[Tensor], x: Tensor, convolve: Convolve = F.conv2d) -> Tensor:
        return x @ parts[0].T

    def gradients(self, u: Tensor, x: Tensor, targets: Tensor, sample_weights: Tensor, out: Tensor) -> Tensor:
        # Label-major products, [S, C, B]: both matrix products then run along rows as they lie in memory.
        weights = u.view(len(u), self.labels, -1)
        residual = torch.bmm(weights.to(x.dtype), x.transpose(1, 2)).softmax(1, dtype=u.dtype)
        residual.sub_(targets.transpose(1, 2)).mul_(sample_weights.unsqueeze(1))
        if x.dtype == out.dtype:
            torch.bmm(residual, x, out=out.view(weights.shape))
        else:
            out.view(weights.shape).copy_(torch.bmm(residual.to(x.dtype), x))
        return out

    def loss_and_gradient(self, w: Tensor, x: Tensor, targets: Tensor, sample_weights: Tensor) -> tuple[Tensor, Tensor]:
        log_shares = self.logits(w, x).log_softmax(1)
        loss = -(log_shares * targets).sum(1) @ sample_weights
        residual = log_shares.exp_().sub_(targets).mul_(sample_weights.unsqueeze(1))
        return loss, (residual.T @ x).flatten()


class TwoLayer(Model):
    """Linear - ReLU - linear."""

    def forward(self, parts: list[Tensor], x: Tensor, convolve: Convolve = F.conv2d) -> Tensor:
        w1, b1, w2, b2 = parts
        return F.linear(F.linear(x, w1, b1).relu(), w2, b2)


class Convolution(Model):
    """Convolution 5x5 of stride 2 - ReLU - linear: the "2-layer CNN" of the Amplified SCAFFOLD paper."""

    convolves = True

    def forward(self, parts: list[Tensor], x: Tensor, convolve: Convolve = F.conv2d) -> Tensor:
        kernel, bias, w2, b2 = parts
        hidden = convolve(self.images(x), kernel, bias, stride=2, padding=2).relu()
        return F.linear(hidden.flatten(1), w2, b2)


class FedAvgNetwork(Model):
    """Two convolutions 5x5 with ReLU and pooling, two linear layers (McMahan et al., AISTATS 2017)."""

    convolves = True

    def forward(self, parts: list[Tensor], x: Tensor, convolve: Convolve = F.conv2d) -> Tensor:
        k1, c1, k2, c2, w1, b1, w2, b2 = parts
        hidden = F.max_pool2d(convolve(self.images(x), k1, c1, padding=2), 2).relu()
        hidden = F.max_pool2d(convolve(hidden, k2, c2, padding=2), 2).relu()
        return F.linear(F.linear(hidden.flatten(1), w1, b1).relu(), w2, b2)


class LeNet5(Model):
    """Two convolutions with pooling, three linear layers (LeCun et al. 1998), with ReLU and max-pooling as used today."""

    convolves = True

    def forward(self, parts: list[Tensor], x: Tensor, convolve: Convolve = F.conv2d) -> Tensor:
        k1, c1, k2, c2, w1, b1, w2, b2, w3, b3 = parts
        hidden = F.max_pool2d(convolve(self.images(x), k1, c1, padding=2), 2).relu()
        hidden = F.max_pool2d(convolve(hidden, k2, c2), 2).relu()
        return F.linear(F.linear(F.linear(hidden.flatten(1), w1, b1).relu(), w2, b2).relu(), w3, b3)


MODELS: dict[str, Callable[[str, tuple[int, int, int], int], Model]] = {
    "softmax": Softmax,
    "mlp": TwoLayer,
    "cnn": Convolution,
    "fedavg_cnn": FedAvgNetwork,
    "lenet5": LeNet5,
}
