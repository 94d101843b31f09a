"""Convolutions with 5x5 kernels on a CPU, by a sixth of the multiplications (Winograd's way; Lavin and Gray, CVPR 2016).

In one dimension, a kernel g of 5 and a piece d of 8 pixels make 4 outputs, which the loss pulls at by y. What is to be computed are the
derivatives, by one argument each (outputs by y, gradients by g and d), of

    L(g, d, y) = sum_jk g_j d_{j+k} y_k = d . s,    s the coefficients of the polynomial g(x) y(x), of degree 7.

A polynomial of degree 7 is known from its values at 7 points p and its leading coefficient (its "value at infinity"), and its values are
products: s = B [(G g) * (A y)], where A and G evaluate and B interpolates (what Lagrange divides by stands in G). So

    L = the sum over the 8 points of (G g) * (B'd) * (A y),    ' for transposed, and
    outputs A'[(G g) * (B'd)],   gradients G'[(B'd) * (A y)] by g and B[(G g) * (A y)] by d.

8 multiplications do the work of 20. Images are cut into tiles of 4x4 outputs, made from 8x8 pixels that overlap, and everything is done
down the columns, then along the rows: 64 multiplications do the work of 400. Channels are summed over at the points, so that these are
64 products of matrices, [tiles, channels in] by [channels in, channels out]. Points 0, +-1, +-2, +-1/2 and infinity keep the numbers of
all three matrices near 1: what is rounded away is some twenty times what a direct sum of the same products loses.

The channels of a pixel lie side by side in memory, and tiles of a row of them: so what is transformed are long stretches of numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from fedviz.problems.architectures import many_channels
from fedviz.problems.kernels import compiled

TILE, KERNEL, PATCH = 4, 5, 8  # outputs, weights, and the pixels that the outputs are made from, in one direction
AT_ONCE = 16  # images: what they are at the points stays near the processor

_POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)  # and infinity


def _lagrange(point: float) -> NDArray:
    """Coefficients, from the constant on, of the polynomial that is zero at all other points."""
    return np.poly([other for other in _POINTS if other != point])[::-1]


def _powers(count: int) -> NDArray:
    """[8, count]: the values at the points of polynomials with `count` coefficients."""
    return np.array([[point**k for k in range(count)] for point in _POINTS] + [[0.0] * (count - 1) + [1.0]])


A, G = _powers(TILE), _powers(KERNEL)
G[:-1] /= [[_lagrange(point) @ point ** np.arange(PATCH - 1)] for point in _POINTS]
B = np.array([[*_lagrange(point), 0.0] for point in _POINTS] + [np.poly(_POINTS)[::-1]]).T
G2 = np.kron(G, G)  # [64, 25], for both directions of a kernel


def convolve(x: Tensor, kernel: Tensor, bias: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    """`F.conv2d` of images x [n, channels, height, width] on a CPU: the fastest way for one model."""
    if stride != 1 or kernel.shape[2:] != (KERNEL, KERNEL) or not many_channels(kernel.shape):
        return F.conv2d(x, kernel, bias, stride, padding)
    y: Tensor = _Convolution.apply(x.permute(0, 2, 3, 1).contiguous(), kernel, bias, padding)
    return y.permute(0, 3, 1, 2)


class _Convolution(torch.autograd.Function):
    """x [n, height, width, channels in], kernel [channels out, channels in, 5, 5] -> [n, height', width', channels out]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Tensor, bias: Tensor, padding: int) -> Tensor:
        (n, height, width, channels), out = x.shape, len(kernel)
        less = KERNEL - 1 - 2 * padding
        y = bias.detach().expand(n, height - less, width - less, out).contiguous()
        weights = (y.new_tensor(G2) @ kernel.permute(2, 3, 1, 0).reshape(KERNEL**2, -1)).view(-1, channels, out)
        images = []
        for some, of_some in zip(x.split(AT_ONCE), y.split(AT_ONCE), strict=True):
            images.append(_at_points(some, padding, B.T, of_some))
            add_from_points(torch.bmm(images[-1], weights).numpy(), _like(A.T, y), 0, of_some.numpy())
        ctx.x_shape, ctx.padding, ctx.images, ctx.weights = x.shape, padding, images, weights
        return y

    @staticmethod
    def backward(ctx: Any, by_y: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        by_y = by_y.contiguous()
        by_x = by_y.new_zeros(ctx.x_shape) if ctx.needs_input_grad[0] else None
        by_weights = torch.zeros_like(ctx.weights)
        for k, of_some in enumerate(by_y.split(AT_ONCE)):
            pull = _at_points(of_some, 0, A, of_some)
            by_weights.baddbmm_(ctx.images[k].transpose(1, 2), pull)
            if by_x is not None:
                by_some = torch.bmm(pull, ctx.weights.transpose(1, 2))
                add_from_points(by_some.numpy(), _like(B, by_x), ctx.padding, by_x.split(AT_ONCE)[k].numpy())
        by_kernel = (by_y.new_tensor(G2.T) @ by_weights.flatten(1)).view(KERNEL, KERNEL, *by_weights.shape[1:])
        return by_x, by_kernel.permute(3, 2, 0, 1), by_y.sum((0, 1, 2)), None


def _at_points(images: Tensor, padding: int, matrix: NDArray, y: Tensor) -> Tensor:
    """[64, tiles, channels] of images, or of outputs, [n, height, width, channels]; y: the outputs, which are cut into tiles.

    The rows of tiles are made an odd number, with zeros: planes that begin a multiple of a power of two apart would fall on the same
    lines of the cache.
    """
    rows, across = y.shape[0] * _tiles(y.shape[1]), _tiles(y.shape[2])
    out = images.new_empty(PATCH**2, rows | 1, across, images.shape[3])
    out[:, rows:] = 0
    to_points(images.numpy(), padding, _like(matrix, images), out.numpy())
    return out.flatten(1, 2)


def _like(matrix: NDArray, x: Tensor) -> NDArray:
    """The matrix in the precision of x."""
    return x.new_tensor(matrix).contiguous().numpy()


# --- from tiles to points and back, compiled ----------------------------------------------------------------------------
#
# A row of tiles of one image lies as [row in the tile, column in the tile, tile, channel]. What is done down the columns is one call for
# the whole row of tiles. (`none` is a 0 for which Numba compiles no version of its own, as it would for a literal one.)


@compiled
def to_points(images: NDArray, padding: int, matrix: NDArray, out: NDArray) -> None:
    """Into out [64, rows of tiles, across, channels] from images [n, height, width, channels] with zeros around them.

    matrix [8, size]: B' for tiles of 8x8 pixels, A for tiles of 4x4 outputs.
    """
    across, channels, size = out.shape[2], out.shape[3], matrix.shape[1]
    tiles = np.empty((size, size, across, channels), out.dtype)
    half = np.empty((8, size, across, channels), out.dtype)
    rows, half_rows = tiles.reshape(size, 1, -1), half.reshape(8, 1, -1)
    columns, points = half.reshape(8 * size, 1, -1), out.reshape(64, out.shape[1], -1)
    none: Any = np.int64(0)
    row = 0
    for n in range(len(images)):
        for top in range(-padding, images.shape[1] + padding + 4 - size, 4):
            _cut(images[n], top, -padding, tiles)
            _transform(matrix, rows, none, none, half_rows, none, none)
            for k in range(8):
                _transform(matrix, columns, k * size, none, points, 8 * k, row)
            row += 1


@compiled
def add_from_points(points: NDArray, matrix: NDArray, padding: int, images: NDArray) -> None:
    """To images [n, height, width, channels] from points [64, tiles, channels]; matrix [size, 8]: B for 8x8 pixels, A' for 4x4 outputs."""
    channels, size = images.shape[3], len(matrix)
    across = (images.shape[2] + 2 * padding + 7 - size) // 4
    half = np.empty((8, size, across, channels), images.dtype)
    tiles = np.empty((size, size, across, channels), images.dtype)
    rows, half_rows = tiles.reshape(size, 1, -1), half.reshape(8, 1, -1)
    columns, by_row = half.reshape(8 * size, 1, -1), points.reshape(64, -1, across * channels)
    none: Any = np.int64(0)
    row = 0
    for n in range(len(images)):
        for top in range(-padding, images.shape[1] + padding + 4 - size, 4):
            for k in range(8):
                _transform(matrix, by_row, 8 * k, row, columns, k * size, none)
            _transform(matrix, half_rows, none, none, rows, none, none)
            _add(tiles, top, -padding, images[n])
            row += 1


@compiled
def _transform(matrix: NDArray, source: NDArray, first: int, row: int, out: NDArray, to: int, to_row: int) -> None:
    """out[to + i, to_row] = sum_j matrix[i, j] source[first + j, row], two of them from four at a time."""
    for i in range(0, matrix.shape[0], 2):
        p, q = out[to + i, to_row], out[to + i + 1, to_row]
        for c in range(len(p)):
            p[c] = q[c] = 0
        for j in range(0, matrix.shape[1], 4):
            p0, p1, p2, p3 = matrix[i, j], matrix[i, j + 1], matrix[i, j + 2], matrix[i, j + 3]
            q0, q1, q2, q3 = matrix[i + 1, j], matrix[i + 1, j + 1], matrix[i + 1, j + 2], matrix[i + 1, j + 3]
            x0, x1 = source[first + j, row], source[first + j + 1, row]
            x2, x3 = source[first + j + 2, row], source[first + j + 3, row]
            for c in range(len(p)):
                p[c] += p0 * x0[c] + p1 * x1[c] + p2 * x2[c] + p3 * x3[c]
                q[c] += q0 * x0[c] + q1 * x1[c] + q2 * x2[c] + q3 * x3[c]


@compiled
def _cut(image: NDArray, top: int, left: int, tiles: NDArray) -> None:
    """Into tiles [rows, columns, across, channels] from image [height, width, channels], the first with its corner there; else zeros."""
    for row in range(tiles.shape[0]):
        for column in range(tiles.shape[1]):
            for tile in range(tiles.shape[2]):
                h, w, to = top + row, left + 4 * tile + column, tiles[row, column, tile]
                if 0 <= h < image.shape[0] and 0 <= w < image.shape[1]:
                    pixel = image[h, w]
                    for c in range(len(to)):
                        to[c] = pixel[c]
                else:
                    for c in range(len(to)):
                        to[c] = 0


@compiled
def _add(tiles: NDArray, top: int, left: int, image: NDArray) -> None:
    """The way back: adds the tiles to the image, but for what is outside."""
    for row in range(tiles.shape[0]):
        for column in range(tiles.shape[1]):
            for tile in range(tiles.shape[2]):
                h, w = top + row, left + 4 * tile + column
                if 0 <= h < image.shape[0] and 0 <= w < image.shape[1]:
                    pixel, by = image[h, w], tiles[row, column, tile]
                    for c in range(len(by)):
                        pixel[c] += by[c]


def _tiles(outputs: int) -> int:
    """How many tiles cover a row of outputs."""
    return -(-outputs // TILE)


def compile_all(dtype: type[np.floating]) -> None:
    """Have everything compiled for images of `dtype`: seconds the first time on a machine, next to nothing afterwards."""
    x = torch.from_numpy(np.zeros((1, 16, 8, 8), dtype)).requires_grad_()
    kernel = torch.from_numpy(np.zeros((16, 16, 5, 5), dtype))
    convolve(x, kernel, kernel[:, 0, 0, 0], padding=2).sum().backward()
