"""The synthetic objective of the Amplified SCAFFOLD paper, against the objective written out here once more, and autograd."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from fedviz.config import ConfigError, SimulationConfig
from fedviz.simulation.loop import Simulation, simulate
from tests.problems import models_of

H, LAMBDA, MU, C, L, ZETA, SIGMA = 16.0, 1.0, 1.0, 1.0, 2.0, 16.0, 1.0  # the paper's
OTHER = {
    "steep": 5.0,
    "second_client": 0.5,
    "flat": 2.0,
    "distance": -3.0,
    "first_client": 7.0,
    "pull": 4.0,
    "noise": 0.3,
}


def config(algorithm: str = "fedavg", **settings: object) -> SimulationConfig:
    values = {
        "problem": {"kind": "lower_bound"},
        "algorithm": {"name": algorithm},
        "participation": {"pattern": "full"},
        "num_clients": 2,
        "local_steps": 3,
        "client_lr": 0.01,
        "rounds": 4,
        "eval_every": 1,
        "probe_every": 0,
    }
    return SimulationConfig.read({**values, **settings})


def written_out(client: int, x: Tensor, h: float, lam: float, mu: float, c: float, l: float, zeta: float) -> Tensor:  # noqa: E741
    """f_i as the paper's code has it."""
    a, sign = ((l, 1), (lam, -1))[client]
    positive = torch.clamp(x[2], min=0)
    return (
        mu / 2 * (x[0] - c) ** 2
        + h / 2 * (x[1] - math.sqrt(mu) * c / math.sqrt(h)) ** 2
        + h / 8 * (x[2] ** 2 + positive**2)
        + a / 4 * x[3] ** 2
        + sign * zeta * x[3]
    )


PAPER = ({}, (H, LAMBDA, MU, C, L, ZETA))
OWN = (OTHER, (5.0, 0.5, 2.0, -3.0, 7.0, 4.0))


@pytest.mark.parametrize(("given", "symbols"), [PAPER, OWN], ids=["the paper's", "others"])
@pytest.mark.parametrize("x", [[0.0, 0.0, 0.0, 0.0], [0.3, -1.0, 2.0, -0.7], [-2.0, 0.5, -1.5, 3.0]], ids=str)
def test_gradients_are_those_of_the_written_out_objective(given: dict, symbols: tuple, x: list[float]) -> None:
    problem = Simulation(config(problem={"kind": "lower_bound", **given}), lambda _: None).problem
    at = torch.tensor(x, dtype=torch.float64)
    expected = torch.stack([torch.func.grad(lambda u, i=i: written_out(i, u, *symbols))(at) for i in range(2)])
    everyone = np.arange(2)
    torch.testing.assert_close(problem.client_gradients(at, everyone), expected, rtol=1e-12, atol=1e-12)
    # One model for each client, in another order: every row is its own client's.
    each = torch.stack([at, 2 * at])
    swapped = problem.client_gradients(each, everyone[::-1].copy())
    expected = torch.stack([torch.func.grad(lambda u, i=i: written_out(i, u, *symbols))(each[1 - i]) for i in (1, 0)])
    torch.testing.assert_close(swapped, expected, rtol=1e-12, atol=1e-12)
    # |grad of the mean|^2, and the mean itself.
    mean = torch.func.grad(lambda u: (written_out(0, u, *symbols) + written_out(1, u, *symbols)) / 2)(at)
    measured = problem.evaluate(at)
    assert measured.gradient_norm_sq == pytest.approx(float(mean @ mean), rel=1e-12)
    value = (written_out(0, at, *symbols) + written_out(1, at, *symbols)) / 2
    assert measured.mean_objective == pytest.approx(float(value), rel=1e-12)


