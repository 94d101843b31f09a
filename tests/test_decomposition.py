"""The parts of the server's error against full enumeration: every cohort that the law allows, one by one.

The expected values use the algorithms' public `direction` alone; nothing of the decomposition's own arithmetic.
"""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedviz.algorithms import Cohort
from fedviz.config import SimulationConfig
from fedviz.simulation import decomposition
from fedviz.simulation.decomposition import Sample, Stratum, probe
from fedviz.simulation.local_pass import local_pass
from fedviz.simulation.loop import _Run, simulate
from fedviz.simulation.records import Decomposition
from tests.problems import ALGORITHMS, label_of, random_quadratics

PATTERNS = {
    "uniform": {"pattern": "uniform", "clients_per_round": 2},
    "full": {"pattern": "full"},
    "cyclic": {"pattern": "cyclic", "clients_per_round": 2, "groups": 2, "availability": 2},
    "uneven": {"pattern": "cyclic", "clients_per_round": 1, "groups": 4, "availability": 1},
    "trace": {"pattern": "trace", "cohorts": [[1, 4, 5], [0]], "repeat": True},
}


def after_some_rounds(config: SimulationConfig) -> _Run:
    """A run whose memories are filled."""
    run = _Run(config, lambda _: None)
    run.begin()
    for round in range(1, 8):
        run.advance(round)
    return run


def measure(run: _Run) -> Decomposition:
    law = run.participation.law(8)
    return probe(run.config, run.problem, run.algorithm, run.state, run.w, law, 8, run.measured_clusters)[0]


def updates_of_all(run: _Run, replica: int = 0) -> Tensor:
    everyone = np.arange(run.config.num_clients)
    correction = run.algorithm.correction(run.state, torch.as_tensor(everyone))
    return local_pass(
        run.problem,
        run.w,
        everyone,
        round=8,
        steps=run.config.local_steps,
        client_lr=run.config.client_lr,
        correction=correction,
        mu=run.algorithm.mu,
        replica=replica,
    ).updates


def directions(run: _Run, updates: Tensor) -> Tensor:
    """[all cohorts, d] the server's direction for every cohort of the round's law."""
    from fedviz.algorithms import LocalResult

    law = run.participation.law(8)
    every = []
    for chosen in combinations(law.available.tolist(), law.drawn):
        clients = torch.tensor(chosen)
        cohort = Cohort(8, clients, run.problem.client_weights[clients] * run.config.num_clients / len(chosen))
        every.append(run.algorithm.direction(run.state, cohort, LocalResult(updates[clients])))
    return torch.stack(every)


def gradient(run: _Run) -> Tensor:
    problem: Any = run.config.problem
    curvature, linear = (
        torch.tensor(problem.curvature, dtype=torch.float64),
        torch.tensor(problem.linear, dtype=torch.float64),
    )
    return (curvature * run.w + linear).mean(0)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=label_of)
def test_without_noise_the_parts_are_those_of_the_enumerated_cohorts(algorithm: dict[str, Any], pattern: str) -> None:
    run = after_some_rounds(random_quadratics(algorithm, participation=PATTERNS[pattern]))
    found = measure(run)
    updates = updates_of_all(run)
    every, exact = directions(run, updates), gradient(run)
    mean = every.mean(0)  # over cohorts: offset + mean over the available of (Delta - memory)
    assert found.total == pytest.approx(float((every - exact).square().sum(1).mean()), abs=1e-9)
    assert found.participation == pytest.approx(float((every - mean).square().sum(1).mean()), abs=1e-9)
    assert found.participation_sampling == pytest.approx(found.participation, abs=1e-12)
    assert found.noise == pytest.approx(0, abs=1e-12)
    assert found.bias == pytest.approx(float((mean - updates.mean(0)).square().sum()), abs=1e-9)
    assert found.drift == pytest.approx(float((updates.mean(0) - exact).square().sum()), abs=1e-9)
    parts = found.participation + found.noise + found.bias + found.drift + found.interaction
    assert parts == pytest.approx(found.total, abs=1e-12)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=label_of)
