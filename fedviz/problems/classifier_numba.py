"""Softmax regression on the CPU with compiled kernels: whole clients on each core, one after the other, out of its own cache.

A client's numbers depend on nothing but the client: not on the size of the cohort, nor on how clients are shared out to threads.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedviz.problems import kernels
from fedviz.problems.base import Evaluation
from fedviz.problems.classification import Classification
from fedviz.problems.classifier import Classifier, normalised
from fedviz.problems.datasets import Dataset, Info
from fedviz.problems.feature_skew import skewed
from fedviz.problems.local_sgd import Rule
from fedviz.problems.partitions import Indices
from fedviz.problems.workers import cores, in_parallel

SAMPLES_AT_ONCE = 4096  # of an evaluation, by one thread
IMAGES_AT_ONCE = 256  # are made ready: large pieces, once given back, would stay with the process
LINE = 64  # bytes of a cache line
WORK_AT_ONCE = 2_000_000_000  # multiplications of a local pass, about 0.1 s, between which it can be left


class NumbaSoftmax(Classifier):
    def __init__(
        self, parameters: Classification, data: Dataset, parts: Indices, batch_size: int, seed: int, device: str
    ) -> None:
        super().__init__(parameters, len(data.train_labels), parts, batch_size, seed, device)
        self.classes, self.inputs = len(self.info.labels), math.prod(self.info.image) + 1
        self.train_x, self.test_x = _resident(data, self.info, self.dtype)
        self.train_labels, self.test_labels = data.train_labels.astype(np.int64), data.test_labels.astype(np.int64)
        if parameters.feature_skew != "none":
            plain = normalised(data.train_images, self.info, device, self.dtype)
            look, strength = parameters.feature_skew, parameters.feature_strength
            unlike = skewed(plain, parts, self.info.image, look, strength, seed)
            self.train_x = _padded_images([unlike], len(unlike), unlike.shape[1], self.dtype)
        self.scalar = self.train_x.dtype.type
        self.objective_weights = self.sample_weights.astype(self.train_x.dtype)
        self.held = np.flatnonzero(self.sample_weights)

    def local_passes(
        self,
        w: Tensor,
        clients: NDArray[np.int64],
        rule: Rule,
        round: int,
        replica: int = 0,
        between_steps: Callable[[], None] = lambda: None,
    ) -> tuple[Tensor, Tensor]:
        rows, weights = self.minibatches(clients, round, rule.steps, replica)
        weights = weights.astype(self.train_x.dtype)
        rates = self.scalar(rule.client_lr), self.scalar(rule.mu)
        start, corrections = self._padded(w), None if rule.correction is None else rule.correction.numpy()
        updates, raw = w.new_empty(len(clients), len(w)), w.new_empty(len(clients), len(w))
        updates_out, raw_out = updates.numpy(), raw.numpy()

        steps_at_once = max(1, WORK_AT_ONCE // (2 * weights.shape[1] * start.size))

        def train(some: NDArray[np.int64]) -> None:
            u, of_raw, pull = np.empty_like(start), np.empty_like(start), np.zeros_like(start)
            correction = np.zeros_like(start) if corrections is not None else np.empty((0, 0), start.dtype)
            for s in some:
                u[:], of_raw[:] = start, 0
                if rule.mu:
                    pull[:] = 0
                if corrections is not None:
                    self._real(correction)[:] = corrections[s].reshape(self.classes, self.inputs)
                for first in range(0, rule.steps, steps_at_once):
                    between_steps()
                    batches = rows[s, first : first + steps_at_once]
                    kernels.local_pass(
                        *(self.train_x, self.train_labels, self.classes, batches, weights[s], *rates),
                        *(start, correction, u, of_raw, pull),
                    )
                raw_out[s] = self._real(of_raw).reshape(-1)
                raw_out[s] /= rule.steps
                updates_out[s] = raw_out[s]
                if corrections is not None:
                    updates_out[s] += corrections[s]
                if rule.mu:
                    updates_out[s] += self._real(pull).reshape(-1) / rule.steps

        in_parallel(train, np.array_split(np.arange(len(clients)), min(len(clients), cores())))
        return updates, raw

    def client_gradients(self, w: Tensor, clients: NDArray[np.int64]) -> Tensor:
        gradients = w.new_empty(len(clients), w.shape[-1])
        out = gradients.numpy()
        common = self._padded(w) if w.dim() == 1 else None

        def find(some: NDArray[np.int64]) -> None:
            gradient = _zeros(_up(self.classes, kernels.LABEL_BLOCK), self.train_x.shape[1], w.dtype)
            for s in some:
                rows = self.samples(clients[s])
                weights = np.full(len(rows), 1 / len(rows), self.train_x.dtype)
                gradient[:] = 0
                self._add_gradient(self._padded(w[s]) if common is None else common, rows, weights, gradient)
                out[s] = self._real(gradient).reshape(-1)

        in_parallel(find, np.array_split(np.arange(len(clients)), min(len(clients), cores())))
        return gradients

    def _add_gradient(self, w: NDArray, rows: NDArray[np.int64], weights: NDArray, out: NDArray) -> float:
        """out [C', D'] += the gradient of sum_b weights_b loss_b over `rows` of the training data; returns the loss."""
        return kernels.add_gradient(self.train_x, self.train_labels, rows, weights, self.classes, w, out)

    def evaluate(self, w: Tensor) -> Evaluation:
        model = self._padded(w)

        def train(rows: NDArray[np.int64]) -> tuple[float, NDArray]:
            gradient = np.zeros_like(model)
            return self._add_gradient(model, rows, self.objective_weights[rows], gradient), gradient

        def test(rows: NDArray[np.int64]) -> tuple[float, int]:
            return kernels.test_measures(self.test_x, self.test_labels, rows, self.classes, model)

        parts = in_parallel(train, _in_blocks(self.held))
        results = in_parallel(test, _in_blocks(np.arange(len(self.test_labels))))
        gradient = np.sum([part for _, part in parts], axis=0, dtype=np.float64)
        return Evaluation(
            train_loss=float(sum(loss for loss, _ in parts)),
            test_loss=float(sum(loss for loss, _ in results)) / len(self.test_labels),
            test_accuracy=sum(right for _, right in results) / len(self.test_labels),
            gradient_norm_sq=float((gradient**2).sum()),
        )

    def _padded(self, w: Tensor) -> NDArray:
        """Flat parameters [d] as the kernels take them, [C', D']; a copy."""
        padded = _zeros(_up(self.classes, kernels.LABEL_BLOCK), self.train_x.shape[1], w.dtype)
        self._real(padded)[:] = w.numpy().reshape(self.classes, self.inputs)
        return padded

    def _real(self, padded: NDArray) -> NDArray:
        """The parameters [C, D + 1] within the padding; a view."""
        return padded[: self.classes, : self.inputs]


def _in_blocks(rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Blocks whose sums are added up in order, whichever thread made them."""
    return [rows[first : first + SAMPLES_AT_ONCE] for first in range(0, len(rows), SAMPLES_AT_ONCE)]


