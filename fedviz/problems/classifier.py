"""Classification at work: data resident on the device once, every cohort one batch of tensor operations.

Client i's samples are rows `first_i ... first_i + count_i - 1` of the training data, sorted by client; f_i is their mean
cross-entropy. The clients' weights are uniform, p_i = 1/N.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedviz.problems.base import Evaluation, Problem
from fedviz.problems.datasets import Dataset, Info
from fedviz.problems.minibatches import schedule
from fedviz.problems.models import Softmax
from fedviz.problems.partitions import Indices

CHUNK_BYTES = 64_000_000  # the most that one gathered batch of full client data may take


@dataclass(frozen=True)
class Draws:
    """The minibatches of a round: rows [steps, S, B] of the training data, sample weights [S, B], room for one step's samples."""

    rows: Tensor
    weights: Tensor
    x: Tensor  # [S B, D], filled anew in every step: fresh memory each time would cost more than the copy itself


class Classifier(Problem):
    def __init__(self, data: Dataset, info: Info, parts: Indices, batch_size: int, seed: int, device: str) -> None:
        self.num_clients, self.batch_size, self.seed = len(parts), batch_size, seed
        self.train_x, self.train_y, self.test_x, self.test_y = _resident(data, info, device)
        self.counts = np.array([len(part) for part in parts])
        self.first = np.cumsum(self.counts) - self.counts
        self.order = torch.as_tensor(np.concatenate(parts), device=device)  # row by client -> row of the data
        self.model = Softmax(self.train_x.shape[1], len(info.labels))
        self.client_weights = self.train_x.new_full((self.num_clients,), 1 / self.num_clients)
        # The weight of each sample in f = sum_i p_i f_i: p_i / n_i.
        of_sample = np.empty(len(data.train_labels), dtype=np.float32)
        for part in parts:
            of_sample[part] = 1 / (self.num_clients * len(part))
        self.objective_weights = torch.as_tensor(of_sample, device=device)

    def start(self) -> Tensor:
        return self.model.start(self.train_x)

    def draws(self, clients: NDArray[np.int64], round: int, steps: int, replica: int = 0) -> Draws:
        positions, weights = schedule(
            self.counts[clients], clients, self.batch_size, steps, seed=self.seed, round=round, replica=replica
        )
        rows = torch.as_tensor((self.first[clients, None, None] + positions).transpose(1, 0, 2).copy())
        room = self.train_x.new_empty(weights.size, self.train_x.shape[1])
        return Draws(self.order[rows.to(self.order.device)], torch.as_tensor(weights).to(self.train_x.device), room)

    def gradient(self, u: Tensor, draws: Draws, step: int, out: Tensor) -> Tensor:
        rows = draws.rows[step]
        torch.index_select(self.train_x, 0, rows.reshape(-1), out=draws.x)
        return self.model.gradients(u, draws.x.unflatten(0, rows.shape), self.train_y[rows], draws.weights, out)

    def pass_evaluations(self, clients: NDArray[np.int64], steps: int) -> int:
        return int(np.minimum(self.batch_size, self.counts[clients]).sum()) * steps

    def client_gradients(self, w: Tensor, clients: NDArray[np.int64]) -> Tensor:
        counts = self.counts[clients]
        longest = int(counts.max())
        at_once = max(1, CHUNK_BYTES // (longest * self.train_x.shape[1] * self.train_x.element_size()))
        return torch.cat(
            [self._full_gradients(w, chunk) for chunk in np.split(clients, range(at_once, len(clients), at_once))]
        )

    def _full_gradients(self, w: Tensor, clients: NDArray[np.int64]) -> Tensor:
        counts = self.counts[clients][:, None]
        place = np.arange(counts.max())
        real = place < counts
        rows = self.order[
            torch.as_tensor(np.where(real, self.first[clients][:, None] + place, 0)).to(self.order.device)
        ]
        weights = torch.as_tensor(np.where(real, 1 / counts, 0).astype(np.float32)).to(self.train_x.device)
        x = self.train_x.index_select(0, rows.reshape(-1)).unflatten(0, rows.shape)
        return self.model.gradients(
            w.expand(len(clients), -1), x, self.train_y[rows], weights, w.new_empty(len(clients), len(w))
        )

    def full_evaluations(self, clients: NDArray[np.int64]) -> int:
        return int(self.counts[clients].sum())

    def evaluate(self, w: Tensor) -> Evaluation:
        train = self.model.logits(w, self.train_x)
        loss = torch.nn.functional.cross_entropy(train, self.train_y, reduction="none") @ self.objective_weights
        residual = train.softmax(-1)
        residual.scatter_add_(-1, self.train_y[:, None], residual.new_full((), -1.0).expand(len(residual), 1))
        residual *= self.objective_weights[:, None]
        gradient_sq = (residual.T @ self.train_x).square().sum() + residual.sum(0).square().sum()
        test = self.model.logits(w, self.test_x)
        return Evaluation(
            train_loss=float(loss),
            test_loss=float(torch.nn.functional.cross_entropy(test, self.test_y)),
            test_accuracy=float((test.argmax(1) == self.test_y).float().mean()),
            gradient_norm_sq=float(gradient_sq),
        )


_RESIDENT: dict[tuple[int, str], tuple[Tensor, Tensor, Tensor, Tensor]] = {}
_MAKING = threading.Lock()


def _resident(data: Dataset, info: Info, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(train x [n, D], train y [n], test x, test y), normalised float32, on the device; made once per process and shared by runs."""
    key = (id(data), device)  # data sets are kept for the life of the process
    with _MAKING:
        if key not in _RESIDENT:
            made = []
            for images, labels in ((data.train_images, data.train_labels), (data.test_images, data.test_labels)):
                pixels = torch.as_tensor(images.reshape(len(images), -1)).to(device, torch.float32)
                made += [pixels.div_(255).sub_(info.mean).div_(info.deviation), torch.as_tensor(labels).to(device)]
            _RESIDENT[key] = tuple(made)  # type: ignore[assignment]
        return _RESIDENT[key]
