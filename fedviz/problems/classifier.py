"""Classification at work: data resident on the device once, every cohort one batch of tensor operations.

Client i's samples are rows `first_i ... first_i + count_i - 1` of the training data, sorted by client; f_i is their mean
cross-entropy. The clients' weights are p_i = 1/N, or their share of the samples.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from fedviz.keyed_random import Purpose, normals
from fedviz.problems.architectures import floats_per_sample
from fedviz.problems.base import Evaluation, Problem
from fedviz.problems.classification import Classification
from fedviz.problems.datasets import Dataset, Info
from fedviz.problems.minibatches import schedule
from fedviz.problems.models import MODELS, Model
from fedviz.problems.partitions import Indices

CHUNK_BYTES = 64_000_000  # about the most that gradients of many samples at once may take


@dataclass(frozen=True)
class Draws:
    """The minibatches of a round: rows [steps, S, B] of the training data, sample weights [S, B], room for one step's samples."""

    rows: Tensor
    weights: Tensor
    x: Tensor  # [S B, D], filled anew in every step: fresh memory each time would cost more than the copy itself


class Classifier(Problem):
    def __init__(
        self, parameters: Classification, data: Dataset, parts: Indices, batch_size: int, seed: int, device: str
    ) -> None:
        self.num_clients, self.batch_size, self.seed = len(parts), batch_size, seed
        info = parameters.info
        self.model = MODELS[parameters.model](parameters.model, info.image, len(info.labels))
        self.train_x, self.train_y, self.test_x, self.test_y = _resident(data, info, device, self.model)
        if parameters.feature_skew != "none":
            plain = _resident(data, info, device, None)[0]
            look, strength = parameters.feature_skew, parameters.feature_strength
            self.train_x = self.model.prepare(skewed(plain, parts, info.image, look, strength, seed))
        self.counts = np.array([len(part) for part in parts])
        self.first = np.cumsum(self.counts) - self.counts
        order = np.concatenate(parts)
        self.order = torch.as_tensor(order, device=device)  # row by client -> row of the data
        self.samples_at_once = CHUNK_BYTES // (4 * floats_per_sample(parameters.model, info.image))
        p = np.full(len(parts), 1 / len(parts)) if parameters.weights == "uniform" else self.counts / self.counts.sum()
        self.client_weights = self.train_x.new_tensor(p)
        # The weight of each sample in f = sum_i p_i f_i: p_i / n_i; samples that nobody holds weigh nothing.
        of_sample = np.zeros(len(data.train_labels))
        of_sample[order] = np.repeat(p / self.counts, self.counts)
        self.objective_weights = self.train_x.new_tensor(of_sample)

    def start(self) -> Tensor:
        return self.model.start(self.train_x, self.seed)

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
        at_once = max(1, self.samples_at_once // longest)
        models, starts = w.expand(len(clients), -1), range(0, len(clients), at_once)
        return torch.cat([self._full_gradients(models[i : i + at_once], clients[i : i + at_once]) for i in starts])

    def _full_gradients(self, models: Tensor, clients: NDArray[np.int64]) -> Tensor:
        counts = self.counts[clients][:, None]
        place = np.arange(counts.max())
        real = place < counts
        rows = self.order[
            torch.as_tensor(np.where(real, self.first[clients][:, None] + place, 0)).to(self.order.device)
        ]
        weights = torch.as_tensor(np.where(real, 1 / counts, 0).astype(np.float32)).to(self.train_x.device)
        x = self.train_x.index_select(0, rows.reshape(-1)).unflatten(0, rows.shape)
        return self.model.gradients(models, x, self.train_y[rows], weights, models.new_empty(models.shape))

    def full_evaluations(self, clients: NDArray[np.int64]) -> int:
        return int(self.counts[clients].sum())

    def evaluate(self, w: Tensor) -> Evaluation:
        loss, gradient = 0.0, torch.zeros_like(w)
        for x, targets, weights in _chunks(self.samples_at_once, self.train_x, self.train_y, self.objective_weights):
            part, of_part = self.model.loss_and_gradient(w, x, targets, weights)
            loss, gradient = loss + part, gradient + of_part
        right, test_loss = 0, 0.0
        for x, targets in _chunks(self.samples_at_once, self.test_x, self.test_y):
            log_shares = self.model.logits(w, x).log_softmax(1)
            test_loss -= float((log_shares * targets).sum())
            right += int((log_shares.argmax(1) == targets.argmax(1)).sum())
        return Evaluation(
            train_loss=loss,
            test_loss=test_loss / len(self.test_y),
            test_accuracy=right / len(self.test_y),
            gradient_norm_sq=float(gradient.square().sum()),
        )


def _chunks(size: int, *rows: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same rows of all tensors, `size` samples at a time."""
    for start in range(0, len(rows[0]), size):
        yield tuple(tensor[start : start + size] for tensor in rows)


def skewed(x: Tensor, parts: Indices, image: tuple[int, int, int], kind: str, strength: float, seed: int) -> Tensor:
    """A copy of the training images x [n, D] as each client sees its own, from unchanged at client 0 to `strength` at the last."""
    x = x.clone()
    share = np.linspace(0, strength, len(parts)) if len(parts) > 1 else np.array([strength])
    for part, s in zip(parts, share, strict=True):
        rows = torch.as_tensor(part, device=x.device)
        if kind == "noise":
            noise = normals(seed, Purpose.PARTITION, client=part, epoch=5, size=x.shape[1])
            x[rows] += x.new_tensor(s * noise)
        elif kind == "contrast":
            x[rows] *= 1 - s
        else:
            turn = math.pi * s
            cosine, sine = math.cos(turn), math.sin(turn)
            where = x.new_tensor([[cosine, -sine, 0.0], [sine, cosine, 0.0]]).expand(len(part), 2, 3)
            images = x[rows].unflatten(1, image)
            grid = F.affine_grid(where, list(images.shape), align_corners=False)
            x[rows] = F.grid_sample(images, grid, padding_mode="border", align_corners=False).flatten(1)
    return x


Resident = tuple[Tensor, Tensor, Tensor, Tensor]
_RESIDENT: dict[tuple[int, str, type | None], Resident] = {}
_MAKING = threading.RLock()


def _resident(data: Dataset, info: Info, device: str, model: Model | None) -> Resident:
    """(train x [n, D], train y [n, C], test x, test y) on the device: images normalised, float32 and as `model` takes them
    (None: as they are), labels one-hot. Made once per process and shared by runs.
    """
    key = (id(data), device, type(model) if model else None)  # data sets are kept for the life of the process
    with _MAKING:
        if key not in _RESIDENT:
            made: list[Tensor] = []
            for images, labels in ((data.train_images, data.train_labels), (data.test_images, data.test_labels)):
                pixels = torch.as_tensor(images).to(device, torch.float32).div_(255).unflatten(1, (info.image[0], -1))
                mean, deviation = (pixels.new_tensor(values)[:, None] for values in (info.mean, info.deviation))
                x = pixels.sub_(mean).div_(deviation).flatten(1)
                targets = F.one_hot(torch.as_tensor(labels), len(info.labels)).to(device, torch.float32)
                made += [model.prepare(x) if model else x, targets]
            _RESIDENT[key] = (made[0], made[1], made[2], made[3])
        return _RESIDENT[key]
