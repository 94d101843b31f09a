"""Who takes part: laws, edges, frequencies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedviz.participation import Cyclic, Full, Participation, Trace, Uniform
from fedviz.simulation.loop import simulate
from tests.problems import random_quadratics


@given(st.integers(1, 40), st.integers(0, 1000), st.data())
def test_no_client_twice_and_the_size_asked_for(num_clients: int, seed: int, data: st.DataObject) -> None:
    drawn = data.draw(st.integers(1, num_clients))
    cohort = Participation(Uniform(clients_per_round=drawn), num_clients, seed).cohort(
        data.draw(st.integers(1, 100_000))
    )
    assert len(set(cohort.tolist())) == len(cohort) == drawn
    assert cohort.tolist() == sorted(cohort.tolist())
    assert 0 <= cohort.min() <= cohort.max() < num_clients


def test_uniform_participation_sees_everybody_equally_often() -> None:
    pattern = Participation(Uniform(clients_per_round=5), 20, seed=0)
    visits = np.bincount(np.concatenate([pattern.cohort(round) for round in range(1, 4001)]), minlength=20)
    assert chisquare(visits).pvalue > 1e-4
    assert set(np.concatenate([pattern.cohort(round) for round in range(1, 201)])) == set(range(20))


def test_seeds_and_rounds_do_not_share_cohorts() -> None:
    def cohorts(seed: int) -> set[tuple[int, ...]]:
        pattern = Participation(Uniform(clients_per_round=5), 1000, seed)
        return {tuple(pattern.cohort(round).tolist()) for round in range(1, 50)}

    assert len(cohorts(0)) == 49
    assert not cohorts(0) & cohorts(1)
    assert not cohorts(1) & cohorts(2)


def test_everyone_is_everyone() -> None:
    assert Participation(Full(), 7, 0).cohort(3).tolist() == list(range(7))


@pytest.mark.parametrize(("num_clients", "groups", "availability"), [(10, 5, 4), (11, 4, 3), (6, 6, 1), (8, 1, 2)])
def test_cyclic_groups_take_turns_of_equal_length(num_clients: int, groups: int, availability: int) -> None:
    """Every window of g * groups rounds has each group on duty for exactly g rounds; the groups partition the clients by id."""
    pattern = Participation(Cyclic(clients_per_round=1, groups=groups, availability=availability), num_clients, seed=4)
    on_duty = [tuple(pattern.law(round).available.tolist()) for round in range(1, 3 * groups * availability + 1)]
    window = groups * availability
    for start in range(2 * window):
        ids, counts = np.unique([group[0] for group in on_duty[start : start + window]], return_counts=True)
        assert len(ids) == groups
        assert (counts == availability).all()
    together = sorted(client for group in set(on_duty) for client in group)
    assert together == list(range(num_clients))
    sizes = [len(group) for group in set(on_duty)]
    assert max(sizes) - min(sizes) <= 1
    changes = [round for round in range(1, len(on_duty)) if on_duty[round] != on_duty[round - 1]]
    assert groups == 1 or set(np.diff(changes)) == {availability}


def test_the_cyclic_offset_differs_between_seeds_and_stays_inside_a_turn() -> None:
    def first_change(seed: int) -> int:
        pattern = Participation(Cyclic(clients_per_round=1, groups=2, availability=6), 4, seed)
        return next(
            round for round in range(2, 20) if pattern.law(round).available[0] != pattern.law(round - 1).available[0]
        )

    assert {first_change(seed) for seed in range(60)} == {2, 3, 4, 5, 6, 7}


def test_cohorts_come_from_the_group_on_duty() -> None:
    pattern = Participation(Cyclic(clients_per_round=2, groups=3, availability=2), 12, seed=1)
    for round in range(1, 30):
        assert set(pattern.cohort(round)) <= set(pattern.law(round).available)


def test_a_trace_is_replayed_as_given() -> None:
    pattern = Participation(Trace(cohorts=[[3, 1], [], [0]], repeat=True), 4, seed=0)
    assert [pattern.cohort(round).tolist() for round in range(1, 6)] == [[1, 3], [], [0], [1, 3], []]


@pytest.mark.parametrize("size", [1, 2, 6])
def test_weights_sum_to_one_whatever_the_cohort_size(size: int) -> None:
    config = random_quadratics(
        {"name": "fedavg"}, rounds=2, participation={"pattern": "uniform", "clients_per_round": size}
    )
    record = list(simulate(config))[-1]
    assert record.weights == pytest.approx([1 / size] * size)
    assert len(record.cohort) == size
