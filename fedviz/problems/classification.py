"""Image classification over clients: which data set, which model, how the data is dealt.

The tensor work is in `classifier.py`, imported when a run starts; this file opens without torch.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from fedviz.parameters import parameter
from fedviz.problems import datasets
from fedviz.problems.architectures import TITLES, floats_per_sample, many_channels, shapes
from fedviz.problems.base import Problem, ProblemError, ProblemParameters, Progress, precision
from fedviz.problems.partitions import AnyPartition, Indices, PartitionError, Similarity, partition, thinned

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedviz.config import SimulationConfig


class Classification(ProblemParameters):
    title: ClassVar = "Image classification"
    summary: ClassVar = "Clients hold labelled images and train one classifier together."
    formula: ClassVar = (
        r"\begin{aligned}&f_i(w)=-\frac1{n_i}\sum_{(x,y)\in\mathcal D_i}\log\mathrm{softmax}_y\,h_w(x)\\"
        r"&f(w)=\sum_i p_if_i(w)\end{aligned}"
    )
    kind: Literal["classification"] = "classification"
    dataset: Literal["fashion_mnist_mini", "fashion_mnist", "mnist", "emnist", "cifar10", "digits"] = parameter(
        "fashion_mnist_mini",
        label="Data set",
        help="What the images show.",
        choices={name: info.title for name, info in datasets.DATASETS.items()},
    )
    model: Literal["softmax", "mlp", "cnn", "fedavg_cnn", "lenet5"] = parameter(
        "softmax",
        label="Model",
        help="What is trained. Softmax regression is one linear layer, from zero; it is the fastest.",
        choices=TITLES,
    )
    partition: AnyPartition = parameter(
        Similarity(), label="Data heterogeneity", help="How the images are dealt to the clients."
    )
    quantity_skew: float = parameter(
        0.0,
        label="Unequal amounts",
        help="0: as dealt; above: clients keep less of their data, each another share.",
        ge=0,
        le=10,
        suggested=(0, 3),
    )
    feature_skew: Literal["none", "noise", "rotation", "contrast"] = parameter(
        "none",
        label="Unlike images",
        help="What distinguishes one client's training images from another's.",
        choices={"none": "none", "noise": "noise", "rotation": "rotation", "contrast": "contrast"},
    )
    feature_strength: float = parameter(
        0.5,
        label="How unlike",
        help="From none at client 0 to this at the last: noise in units of pixel spread, half turns, loss of contrast.",
        ge=0,
        le=1,
    )
    weights: Literal["uniform", "size"] = parameter(
        "uniform",
        label="Clients count",
        symbol="p_i",
        help="In the objective: all alike, or by how many images they hold.",
        choices={"uniform": "all alike", "size": "by size"},
    )
    dtype: Literal["float32", "float64", "mixed_bfloat16"] = precision(
        "float32", mixed_bfloat16="mixed (16-bit products)"
    )

    @property
    def info(self) -> datasets.Info:
        return datasets.DATASETS[self.dataset]

    def problem_with(self, num_clients: int) -> tuple[str, str] | None:
        if self.model == "lenet5" and self.info.image[1] < 16:
            return (
                "model",
                f"got lenet5, which needs images of 16 x 16 at least; {self.dataset} has 8 x 8: use softmax, mlp or cnn",
            )
        if num_clients > self.info.train:
            return (
                "num_clients",
                f"got {num_clients:,}, allowed 1 to {self.info.train:,} (the number of training images)",
            )
        return None

    def problem_on(self, device: str) -> tuple[str, str] | None:
        if self.dtype == "mixed_bfloat16" and self.backend(device) == "numba":
            return "dtype", (
                "got mixed_bfloat16, allowed float32 or float64: softmax regression on a CPU is computed by Numba, which has no bfloat16. "
                "Choose another model, or a GPU"
            )
        return None

    def to_download(self) -> str:
        return "" if datasets.at_hand(self.dataset) else self.dataset

    def dimension(self) -> int:
        return sum(math.prod(shape) for shape in shapes(self.model, self.info.image, len(self.info.labels)))

    def data_bytes(self, num_clients: int) -> int:
        # As read, and normalised.
        return (self.info.train + self.info.test) * math.prod(self.info.image) * (1 + self.itemsize())

    def backend(self, device: str) -> str:
        return "numba" if self.model == "softmax" and device == "cpu" else "torch"

    def problem_with_data(self, num_clients: int, seed: int) -> tuple[str, str] | None:
        try:
            client_indices(self, num_clients, seed)
        except PartitionError as error:
            return "num_clients", f"got {num_clients:,}. {error}"
        except ProblemError:  # the data is not at hand: it is loaded, or asked for, when the run starts
            pass
        return None

    def draw_bytes(self, steps: int, batch_size: int, num_clients: int, seed: int) -> int:
        try:  # a client with fewer samples than the batch uses all it has
            batch_size = min(batch_size, max(map(len, client_indices(self, num_clients, seed))))
        except ProblemError:
            batch_size = min(batch_size, self.info.train)
        # The samples of one step, and which ones in all steps (three int64 arrays on the way).
        return batch_size * (floats_per_sample(self.model, self.info.image) * self.itemsize() + 3 * 8 * steps)

    def sample_count(self, num_clients: int) -> int:
        return self.info.train

    def batch(self, batch_size: int, samples: int) -> int:
        return min(batch_size, samples)

    def majority_labels(self, num_clients: int, seed: int) -> NDArray[np.int64]:
        return label_counts(self, num_clients, seed).argmax(1)

    def build(self, config: SimulationConfig, device: str, progress: Progress) -> Problem:
        data = datasets.load(self.dataset, progress)
        progress("Dealing the data to the clients")
        parts = client_indices(self, config.num_clients, config.seed)
        what = (self, data, parts, config.batch_size, config.seed, device)
        numbers = np.float64 if self.dtype == "float64" else np.float32
        if (self.backend(device) if config.backend == "auto" else config.backend) == "numba":
            from fedviz.problems import kernels
            from fedviz.problems.classifier_numba import NumbaSoftmax

            progress("Compiling for this processor")
            kernels.compile_all(numbers)
            return NumbaSoftmax(*what)
        from fedviz.problems.classifier_torch import TorchClassifier

        if device == "cpu" and any(map(many_channels, shapes(self.model, self.info.image, len(self.info.labels)))):
            from fedviz.problems import winograd

            progress("Compiling for this processor")
            winograd.compile_all(numbers)
        return TorchClassifier(*what)


@lru_cache(maxsize=16)
def _dealt(dataset: str, how: AnyPartition, quantity_skew: float, num_clients: int, seed: int) -> Indices:
    parts = partition(how, datasets.train_labels(dataset), num_clients, seed)
    return thinned(parts, quantity_skew, seed) if quantity_skew else parts


def client_indices(problem: Classification, num_clients: int, seed: int) -> Indices:
    """N index arrays into the training data. Raises ProblemError."""
    return _dealt(problem.dataset, problem.partition, problem.quantity_skew, num_clients, seed)


def label_counts(problem: Classification, num_clients: int, seed: int) -> NDArray[np.int64]:
    """[N, C] how many samples of each label each client holds. Raises ProblemError."""
    labels = datasets.train_labels(problem.dataset)
    parts = client_indices(problem, num_clients, seed)
    return np.stack([np.bincount(labels[part], minlength=len(problem.info.labels)) for part in parts])
