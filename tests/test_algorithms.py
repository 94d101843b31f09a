"""Facts about the algorithms that hold by algebra."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from fedviz.algorithms import ALGORITHMS as REGISTRY
from fedviz.algorithms import Algorithm, Cohort, LocalResult, Setting
from fedviz.algorithms.scaffold import ControlVariates
from fedviz.simulation.loop import simulate
from tests.problems import ALGORITHMS, label_of, models_of, random_quadratics, small_classification, toy


def built(name: str, *, clients: int, labels: list[int] | None = None, **parameters: Any) -> Algorithm:
    weights = torch.full((clients,), 1 / clients, dtype=torch.float64)
    clusters = None if labels is None else torch.tensor(labels)
    setting = Setting(clients, client_lr=1.0, server_lr=1.0, steps=1, client_weights=weights, clusters=clusters)
    return REGISTRY[name](**parameters).build(setting)


def cohort(round: int, *clients: int) -> Cohort:
    return Cohort(round, torch.tensor(clients), torch.full((len(clients),), 1 / len(clients), dtype=torch.float64))


def result(updates: list[float], gradients: list[float] | None = None) -> LocalResult:
    def column(x: list[float]) -> Tensor:
        return torch.tensor(x, dtype=torch.float64)[:, None]

    return LocalResult(column(updates), None if gradients is None else column(gradients))


START = torch.zeros(1, dtype=torch.float64)


def test_scaffold_moves_the_server_variate_by_one_nth_of_the_changes() -> None:
    """N = 4, |S| = 2, every c_i changes by 1: c = 2/4. A second visit that changes nothing leaves c where it is."""
    algorithm = built("scaffold", clients=4)
    state = algorithm.init(START)
    _, state = algorithm.step(state, START, cohort(1, 0, 1), result([1, 1], [1, 1]))
    assert float(state["server_variate"]) == pytest.approx(0.5)
    _, state = algorithm.step(state, START, cohort(2, 0, 1), result([1, 1], [1, 1]))
    assert float(state["server_variate"]) == pytest.approx(0.5)
    assert state["client_variates"].flatten().tolist() == [1, 1, 0, 0]


def test_the_server_variate_is_the_cohorts_mean_gradient_only_when_everybody_takes_part() -> None:
    """N = 4. Gradients 1, 2, 3, 6 of all: c = 12/4, which is their mean. 1 and 6 of two: c = 7/4, not their mean 7/2."""
    for clients, gradients, expected in (((0, 1, 2, 3), [1, 2, 3, 6], 3), ((0, 3), [1, 6], 7 / 4)):
        algorithm = built("scaffold", clients=4)
        _, state = algorithm.step(
            algorithm.init(START), START, cohort(1, *clients), result([0] * len(gradients), gradients)
        )
        assert float(state["server_variate"]) == pytest.approx(expected)


@pytest.mark.parametrize("option", ["I", "II"])
def test_scaffold_keeps_the_server_variate_at_the_mean_of_the_clients(option: str) -> None:
    for record in simulate(random_quadratics({"name": "scaffold", "option": option}, noise=0.3)):
        state = record.checkpoint().state
        assert torch.allclose(state["server_variate"], state["client_variates"].mean(0), atol=1e-12)


@pytest.mark.parametrize(("steps", "batch"), [(1, 100), (5, 100), (7, 33)])
def test_option_two_under_a_constant_gradient_is_that_gradient_whatever_the_number_of_steps(
    steps: int, batch: int
) -> None:
    """f_i = g_i x has gradient g_i everywhere: c_i = g_i after one visit, for any number of steps."""
    problem = {"kind": "quadratics", "curvature": [[0.0], [0.0]], "linear": [[3.0], [-1.0]], "start": [0.0]}
    config = toy(
        {"name": "scaffold"},
        problem=problem,
        participation={"pattern": "full"},
        local_steps=steps,
        batch_size=batch,
        rounds=1,
    )
    last = list(simulate(config))[-1]
    assert last.checkpoint().state["client_variates"].flatten().tolist() == pytest.approx([3.0, -1.0])


def test_scaffold_reaches_the_optimum_of_two_unlike_parabolas_and_fedavg_does_not() -> None:
    """(x - 1)^2 / 2 and 10 (x + 1)^2 / 2: the mean's optimum is where (x - 1) + 10 (x + 1) = 0, x = -9/11."""
    problem = {"kind": "quadratics", "curvature": [[1.0], [10.0]], "linear": [[-1.0], [10.0]], "start": [0.0]}
    both = {
        "problem": problem,
        "participation": {"pattern": "full"},
        "local_steps": 30,
        "client_lr": 0.05,
        "rounds": 300,
    }
    assert float(models_of(toy({"name": "scaffold"}, **both))[-1]) == pytest.approx(-9 / 11, abs=1e-9)
    assert abs(float(models_of(toy({"name": "fedavg"}, **both))[-1]) + 9 / 11) > 0.1