def test_the_start_has_objective_one_and_the_optimum_none() -> None:
    """F(0) = 1/2 c^2 + 16/2 (1/4)^2 = 1; x* = (1, 1/4, 0, 0) at distance sqrt(17)/4. At (1, 1/4, 0, 2) the last terms are
    3/4 * 4 = 3 in F and 3/8 * 4 = 1.5 in the mean of the clients."""
    problem = Simulation(config(), lambda _: None).problem
    start = problem.evaluate(problem.start())
    assert start.objective == pytest.approx(1.0, abs=1e-15)
    assert start.mean_objective == pytest.approx(1.0, abs=1e-15)
    assert start.distance == pytest.approx(math.sqrt(17) / 4, rel=1e-15)
    optimum = torch.tensor([1.0, 0.25, 0.0, 0.0], dtype=torch.float64)
    best = problem.evaluate(optimum)
    assert (best.objective, best.mean_objective, best.gradient_norm_sq, best.distance) == (0.0, 0.0, 0.0, 0.0)
    aside = problem.evaluate(optimum + torch.tensor([0.0, 0.0, 0.0, 2.0], dtype=torch.float64))
    assert (aside.objective, aside.mean_objective, aside.distance) == (3.0, 1.5, 2.0)


def test_noise_is_in_the_third_coordinate_only_and_has_the_given_deviation() -> None:
    run = Simulation(config(problem={"kind": "lower_bound", "noise": 0.5}), lambda _: None)
    everyone, steps = np.arange(2), 2000
    u = torch.zeros(2, 4, dtype=torch.float64)
    exact = run.problem.client_gradients(u[0], everyone)
    draws = run.problem.draws(everyone, 1, steps)
    noise = torch.stack([run.problem.gradient(u, draws, step, torch.empty_like(u)) - exact for step in range(steps)])
    assert noise[..., [0, 1, 3]].abs().max() == 0
    third = noise[..., 2]
    # Four standard errors of mean and variance of 4,000 normals.
    assert abs(float(third.mean())) < 4 * 0.5 / math.sqrt(4000)
    assert float(third.var()) == pytest.approx(0.25, abs=4 * 0.25 * math.sqrt(2 / 4000))
    assert not torch.equal(third[:, 0], third[:, 1])


def test_draws_are_keyed() -> None:
    """The same round gives a client the same noise whoever else takes part; another round and a replica give other noise."""
    problem = Simulation(config(), lambda _: None).problem

    def drawn(clients: list[int], round: int, replica: int = 0) -> Tensor:
        return problem.draws(np.array(clients), round, 5, replica)[2]

    assert torch.equal(drawn([0, 1], 3)[1], drawn([1], 3)[0])
    assert not torch.equal(drawn([1], 3), drawn([1], 4))
    assert not torch.equal(drawn([1], 3), drawn([1], 3, replica=1))


def test_without_disagreement_and_noise_gradient_descent_goes_to_the_optimum() -> None:
    """One step of everybody from 0 with rate 0.01: x1 = 0.01 * 1 * 1, x2 = 0.01 * 16 / 4 = 0.04, the rest stays 0."""
    quiet = {"kind": "lower_bound", "noise": 0.0}
    first = models_of(config(problem=quiet, local_steps=1, rounds=1))[-1]
    torch.testing.assert_close(first, torch.tensor([0.01, 0.04, 0.0, 0.0], dtype=torch.float64), rtol=0, atol=1e-15)
    last = list(simulate(config(problem=quiet, local_steps=1, rounds=3000)))[-1]
    assert last.evaluation is not None
    assert last.evaluation.distance == pytest.approx(0.99**3000, rel=1e-6)  # what is left of the flat direction


@pytest.mark.parametrize("clients", [1, 3])
def test_it_is_a_problem_of_two_clients(clients: int) -> None:
    with pytest.raises(ConfigError, match=f"num_clients: got {clients}, allowed 2"):
        config(num_clients=clients)


def test_every_algorithm_can_run_on_it_and_the_error_can_be_measured() -> None:
    record = list(simulate(config("scaffold", probe_every=2)))[-1]
    assert record.decomposition is not None
    # Everybody takes part: the only part of the error that chance leaves is noise.
    assert record.decomposition.participation == pytest.approx(0, abs=1e-12)
    assert record.decomposition.noise > 0
