"""The parts of the server's error against full enumeration: every cohort that the law allows, one by one.

The expected values use the algorithms' public `direction` alone; nothing of the decomposition's own arithmetic.
"""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedviz.algorithms import Cohort, LocalResult
from fedviz.config import SimulationConfig
from fedviz.simulation.decomposition import Probe
from fedviz.simulation.estimators import Sample, Stratum
from fedviz.simulation.local_pass import Pass
from fedviz.simulation.loop import Simulation, simulate
from fedviz.simulation.records import Decomposition
from tests.problems import ALGORITHMS, label_of, random_quadratics

PATTERNS = {
    "uniform": {"pattern": "uniform", "clients_per_round": 2},
    "full": {"pattern": "full"},
    "cyclic": {"pattern": "cyclic", "clients_per_round": 2, "groups": 2, "availability": 2},
    "uneven": {"pattern": "cyclic", "clients_per_round": 1, "groups": 4, "availability": 1},
    "trace": {"pattern": "trace", "cohorts": [[1, 4, 5], [0]], "repeat": True},
}


def after_some_rounds(config: SimulationConfig) -> Simulation:
    """A run whose memories are filled."""
    run = Simulation(config, lambda _: None)
    run.begin()
    for round in range(1, 8):
        run.advance(round)
    return run


def measure(run: Simulation, round: int = 8, **settings: Any) -> Decomposition:
    """The decomposition of the frozen state; minibatches are keyed by the round, so that other rounds are independent repetitions."""
    config = run.config.model_copy(update={"probe": run.config.probe.model_copy(update=settings)})
    law = run.participation.law(8)
    return Probe(config, run.problem, run.algorithm, run.state, run.w, law, round, run.measured_clusters).measure()[0]


def updates_of_all(run: Simulation) -> Tensor:
    everyone = np.arange(run.config.num_clients)
    return Pass(run.config, run.problem, run.algorithm, run.state, run.w, everyone, 8).make().updates


def directions(run: Simulation, updates: Tensor) -> Tensor:
    """[all cohorts, d] the server's direction for every cohort of the round's law."""
    law = run.participation.law(8)
    every = []
    for chosen in combinations(law.available.tolist(), int(law.sizes[0])):
        clients = torch.tensor(chosen)
        cohort = Cohort(8, clients, run.problem.client_weights[clients] * run.config.num_clients / len(chosen))
        every.append(run.algorithm.direction(run.state, cohort, LocalResult(updates[clients])))
    return torch.stack(every)


def gradient(run: Simulation) -> Tensor:
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


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a["name"] != "sgd"], ids=label_of)  # sgd has no noise
def test_with_noise_the_estimates_are_unbiased(algorithm: dict[str, Any]) -> None:
    """Means over many probes, within 4 standard errors of the enumeration over all cohorts with many fresh repetitions.

    Replicas are keyed by the round, so probing round 8, 9, 10, ... of the same frozen state gives independent probes.
    """
    run = after_some_rounds(random_quadratics(algorithm, noise=0.8, participation=PATTERNS["cyclic"]))
    law, exact = run.participation.law(8), gradient(run)
    probes = [measure(run, round) for round in range(100, 400)]

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
    m, n = int(law.sizes[0]), len(law.available)
    mean_variance = float(variance[law.available].mean())
    gain = run.algorithm.gain(m)
    check("noise", gain**2 * mean_variance / n)
    # Without noise the same state gives E Delta_i: the path of a quadratic is linear in it.
    quiet = Simulation(
        run.config.model_copy(update={"problem": problem.model_copy(update={"noise": 0.0})}), lambda _: None
    )
    quiet.w, quiet.state = run.w, run.state
    updates = updates_of_all(quiet)
    every = directions(quiet, updates)
    sampling = float((every - every.mean(0)).square().sum(1).mean())
    check("participation_sampling", sampling)
    check("participation", sampling + gain**2 * (1 / m - 1 / n) * mean_variance)
    check("bias", float((every.mean(0) - updates.mean(0)).square().sum()))
    check("drift", float((updates.mean(0) - exact).square().sum()))
    check("total", float((every - exact).square().sum(1).mean()) + gain**2 * mean_variance / m)
    g = exact / exact.norm()
    across = updates.mean(0) - (updates.mean(0) @ g) * g
    check("perpendicular", float(across @ across))
    check("direction_norm_sq", float(updates.mean(0) @ updates.mean(0)))
    check("shrinkage", float(updates.mean(0) @ exact / (exact @ exact)))


