"""Drawn quadratics have exactly the heterogeneity that they are asked for; given ones are taken as they are.

What is compared is never read from the coefficients: Hessians are made column by column from gradients, and the optimum is solved for.
"""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedviz.config import SimulationConfig
from fedviz.problems import Problem, Quadratics
from fedviz.simulation.loop import simulate
from tests.problems import models_of

CASES: list[tuple[int, dict[str, Any]]] = [
    # clients, what they are drawn from
    (100, {}),
    (
        7,
        {"coordinates": 5, "flat": 0.01, "steep": 40.0, "curvature_dissimilarity": 3.0, "gradient_dissimilarity": 20.0},
    ),
    (2, {"coordinates": 2, "flat": 0.5, "steep": 0.5}),
    (2, {"coordinates": 1, "flat": 1.0, "curvature_dissimilarity": 1.0, "gradient_dissimilarity": 100.0}),
    (5, {"curvature_dissimilarity": 0.0}),
    (5, {"gradient_dissimilarity": 0.0}),
    (1, {"curvature_dissimilarity": 0.0, "gradient_dissimilarity": 0.0}),
    (3, {"coordinates": 300, "flat": 1e-3, "steep": 1e3}),
]
EXACT = 1e-10  # the largest error, relative to the largest curvature or gradient


def config_of(num_clients: int, values: dict[str, Any], **settings: Any) -> SimulationConfig:
    """Everybody takes part unless told otherwise."""
    base = {"participation": {"pattern": "full"}, "rounds": 20, "probe_every": 0, "eval_every": 1, "local_steps": 10}
    problem = {"kind": "quadratics", **values}
    return SimulationConfig.read({**base, "num_clients": num_clients, "problem": problem, **settings})


def problem_of(config: SimulationConfig) -> Problem:
    return config.problem.build(config, "cpu", lambda _: None)


