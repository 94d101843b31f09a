"""Numbers known in advance: the toy of SCAFFOLD's Figure 3, every round worked out by hand (exact arithmetic, six decimals)."""

from typing import Any

import pytest
import torch

from fedviz.config import SimulationConfig
from fedviz.simulation.loop import simulate
from tests.problems import models_of, toy

GOLDEN: list[tuple[dict[str, Any], list[float]]] = [
    ({"name": "fedavg"}, [0.460000, 0.660000, 0.242400, 0.442400, 0.103136, 0.303136]),
    ({"name": "fedprox", "mu": 1.0}, [0.490000, 0.680000, 0.278800, 0.468800, 0.139408, 0.329408]),
    ({"name": "fedvarp"}, [0.460000, 0.390000, 0.439600, 0.379400, 0.323016, 0.264724]),
    ({"name": "scaffold", "option": "I"}, [0.460000, 0.360000, 0.410400, 0.338400, 0.281376, 0.213696]),
    ({"name": "scaffold", "option": "II"}, [0.460000, 0.390000, 0.402600, 0.323900, 0.278126, 0.215889]),
    ({"name": "mifa"}, [0.730000, 0.560000, 0.469200, 0.378400, 0.320288, 0.262176]),
    (
        {"name": "amplified_fedavg", "window": 2, "amplification": 1.5},
        [0.460000, 0.490000, 0.133600, 0.255400, -0.016544, 0.147484],
    ),
    (
        {"name": "amplified_scaffold", "window": 2, "amplification": 1.5},
        [0.460000, 0.490000, 0.466600, 0.199900, 0.214966, 0.077449],
    ),
    ({"name": "fedavgm"}, [0.460000, 0.174000, -0.326040, -0.576076, -0.773721, -0.751602]),
    ({"name": "fedadam"}, [0.901835, 0.852811, 0.754877, 0.694832, 0.599080, 0.536621]),
    ({"name": "fedyogi"}, [0.901835, 0.853024, 0.755615, 0.696143, 0.601428, 0.539889]),
    # As many clusters as clients is FedVARP; one cluster is FedAvg.
    (
        {"name": "cluster_fedvarp", "clusters": 2, "clustering": {"labels": [1, 0]}},
        [0.460000, 0.390000, 0.439600, 0.379400, 0.323016, 0.264724],
    ),
    (
        {"name": "cluster_fedvarp", "clusters": 1, "clustering": "random"},
        [0.460000, 0.660000, 0.242400, 0.442400, 0.103136, 0.303136],
    ),
]


@pytest.mark.parametrize(
    ("algorithm", "expected"), GOLDEN, ids=lambda x: "-".join(map(str, x.values())) if isinstance(x, dict) else ""
)
def test_every_round_of_the_toy_is_as_worked_out_by_hand(algorithm: dict[str, Any], expected: list[float]) -> None:
    rate = {"server_lr": 0.1} if algorithm["name"] in ("fedadam", "fedyogi") else {}
    assert [float(w) for w in models_of(toy(algorithm, **rate))[1:]] == pytest.approx(expected, abs=1e-6)


def test_the_first_two_rounds_of_the_toy_follow_from_the_formula() -> None:
    """Client 1 from x = 1: gradients 2 u + 1 at u = 1 and 0.7, so x = 0.7 - 0.1 * 2.4 = 0.46; client 2 adds 2 * 0.1 * 1."""
    w = models_of(toy({"name": "fedavg"}))
    assert float(w[1]) == pytest.approx(1 - 0.1 * 3 - 0.1 * 2.4)
    assert float(w[2]) == pytest.approx(0.46 + 0.2)


def test_records_carry_the_exact_objective_and_distance() -> None:
    """f = x^2 / 2 with x* = 0: at x = 1 the objective is 1/2, |grad f|^2 is 1, the distance is 1."""
    record = next(iter(simulate(toy({"name": "fedavg"}, eval_every=1))))
    assert record.evaluation is not None
    assert record.evaluation.objective == pytest.approx(0.5)
    assert record.evaluation.gradient_norm_sq == pytest.approx(1.0)
    assert record.evaluation.distance == pytest.approx(1.0)


def test_what_is_measured_after_a_round_is_the_new_model_on_everybodys_objective() -> None:
    """f = x^2 / 2, the mean of both clients, at the models above; f_1 = x^2 + x of round 1's only participant would be 0.6716."""
    objectives = [record.evaluation.objective for record in simulate(toy({"name": "fedavg"}, eval_every=1))]
    assert objectives == pytest.approx([x**2 / 2 for x in (1, *GOLDEN[0][1])], abs=1e-6)
    assert objectives[1] == pytest.approx(0.1058)


@pytest.mark.parametrize("gradient", [1.0, 10.0, 100.0])
def test_fedavg_stops_at_its_known_fixed_point(gradient: float) -> None:
    """x_inf = G [eta tau / (1 - a) - 1 / 2], a = (1 - 2 eta)^tau: full participation, no noise, drift alone."""
    config = toy({"name": "fedavg"}, gradient=gradient, participation={"pattern": "full"}, rounds=400)
    a = (1 - 0.2) ** 2
    assert float(models_of(config)[-1]) == pytest.approx(gradient * (0.1 * 2 / (1 - a) - 0.5), rel=1e-9)


@pytest.mark.parametrize(("steps", "rounds"), [(1, 50), (2, 25), (10, 10)])
def test_warm_scaffold_reaches_the_optimum_in_the_known_number_of_rounds_whatever_the_dissimilarity(
    steps: int, rounds: int
) -> None:
    """At eta = 0.125 from f = 1/2 to 1e-6: 50 rounds of gradient descent (one step), 25 with two steps, 10 with ten."""
    paths = []
    for gradient in (1.0, 10.0, 100.0):
        config = toy(
            {"name": "scaffold", "warm_start": True},
            gradient=gradient,
            participation={"pattern": "full"},
            local_steps=steps,
            client_lr=0.125,
            rounds=60,
            eval_every=1,
        )
        records = list(simulate(config))
        assert next(r.round for r in records if r.evaluation and r.evaluation.objective <= 1e-6) == rounds
        paths.append(torch.tensor([r.evaluation.distance for r in records if r.evaluation]))
    assert torch.allclose(paths[0], paths[1], atol=1e-12)
    assert torch.allclose(paths[0], paths[2], atol=1e-12)


@pytest.mark.parametrize(
    "problem", [{"kind": "quadratics", "noise": 0.5}, {"kind": "lower_bound"}], ids=lambda p: p["kind"]
)
def test_analytic_problems_keep_the_digits_that_are_asked_for(problem: dict[str, Any]) -> None:
    """float64 by default; float32 is the same run within its seven digits, and not beyond."""
    settings = {
        "num_clients": 2,
        "participation": {"pattern": "full"},
        "rounds": 5,
        "client_lr": 1e-3,
        "probe_every": 0,
    }
    ends = {
        name: list(simulate(SimulationConfig.read({"problem": {**problem, **dtype}, **settings})))[-1].w
        for name, dtype in (("default", {}), ("double", {"dtype": "float64"}), ("single", {"dtype": "float32"}))
    }
    assert ends["default"].dtype == torch.float64
    assert torch.equal(ends["default"], ends["double"])
    assert ends["single"].dtype == torch.float32
    apart = float((ends["single"].double() - ends["double"]).abs().max() / ends["double"].abs().max())
    assert 0 < apart < 1e-6
