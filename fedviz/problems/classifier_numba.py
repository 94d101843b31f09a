"""Softmax regression on the CPU with compiled kernels: whole clients on each core, one after the other, out of its own cache.

A client's numbers depend on nothing but the client: not on the size of the cohort, nor on how clients are shared out to threads.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import partial

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

SAMPLES_AT_ONCE = 1024  # of an evaluation: their images fit the cache between the two products
STEPS_AT_ONCE = 256  # of a local pass, between which it can be left


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
            self.train_x = _padded_images(skewed(plain, parts, self.info.image, look, strength, seed))
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
        start, none = self._padded(w), self._padded(torch.zeros_like(w))
        updates, raw = w.new_empty(len(clients), len(w)), w.new_empty(len(clients), len(w))

        def train(some: NDArray[np.int64]) -> None:
            for s in some:
                correction = none if rule.correction is None else self._padded(rule.correction[s])
                u, of_raw, of_updates = start.copy(), np.zeros_like(start), np.zeros_like(start)
                for first in range(0, rule.steps, STEPS_AT_ONCE):
                    between_steps()
                    kernels.local_pass(
                        self.train_x,
                        self.train_labels,
                        self.classes,
                        rows[s, first : first + STEPS_AT_ONCE],
                        weights[s],
                        self.scalar(rule.client_lr),
                        self.scalar(rule.mu),
                        start,
                        correction,
                        u,
                        of_raw,
                        of_updates,
                    )
                raw[s], updates[s] = self._flat(of_raw) / rule.steps, self._flat(of_updates) / rule.steps

        in_parallel(train, np.array_split(np.arange(len(clients)), min(len(clients), cores())))
        return updates, raw

    def client_gradients(self, w: Tensor, clients: NDArray[np.int64]) -> Tensor:
        gradients = w.new_empty(len(clients), w.shape[-1])
        common = self._padded(w) if w.dim() == 1 else None

        def find(some: NDArray[np.int64]) -> None:
            for s in some:
                rows = self.samples(clients[s])
                weights = np.full(len(rows), 1 / len(rows), self.train_x.dtype)
                model = self._padded(w[s]) if common is None else common
                gradients[s] = self._flat(self._gradient(model, rows, weights)[0])

        in_parallel(find, np.array_split(np.arange(len(clients)), min(len(clients), cores())))
        return gradients

    def _gradient(
        self, w: NDArray, rows: NDArray[np.int64], weights: NDArray, measure: bool = False
    ) -> tuple[NDArray, float]:
        """(gradient [C', D'], loss if asked for) of sum_b weights_b loss_b over `rows` of the training data."""
        gradient, loss = np.zeros_like(w), 0.0
        for first in range(0, len(rows), SAMPLES_AT_ONCE):
            some, of_some = rows[first : first + SAMPLES_AT_ONCE], weights[first : first + SAMPLES_AT_ONCE]
            shares = np.empty((len(some), len(w)), w.dtype)
            kernels.logits(self.train_x, some, w, shares)
            if measure:
                loss += kernels.loss_and_right(self.train_labels, some, of_some, self.classes, shares)[0]
            kernels.residuals(self.train_labels, some, of_some, self.classes, shares)
            kernels.add_products(self.train_x, some, shares, gradient)
        return gradient, loss

    def _test(self, w: NDArray, rows: NDArray[np.int64]) -> tuple[float, int]:
        """(sum of losses, how many right) over `rows` of the test data."""
        z = np.empty((len(rows), len(w)), w.dtype)
        kernels.logits(self.test_x, rows, w, z)
        return kernels.loss_and_right(self.test_labels, rows, np.ones(len(rows), w.dtype), self.classes, z)

    def evaluate(self, w: Tensor) -> Evaluation:
        model = self._padded(w)
        train = [self.held[i : i + SAMPLES_AT_ONCE] for i in range(0, len(self.held), SAMPLES_AT_ONCE)]
        parts = in_parallel(lambda rows: self._gradient(model, rows, self.objective_weights[rows], measure=True), train)
        every = np.arange(len(self.test_labels))
        test = [every[i : i + SAMPLES_AT_ONCE] for i in range(0, len(every), SAMPLES_AT_ONCE)]
        results = in_parallel(partial(self._test, model), test)
        gradient = np.sum([part for part, _ in parts], axis=0, dtype=np.float64)
        return Evaluation(
            train_loss=float(sum(loss for _, loss in parts)),
            test_loss=float(sum(loss for loss, _ in results)) / len(every),
            test_accuracy=sum(right for _, right in results) / len(every),
            gradient_norm_sq=float((gradient**2).sum()),
        )

    def _padded(self, w: Tensor) -> NDArray:
        """Flat parameters [d] as the kernels take them, [C', D']; a copy."""
        padded = _zeros(_up(self.classes, kernels.LABEL_BLOCK), self.train_x.shape[1], w.dtype)
        padded[: self.classes, : self.inputs] = w.numpy().reshape(self.classes, self.inputs)
        return padded

    def _flat(self, padded: NDArray) -> Tensor:
        return torch.from_numpy(padded[: self.classes, : self.inputs].reshape(-1))


def _up(size: int, block: int) -> int:
    return -(-size // block) * block


def _zeros(rows: int, columns: int, dtype: torch.dtype) -> NDArray:
    """Zeros that begin at a cache line, as PyTorch's memory does and NumPy's need not."""
    return torch.zeros(rows, columns, dtype=dtype).numpy()


def _padded_images(x: Tensor) -> NDArray:
    """Images [n, D] with a 1 behind each, then zeros: [n, D']."""
    n, pixels = x.shape
    padded = _zeros(n, _up(pixels + 1, kernels.WIDTH_BLOCK), x.dtype)
    padded[:, :pixels] = x.numpy()
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
                _padded_images(normalised(images, info, "cpu", dtype))
                for images in (data.train_images, data.test_images)
            )
            _RESIDENT[key] = (train, test)
        return _RESIDENT[key]