def pieces(problem: Problem, d: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Hessians [N, d, d] and gradients at zero [N, d] of all clients. Gradients are affine, so that differences are not approximations."""
    everyone = np.arange(problem.num_clients)
    at_zero = problem.client_gradients(torch.zeros(d, dtype=torch.float64), everyone)
    columns = [problem.client_gradients(axis, everyone) - at_zero for axis in torch.eye(d, dtype=torch.float64)]
    return torch.stack(columns, dim=2).numpy(), at_zero.numpy()


@pytest.mark.parametrize(("num_clients", "values"), CASES)
@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_they_have_exactly_the_curvatures_and_dissimilarities_asked_for(
    num_clients: int, values: dict[str, Any], seed: int
) -> None:
    config = config_of(num_clients, values, seed=seed)
    asked, problem = config.problem, problem_of(config)
    assert isinstance(asked, Quadratics)
    hessians, at_zero = pieces(problem, asked.coordinates)
    mean, tolerance = hessians.mean(0), EXACT * max(1.0, asked.steep)

    eigenvalues = np.linalg.eigvalsh(mean)
    assert abs(eigenvalues[0] - asked.flat) < tolerance
    assert abs(eigenvalues[-1] - asked.steep) < tolerance
    ratios = eigenvalues[1:] / eigenvalues[:-1]
    assert np.ptp(ratios) < 1e-8 if len(ratios) else asked.flat == asked.steep

    distances = [np.linalg.norm(hessian - mean, 2) for hessian in hessians]  # the largest singular value
    assert abs(max(distances) - asked.curvature_dissimilarity) < tolerance

    optimum = np.linalg.solve(mean, -at_zero.mean(0))
    assert np.linalg.norm(optimum) < EXACT * max(1.0, asked.gradient_dissimilarity) / asked.flat
    gradients = hessians @ optimum + at_zero
    square = asked.gradient_dissimilarity**2
    assert abs((gradients**2).sum(1).mean() - square) < EXACT * max(1.0, square)

    start = problem.start().numpy()
    assert np.ptp(start) == 0
    measured = problem.evaluate(problem.start())
    assert measured.distance == pytest.approx(1, abs=EXACT)
    assert measured.objective == pytest.approx(start @ mean @ start / 2, rel=EXACT)
    there = problem.evaluate(torch.zeros(asked.coordinates, dtype=torch.float64))
    assert there.objective == 0
    assert there.distance == pytest.approx(0, abs=EXACT * max(1.0, asked.gradient_dissimilarity) / asked.flat)


def test_clients_differ_in_every_coordinate_and_by_chance_alone() -> None:
    """Of 500 clients' deviations, scaled to deviation 1, first four moments are a normal's: 0, 1, 0, 3."""
    hessians, gradients = pieces(problem_of(config_of(500, {"coordinates": 20})), 20)
    deviations = np.diagonal(hessians - hessians.mean(0), axis1=1, axis2=2)
    for drawn in (deviations / deviations.std(), gradients / gradients.std()):
        moments = [(drawn**k).mean() for k in (1, 2, 3, 4)]
        # The standard errors of the third and fourth moment of 10,000 normal numbers are 0.04 and 0.1.
        assert moments == pytest.approx([0, 1, 0, 3], abs=0.4)
        assert abs(np.corrcoef(drawn.T) - np.eye(20)).max() < 0.25  # 1 / sqrt(500) = 0.045
    assert abs(np.corrcoef(deviations.ravel(), gradients.ravel())[0, 1]) < 0.05


def test_the_seed_alone_decides_how_they_differ() -> None:
    """A knob scales its own part, and leaves the directions as they are."""

    def parts(seed: int = 0, **values: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return pieces(problem_of(config_of(6, values, seed=seed)), 10)

    hessians, gradients = parts()
    for again, same in zip(parts(), (hessians, gradients), strict=True):
        assert (again == same).all()
    assert np.allclose(parts(gradient_dissimilarity=3.0)[1], 3 * gradients)
    assert np.allclose(parts(gradient_dissimilarity=3.0)[0], hessians)
    wider = parts(curvature_dissimilarity=2.0)[0]
    assert np.allclose(wider - wider.mean(0), 4 * (hessians - hessians.mean(0)))
    assert not np.allclose(parts(seed=1)[1], gradients)


@pytest.mark.parametrize(("steps", "rate"), [(2, 0.05), (10, 0.05), (10, 0.125)])
def test_two_clients_and_one_coordinate_are_the_parabolas_of_scaffolds_figure_3(steps: int, rate: float) -> None:
    """FedAvg ends at x = G [eta tau / (1 - a) - 1/2], a = (1 - 2 eta)^tau, whose sign is that of the curved client's G."""
    toy = {"coordinates": 1, "flat": 1.0, "curvature_dissimilarity": 1.0, "gradient_dissimilarity": 3.0}
    config = config_of(2, toy, algorithm={"name": "fedavg"}, local_steps=steps, client_lr=rate, rounds=600)
    hessians, gradients = pieces(problem_of(config), 1)
    assert sorted(hessians.ravel().tolist()) == pytest.approx([0, 2])
    assert sorted(gradients.ravel().tolist()) == pytest.approx([-3, 3])
    curved = gradients[hessians.argmax(), 0]
    expected = curved * (rate * steps / (1 - (1 - 2 * rate) ** steps) - 0.5)
    assert float(models_of(config)[-1]) == pytest.approx(expected, rel=1e-9)


def test_only_different_curvatures_keep_fedavg_from_the_optimum_and_nothing_keeps_scaffold() -> None:
    """Where all clients have one Hessian, local maps have a common contraction, and their mean has the optimum for a fixed point."""

    def distance(algorithm: str, delta: float, gradient: float) -> float:
        values = {"curvature_dissimilarity": delta, "gradient_dissimilarity": gradient}
        config = config_of(10, values, algorithm={"name": algorithm}, client_lr=0.1, rounds=400)
        return list(simulate(config))[-1].evaluation.distance  # type: ignore[union-attr, return-value]

    assert distance("fedavg", 0.0, 10.0) < 1e-9
    one, ten = distance("fedavg", 0.5, 1.0), distance("fedavg", 0.5, 10.0)
    assert one > 1e-3
    assert ten == pytest.approx(10 * one, rel=1e-6)  # the floor is linear in G
    assert distance("scaffold", 0.5, 10.0) < 1e-9


def test_lists_are_taken_as_given_and_what_one_would_draw_from_does_not_count() -> None:
    lists = {"curvature": [[2.0], [0.0]], "linear": [[3.0], [-3.0]], "start": [1.0]}
    stored = json.dumps({**config_of(2, lists).to_dict(), "problem": {"kind": "quadratics", "noise": 0.0, **lists}})
    config = SimulationConfig.read(stored)  # as written before there was anything to draw from
    assert config == config_of(2, lists)
    hessians, gradients = pieces(problem_of(config), 1)
    assert (hessians.ravel().tolist(), gradients.ravel().tolist()) == ([2, 0], [3, -3])
    other = config_of(2, {**lists, "gradient_dissimilarity": 50.0, "steep": 7.0, "coordinates": 9})
    assert all((a == b).all() for a, b in zip(models_of(config), models_of(other), strict=True))
    assert other.problem.dimension() == 1


def test_a_start_may_be_given_or_left_out() -> None:
    def start(**values: Any) -> list[float]:
        return problem_of(config_of(2, values)).start().tolist()

    assert start(coordinates=4) == [0.5] * 4
    assert start(coordinates=4, start=[1.0, 2.0, 3.0, 4.0]) == [1, 2, 3, 4]
    assert start(curvature=[[1.0, 1.0], [1.0, 1.0]], linear=[[0.0, 0.0], [0.0, 0.0]]) == [math.sqrt(0.5)] * 2


@pytest.mark.parametrize(
    ("values", "alike"),
    [
        ({}, False),
        ({"gradient_dissimilarity": 0.0}, False),
        ({"curvature_dissimilarity": 0.0}, False),
        ({"gradient_dissimilarity": 0.0, "curvature_dissimilarity": 0.0}, True),
        ({"curvature": [[1.0], [1.0]], "linear": [[2.0], [2.0]]}, True),
        ({"curvature": [[1.0], [1.0]], "linear": [[2.0], [3.0]]}, False),
    ],
)
def test_whether_all_clients_are_alike(values: dict[str, Any], alike: bool) -> None:
    assert Quadratics.model_validate(values).clients_are_alike() is alike