@pytest.mark.parametrize("pattern", ["uniform", "cyclic"])
def test_probing_a_subset_of_the_clients_is_unbiased(pattern: str) -> None:
    settings = {"num_clients": 14, "noise": 0.3, "participation": PATTERNS[pattern]}
    run = after_some_rounds(random_quadratics({"name": "fedvarp"}, **settings))
    whole = [measure(run, round) for round in range(100, 400)]
    part = [measure(run, round, clients=6) for round in range(100, 1300)]
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


@pytest.mark.parametrize(
    ("name", "weighting"),
    [("fedavg", "average"), ("fedavg", "inverse"), ("fedvarp", "average"), ("fedvarp", "inverse"), ("mifa", "average")],
)
def test_independent_participation_is_that_of_all_subsets_with_their_chances(name: str, weighting: str) -> None:
    """Every non-empty subset, with the chance a^M (1 - a)^(N - M) renormalised, and the algorithm's own direction for each."""
    chance = 0.4
    turns = {"pattern": "bernoulli", "chance": chance, "weighting": weighting}
    run = after_some_rounds(random_quadratics({"name": name}, participation=turns))
    found, updates, exact = measure(run), updates_of_all(run), gradient(run)
    every, chances = [], []
    for size in range(1, 7):
        for chosen in combinations(range(6), size):
            clients = torch.tensor(chosen)
            q = 1 / size if weighting == "average" else 1 / (6 * chance)
            weights = torch.full((size,), q, dtype=torch.float64)
            every.append(run.algorithm.direction(run.state, Cohort(8, clients, weights), LocalResult(updates[clients])))
            chances.append(chance**size * (1 - chance) ** (6 - size))
    v, p = torch.stack(every), torch.tensor(chances, dtype=torch.float64)
    p /= p.sum()
    mean = p @ v
    assert found.total == pytest.approx(float(p @ (v - exact).square().sum(1)), abs=1e-9)
    assert found.participation == pytest.approx(float(p @ (v - mean).square().sum(1)), abs=1e-9)
    assert found.bias == pytest.approx(float((mean - updates.mean(0)).square().sum()), abs=1e-9)


def test_probe_costs_are_counted_apart() -> None:
    """A probe takes N full gradients and 2 N passes of 4 steps: 6 + 48; six rounds of two clients take 48."""
    plain, probed = (
        list(simulate(random_quadratics({"name": "fedavg"}, rounds=6, probe_every=every)))[-1] for every in (0, 3)
    )
    assert plain.costs.probe_evaluations == 0
    assert probed.costs.probe_evaluations == 2 * (6 + 48)
    assert plain.costs.gradient_evaluations == probed.costs.gradient_evaluations == 48


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a["name"] not in ("sgd",)], ids=label_of)
def test_full_mode_tells_drift_from_the_bias_that_noise_causes(algorithm: dict[str, Any]) -> None:
    """On quadratics additive noise causes no bias: E v_bar = v_fb, so b = 0 and the full-batch drift is |v_fb - grad f|^2 exactly."""
    run = after_some_rounds(random_quadratics(algorithm, noise=0.5, participation=PATTERNS["cyclic"]))
    quiet = Simulation(
        run.config.model_copy(update={"problem": run.config.problem.model_copy(update={"noise": 0.0})}), lambda _: None
    )
    quiet.w, quiet.state = run.w, run.state
    exact = float((updates_of_all(quiet).mean(0) - gradient(run)).square().sum())
    probes = [measure(run, round, mode="full", replicas=3) for round in range(100, 300)]
    assert {p.mode for p in probes} == {"full"}
    for p in probes:
        assert p.drift == pytest.approx(exact, rel=1e-9)
        assert p.participation + p.noise + p.bias + p.drift + p.interaction == pytest.approx(p.total, abs=1e-12)
    b = np.array([p.noise_drift for p in probes])
    assert abs(b.mean()) < 4 * b.std(ddof=1) / np.sqrt(len(b))


