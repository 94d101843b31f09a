"""How old memories are expected to be: every formula against all possible cohorts of a small case, and against a long simulation."""

from itertools import combinations, permutations
from math import comb

import numpy as np
import pytest

from fedviz.participation import (
    Bernoulli,
    Cyclic,
    Full,
    Markov,
    ParticipationParameters,
    Regularized,
    StochasticCyclic,
    Trace,
    Uniform,
)
from fedviz.simulation.loop import simulate
from tests.problems import random_quadratics

OWN = np.arange(12)  # a memory for each client
SHARED = np.array(
    [0, 0, 0, 1, 2, 1, 1, 2, 1, 3, 3, 1]
)  # four memories, of 3, 5, 2 and 2 clients; turns cut through them

PATTERNS = [
    Full(),
    Uniform(clients_per_round=3),
    Uniform(clients_per_round=11),
    Regularized(clients_per_round=3),
    Cyclic(clients_per_round=2, groups=3, availability=2),
    Cyclic(clients_per_round=1, groups=5, availability=3),  # groups of 3, 3, 2, 2 and 2
    Cyclic(clients_per_round=4, groups=3, availability=1),
    Bernoulli(chance=0.15),
    Bernoulli(chance=1.0),
    Markov(mean_on=3.0, mean_off=9.0),
    Markov(mean_on=4.0, mean_off=1.0),
]


def expected(pattern: ParticipationParameters, states: np.ndarray) -> float:
    found = pattern.build(len(states), 3).expected_age(states)
    assert found is not None
    return found


@pytest.mark.parametrize("states", [OWN, SHARED], ids=["own", "shared"])
@pytest.mark.parametrize("parameters", PATTERNS, ids=str)
def test_the_expected_age_is_that_of_a_long_simulation(parameters: ParticipationParameters, states: np.ndarray) -> None:
    """Ages counted round by round; the standard error from 40 means over 60 rounds each, whole windows of every pattern here."""
    pattern = parameters.build(12, 8)
    last, ages = np.zeros(12), []
    for round in range(1, 301 + 40 * 60):
        for client in pattern.cohort(round):
            last[states == states[client]] = round
        ages.append((round + 1 - last).mean())
    means = np.array(ages[-2400:]).reshape(40, 60).mean(1)
    error = means.std(ddof=1) / 40**0.5
    assert error < 0.08 * means.mean()
    assert expected(parameters, states) == pytest.approx(means.mean(), abs=4 * error + 1e-9)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (2, 3), (5,), (1, 4)])
@pytest.mark.parametrize("drawn", [1, 2, 4])
def test_uniform_ages_from_all_cohorts(sizes: tuple[int, ...], drawn: int) -> None:
    """Pr(age > a) = (share of the cohorts that miss the memory)^a, summed over a; N/M for memories of one client each."""
    states = np.repeat(np.arange(len(sizes)), sizes)
    cohorts = list(combinations(range(5), drawn))
    missed = [np.mean([k not in states[list(cohort)] for cohort in cohorts]) for k in states]
    by_sum = np.mean([sum(q**a for a in range(2000)) for q in missed])
    assert expected(Uniform(clients_per_round=drawn), states) == pytest.approx(by_sum, rel=1e-12)
    by_paper = sum(n / 5 / (1 - comb(5 - n, drawn) / comb(5, drawn)) for n in sizes)
    assert expected(Uniform(clients_per_round=drawn), states) == pytest.approx(by_paper, rel=1e-12)
    if len(sizes) == 5:
        assert expected(Uniform(clients_per_round=drawn), states) == pytest.approx(5 / drawn, rel=1e-12)


@pytest.mark.parametrize("states", [[0, 1, 2, 3], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]], ids=str)
@pytest.mark.parametrize("drawn", [1, 2, 4])
def test_ages_where_everybody_takes_part_once_from_all_shuffles(states: list[int], drawn: int) -> None:
    """Every pair of shuffles of two windows, and every round of the second: the rounds since a member of the memory took part."""
    window, orders, ages = 4 // drawn, list(permutations(range(4))), []
    for first in orders:
        for second in orders:
            cohorts = [order[r * drawn : (r + 1) * drawn] for order in (first, second) for r in range(window)]
            seen = [{states[client] for client in cohort} for cohort in cohorts]
            for now in range(window, 2 * window):
                ages += [next(a for a in range(1, 2 * window + 1) if k in seen[now - a + 1]) for k in states]
    assert expected(Regularized(clients_per_round=drawn), np.array(states)) == pytest.approx(np.mean(ages), rel=1e-12)


