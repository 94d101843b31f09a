"""Classification at work: who holds which images, and their minibatches. What computes with them: `classifier_torch`, `classifier_numba`.

Client i's samples are positions `first_i ... first_i + count_i - 1` of `order`, the rows of the training data sorted by client; f_i is
their mean cross-entropy. The clients' weights are p_i = 1/N, or their share of the samples.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from fedviz.problems.base import Problem
from fedviz.problems.classification import Classification
from fedviz.problems.datasets import Info
from fedviz.problems.minibatches import schedule
from fedviz.problems.models import MODELS
from fedviz.problems.partitions import Indices

DTYPES = {"float32": torch.float32, "float64": torch.float64, "mixed_bfloat16": torch.float32}  # of parameters


class Classifier(Problem):
    computes_without_lock = True

    def __init__(
        self, parameters: Classification, samples: int, parts: Indices, batch_size: int, seed: int, device: str
    ) -> None:
        self.num_clients, self.batch_size, self.seed = len(parts), batch_size, seed
        self.info, self.dtype = parameters.info, DTYPES[parameters.dtype]
        self.model = MODELS[parameters.model](parameters.model, self.info.image, len(self.info.labels))
        self.counts = np.array([len(part) for part in parts])
        self.first = np.cumsum(self.counts) - self.counts
        self.order = np.concatenate(parts)
        p = np.full(len(parts), 1 / len(parts)) if parameters.weights == "uniform" else self.counts / self.counts.sum()
        self.client_weights = torch.tensor(p, dtype=self.dtype, device=device)
        # The weight of each sample in f = sum_i p_i f_i: p_i / n_i; samples that nobody holds weigh nothing.
        self.sample_weights = np.zeros(samples)
        self.sample_weights[self.order] = np.repeat(p / self.counts, self.counts)

    def start(self) -> torch.Tensor:
        return self.model.start(self.client_weights, self.seed)

    def minibatches(
        self, clients: NDArray[np.int64], round: int, steps: int, replica: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """(rows [S, steps, B] of the training data, sample weights [S, B]) of the local passes of `clients` [S] in a round."""
        positions, weights = schedule(
            self.counts[clients], clients, self.batch_size, steps, seed=self.seed, round=round, replica=replica
        )
        return self.order[self.first[clients, None, None] + positions], weights

    def samples(self, client: int) -> NDArray[np.int64]:
        """Rows of the training data that a client holds."""
        return self.order[self.first[client] : self.first[client] + self.counts[client]]

    def pass_evaluations(self, clients: NDArray[np.int64], steps: int) -> int:
        return int(np.minimum(self.batch_size, self.counts[clients]).sum()) * steps

    def full_evaluations(self, clients: NDArray[np.int64]) -> int:
        return int(self.counts[clients].sum())


def normalised(images: NDArray[np.uint8], info: Info, device: str, dtype: torch.dtype) -> torch.Tensor:
    """[n, D] on the device: pixels / 255, less the mean and over the deviation of their channel."""
    pixels = torch.as_tensor(images).to(device, dtype).div_(255).unflatten(1, (info.image[0], -1))
    mean, deviation = (pixels.new_tensor(values)[:, None] for values in (info.mean, info.deviation))
    return pixels.sub_(mean).div_(deviation).flatten(1)
