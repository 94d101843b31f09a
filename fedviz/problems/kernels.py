"""Softmax regression compiled for the CPU: the hot loop, by Numba, without the interpreter's lock.

Everything is padded with zeros, so that no loop has a remainder: the parameters are [C', D'], a row a label, with C' a multiple of
10 and D' of 16; images are [n, D'], with a 1 behind the last pixel for the bias. The gradient of sum_b weight_b loss_b is

    residual_b = weight_b (softmax(W x_b) - onehot(label_b)),   gradient = sum_b residual_b x_b^T

Images are used where they lie. Blocks of 2 images x 5 labels one way and 4 images x 2 labels the other way keep what is in use in
the processor's registers. Sums may be taken in any order (`_FAST`), the same one each time; NaN and infinity stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

LABEL_BLOCK, WIDTH_BLOCK = 10, 16
AT_ONCE = 64  # images of an evaluation that lie in a core's cache between the two products

_FAST = {"reassoc", "contract", "nsz", "arcp"}
Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(function: Kernel) -> Kernel:
    """Compiled when first called; kept on disk for the next process where there is a place for it."""
    options: dict[str, Any] = {"nogil": True, "fastmath": _FAST}
    try:
        return cast("Kernel", njit(**options, cache=True)(function))
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return cast("Kernel", njit(**options)(function))


@compiled
def logits(images: NDArray, rows: NDArray, w: NDArray, out: NDArray) -> None:
    """Into out [B, C']: W x of the images in `rows` [B]."""
    zero = images.dtype.type(0)
    last = len(rows) - 1
    for b in range(0, len(rows), 2):
        after = min(b + 1, last)
        x, y = images[rows[b]], images[rows[after]]
        for c in range(0, len(w), 5):
            w0, w1, w2, w3, w4 = w[c], w[c + 1], w[c + 2], w[c + 3], w[c + 4]
            x0 = x1 = x2 = x3 = x4 = zero
            y0 = y1 = y2 = y3 = y4 = zero
            for k in range(images.shape[1]):
                p, q = x[k], y[k]
                x0 += w0[k] * p
                x1 += w1[k] * p
                x2 += w2[k] * p
                x3 += w3[k] * p
                x4 += w4[k] * p
                y0 += w0[k] * q
                y1 += w1[k] * q
                y2 += w2[k] * q
                y3 += w3[k] * q
                y4 += w4[k] * q
            o = out[b]
            o[c], o[c + 1], o[c + 2], o[c + 3], o[c + 4] = x0, x1, x2, x3, x4
            o = out[after]
            if after > b:
                o[c], o[c + 1], o[c + 2], o[c + 3], o[c + 4] = y0, y1, y2, y3, y4


@compiled
def residuals(labels: NDArray, rows: NDArray, weights: NDArray, classes: int, shares: NDArray) -> None:
    """Turn logits [B, C'] into weight_b (softmax - onehot), in place, with zeros in the padding."""
    for b in range(len(rows)):
        z = shares[b]
        largest = z[0]
        for c in range(1, classes):
            largest = max(largest, z[c])
        total = z.dtype.type(0)
        for c in range(classes):
            z[c] = np.exp(z[c] - largest)
            total += z[c]
        scale = weights[b] / total
        for c in range(classes):
            z[c] *= scale
        z[labels[rows[b]]] -= weights[b]
        z[classes:] = 0


@compiled
def add_products(images: NDArray, rows: NDArray, residual: NDArray, out: NDArray) -> None:
    """out [C', D'] += residual^T x of the images in `rows` [B]."""
    zero = images.dtype.type(0)
    last = len(rows) - 1
    for b in range(0, len(rows), 4):
        b1, b2, b3 = min(b + 1, last), min(b + 2, last), min(b + 3, last)
        x0, x1, x2, x3 = images[rows[b]], images[rows[b1]], images[rows[b2]], images[rows[b3]]
        for c in range(0, len(out), 2):
            p0, q0 = residual[b, c], residual[b, c + 1]
            p1, q1 = (residual[b1, c], residual[b1, c + 1]) if b + 1 <= last else (zero, zero)
            p2, q2 = (residual[b2, c], residual[b2, c + 1]) if b + 2 <= last else (zero, zero)
            p3, q3 = (residual[b3, c], residual[b3, c + 1]) if b + 3 <= last else (zero, zero)
            p, q = out[c], out[c + 1]
            for k in range(images.shape[1]):
                p[k] += p0 * x0[k] + p1 * x1[k] + p2 * x2[k] + p3 * x3[k]
                q[k] += q0 * x0[k] + q1 * x1[k] + q2 * x2[k] + q3 * x3[k]


@compiled
def local_pass(
    images: NDArray,
    labels: NDArray,
    classes: int,
    rows: NDArray,
    weights: NDArray,
    client_lr: float,
    mu: float,
    start: NDArray,
    correction: NDArray,
    u: NDArray,
    raw: NDArray,
    pull: NDArray,
) -> None:
    """The local steps of one client with the minibatches `rows` [steps, B] of weights [B].

    start [C', D'], correction [C', D'] or [0, 0] for none. In place: u [C', D'] moves on; raw gains the gradients and pull the
    mu (u - start), if mu is not 0. Rates are scalars of the arrays' own type.
    """
    shares = np.empty((rows.shape[1], len(u)), images.dtype)
    gradient = np.zeros(u.shape, images.dtype)
    corrected = len(correction) > 0
    for step in range(len(rows)):
        logits(images, rows[step], u, shares)
        residuals(labels, rows[step], weights, classes, shares)
        add_products(images, rows[step], shares, gradient)
        for c in range(classes):
            g, at, of_raw = gradient[c], u[c], raw[c]
            for k in range(len(g)):
                of_raw[k] += g[k]
            if corrected:
                by = correction[c]
                for k in range(len(g)):
                    g[k] += by[k]
            if mu != 0:
                from_, of_pull = start[c], pull[c]
                for k in range(len(g)):
                    towards = mu * (at[k] - from_[k])
                    of_pull[k] += towards
                    g[k] += towards
            for k in range(len(g)):
                at[k] -= client_lr * g[k]
                g[k] = 0


@compiled
def loss_and_right(labels: NDArray, rows: NDArray, weights: NDArray, classes: int, z: NDArray) -> tuple[float, int]:
    """(sum_b weight_b loss_b in float64, how many are classified rightly) from logits z [B, C']."""
    loss, right = 0.0, 0
    for b in range(len(rows)):
        best = 0
        for c in range(1, classes):
            if z[b, c] > z[b, best]:
                best = c
        total = 0.0
        for c in range(classes):
            total += np.exp(np.float64(z[b, c] - z[b, best]))
        label = labels[rows[b]]
        loss += weights[b] * (np.log(total) - np.float64(z[b, label] - z[b, best]))
        right += best == label
    return loss, right


@compiled
def add_gradient(
    images: NDArray, labels: NDArray, rows: NDArray, weights: NDArray, classes: int, w: NDArray, out: NDArray
) -> float:
    """out [C', D'] += the gradient of sum_b weight_b loss_b over `rows` [n], AT_ONCE of them at a time; returns the loss."""
    loss = 0.0
    shares = np.empty((AT_ONCE, len(w)), images.dtype)
    for first in range(0, len(rows), AT_ONCE):
        some, of_some = rows[first : first + AT_ONCE], weights[first : first + AT_ONCE]
        z = shares[: len(some)]
        logits(images, some, w, z)
        loss += loss_and_right(labels, some, of_some, classes, z)[0]
        residuals(labels, some, of_some, classes, z)
        add_products(images, some, z, out)
    return loss


@compiled
def test_measures(images: NDArray, labels: NDArray, rows: NDArray, classes: int, w: NDArray) -> tuple[float, int]:
    """(sum of losses, how many are classified rightly) over `rows` [n]."""
    loss, right = 0.0, 0
    shares, ones = np.empty((AT_ONCE, len(w)), images.dtype), np.ones(AT_ONCE, images.dtype)
    for first in range(0, len(rows), AT_ONCE):
        some = rows[first : first + AT_ONCE]
        logits(images, some, w, shares[: len(some)])
        more, right_of_some = loss_and_right(labels, some, ones, classes, shares[: len(some)])
        loss += more
        right += right_of_some
    return loss, right


def compile_all(dtype: type[np.floating]) -> None:
    """Have everything compiled for arrays of `dtype`: seconds the first time on a machine, next to nothing afterwards."""
    zeros = [np.zeros((LABEL_BLOCK, WIDTH_BLOCK), dtype) for _ in range(5)]  # start, correction, u, raw, pull
    zero: Any = dtype(0)  # rates are of the arrays' own type
    images, labels, rows = np.zeros((1, WIDTH_BLOCK), dtype), np.zeros(1, np.int64), np.zeros(1, np.int64)
    # The inner ones first: a process that compiles and one that loads then both link the outer ones to the same machine code.
    shares, one = np.zeros((1, LABEL_BLOCK), dtype), np.ones(1, dtype)
    logits(images, rows, zeros[0], shares)
    residuals(labels, rows, one, 2, shares)
    add_products(images, rows, shares, zeros[0])
    loss_and_right(labels, rows, one, 2, shares)
    local_pass(images, labels, 2, rows[None], np.ones(1, dtype), zero, zero, *zeros)
    add_gradient(images, labels, rows, np.ones(1, dtype), 2, zeros[0], zeros[1])
    test_measures(images, labels, rows, 2, zeros[0])