@pytest.mark.parametrize("states", [[0, 1, 2, 3, 4], [0, 1, 0, 1, 1], [0, 0, 1, 2, 2]], ids=str)
@pytest.mark.parametrize(("drawn", "groups", "availability"), [(1, 2, 1), (1, 2, 3), (2, 2, 2), (2, 1, 4)])
def test_ages_under_turns_from_all_cohorts(states: list[int], drawn: int, groups: int, availability: int) -> None:
    """Pr(age > a) is the product over the last a rounds of the share of that group's cohorts that miss the memory."""
    window, members = groups * availability, np.array_split(np.arange(5), groups)
    missed = np.empty((window, 5))
    for r in range(window):
        cohorts = list(combinations(members[r // availability], drawn))
        missed[r] = [np.mean([k not in {states[i] for i in cohort} for cohort in cohorts]) for k in states]
    ages = []
    for now in range(window):
        tail, age = np.ones(5), np.zeros(5)
        for a in range(3000):
            age += tail
            tail *= missed[(now - a) % window]
        ages.append(age.mean())
    pattern = Cyclic(clients_per_round=drawn, groups=groups, availability=availability)
    assert expected(pattern, np.array(states)) == pytest.approx(np.mean(ages), rel=1e-10)


def test_ages_known_by_heart() -> None:
    """Full: 1. All of each group, one round each of K: 1 ... K in turn, (K + 1)/2. Once in a window: (P + 1)(7 P - 1)/(12 P)."""
    assert expected(Full(), OWN) == 1
    assert expected(Cyclic(clients_per_round=4, groups=3, availability=1), OWN) == pytest.approx(2)
    assert expected(Regularized(clients_per_round=2), OWN) == pytest.approx(7 * 41 / 72)
    assert expected(Bernoulli(chance=1e-9), OWN) == pytest.approx(1e9)
    assert expected(Uniform(clients_per_round=5), np.arange(100_000)) == pytest.approx(20_000)


def test_patterns_without_a_formula_say_so() -> None:
    for pattern in (
        StochasticCyclic(clients_per_round=2, groups=3),
        Cyclic(clients_per_round=2, groups=3, sampler="permutation"),
        Trace(cohorts=[[0], [1]], repeat=True),
    ):
        assert pattern.build(12, 0).expected_age(OWN) is None


@pytest.mark.parametrize(
    ("algorithm", "participation", "value"),
    [
        ({"name": "fedvarp"}, {"pattern": "uniform", "clients_per_round": 2}, 3.0),
        ({"name": "scaffold"}, {"pattern": "uniform", "clients_per_round": 2}, 3.0),
        (
            {"name": "cluster_fedvarp", "clusters": 2, "clustering": {"labels": [0, 1, 1, 0, 1, 1]}},
            {"pattern": "uniform", "clients_per_round": 2},
            2 / 6 / (1 - comb(4, 2) / comb(6, 2)) + 4 / 6 / (1 - comb(2, 2) / comb(6, 2)),
        ),
        ({"name": "mifa"}, {"pattern": "full"}, 1.0),
        ({"name": "fedvarp"}, {"pattern": "trace", "cohorts": [[0]], "repeat": True}, None),
        ({"name": "fedavg"}, {"pattern": "uniform", "clients_per_round": 2}, None),
        ({"name": "amplified_scaffold"}, {"pattern": "uniform", "clients_per_round": 2}, None),
    ],
    ids=lambda x: x.get("name") or x.get("pattern") if isinstance(x, dict) else "",
)
def test_records_carry_the_expected_age_where_it_is_defined(
    algorithm: dict, participation: dict, value: float | None
) -> None:
    records = list(simulate(random_quadratics(algorithm, num_clients=6, rounds=3, participation=participation)))
    for record in records:
        assert record.diagnostics.get("expected_staleness") == (None if value is None else pytest.approx(value))
