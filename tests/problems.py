"""Small problems that the tests share."""

from typing import Any

import numpy as np
import torch

from fedviz.config import SimulationConfig
from fedviz.simulation.loop import simulate
from fedviz.simulation.records import RoundRecord


def toy(algorithm: dict[str, Any], *, gradient: float = 1.0, **settings: Any) -> SimulationConfig:
    """SCAFFOLD's toy: f_1 = x^2 + G x, f_2 = -G x, from x = 1; cohorts {1}, {2}, {1}, ... unless told otherwise."""
    values = {
        "problem": {
            "kind": "quadratics",
            "curvature": [[2.0], [0.0]],
            "linear": [[gradient], [-gradient]],
            "start": [1.0],
        },
        "participation": {"pattern": "trace", "cohorts": [[0], [1]], "repeat": True},
        "num_clients": 2,
        "local_steps": 2,
        "client_lr": 0.1,
        "rounds": 6,
        "probe_every": 0,
        "eval_every": 0,
    }
    return SimulationConfig.read({**values, "algorithm": algorithm, **settings})


def random_quadratics(
    algorithm: dict[str, Any],
    *,
    num_clients: int = 6,
    d: int = 3,
    noise: float = 0.0,
    data_seed: int = 7,
    **settings: Any,
) -> SimulationConfig:
    """Random diagonal quadratics with curvatures in (0.5, 2)."""
    random = np.random.default_rng(data_seed)
    values = {
        "problem": {
            "kind": "quadratics",
            "noise": noise,
            "start": random.normal(size=d).tolist(),
            "curvature": random.uniform(0.5, 2, (num_clients, d)).tolist(),
            "linear": random.normal(size=(num_clients, d)).tolist(),
        },
        "participation": {"pattern": "uniform", "clients_per_round": 2},
        "num_clients": num_clients,
        "local_steps": 4,
        "client_lr": 0.1,
        "rounds": 12,
        "probe_every": 0,
        "eval_every": 0,
    }
    return SimulationConfig.read({**values, "algorithm": algorithm, **settings})


def small_classification(algorithm: dict[str, Any], **settings: Any) -> SimulationConfig:
    """The shipped images on 20 clients, a few rounds."""
    values = {
        "participation": {"pattern": "uniform", "clients_per_round": 4},
        "num_clients": 20,
        "local_steps": 5,
        "rounds": 6,
        "probe_every": 3,
        "eval_every": 2,
    }
    return SimulationConfig.read({**values, "algorithm": algorithm, **settings})


def models_of(config: SimulationConfig) -> list[torch.Tensor]:
    """w after every round, record 0 first."""
    return [record.w.clone() for record in simulate(config)]


def comparable(record: RoundRecord) -> dict[str, Any]:
    """All of a record that must be reproducible: everything but the seconds."""
    values = record.to_dict()
    del values["costs"]["seconds"]
    return values


ALGORITHMS: list[dict[str, Any]] = [
    {"name": "fedavg"},
    {"name": "fedprox", "mu": 0.5},
    {"name": "scaffold", "option": "I"},
    {"name": "scaffold", "option": "II"},
    {"name": "scaffold", "warm_start": True},
    {"name": "fedvarp"},
    {"name": "cluster_fedvarp", "clusters": 3, "clustering": "random"},
    {"name": "mifa"},
    {"name": "amplified_fedavg", "window": 3},
    {"name": "amplified_fedavg", "window": 3, "mu": 0.5},
    {"name": "amplified_scaffold", "window": 3},
    {"name": "fedavgm"},
    {"name": "fedadam"},
    {"name": "fedyogi"},
    {"name": "sgd"},
]


def label_of(algorithm: dict[str, Any]) -> str:
    """A readable test id."""
    return "-".join(str(value) for value in algorithm.values())