@pytest.mark.parametrize("sign", [1, -1])
def test_corrections_of_the_wrong_sign_run_away_where_the_right_ones_arrive(
    sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same parabolas, written out: 30 steps of u <- u - 0.02 (A_i u + b_i + sign (c - c_i)), then c_i <- A_i x + b_i (option I)."""
    right = ControlVariates.correction
    monkeypatch.setattr(ControlVariates, "correction", lambda *where: sign * right(*where))
    curvature, linear = [1.0, 10.0], [-1.0, 10.0]
    x, variates = 0.0, [0.0, 0.0]
    for _ in range(600):
        ends, mean = [], sum(variates) / 2
        for a, b, variate in zip(curvature, linear, variates, strict=True):
            u = x
            for _ in range(30):
                u -= 0.02 * (a * u + b + sign * (mean - variate))
            ends.append(u)
        variates = [a * x + b for a, b in zip(curvature, linear, strict=True)]
        x = sum(ends) / 2
    problem = {
        "kind": "quadratics",
        "curvature": [[a] for a in curvature],
        "linear": [[b] for b in linear],
        "start": [0.0],
    }
    both = {
        "problem": problem,
        "participation": {"pattern": "full"},
        "local_steps": 30,
        "client_lr": 0.02,
        "rounds": 600,
    }
    reached = float(models_of(toy({"name": "scaffold", "option": "I"}, **both))[-1])
    assert reached == pytest.approx(x, rel=1e-6)
    assert reached == pytest.approx(-9 / 11) if sign == 1 else abs(reached) > 1e10


def test_scaffold_with_full_gradients_and_few_clients_a_round_reaches_the_optimum() -> None:
    config = random_quadratics({"name": "scaffold"}, rounds=1500, eval_every=1500)
    last = list(simulate(config))[-1]
    assert last.evaluation is not None
    assert last.evaluation.gradient_norm_sq < 1e-20


def test_fedvarp_forms_its_direction_with_the_old_memories() -> None:
    """N = 2, S = {0}. Round 1, update 4: v = 4, y = (4, 0). Round 2, update 10: v = (10 - 4) + (4 + 0) / 2 = 8, y = (10, 0)."""
    algorithm = built("fedvarp", clients=2)
    w, state = algorithm.step(algorithm.init(START), START, cohort(1, 0), result([4]))
    assert float(w) == -4
    w, state = algorithm.step(state, w, cohort(2, 0), result([10]))
    assert float(w) == -4 - 8
    assert state["memory"].flatten().tolist() == [10, 0]


def test_fedvarp_does_not_keep_the_tensor_it_was_given() -> None:
    algorithm, updates = built("fedvarp", clients=2), result([4])
    _, state = algorithm.step(algorithm.init(START), START, cohort(1, 0), updates)
    updates.updates.zero_()
    assert float(state["memory"][0]) == 4


def test_cluster_fedvarp_weighs_memories_by_full_cluster_sizes_and_leaves_unseen_clusters_alone() -> None:
    """Clusters {0, 1, 2} and {3}; S = {0, 1} brings 2 and 4: y = (3, 0), their mean (3 * 3 + 0) / 4 = 9/4.

    Then S = {3} brings 5: v = (5 - 0) + 9/4, and cluster 0 keeps its 3.
    """
    algorithm = built("cluster_fedvarp", clients=4, labels=[0, 0, 0, 1], clusters=2)
    w, state = algorithm.step(algorithm.init(START), START, cohort(1, 0, 1), result([2, 4]))
    assert state["memory"].flatten().tolist() == [3, 0]
    assert float(algorithm.offset(state)) == pytest.approx(9 / 4)
    w, state = algorithm.step(state, w, cohort(2, 3), result([5]))
    assert float(w) == pytest.approx(-3 - (5 + 9 / 4))
    assert state["memory"].flatten().tolist() == [3, 5]


def test_as_many_clusters_as_clients_is_fedvarp_and_one_cluster_is_fedavg() -> None:
    for noise in (0.0, 0.5):
        fedvarp, fedavg = (models_of(random_quadratics({"name": name}, noise=noise)) for name in ("fedvarp", "fedavg"))
        for clusters, labels, expected in ((6, [3, 1, 4, 0, 5, 2], fedvarp), (1, [0] * 6, fedavg)):
            algorithm = {"name": "cluster_fedvarp", "clusters": clusters, "clustering": {"labels": labels}}
            for ours, theirs in zip(models_of(random_quadratics(algorithm, noise=noise)), expected, strict=True):
                assert torch.allclose(ours, theirs, atol=1e-10, rtol=0)


def test_without_local_steps_scaffold_is_fedvarp_and_with_them_it_is_not() -> None:
    def pair(steps: int) -> tuple[Tensor, Tensor]:
        both = (models_of(random_quadratics({"name": name}, local_steps=steps))[-1] for name in ("scaffold", "fedvarp"))
        return next(both), next(both)

    assert torch.allclose(*pair(1), atol=1e-12)
    assert not torch.allclose(*pair(4), atol=1e-6)


def test_one_client_and_one_step_a_round_is_saga() -> None:
    """SAGA: w <- w - eta (g_i(w) - y_i + mean y), y_i <- g_i(w), written out here."""
    config = random_quadratics(
        {"name": "fedvarp"}, local_steps=1, participation={"pattern": "uniform", "clients_per_round": 1}, rounds=30
    )
    y = torch.zeros(6, 3, dtype=torch.float64)
    curvature, linear, w = (
        torch.tensor(x, dtype=torch.float64)
        for x in (config.problem.curvature, config.problem.linear, config.problem.start)
    )
    for record in list(simulate(config))[1:]:
        i = record.cohort[0]
        g = curvature[i] * w + linear[i]
        w = w - 0.1 * (g - y[i] + y.mean(0))
        y[i] = g
    assert torch.allclose(models_of(config)[-1], w, atol=1e-12)


@pytest.mark.parametrize(
    "algorithm",
    [a for a in ALGORITHMS if a["name"] in ("fedavg", "scaffold", "fedvarp", "cluster_fedvarp", "mifa", "sgd")],
    ids=label_of,
)
def test_with_everybody_and_one_step_every_method_is_gradient_descent(algorithm: dict[str, Any]) -> None:
    config = random_quadratics(algorithm, local_steps=1, participation={"pattern": "full"})
    curvature, linear, w = (
        torch.tensor(x, dtype=torch.float64)
        for x in (config.problem.curvature, config.problem.linear, config.problem.start)
    )
    for _ in range(config.rounds):
        w = w - 0.1 * (curvature * w + linear).mean(0)
    assert torch.allclose(models_of(config)[-1], w, atol=1e-12)


def test_fedprox_without_pull_is_fedavg_and_its_pull_is_not_zero_after_the_first_step() -> None:
    assert torch.equal(
        *(models_of(random_quadratics(a))[-1] for a in ({"name": "fedprox", "mu": 0.0}, {"name": "fedavg"}))
    )
    one_step, two_steps = (
        [
            models_of(toy({"name": name, **mu}, local_steps=steps, rounds=1))[-1]
            for name, mu in (("fedprox", {"mu": 2.0}), ("fedavg", {}))
        ]
        for steps in (1, 2)
    )
    assert torch.equal(*one_step)
    # After one step u - w = -0.3; the second step gains -eta mu (u - w) = 0.1 * 2 * 0.3.
    assert float(two_steps[0] - two_steps[1]) == pytest.approx(0.06)


def pull(mu: float, away: list[float]) -> Tensor:
    """FedProx's extra gradient at distance `away` from the server's model, seen from outside.

    f = -away . u at rate 1: the first of two steps leads from w to w + away, the second adds away - pull.
    """
    problem = {
        "kind": "quadratics",
        "curvature": [[0.0, 0.0]],
        "linear": [[-x for x in away]],
        "start": [10.0, 20.0],
    }
    config = toy(
        {"name": "fedprox", "mu": mu},
        problem=problem,
        num_clients=1,
        participation={"pattern": "full"},
        client_lr=1.0,
        local_steps=2,
        rounds=1,
    )
    start, end = models_of(config)
    return 2 * torch.tensor(away, dtype=torch.float64) - (end - start)


def test_the_pull_of_fedprox_is_the_gradient_of_half_mu_times_the_squared_distance() -> None:
    """mu = 2 at distance (3, 4): gradient (6, 8), penalty 2/2 * (9 + 16) = 25; without the square it would be (6/5, 8/5) and 5."""
    assert pull(2.0, [3.0, 4.0]).tolist() == pytest.approx([6, 8])
    # The penalty is the work done against the pull on the way from w to w + (3, 4); the trapezium rule is exact for a linear pull.
    way = torch.linspace(0, 1, 5, dtype=torch.float64)
    along = torch.stack(
        [pull(2.0, [3 * t, 4 * t]) @ torch.tensor([3.0, 4.0], dtype=torch.float64) for t in way.tolist()]
    )
    assert float(torch.trapezoid(along, way)) == pytest.approx(25)
    assert pull(0.0, [3.0, 4.0]).tolist() == [0, 0]


def test_a_fedprox_pass_on_a_quadratic_is_the_known_power_series() -> None:
    """Delta_i = (1/tau) sum_k (I - eta (A_i + mu I))^k grad f_i(w)."""
    config = random_quadratics(
        {"name": "fedprox", "mu": 0.7}, rounds=1, participation={"pattern": "trace", "cohorts": [[2]]}
    )
    a, b, w = (
        torch.tensor(x, dtype=torch.float64)
        for x in (config.problem.curvature[2], config.problem.linear[2], config.problem.start)
    )
    delta = sum((1 - 0.1 * (a + 0.7)) ** k for k in range(4)) / 4 * (a * w + b)
    assert torch.allclose(models_of(config)[1], w - 4 * 0.1 * delta, atol=1e-14)


@pytest.mark.parametrize("option", ["I", "II"])
def test_the_first_round_of_cold_scaffold_is_fedavg_bit_for_bit(option: str) -> None:
    for make in (random_quadratics, small_classification):
        assert torch.equal(
            *(models_of(make(a))[1] for a in ({"name": "scaffold", "option": option}, {"name": "fedavg"}))
        )


@pytest.mark.parametrize("server_lr", [1.0, 0.3])
def test_the_server_moves_by_server_rate_times_client_rate_times_steps_times_the_direction(server_lr: float) -> None:
    """eta_s = server_lr, eta_c = 0.1, four steps; directions by hand: FedAvg the mean of 2 and 6, FedVARP the same from zero memories."""
    for name in ("fedavg", "fedprox", "scaffold", "fedvarp"):
        weights = torch.full((4,), 0.25, dtype=torch.float64)
        algorithm = REGISTRY[name]().build(
            Setting(4, client_lr=0.1, server_lr=server_lr, steps=4, client_weights=weights)
        )
        w, _ = algorithm.step(algorithm.init(START), START, cohort(1, 0, 1), result([2, 6], [2, 6]))
        assert float(w) == pytest.approx(-server_lr * 0.1 * 4 * 4)


def test_the_mean_is_over_those_who_came() -> None:
    """f_i = g_i x with g = 2, 6, 10, -2: all four move x by -0.1 * 4 (one step); the first two alone by -0.1 * 8 / 2, not 8 / 4."""
    problem = {
        "kind": "quadratics",
        "curvature": [[0.0]] * 4,
        "linear": [[2.0], [6.0], [10.0], [-2.0]],
        "start": [0.0],
    }
    cohorts = [[0, 1, 2, 3], [0, 1], [2], [0, 1]]
    path = models_of(
        toy(
            {"name": "fedavg"},
            problem=problem,
            num_clients=4,
            participation={"pattern": "trace", "cohorts": cohorts},
            local_steps=1,
            rounds=4,
        )
    )
    assert torch.cat(path).tolist() == pytest.approx([0, -0.4, -0.8, -1.8, -2.2])


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=label_of)
def test_a_parameter_without_gradient_stays_and_leaves_the_others_as_they_are(algorithm: dict[str, Any]) -> None:
    """A frozen coordinate between two live ones: memories and corrections belong to their own coordinate."""
    rate = {"server_lr": 0.1} if algorithm["name"] in ("fedadam", "fedyogi") else {}
    if algorithm["name"] == "cluster_fedvarp":
        algorithm = {**algorithm, "clusters": 2}
    curvature, linear = [[2.0, 0.0, 1.0], [0.0, 0.0, 0.5]], [[1.0, 0.0, -3.0], [-1.0, 0.0, 3.0]]
    start = [1.0, 5.0, 1.0]

    def path(*columns: int) -> Tensor:
        problem = {
            "kind": "quadratics",
            "curvature": [[row[c] for c in columns] for row in curvature],
            "linear": [[row[c] for c in columns] for row in linear],
            "start": [start[c] for c in columns],
        }
        return torch.stack(models_of(toy(algorithm, problem=problem, **rate)))

    wide = path(0, 1, 2)
    assert wide[:, 1].tolist() == [5.0] * 7
    for column in (0, 2):
        assert torch.allclose(wide[:, column], path(column)[:, 0], atol=1e-12)
    assert not torch.allclose(wide[:, 0], wide[:, 2], atol=0.01)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=label_of)
def test_all_that_is_remembered_lives_where_the_model_lives(algorithm: dict[str, Any]) -> None:
    """On torch's device "meta", which every machine has, in the model's own type."""
    labels = torch.tensor([0, 1, 2, 0], device="meta")
    weights, w = torch.ones(4, device="meta", dtype=torch.float16), torch.ones(5, device="meta", dtype=torch.float16)
    parameters = REGISTRY[algorithm["name"]].model_validate(algorithm)
    start_gradients = lambda: torch.ones(4, 5, device="meta", dtype=torch.float16)  # noqa: E731
    setting = Setting(4, 0.1, 1.0, 2, weights, clusters=labels, start_gradients=start_gradients)
    state = parameters.build(setting).init(w)
    assert {(tensor.device.type, tensor.dtype) for tensor in state.values()} <= {("meta", torch.float16)}


@pytest.mark.parametrize(
    "algorithm", [a for a in ALGORITHMS if a["name"] in ("fedavg", "fedprox", "sgd")], ids=label_of
)
def test_without_memory_a_round_depends_on_the_model_alone(algorithm: dict[str, Any]) -> None:
    """Nothing of a client's own optimiser outlives a round: a run begun at the model of round r takes round r + 1's step."""
    everybody = {"participation": {"pattern": "full"}, "rounds": 5}
    config = random_quadratics(algorithm, **everybody)
    path = models_of(config)
    for before, after in pairwise(path):
        problem = {**config.problem.model_dump(), "start": before.tolist()}
        begun = models_of(random_quadratics(algorithm, problem=problem, **{**everybody, "rounds": 1}))
        assert torch.equal(begun[1], after)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=label_of)
def test_an_empty_cohort_is_a_round_in_which_nothing_moves(algorithm: dict[str, Any]) -> None:
    def final(cohorts: list[list[int]], rounds: int) -> Tensor:
        return models_of(
            random_quadratics(algorithm, rounds=rounds, participation={"pattern": "trace", "cohorts": cohorts})
        )[-1]

    assert torch.equal(final([[0, 3], [], [1, 2]], 2), final([[0, 3]], 1))
    records = list(
        simulate(random_quadratics(algorithm, rounds=2, participation={"pattern": "trace", "cohorts": [[], [1]]}))
    )
    assert (records[1].cohort, records[1].weights) == ([], [])
    assert records[1].costs.gradient_evaluations == records[0].costs.gradient_evaluations  # a warm start's alone


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=label_of)
def test_the_order_in_which_a_trace_names_clients_changes_nothing(algorithm: dict[str, Any]) -> None:
    a, b = (
        models_of(
            random_quadratics(algorithm, noise=0.2, rounds=2, participation={"pattern": "trace", "cohorts": cohorts})
        )[-1]
        for cohorts in ([[0, 3, 5], [2, 3]], [[5, 0, 3], [3, 2]])
    )
    assert torch.equal(a, b)


def test_the_running_mean_of_memories_stays_the_mean_over_hundreds_of_rounds() -> None:
    config = small_classification(
        {"name": "fedvarp"}, rounds=250, local_steps=1, batch_size=4, probe_every=0, eval_every=0
    )
    state = list(simulate(config))[-1].checkpoint().state
    assert torch.allclose(state["mean"], state["memory"].mean(0), atol=1e-5)
    assert state["memory"].abs().sum(1).gt(0).all()


def test_three_steps_of_adam_and_yogi_by_hand() -> None:
    """Moves delta = 1, 1, -2 with beta1 = 0.5, beta2 = 0.75, epsilon = 1, rate 1, so m_0 = 0, s_0 = 1.

    Adam: m = 0.5, 0.75, -0.625; s = 1, 1, 1.75.  Yogi: s = 1 - 0.25 * 1 * sign(1 - 1) = 1, 1, 1 - 0.25 * 4 * sign(1 - 4) = 2.
    w moves by -m / (sqrt(s) + 1).
    """
    for name, sizes in (("fedadam", [1, 1, 1.75]), ("fedyogi", [1, 1, 2])):
        algorithm = built(name, clients=1, beta1=0.5, beta2=0.75, epsilon=1.0)
        w, state, expected = START, algorithm.init(START), 0.0
        for round, (delta, m, s) in enumerate(zip([1, 1, -2], [0.5, 0.75, -0.625], sizes, strict=True), start=1):
            w, state = algorithm.step(state, w, cohort(round, 0), result([delta]))
            expected -= m / (s**0.5 + 1)
            assert float(state["momentum"]) == pytest.approx(m)
            assert float(state["sizes"]) == pytest.approx(s)
            assert float(w) == pytest.approx(expected)


def test_the_memory_of_sizes_is_never_negative_and_yogi_moves_it_little() -> None:
    """|s_new - s| <= (1 - beta2) delta^2 for FedYogi."""
    moves = [0.1, -5.0, 0.0, 3.0, 1e-6, -0.2] * 5
    for name in ("fedadam", "fedyogi"):
        algorithm = built(name, clients=1)
        w, state = START, algorithm.init(START)
        for round, move in enumerate(moves, start=1):
            before = float(state["sizes"])
            w, state = algorithm.step(state, w, cohort(round, 0), result([move]))
            assert float(state["sizes"]) >= 0
            if name == "fedyogi":
                assert abs(float(state["sizes"]) - before) <= 0.01 * move**2 * (1 + 1e-12)


def test_momentum_without_momentum_is_fedavg() -> None:
    a, b = (models_of(random_quadratics(x))[-1] for x in ({"name": "fedavgm", "beta": 0.0}, {"name": "fedavg"}))
    assert torch.allclose(a, b, atol=1e-14)


def test_mifa_is_the_mean_of_everybodys_last_update_fresh_ones_included() -> None:
    """N = 2, S = {0}. Update 4: y = (4, 0), v = 2. Update 10: y = (10, 0), v = 5. Then S = {1}, update 6: v = 8."""
    algorithm = built("mifa", clients=2)
    w, state = algorithm.step(algorithm.init(START), START, cohort(1, 0), result([4]))
    assert float(w) == -2
    w, state = algorithm.step(state, w, cohort(2, 0), result([10]))
    assert float(w) == -7
    w, state = algorithm.step(state, w, cohort(3, 1), result([6]))
    assert float(w) == -15


def test_with_everybody_mifa_and_fedvarp_are_fedavg() -> None:
    everybody = {"participation": {"pattern": "full"}, "noise": 0.3}
    fedavg, *others = (
        models_of(random_quadratics({"name": n}, **everybody))[-1] for n in ("fedavg", "mifa", "fedvarp")
    )
    for other in others:
        assert torch.allclose(other, fedavg, atol=1e-12)


def test_sgd_is_fedavg_with_one_full_batch_step_whatever_the_local_steps() -> None:
    """Noise-free quadratics have full gradients: one local step is one exact gradient."""
    sgd, fedavg = (models_of(random_quadratics({"name": n}, local_steps=s))[-1] for n, s in (("sgd", 7), ("fedavg", 1)))
    assert torch.allclose(sgd, fedavg, atol=1e-14)
    records = list(
        simulate(
            small_classification(
                {"name": "sgd"},
                rounds=2,
                probe_every=0,
                problem={"kind": "classification", "partition": {"name": "iid"}},
            )
        )
    )
    # Four clients of 500 samples each, two rounds, one gradient of every sample.
    assert records[-1].costs.gradient_evaluations == 2 * 4 * 500


@pytest.mark.parametrize("name", ["amplified_fedavg", "amplified_scaffold"])
def test_an_amplification_of_one_is_none_and_a_window_of_one_is_a_server_rate(name: str) -> None:
    plain = {"amplified_fedavg": "fedavg", "amplified_scaffold": "scaffold"}[name]
    window_of_one = random_quadratics({"name": name, "window": 1, "amplification": 1.7}, noise=0.2)
    faster = random_quadratics({"name": plain}, server_lr=1.7, noise=0.2)
    for a, b in zip(models_of(window_of_one), models_of(faster), strict=True):
        assert torch.allclose(a, b, atol=1e-12)
    one = random_quadratics({"name": "amplified_fedavg", "window": 3, "amplification": 1.0})
    assert torch.allclose(models_of(one)[-1], models_of(random_quadratics({"name": "fedavg"}))[-1], atol=1e-12)


def test_a_window_amplifies_its_whole_move_at_its_last_round_and_an_incomplete_one_not_at_all() -> None:
    """P = 3, gamma = 2, every round moves by -1: w = -1, -2, then -6; -7, -8, then -12; a seventh round ends at -13."""
    algorithm = built("amplified_fedavg", clients=1, window=3, amplification=2.0)
    w, state, path = START, algorithm.init(START), []
    for round in range(1, 8):
        w, state = algorithm.step(state, w, cohort(round, 0), result([1]))
        path.append(float(w))
    assert path == [-1, -2, -6, -7, -8, -12, -13]


def test_a_window_ends_also_on_a_round_without_participants() -> None:
    """P = 2, gamma = 3: -1, then nobody: the window's move of -1 is taken three times."""
    algorithm = built("amplified_fedavg", clients=1, window=2, amplification=3.0)
    w, state = algorithm.step(algorithm.init(START), START, cohort(1, 0), result([1]))
    nobody = Cohort(2, torch.tensor([], dtype=torch.long), torch.tensor([], dtype=torch.float64))
    w, state = algorithm.step(state, w, nobody, None)
    assert float(w) == -3


def test_amplified_scaffold_averages_what_participants_brought_in_the_window_by_their_weights() -> None:
    """P = 2, N = 3. Round 1, S = {0, 1}, gradients 2, 6 (q = 1/2); round 2, S = {0}, gradient 5 (q = 1).

    G_0 = (2/2 + 5) / (1/2 + 1) = 4, G_1 = 6, G_2 keeps 0; G = 10/3. Corrections are frozen inside the window.
    """
    algorithm = built("amplified_scaffold", clients=3, window=2)
    state = algorithm.init(START)
    _, state = algorithm.step(state, START, cohort(1, 0, 1), result([2, 6], [2, 6]))
    assert algorithm.correction(state, torch.tensor([0, 1, 2])).flatten().tolist() == [0, 0, 0]
    _, state = algorithm.step(state, START, cohort(2, 0), result([5], [5]))
    assert state["client_variates"].flatten().tolist() == pytest.approx([4, 6, 0])
    assert float(state["server_variate"]) == pytest.approx(10 / 3)
    assert state["gathered"].abs().sum() == state["presence"].abs().sum() == 0
    _, state = algorithm.step(state, START, cohort(3, 2), result([1], [1]))
    _, state = algorithm.step(state, START, cohort(4, 2), result([3], [3]))
    assert state["client_variates"].flatten().tolist() == pytest.approx([4, 6, 2])


def test_the_window_is_the_patterns_period_unless_given() -> None:
    turns = {"pattern": "cyclic", "clients_per_round": 1, "groups": 3, "availability": 2}
    by_itself, given = (
        models_of(random_quadratics({"name": "amplified_fedavg", **w}, participation=turns, rounds=14))
        for w in ({}, {"window": 6})
    )
    assert all(torch.equal(a, b) for a, b in zip(by_itself, given, strict=True))
