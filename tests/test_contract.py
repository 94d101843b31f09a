"""The contract that every registered algorithm, pattern, partition, data set and model is held to.

A newly registered one is in these tests by itself, with the settings below where its defaults do not fit the small problem.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch

from fedviz.algorithms import ALGORITHMS, Cohort
from fedviz.config import SimulationConfig
from fedviz.participation import PATTERNS
from fedviz.problems import datasets
from fedviz.problems.architectures import TITLES
from fedviz.problems.partitions import PARTITIONS
from fedviz.simulation.local_pass import Pass, evaluations
from fedviz.simulation.loop import Simulation, simulate
from tests.problems import comparable, random_quadratics, small_classification

TUNED: dict[str, dict[str, Any]] = {  # N = 6
    "cluster_fedvarp": {"clusters": 3, "clustering": "random"},
    "uniform": {"clients_per_round": 2},
    "regularized": {"clients_per_round": 2},
    "cyclic": {"clients_per_round": 2, "groups": 3, "availability": 2},
    "stochastic_cyclic": {"clients_per_round": 2, "groups": 3, "availability": 2, "on_duty": 0.6, "off_duty": 0.2},
    "bernoulli": {"chance": 0.3},
    "markov": {"mean_on": 2.0, "mean_off": 3.0},
    "trace": {"cohorts": [[0, 3], [], [5]], "repeat": True},
}
GENTLE = {"fedadam": 0.05, "fedyogi": 0.05, "fedavgm": 0.3}  # server rates


def made(algorithm: str, pattern: str = "uniform", **settings: Any) -> SimulationConfig:
    values = {
        "noise": 0.2,
        "rounds": 9,
        "probe_every": 3,
        "eval_every": 2,
        "server_lr": GENTLE.get(algorithm, 1.0),
        **settings,
    }
    turns = {"pattern": pattern, **TUNED.get(pattern, {})}
    return random_quadratics({"name": algorithm, **TUNED.get(algorithm, {})}, participation=turns, **values)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_under_every_pattern(algorithm: str, pattern: str) -> None:
    """Finite, deterministic, gap-free, measured without effect, resumed bit for bit, moved by no other than the cohorts drawn."""
    config = made(algorithm, pattern)
    records, models, checkpoints = [], [], []
    for record in simulate(config):
        records.append(record)
        models.append(record.w.clone())
        checkpoints.append(record.checkpoint())
    assert [record.round for record in records] == list(range(10))
    assert all(torch.isfinite(w).all() for w in models)
    again = list(simulate(config))
    assert [comparable(record) for record in again] == [comparable(record) for record in records]
    unwatched = made(algorithm, pattern, probe_every=0, eval_every=0)
    assert all(torch.equal(record.w, w) for record, w in zip(simulate(unwatched), models, strict=True))
    for stop in (0, 4, 7):
        rest = [comparable(record) for record in simulate(config, resume_from=checkpoints[stop])]
        assert rest == [comparable(record) for record in records[stop + 1 :]]
    for checkpoint in checkpoints:  # shapes and types of the state stay
        assert {k: (v.shape, v.dtype) for k, v in checkpoint.state.items()} == {
            k: (v.shape, v.dtype) for k, v in checkpoints[0].state.items()
        }


@pytest.mark.parametrize("pattern", PATTERNS)
def test_cohorts_are_sorted_without_repetition_and_weighted_as_stated(pattern: str) -> None:
    config = made("fedavg", pattern, rounds=60, probe_every=0)
    for record in list(simulate(config))[1:]:
        assert record.cohort == sorted(set(record.cohort))
        assert len(record.cohort) == len(record.weights) <= config.participation.cohort_size(6)
        if record.cohort:
            assert sum(record.weights) == pytest.approx(1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_direction_has_no_side_effect_and_costs_are_as_declared(algorithm: str) -> None:
    config = made(algorithm, probe_every=0)
    run = Simulation(config)
    run.begin()
    for round in range(1, 6):
        run.advance(round)
    ids = np.array([1, 4])
    result = Pass(config, run.problem, run.algorithm, run.state, run.w, ids, 6).make()
    cohort = Cohort(6, torch.tensor(ids), torch.full((2,), 0.5, dtype=torch.float64))
    before, w = {name: tensor.clone() for name, tensor in run.state.items()}, run.w.clone()
    first = run.algorithm.direction(run.state, cohort, result)
    assert torch.equal(first, run.algorithm.direction(run.state, cohort, result))
    assert torch.equal(run.w, w)
    assert all(torch.equal(run.state[name], tensor) for name, tensor in before.items())
    # Memory: no more numbers than declared, but for one number a client (who was seen in a window).
    kept = sum(tensor.numel() for tensor in run.state.values())
    assert kept <= config.algorithm.state_vectors(6) * 3 + 6
    assert run.costs.gradient_evaluations == sum(
        evaluations(config, run.problem, run.participation.cohort(round), needs=run.algorithm.needs)
        for round in range(1, 6)
    )
    assert run.costs.floats_up == 5 * 2 * 3 * config.algorithm.vectors_up
    assert run.costs.floats_down == 5 * 2 * 3 * config.algorithm.vectors_down


@pytest.mark.parametrize("weights", ["uniform", "size"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_trains_a_classifier(algorithm: str, weights: str) -> None:
    problem = {"kind": "classification", "quantity_skew": 1.0, "weights": weights}
    tuned = {"clusters": 5} if algorithm == "cluster_fedvarp" else {}
    config = small_classification(
        {"name": algorithm, **tuned}, problem=problem, rounds=3, server_lr=GENTLE.get(algorithm, 1.0)
    )
    records = list(simulate(config))
    assert math.isfinite(records[-1].evaluation.train_loss)
    assert [comparable(r) for r in simulate(config)] == [comparable(r) for r in records]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_drives_a_classifier(pattern: str) -> None:
    turns = {"pattern": pattern, **TUNED.get(pattern, {})}
    records = list(simulate(small_classification({"name": "scaffold"}, participation=turns, rounds=4)))
    assert math.isfinite(records[-1].evaluation.train_loss)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_partition_feeds_a_classifier(partition: str) -> None:
    problem = {"kind": "classification", "partition": {"name": partition}}
    records = list(simulate(small_classification({"name": "fedvarp"}, problem=problem, rounds=2)))
    assert records[-1].evaluation.train_loss < records[0].evaluation.train_loss


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("look", ["noise", "rotation", "contrast"])
def test_unlike_images_change_the_run_and_leave_the_test_images_alone(look: str, backend: str) -> None:
    plain, skewed = (
        Simulation(
            small_classification(
                {"name": "fedavg"}, problem={"kind": "classification", "feature_skew": kind}, backend=backend
            )
        )
        for kind in ("none", look)
    )
    plain_x, skewed_x, test_x = (
        torch.as_tensor(x[:]) for x in (plain.problem.train_x, skewed.problem.train_x, skewed.problem.test_x)
    )
    assert torch.equal(torch.as_tensor(plain.problem.test_x[:]), test_x)
    first, last = plain.problem.order[0], plain.problem.order[-1]
    assert torch.allclose(plain_x[first], skewed_x[first], atol=1e-3)  # client 0 is unchanged
    assert not torch.allclose(plain_x[last], skewed_x[last])


@pytest.mark.parametrize("model", TITLES)
def test_every_model_learns(model: str) -> None:
    problem = {"kind": "classification", "model": model, "dataset": "digits" if model != "lenet5" else "fashion_mnist_mini",
               "partition": {"name": "iid"}}  # fmt: skip
    config = small_classification(
        {"name": "fedavg"},
        problem=problem,
        rounds=3,
        local_steps=12,
        client_lr=0.15,
        num_clients=10,
        probe_every=0,
        eval_every=3,
    )
    records = list(simulate(config))
    assert records[-1].evaluation.train_loss < 0.97 * records[0].evaluation.train_loss
    assert len(records[0].w) == config.problem.dimension()


@pytest.mark.parametrize("dataset", ["fashion_mnist_mini", "digits", "fashion_mnist"])
def test_every_data_set_at_hand_is_what_it_is_said_to_be(dataset: str) -> None:
    info = datasets.DATASETS[dataset]
    if dataset == "fashion_mnist" and next(datasets._folders(dataset), None) is None:
        pytest.skip("the full Fashion-MNIST is not on this machine")
    data = datasets.load(dataset)
    assert data.train_images.shape == (info.train, math.prod(info.image))
    assert data.test_images.shape == (info.test, math.prod(info.image))
    assert set(data.train_labels.tolist()) == set(range(len(info.labels)))
    pixels = data.train_images / 255
    assert pixels.mean() == pytest.approx(info.mean[0], abs=0.005)
    assert pixels.std() == pytest.approx(info.deviation[0], abs=0.005)