def test_the_check_is_an_independent_estimate_of_the_total() -> None:
    """With noise: mean over many probes within 4 standard errors. Its own stated error is what its values scatter by."""
    for algorithm in ({"name": "fedavg"}, {"name": "mifa"}, {"name": "scaffold"}):
        for pattern in ("cyclic", "bernoulli"):
            turns = PATTERNS.get(pattern, {"pattern": "bernoulli", "chance": 0.4})
            run = after_some_rounds(random_quadratics(algorithm, noise=0.5, participation=turns))
            run.config = run.config.model_copy(update={"probe_every": 1})
            probes = [measure(run, round, check_every=1) for round in range(100, 140)]
            checks, totals = (np.array([getattr(p, name) for p in probes]) for name in ("check", "total"))
            error = np.sqrt(checks.var(ddof=1) / len(checks) + totals.var(ddof=1) / len(totals))
            assert abs(checks.mean() - totals.mean()) < 4 * error
            assert np.mean([p.check_error for p in probes]) == pytest.approx(checks.std(ddof=1), rel=0.35)


def test_the_check_is_made_on_one_probe_in_several() -> None:
    config = random_quadratics({"name": "fedavg"}, probe_every=2, rounds=12, probe={"check_every": 3})
    checked = [r.round for r in simulate(config) if r.decomposition and r.decomposition.check is not None]
    assert checked == [6, 12]


def test_the_error_of_the_memories_is_their_distance_from_the_present_gradients() -> None:
    """Noise-free with one local step FedVARP's memories are old gradients: mean |y_i - grad f_i(w)|^2, by hand."""
    run = after_some_rounds(random_quadratics({"name": "fedvarp"}, local_steps=1))
    problem: Any = run.config.problem
    g = torch.tensor(problem.curvature, dtype=torch.float64) * run.w + torch.tensor(problem.linear, dtype=torch.float64)
    assert measure(run).state_error == pytest.approx(float((run.state["memory"] - g).square().sum(1).mean()), abs=1e-12)
    assert measure(after_some_rounds(random_quadratics({"name": "fedavg"}))).state_error is None


@pytest.mark.parametrize("mode", ["cheap", "full"])
@pytest.mark.parametrize("name", ["amplified_fedavg", "amplified_scaffold"])
def test_a_window_is_split_exactly_on_the_path_taken(name: str, mode: str) -> None:
    """V = (w_start - w_end) / (gamma eta tau P) from the models alone; the terms from passes of every client, one at a time."""
    turns = {"pattern": "cyclic", "clients_per_round": 1, "groups": 2, "availability": 2}
    config = random_quadratics(
        {"name": name, "amplification": 1.5}, participation=turns, noise=0.4, rounds=13, probe_every=5,
        probe={"mode": mode, "windows_every": 2},
    )  # fmt: skip
    records = list(simulate(config))
    assert [r.round for r in records if r.window] == [8]
    found = next(r.window for r in records if r.window)
    # The same path again, looked at from outside.
    run, terms, starts = Simulation(config.model_copy(update={"probe_every": 0}), lambda _: None), [], []
    run.begin()
    for round in range(1, 9):
        w, exact = run.w.clone(), gradient(run)
        if round > 4:
            each = [
                Pass(config, run.problem, run.algorithm, run.state, w, np.array([i]), round).make().updates[0]
                for i in range(6)
            ]
            steady = [
                Pass(config, run.problem, run.algorithm, run.state, w, np.array([i]), round, full_batch=True)
                .make()
                .updates[0]
                for i in range(6)
            ]
            vbar, v_fb = torch.stack(each).mean(0), torch.stack(steady).mean(0)
            v = torch.stack([each[i] for i in run.participation.cohort(round).tolist()]).mean(0)
            terms.append((v - vbar, vbar - v_fb, v_fb - exact, exact))
            starts.append((w, exact))
        run.advance(round)
    participation, noise, drift, movement = (torch.stack(term).mean(0) for term in zip(*terms, strict=True))
    movement = movement - starts[0][1]
    whole = (starts[0][0] - run.w) / (1.5 * 0.1 * 4 * 4) - starts[0][1]
    parts = (participation, noise, drift, movement) if mode == "full" else (participation, noise + drift, movement)
    sizes = [float(part.square().sum()) for part in parts]
    values = [found.participation, *([found.noise] if mode == "full" else []), found.drift, found.movement]
    assert values == pytest.approx(sizes, abs=1e-12)
    assert found.total == pytest.approx(float(whole.square().sum()), abs=1e-12)
    assert sum(values) + found.interaction == pytest.approx(found.total, abs=1e-12)
    assert (found.noise is None) == (mode == "cheap")