def test_with_noise_the_estimates_are_unbiased(algorithm: dict[str, Any]) -> None:
    """Means over many probes, within 4 standard errors of the enumeration over all cohorts with many fresh repetitions.

    Replicas are keyed by the round, so probing round 8, 9, 10, ... of the same frozen state gives independent probes.
    """
    run = after_some_rounds(random_quadratics(algorithm, noise=0.8, participation=PATTERNS["cyclic"]))
    law, exact = run.participation.law(8), gradient(run)
    probes = [
        probe(run.config, run.problem, run.algorithm, run.state, run.w, law, round, None)[0]
        for round in range(100, 500)
    ]

    def check(name: str, expected: float, spread: float = 0.0) -> None:
        values = np.array([getattr(p, name) for p in probes])
        error = np.hypot(values.std(ddof=1) / np.sqrt(len(values)), spread)
        assert abs(values.mean() - expected) < 4 * error, name

    # Additive noise of variance s^2 a coordinate: tr Cov Delta_i = (s^2 / tau^2) sum_{j < tau} tr (I - eta A_i)^(2 j), plus prox.
    problem: Any = run.config.problem
    curvature = torch.tensor(problem.curvature, dtype=torch.float64)
    # The mean of Delta_i = (1/tau) sum_k h_k with h = g + corr + mu (u - w): u moves by -eta h, so noise decays with A_i + mu I.
    decay = 1 - 0.1 * (curvature + run.algorithm.mu)
    variance = 0.8**2 / 16 * sum(decay ** (2 * j) for j in range(4)).sum(1)
    m, n = law.drawn, len(law.available)
    mean_variance = float(variance[law.available].mean())
    check("noise", mean_variance / n)
    # Without noise the same state gives E Delta_i: the path of a quadratic is linear in it.
    quiet = _Run(run.config.model_copy(update={"problem": problem.model_copy(update={"noise": 0.0})}), lambda _: None)
    quiet.w, quiet.state = run.w, run.state
    updates = updates_of_all(quiet)
    every = directions(quiet, updates)
    sampling = float((every - every.mean(0)).square().sum(1).mean())
    check("participation_sampling", sampling)
    check("participation", sampling + (1 / m - 1 / n) * mean_variance)
    check("bias", float((every.mean(0) - updates.mean(0)).square().sum()))
    check("drift", float((updates.mean(0) - exact).square().sum()))
    check("total", float((every - exact).square().sum(1).mean()) + mean_variance / m)
    g = exact / exact.norm()
    across = updates.mean(0) - (updates.mean(0) @ g) * g
    check("perpendicular", float(across @ across))
    check("direction_norm_sq", float(updates.mean(0) @ updates.mean(0)))
    check("shrinkage", float(updates.mean(0) @ exact / (exact @ exact)))


@pytest.mark.parametrize("pattern", ["uniform", "cyclic"])
def test_probing_a_subset_of_the_clients_is_unbiased(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"num_clients": 14, "noise": 0.3, "participation": PATTERNS[pattern]}
    run = after_some_rounds(random_quadratics({"name": "fedvarp"}, **settings))
    law = run.participation.law(8)

    def values(rounds: int) -> list[Decomposition]:
        return [
            probe(run.config, run.problem, run.algorithm, run.state, run.w, law, round, None)[0]
            for round in range(100, 100 + rounds)
        ]

    whole = values(300)
    monkeypatch.setattr(decomposition, "MOST_CLIENTS", 6)
    part = values(1200)
    assert {p.probed_clients for p in whole} == {14}
    assert {p.probed_clients for p in part} == {6}
    for name in (
        "participation",
        "participation_sampling",
        "noise",
        "bias",
        "drift",
        "total",
        "perpendicular",
        "direction_norm_sq",
    ):
        a, b = (np.array([getattr(p, name) for p in probes]) for probes in (whole, part))
        error = np.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
        assert abs(a.mean() - b.mean()) <= 4 * error + 1e-15, name


