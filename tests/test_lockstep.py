"""Runs in lockstep give the records that each gives alone."""

from typing import Any

import pytest
import torch

from fedviz.config import SimulationConfig
from fedviz.problems import workers
from fedviz.problems.classifier_torch import TorchClassifier
from fedviz.simulation.errors import Diverged
from fedviz.simulation.lockstep import simulate_many
from fedviz.simulation.loop import simulate
from tests.problems import comparable, random_quadratics, small_classification

VARIETY: list[dict[str, Any]] = [
    {"algorithm": {"name": "fedavg"}},
    {"algorithm": {"name": "scaffold"}, "seed": 5},
    {"algorithm": {"name": "fedprox", "mu": 0.5}, "client_lr": 0.05},
    {"algorithm": {"name": "fedvarp"}, "participation": {"pattern": "uniform", "clients_per_round": 7}},
    {"algorithm": {"name": "amplified_scaffold"}, "rounds": 3},
    {"algorithm": {"name": "sgd"}},
    {"algorithm": {"name": "fedavg"}, "participation": {"pattern": "bernoulli", "chance": 0.05}, "seed": 2},
    {"algorithm": {"name": "scaffold", "option": "I"}, "num_clients": 300, "batch_size": 20},
]  # the last: clients with fewer samples than the batch size


def configs(**settings: Any) -> list[SimulationConfig]:
    return [small_classification(**{**settings, **variety}) for variety in VARIETY]


def alone(config: SimulationConfig) -> list[dict[str, Any]]:
    return [{**comparable(record), "w": record.w.clone()} for record in simulate(config)]


def together(several: list[SimulationConfig], **how: Any) -> list[list[dict[str, Any]]]:
    records: list[list[dict[str, Any]]] = [[] for _ in several]
    for which, record in simulate_many(several, **how):
        records[which].append({**comparable(record), "w": record.w.clone()})
    return records


@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_runs_in_lockstep_are_those_alone_to_the_bit(backend: str) -> None:
    several = configs(backend=backend, probe={"clients": 4})
    with workers.at_most(2):
        found = together(several)
    for ours, config in zip(found, several, strict=True):
        expected = alone(config)
        assert len(ours) == config.rounds + 1
        for one, other in zip(ours, expected, strict=True):
            assert torch.equal(one.pop("w"), other.pop("w"))
            assert one == other


@pytest.mark.parametrize(("model", "recorded"), [("softmax", False), ("softmax", True), ("mlp", False)])
def test_runs_as_one_batch_are_those_alone_within_rounding(
    model: str, recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = {"kind": "classification", "model": model}
    several = configs(backend="torch", problem=problem, probe_every=0, eval_every=0)
    expected = [alone(config) for config in several]
    batches = []
    real = TorchClassifier.together

    def together_seen(self: TorchClassifier, passes: Any) -> Any:
        batches.append(len(passes))
        self.records = recorded
        return real(self, passes)

    monkeypatch.setattr(TorchClassifier, "together", together_seen)
    found = together(several, one_batch=True)
    assert max(batches) >= 5  # what has local passes and the same number of steps is one batch
    for ours, theirs in zip(found, expected, strict=True):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert one["cohort"] == other["cohort"]
            assert float((one["w"] - other["w"]).abs().max()) < 1e-5


def test_analytic_problems_and_shorter_runs_go_along() -> None:
    several = [random_quadratics({"name": "fedvarp"}, rounds=rounds, noise=0.1, seed=rounds) for rounds in (1, 5, 3)]
    for how in ({}, {"one_batch": True}):
        found = together(several, **how)
        assert [len(records) for records in found] == [2, 6, 4]
        for ours, config in zip(found, several, strict=True):
            for one, other in zip(ours, alone(config), strict=True):
                assert torch.equal(one.pop("w"), other.pop("w"))
                assert one == other


def test_a_run_that_has_enough_ends_and_the_others_go_on() -> None:
    several = [random_quadratics({"name": "fedavg"}, rounds=5, seed=seed) for seed in (1, 2)]
    seen = [
        (which, record.round) for which, record in simulate_many(several, enough=lambda i, r: (i, r.round) == (0, 2))
    ]  # type: ignore[union-attr]
    assert [round for which, round in seen if which == 0] == [0, 1, 2]
    assert [round for which, round in seen if which == 1] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("one_batch", [False, True])
def test_a_run_that_diverges_ends_and_the_others_go_on(one_batch: bool) -> None:
    """Curvature at most 2, rate 1e60: |1 - rate * curvature| is about 1e60, beyond float64 after six steps."""
    wild = random_quadratics({"name": "fedavg"}, client_lr=1000.0, local_steps=40, rounds=6)
    tame = random_quadratics({"name": "fedavg"}, rounds=6)
    seen: list[list[Any]] = [[], []]
    for which, record in simulate_many([wild, tame], one_batch=one_batch):
        seen[which].append(record)
    assert isinstance(seen[0][-1], Diverged)
    assert [type(record).__name__ for record in seen[0][:-1]] == ["RoundRecord"] * (len(seen[0]) - 1)
    assert [record.round for record in seen[1]] == list(range(7))


def test_no_runs_are_no_records() -> None:
    assert list(simulate_many([])) == []
