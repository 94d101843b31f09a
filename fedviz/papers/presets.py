"""Ready-made settings, each of which shows one thing. `config` holds what differs from the default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedviz.config import SimulationConfig, fill_in
from fedviz.papers.claims import merged
from fedviz.papers.scaffold import WARM, parabolas


@dataclass(frozen=True)
class Preset:
    """A lesson: what to run, and what to look for."""

    title: str
    summary: str
    config: dict[str, Any] = field(default_factory=dict)
    reference: str | None = "fedavg"  # the algorithm to run beside it

    def build(self) -> SimulationConfig:
        return SimulationConfig.read(fill_in(self.config))


PRESETS: dict[str, Preset] = {
    "default": Preset(
        "Who takes part shakes the model",
        "5 of 100 very different clients a round. FedAvg follows whoever shows up; FedVARP remembers the rest.",
    ),
    "clusters": Preset(
        "Ten memories instead of a hundred",
        "ClusterFedVARP keeps one memory for each kind of client: fresher than FedVARP at first, less exact later.",
        {"algorithm": {"name": "cluster_fedvarp", "clusters": 10, "clustering": "label"}},
        "fedvarp",
    ),
    "random_clusters": Preset(
        "Bad clusters",
        "The same ten memories, but clients are grouped by chance: a memory now stands for clients that disagree.",
        {"algorithm": {"name": "cluster_fedvarp", "clusters": 10, "clustering": "random"}},
    ),
    "scaffold": Preset(
        "Correcting every local step",
        "Who takes part matters as little as with FedVARP, and the local steps drift far less than those of FedAvg.",
        {"algorithm": {"name": "scaffold"}},
    ),
    "cyclic": Preset(
        "Clients that take turns",
        "Five groups with two labels each are on duty for four rounds at a time: watch the error of which group is on duty.",
        {"participation": {"pattern": "cyclic", "clients_per_round": 5, "groups": 5, "availability": 4}},
    ),
    "similar": Preset(
        "When all clients look alike",
        "With data dealt at random there is little for a memory to remove: both methods do equally well.",
        {"problem": {"partition": {"name": "iid"}}},
    ),
    "drift": Preset(
        "Drift, by hand",
        "Two parabolas that pull apart, everybody takes part, no noise: local steps carry FedAvg away from the optimum, SCAFFOLD to it.",
        merged(parabolas(WARM, gradient=10.0, steps=10, rate=0.05, rounds=60), probe_every=1),
    ),
    "curvatures": Preset(
        "Why local steps drift",
        "20 parabolas in ten dimensions: FedAvg is fast at first and then stuck, SCAFFOLD goes on. With equal curvatures (δ = 0) both do.",
        {
            "problem": {"kind": "quadratics"},
            "algorithm": {"name": "scaffold"},
            "participation": {"pattern": "full"},
            "num_clients": 20,
            "local_steps": 20,
            "client_lr": 0.05,
            "rounds": 100,
            "eval_every": 1,
        },
    ),
}
