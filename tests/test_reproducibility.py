"""The config is the run: the same records, bit for bit, however and beside whatever it runs."""

import threading
from typing import Any

import pytest
import torch

from fedviz.config import SimulationConfig
from fedviz.simulation.loop import simulate
from tests.problems import ALGORITHMS, comparable, label_of, models_of, random_quadratics, small_classification, toy


def records_of(config: SimulationConfig) -> list[dict[str, Any]]:
    return [comparable(record) for record in simulate(config)]


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=label_of)
def test_the_same_config_gives_the_same_records_and_models(algorithm: dict[str, Any]) -> None:
    for config in (
        small_classification(algorithm),
        random_quadratics(algorithm, noise=0.3, probe_every=2, eval_every=1),
    ):
        assert records_of(config) == records_of(config)
        assert all(torch.equal(a, b) for a, b in zip(models_of(config), models_of(config), strict=True))


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=label_of)
def test_measuring_changes_nothing_about_the_run(algorithm: dict[str, Any]) -> None:
    for make in (small_classification, random_quadratics):
        watched, plain = (models_of(make(algorithm, probe_every=p, eval_every=e)) for p, e in ((1, 1), (0, 0)))
        assert all(torch.equal(a, b) for a, b in zip(watched, plain, strict=True))


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=label_of)
def test_going_on_from_any_round_is_as_if_never_stopped(algorithm: dict[str, Any]) -> None:
    config = random_quadratics(algorithm, noise=0.3, probe_every=2, eval_every=3, rounds=7)
    whole = records_of(config)
    checkpoints = [record.checkpoint() for record in simulate(config)]
    for stop, checkpoint in enumerate(checkpoints):
        assert [comparable(record) for record in simulate(config, resume_from=checkpoint)] == whole[stop + 1 :]


def test_a_classification_run_goes_on_bit_for_bit() -> None:
    config = small_classification({"name": "scaffold"})
    whole = records_of(config)
    checkpoints = [record.checkpoint() for record in simulate(config)]
    assert [comparable(record) for record in simulate(config, resume_from=checkpoints[3])] == whole[4:]


def test_runs_beside_one_another_are_the_runs_alone() -> None:
    configs = [small_classification({"name": name}, seed=seed) for name in ("fedvarp", "scaffold") for seed in (0, 1)]
    alone = [records_of(config) for config in configs]
    together: dict[int, list] = {}

    def work(n: int) -> None:
        torch.set_num_threads(1)
        together[n] = records_of(configs[n])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(configs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[n] for n in range(len(configs))] == alone


def test_global_generators_are_neither_used_nor_touched() -> None:
    import numpy as np

    config = small_classification({"name": "cluster_fedvarp", "clusters": 4, "clustering": "kmeans"})
    torch.manual_seed(1)
    first = records_of(config)
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002 - the point is that it does not matter
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert records_of(config) == first
    assert torch.equal(before, torch.get_rng_state())
    assert numpy_before == np.random.get_state()[1].tolist()  # noqa: NPY002


def test_algorithms_are_compared_on_the_same_cohorts_partition_and_start() -> None:
    runs = [list(simulate(small_classification(algorithm))) for algorithm in ALGORITHMS]
    for run in runs[1:]:
        assert [record.cohort for record in run] == [record.cohort for record in runs[0]]
        assert comparable(run[0])["evaluation"] == comparable(runs[0][0])["evaluation"]


def test_other_seeds_are_other_runs() -> None:
    assert len({str(records_of(small_classification({"name": "fedavg"}, seed=seed))) for seed in (0, 1, 2)}) == 3


def test_records_are_gap_free_and_measured_when_due() -> None:
    records = list(simulate(random_quadratics({"name": "fedavg"}, rounds=10, eval_every=4, probe_every=3)))
    assert [record.round for record in records] == list(range(11))
    assert [record.round for record in records if record.evaluation] == [0, 4, 8, 10]
    assert [record.round for record in records if record.decomposition] == [3, 6, 9]
    silent = list(simulate(random_quadratics({"name": "fedavg"}, rounds=3, eval_every=0, probe_every=0)))
    assert not any(record.evaluation or record.decomposition for record in silent)


def test_what_cannot_be_measured_does_not_end_a_run() -> None:
    """f = x^2 / 2 from 1e160: the model is finite, its square is not. The run goes on; the measurement is left out."""
    problem = {"kind": "quadratics", "curvature": [[1.0], [1.0]], "linear": [[0.0], [0.0]], "start": [1e160]}
    records = list(simulate(toy({"name": "fedavg"}, problem=problem, participation={"pattern": "full"}, probe_every=1)))
    assert [record.round for record in records] == list(range(7))
    assert all(record.decomposition is None for record in records)


def test_a_warm_start_is_not_cold() -> None:
    for warm, share in ((True, 0.0), (False, 1.0)):
        first = next(iter(simulate(random_quadratics({"name": "scaffold", "warm_start": warm}))))
        assert first.diagnostics["cold"] == share


def test_a_warm_start_costs_a_gradient_of_every_sample_and_a_vector_each_way_for_every_client() -> None:
    """N = 6, d = 3, one gradient a client: 6 gradients, 18 numbers up and down before round 1."""
    warm, cold = (
        next(iter(simulate(random_quadratics({"name": "scaffold", "warm_start": warm})))).costs
        for warm in (True, False)
    )
    assert (warm.gradient_evaluations, warm.floats_up, warm.floats_down) == (6, 18, 18)
    assert (cold.gradient_evaluations, cold.floats_up, cold.floats_down) == (0, 0, 0)


def test_memories_that_are_renewed_at_the_end_of_a_window_age_from_there() -> None:
    """N = 6, windows of 3 rounds, cohorts {0, 1}, {2}, {0}, {3}, {4}, {4}, {5}.

    No memory until round 3 renews 0, 1, 2 (age 1 for round 4). Round 6 renews 3 and 4: ages 4, 4, 4, 1, 1 for round 7, mean 14/5.
    """
    cohorts = [[0, 1], [2], [0], [3], [4], [4], [5]]
    config = random_quadratics(
        {"name": "amplified_scaffold", "window": 3}, participation={"pattern": "trace", "cohorts": cohorts}, rounds=7
    )
    seen = []
    for record in simulate(config):
        filled = (record.checkpoint().state["client_variates"] != 0).any(1)
        assert record.diagnostics["cold"] == pytest.approx(1 - float(filled.double().mean()))
        seen.append(record.diagnostics.get("staleness"))
    assert seen == [None, None, None, 1, 2, 3, pytest.approx(14 / 5), pytest.approx(19 / 5)]