def test_dissimilarity_splits_into_within_and_between_clusters() -> None:
    """sigma_g^2 = sigma_K^2 + what lies between the clusters' means; N clusters have none within, one cluster has all."""
    for clusters, labels in ((2, [0, 0, 1, 1, 1, 0]), (1, [0] * 6), (6, list(range(6)))):
        algorithm = {"name": "cluster_fedvarp", "clusters": clusters, "clustering": {"labels": labels}}
        run = after_some_rounds(random_quadratics(algorithm))
        found = measure(run)
        problem: Any = run.config.problem
        g = torch.tensor(problem.curvature, dtype=torch.float64) * run.w + torch.tensor(
            problem.linear, dtype=torch.float64
        )
        within = (
            sum(
                float((g[i] - g[[j for j in range(6) if labels[j] == labels[i]]].mean(0)).square().sum())
                for i in range(6)
            )
            / 6
        )
        assert found.dissimilarity == pytest.approx(float((g - g.mean(0)).square().sum(1).mean()), abs=1e-12)
        assert found.within_cluster_dissimilarity == pytest.approx(within, abs=1e-12)
        assert found.clusters == clusters


def test_at_one_step_fedavg_and_cluster_fedvarp_feel_exactly_the_dissimilarity_they_should() -> None:
    """One noise-free step: FedAvg's part is f sigma_g^2; with memories at the cluster means ClusterFedVARP's is f sigma_K^2.

    f = (N - M) / (M (N - 1)) = 4 / (2 * 5).
    """
    clusters = {"name": "cluster_fedvarp", "clusters": 2, "clustering": {"labels": [0, 0, 1, 1, 1, 0]}}
    for algorithm, measure_name in (({"name": "fedavg"}, "dissimilarity"), (clusters, "within_cluster_dissimilarity")):
        run = after_some_rounds(random_quadratics(algorithm, local_steps=1))
        if "memory" in run.state:
            updates = updates_of_all(run)
            run.state["memory"][:] = torch.stack([updates[[0, 1, 5]].mean(0), updates[[2, 3, 4]].mean(0)])
            run.state["mean"][:] = run.state["memory"].mean(0)
        found = measure(run)
        assert found.participation == pytest.approx(4 / 10 * getattr(found, measure_name), abs=1e-12)
        assert found.drift == pytest.approx(0, abs=1e-20)


def test_full_participation_has_no_participation_error_and_keeps_the_noise() -> None:
    run = after_some_rounds(random_quadratics({"name": "fedavg"}, noise=0.5, participation={"pattern": "full"}))
    found = measure(run)
    assert found.participation == 0
    assert found.noise > 0


def test_an_empty_round_leaves_only_what_the_clients_themselves_do() -> None:
    run = after_some_rounds(
        random_quadratics({"name": "fedvarp"}, participation={"pattern": "trace", "cohorts": [[0], []], "repeat": True})
    )
    found = measure(run)
    assert (found.participation, found.noise, found.bias) == (0, 0, 0)
    assert found.total == found.drift


def test_the_sampling_correction_of_a_squared_norm_is_that_of_all_subsets() -> None:
    """Noise-free, averaged over all subsets of 3 of 5 vectors: exactly |mean|^2."""
    x = torch.tensor(np.random.default_rng(3).normal(size=(5, 4)))
    estimates = []
    for chosen in combinations(range(5), 3):
        sample = Sample(torch.stack([x[list(chosen)]] * 2))
        part = Stratum(5, np.array(chosen), slice(None))
        estimates.append(
            sample.squared_norm(
                torch.zeros(4, dtype=torch.float64), [(part, torch.full((3,), 0.2, dtype=torch.float64))]
            )
        )
    assert np.mean(estimates) == pytest.approx(float(x.mean(0).square().sum()), abs=1e-12)


def test_probe_costs_are_counted_apart() -> None:
    """A probe takes N full gradients and 2 N passes of 4 steps: 6 + 48; six rounds of two clients take 48."""
    plain, probed = (
        list(simulate(random_quadratics({"name": "fedavg"}, rounds=6, probe_every=every)))[-1] for every in (0, 3)
    )
    assert plain.costs.probe_evaluations == 0
    assert probed.costs.probe_evaluations == 2 * (6 + 48)
    assert plain.costs.gradient_evaluations == probed.costs.gradient_evaluations == 48
