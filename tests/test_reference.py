"""The batched path against a slow reference: plain nn.Module and autograd, one client at a time, written from the papers.

The reference shares the partition, the cohorts and the minibatches with the code under test, and nothing else.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedviz.config import SimulationConfig
from fedviz.problems.classification import client_indices
from fedviz.problems.datasets import DATASETS, load
from fedviz.problems.minibatches import schedule
from fedviz.simulation.loop import simulate
from tests.problems import small_classification

MODULES: dict[str, Callable[[], nn.Module]] = {
    "softmax": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10)),
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10)),
    "cnn": lambda: nn.Sequential(
        nn.Conv2d(1, 64, 5, stride=2, padding=2), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 14 * 14, 10)
    ),
    "fedavg_cnn": lambda: nn.Sequential(
        *(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 2 * 2, 512), nn.ReLU(), nn.Linear(512, 10)),
    ),
    "lenet5": lambda: nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(16 * 5 * 5, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    ),
}


def to_rows(w: np.ndarray) -> np.ndarray:
    """Weight [10, 784] then bias [10], as nn.Linear has them -> rows (weight_c, bias_c), as softmax regression has them here."""
    return np.concatenate([w[:7840].reshape(10, 784), w[7840:, None]], 1).ravel()


def from_rows(w: np.ndarray) -> np.ndarray:
    """The way back."""
    rows = w.reshape(10, 785)
    return np.concatenate([rows[:, :784].ravel(), rows[:, 784]])


def reference(config: SimulationConfig, start: np.ndarray) -> tuple[list[np.ndarray], float, float, float]:
    """(flat model after every round, train loss, test accuracy, |grad f|^2 at the end), in float32, by hand."""
    problem: Any = config.problem
    info, data = DATASETS[problem.dataset], load(problem.dataset)
    parts = client_indices(problem, config.num_clients, config.seed)

    def inputs(images: np.ndarray) -> torch.Tensor:
        return ((torch.tensor(images).float() / 255 - info.mean[0]) / info.deviation[0]).reshape(-1, *info.image)

    x, y = inputs(data.train_images), torch.tensor(data.train_labels)
    model, loss = MODULES[problem.model](), nn.CrossEntropyLoss()

    def flat() -> torch.Tensor:
        return nn.utils.parameters_to_vector(model.parameters()).detach()

    def put(w: torch.Tensor) -> None:
        nn.utils.vector_to_parameters(w.clone(), model.parameters())

    def grad(rows: Any) -> torch.Tensor:
        model.zero_grad()
        loss(model(x[rows]), y[rows]).backward()
        return torch.cat([p.grad.reshape(-1) for p in model.parameters()])

    w = torch.tensor(from_rows(start) if problem.model == "softmax" else start)
    memory: dict[int, torch.Tensor] = {i: torch.zeros(len(w)) for i in range(config.num_clients)}
    history = []
    algorithm = config.algorithm
    for round in range(1, config.rounds + 1):
        cohort = config.participation.build(config.num_clients, config.seed).cohort(round)
        mean_memory = torch.stack(list(memory.values())).mean(0)
        ends, fresh = [], {}
        for i in cohort.tolist():
            picks, _ = schedule(
                np.array([len(parts[i])]),
                np.array([i]),
                config.batch_size,
                config.local_steps,
                seed=config.seed,
                round=round,
            )
            u, raw = w.clone(), []
            for k in range(config.local_steps):
                put(u)
                g = grad(parts[i][picks[0, k]])
                raw.append(g)
                if algorithm.name == "scaffold":
                    g = g - memory[i] + mean_memory
                if algorithm.name == "fedprox":
                    g = g + algorithm.mu * (u - w)
                u = u - config.client_lr * g
            ends.append(u)
            fresh[i] = torch.stack(raw).mean(0)
            if algorithm.name == "fedvarp":
                fresh[i] = (w - u) / (config.client_lr * config.local_steps)
        if algorithm.name == "fedvarp":
            v = torch.stack([fresh[i] - memory[i] for i in cohort.tolist()]).mean(0) + mean_memory
            w = w - config.client_lr * config.local_steps * v
        else:
            w = torch.stack(ends).mean(0)
        if algorithm.name in ("fedvarp", "scaffold"):
            memory.update(fresh)
        history.append(to_rows(w.numpy()) if problem.model == "softmax" else w.numpy().copy())
    put(w)
    assert (
        len({len(part) for part in parts}) > 1
    )  # so that a mean over samples would not do: f is the mean over clients
    losses = [loss(model(x[part]), y[part]).item() for part in parts]
    full = torch.stack([grad(part) for part in parts]).mean(0)
    accuracy = float((model(inputs(data.test_images)).argmax(1) == torch.tensor(data.test_labels)).float().mean())
    assert torch.equal(flat(), w)
    return history, float(np.mean(losses)), accuracy, float(full @ full)


def compare(config: SimulationConfig, *, tolerance: float = 1e-5) -> None:
    ours, records = [], []
    for record in simulate(config):
        ours.append(record.w.clone().numpy())
        records.append(record)
    models, train_loss, accuracy, gradient_norm_sq = reference(config, ours[0])
    for mine, theirs in zip(ours[1:], models, strict=True):
        assert np.abs(mine - theirs).max() < tolerance
    final = records[-1].evaluation
    assert final is not None
    assert final.train_loss == pytest.approx(train_loss, rel=1e-5)
    assert final.test_accuracy == pytest.approx(accuracy, abs=1e-6)
    assert final.gradient_norm_sq == pytest.approx(gradient_norm_sq, rel=1e-4)


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("batch_size", [16, 700])  # 700: clients with fewer samples use all they have
@pytest.mark.parametrize(
    "algorithm",
    [{"name": "fedavg"}, {"name": "fedprox", "mu": 1.0}, {"name": "scaffold"}, {"name": "fedvarp"}],
    ids=lambda a: a["name"],
)
def test_the_batched_path_matches_one_client_at_a_time(
    algorithm: dict[str, Any], batch_size: int, backend: str
) -> None:
    settings = {"num_clients": 17, "rounds": 4, "local_steps": 4, "backend": backend}
    compare(small_classification(algorithm, batch_size=batch_size, **settings))


@pytest.mark.parametrize("model", ["mlp", "cnn", "fedavg_cnn", "lenet5"])
def test_every_models_batched_gradients_match_one_client_at_a_time(model: str) -> None:
    dataset = "digits" if model == "fedavg_cnn" else "fashion_mnist_mini"  # small images for the largest
    problem = {"kind": "classification", "model": model, "dataset": dataset}
    compare(
        small_classification(
            {"name": "scaffold"},
            problem=problem,
            num_clients=17,
            rounds=2,
            local_steps=3,
            batch_size=8,
            client_lr=0.05,
            probe_every=0,
        )
    )
