"""Image classification over clients: which data set, which model, how the data is dealt.

The tensor work is in `classifier.py`, imported when a run starts; this file opens without torch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from fedviz.parameters import parameter
from fedviz.problems import datasets
from fedviz.problems.base import Problem, ProblemParameters, Progress
from fedviz.problems.partitions import AnyPartition, Indices, Similarity, partition

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedviz.config import SimulationConfig


class Classification(ProblemParameters):
    title: ClassVar = "Image classification"
    summary: ClassVar = "Clients hold labelled images and train one classifier together."
    kind: Literal["classification"] = "classification"
    dataset: Literal["fashion_mnist_mini", "fashion_mnist"] = parameter(
        "fashion_mnist_mini",
        label="Data set",
        help="Small grey pictures of ten kinds of clothes.",
        choices={name: info.title for name, info in datasets.DATASETS.items()},
    )
    model: Literal["softmax"] = parameter(
        "softmax",
        label="Model",
        help="What is trained, from zero: one linear layer, 784 pixels to 10 labels, with bias.",
        choices={"softmax": "Softmax regression"},
    )
    partition: AnyPartition = parameter(
        Similarity(), label="Data heterogeneity", help="How the images are dealt to the clients."
    )

    @property
    def info(self) -> datasets.Info:
        return datasets.DATASETS[self.dataset]

    def problem_with(self, num_clients: int) -> tuple[str, str] | None:
        if num_clients <= self.info.train:
            return None
        return "num_clients", f"got {num_clients}, allowed 1 to {self.info.train} (the number of training images)"

    def dimension(self) -> int:
        height, width = self.info.shape
        return (height * width + 1) * len(self.info.labels)

    def data_bytes(self) -> int:
        height, width = self.info.shape
        return (self.info.train + self.info.test) * height * width * (1 + self.itemsize())  # as read, and normalised

    def itemsize(self) -> int:
        return 4

    def majority_labels(self, num_clients: int, seed: int) -> NDArray[np.int64]:
        return label_counts(self.dataset, self.partition, num_clients, seed).argmax(1)

    def build(self, config: SimulationConfig, device: str, progress: Progress) -> Problem:
        from fedviz.problems.classifier import Classifier

        data = datasets.load(self.dataset, progress)
        progress("Dealing the data to the clients")
        parts = client_indices(self.dataset, self.partition, config.num_clients, config.seed)
        return Classifier(data, self.info, parts, config.batch_size, config.seed, device)


@lru_cache(maxsize=16)
def client_indices(dataset: str, parameters: AnyPartition, num_clients: int, seed: int) -> Indices:
    """N index arrays into the training data. Raises ProblemError."""
    return partition(parameters, datasets.train_labels(dataset), num_clients, seed)


def label_counts(dataset: str, parameters: AnyPartition, num_clients: int, seed: int) -> NDArray[np.int64]:
    """[N, C] how many samples of each label each client holds. Raises ProblemError."""
    labels = datasets.train_labels(dataset)
    parts = client_indices(dataset, parameters, num_clients, seed)
    return np.stack([np.bincount(labels[part], minlength=len(datasets.DATASETS[dataset].labels)) for part in parts])
