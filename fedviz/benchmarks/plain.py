"""The yardstick: federated averaging and SCAFFOLD as a plain PyTorch loop, one client and one step after the other.

What one writes first: an `nn.Module`, autograd, data resident in a tensor, no batching over clients. It does the same work as a run:

    FedAvg    u <- u - eta_c g_i(u),              w <- mean_S u_i
    SCAFFOLD  u <- u - eta_c (g_i(u) + c - c_i),  w <- mean_S u_i,
              c_i' = c_i - c + (w - u_i) / (tau eta_c),  c <- c + (1/N) sum_S (c_i' - c_i)      (option II)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice, pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name
from torch.utils.flop_counter import FlopCounterMode

from fedviz.config import SimulationConfig
from fedviz.participation import Uniform
from fedviz.problems import Classification, datasets
from fedviz.problems.classification import client_indices
from fedviz.problems.classifier import DTYPES, normalised

Parameters = list[Tensor]


def network(model: str, image: tuple[int, int, int], labels: int) -> nn.Sequential:
    """The model as one writes it with `torch.nn`, for images (channels, height, width). Raises ValueError for an unknown one."""
    channels, height, width = image
    if model == "softmax":
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(image), labels))
    if model == "mlp":
        return nn.Sequential(nn.Flatten(), *_linear(math.prod(image), 200, labels))
    if model == "cnn":
        inputs = 64 * -(-height // 2) * -(-width // 2)
        convolution = nn.Conv2d(channels, 64, 5, stride=2, padding=2)
        return nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), nn.Linear(inputs, labels))
    if model == "lenet5":
        inputs = 16 * ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2)
        first, second = _pooled(nn.Conv2d(channels, 6, 5, padding=2)), _pooled(nn.Conv2d(6, 16, 5))
        return nn.Sequential(*first, *second, nn.Flatten(), *_linear(inputs, 120, 84, labels))
    if model == "fedavg_cnn":
        inputs = 64 * (height // 4) * (width // 4)
        first, second = _pooled(nn.Conv2d(channels, 32, 5, padding=2)), _pooled(nn.Conv2d(32, 64, 5, padding=2))
        return nn.Sequential(*first, *second, nn.Flatten(), *_linear(inputs, 512, labels))
    raise ValueError(f'got the model "{model}", which has no plain form: add it to fedviz/benchmarks/plain.py')


def _linear(*widths: int) -> list[nn.Module]:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = [
        layer for inputs, outputs in pairwise(widths) for layer in (nn.Linear(inputs, outputs), nn.ReLU())
    ]
    return layers[:-1]


def _pooled(convolution: nn.Conv2d) -> list[nn.Module]:
    return [convolution, nn.ReLU(), nn.MaxPool2d(2)]


def flops(model: str, image: tuple[int, int, int], labels: int) -> tuple[int, int]:
    """(of a forward pass, of a gradient with its forward pass) for one image: the products of matrices and the convolutions."""
    made = network(model, image, labels)
    found = []
    for gradient in (False, True):
        with FlopCounterMode(display=False) as counter:
            logits = made(torch.zeros(1, *image))
            if gradient:
                logits.sum().backward()
        found.append(counter.get_total_flops())
    return found[0], found[1]


class PlainLoop:
    """A run of FedAvg or SCAFFOLD (option II) on a classification problem with uniform participation, from w [d]."""

    def __init__(self, config: SimulationConfig, w: Tensor) -> None:
        assert isinstance(config.problem, Classification)
        assert isinstance(config.participation, Uniform)
        problem, info = config.problem, config.problem.info
        if config.algorithm.name not in ("fedavg", "scaffold"):
            raise ValueError(f"got {config.algorithm.name}, allowed fedavg and scaffold: the plain loop has no other")
        data, device = datasets.load(problem.dataset), w.device.type
        self.config, self.size = config, config.participation.clients_per_round
        self.x = normalised(data.train_images, info, device, DTYPES[problem.dtype]).unflatten(1, info.image)
        self.y = torch.as_tensor(data.train_labels).to(device)
        self.parts = [torch.as_tensor(part) for part in client_indices(problem, config.num_clients, config.seed)]
        self.network = network(problem.model, info.image, len(info.labels)).to(w)
        self.parameters = list(self.network.parameters())
        self.w = self._split(w)
        self.c = [torch.zeros_like(part) for part in self.w]
        self.c_of = [[torch.zeros_like(part) for part in self.w] for _ in self.parts]
        self.chance = torch.Generator().manual_seed(config.seed)

    def advance(self, round: int) -> None:
        """One round."""
        cohort = self.cohort(round)
        trained = [self.train(client, round) for client in cohort]
        if self.config.algorithm.name == "scaffold":
            self._renew(cohort, trained)
        self.w = [torch.stack(parts).mean(0) for parts in zip(*trained, strict=True)]

    def cohort(self, round: int) -> list[int]:
        return torch.randperm(len(self.parts), generator=self.chance)[: self.size].tolist()

    def batches(self, client: int, round: int) -> Iterator[Tensor]:
        """Rows of the training data, batch by batch: shuffled epochs of the client's own, incomplete last batches dropped."""
        part = self.parts[client]
        size = min(self.config.batch_size, len(part))
        while True:
            order = part[torch.randperm(len(part), generator=self.chance)].to(self.x.device)
            for first in range(0, len(order) - size + 1, size):
                yield order[first : first + size]

    def train(self, client: int, round: int) -> Parameters:
        """The client's model after its local steps."""
        corrected = self.config.algorithm.name == "scaffold"
        with torch.no_grad():
            for parameter, value in zip(self.parameters, self.w, strict=True):
                parameter.copy_(value)
        for rows in islice(self.batches(client, round), self.config.local_steps):
            loss = F.cross_entropy(self.network(self.x[rows]), self.y[rows])
            gradients = torch.autograd.grad(loss, self.parameters)
            with torch.no_grad():
                for place, parameter in enumerate(self.parameters):
                    step = gradients[place]
                    if corrected:
                        step = step + self.c[place] - self.c_of[client][place]
                    parameter.sub_(step, alpha=self.config.client_lr)
        return [parameter.detach().clone() for parameter in self.parameters]

    def _renew(self, cohort: list[int], trained: list[Parameters]) -> None:
        """Control variates from the local steps themselves; the server's moves by what theirs changed, over N."""
        reach = self.config.local_steps * self.config.client_lr
        moved = [torch.zeros_like(part) for part in self.w]
        for client, u in zip(cohort, trained, strict=True):
            old = self.c_of[client]
            self.c_of[client] = [
                c_i - c + (w - u_i) / reach for c_i, c, w, u_i in zip(old, self.c, self.w, u, strict=True)
            ]
            for total, new, before in zip(moved, self.c_of[client], old, strict=True):
                total += new - before
        self.c = [c + total / len(self.parts) for c, total in zip(self.c, moved, strict=True)]

    def flat(self) -> Tensor:
        """w [d], as a run has it."""
        if self.config.problem.model == "softmax":  # type: ignore[union-attr]  # a row (W_c, b_c) for each label
            weight, bias = self.w
            return torch.cat([weight, bias[:, None]], 1).flatten()
        return torch.cat([part.flatten() for part in self.w])

    def _split(self, w: Tensor) -> Parameters:
        if self.config.problem.model == "softmax":  # type: ignore[union-attr]
            rows = w.unflatten(0, (len(self.parameters[1]), -1))
            return [rows[:, :-1].clone(), rows[:, -1].clone()]
        pieces = w.split([parameter.numel() for parameter in self.parameters])
        return [piece.view_as(parameter).clone() for piece, parameter in zip(pieces, self.parameters, strict=True)]