def _up(size: int, block: int) -> int:
    return -(-size // block) * block


def _zeros(rows: int, columns: int, dtype: torch.dtype) -> NDArray:
    """Zeros that begin at a cache line. NumPy asks for large pages, which random access to many images needs."""
    kind = np.dtype(str(dtype).removeprefix("torch."))
    room = np.zeros(rows * columns + LINE, kind)
    first = -room.ctypes.data % LINE // kind.itemsize
    return room[first : first + rows * columns].reshape(rows, columns)


def _padded_images(several: Iterable[Tensor], count: int, pixels: int, dtype: torch.dtype) -> NDArray:
    """`count` images, some [.., D] at a time, with a 1 behind each, then zeros: [count, D']."""
    padded = _zeros(count, _up(pixels + 1, kernels.WIDTH_BLOCK), dtype)
    first = 0
    for x in several:
        padded[first : first + len(x), :pixels] = x.numpy()
        first += len(x)
    padded[:, pixels] = 1
    return padded


_RESIDENT: dict[tuple[int, torch.dtype], tuple[NDArray, NDArray]] = {}
_MAKING = threading.Lock()


def _resident(data: Dataset, info: Info, dtype: torch.dtype) -> tuple[NDArray, NDArray]:
    """Images of the training and the test data as the kernels take them. Made once per process and shared by runs."""
    key = (id(data), dtype)  # data sets are kept for the life of the process
    with _MAKING:
        if key not in _RESIDENT:
            train, test = (
                _padded_images(
                    (
                        normalised(images[first : first + IMAGES_AT_ONCE], info, "cpu", dtype)
                        for first in range(0, len(images), IMAGES_AT_ONCE)
                    ),
                    len(images),
                    images.shape[1],
                    dtype,
                )
                for images in (data.train_images, data.test_images)
            )
            _RESIDENT[key] = (train, test)
        return _RESIDENT[key]
