"""Who takes part: laws, edges, frequencies."""

import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from fedviz.participation import (
    Bernoulli,
    Cyclic,
    Full,
    Markov,
    Participation,
    ParticipationParameters,
    Regularized,
    StochasticCyclic,
    Trace,
    Uniform,
)
from fedviz.participation.trace import read_csv
from fedviz.simulation.loop import simulate
from tests.problems import random_quadratics


@given(st.integers(1, 40), st.integers(0, 1000), st.data())
def test_no_client_twice_and_the_size_asked_for(num_clients: int, seed: int, data: st.DataObject) -> None:
    drawn = data.draw(st.integers(1, num_clients))
    cohort = Uniform(clients_per_round=drawn).build(num_clients, seed).cohort(data.draw(st.integers(1, 100_000)))
    assert len(set(cohort.tolist())) == len(cohort) == drawn
    assert cohort.tolist() == sorted(cohort.tolist())
    assert 0 <= cohort.min() <= cohort.max() < num_clients


def test_uniform_participation_sees_everybody_equally_often() -> None:
    pattern = Uniform(clients_per_round=5).build(20, 0)
    visits = np.bincount(np.concatenate([pattern.cohort(round) for round in range(1, 4001)]), minlength=20)
    assert chisquare(visits).pvalue > 1e-4
    assert set(np.concatenate([pattern.cohort(round) for round in range(1, 201)])) == set(range(20))


def test_seeds_and_rounds_do_not_share_cohorts() -> None:
    def cohorts(seed: int) -> set[tuple[int, ...]]:
        pattern = Uniform(clients_per_round=5).build(1000, seed)
        return {tuple(pattern.cohort(round).tolist()) for round in range(1, 50)}

    assert len(cohorts(0)) == 49
    assert not cohorts(0) & cohorts(1)
    assert not cohorts(1) & cohorts(2)


def test_everyone_is_everyone() -> None:
    assert Full().build(7, 0).cohort(3).tolist() == list(range(7))


@pytest.mark.parametrize(("num_clients", "groups", "availability"), [(10, 5, 4), (11, 4, 3), (6, 6, 1), (8, 1, 2)])
def test_cyclic_groups_take_turns_of_equal_length(num_clients: int, groups: int, availability: int) -> None:
    """Every window of g * groups rounds has each group on duty for exactly g rounds; the groups partition the clients by id."""
    pattern = Cyclic(clients_per_round=1, groups=groups, availability=availability).build(num_clients, 4)
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
        pattern = Cyclic(clients_per_round=1, groups=2, availability=6).build(4, seed)
        return next(
            round for round in range(2, 20) if pattern.law(round).available[0] != pattern.law(round - 1).available[0]
        )

    assert {first_change(seed) for seed in range(60)} == {2, 3, 4, 5, 6, 7}


def test_cohorts_come_from_the_group_on_duty() -> None:
    pattern = Cyclic(clients_per_round=2, groups=3, availability=2).build(12, 1)
    for round in range(1, 30):
        assert set(pattern.cohort(round)) <= set(pattern.law(round).available)


def test_who_takes_part_in_a_trace_is_said_in_words() -> None:
    """By the mean of the cohorts' sizes: 1 in a million rounds, 3 in 2, none at all, everybody."""
    for cohorts, said in (
        ([[]] * 999_999 + [[1]], "on average less than 1 of 4 clients"),
        ([[0, 1], [2]], "about 2 of 4 clients"),
        ([[], []], "none of 4 clients"),
        ([[0], [1]], "1 of 4 clients"),
        ([[0, 1, 2, 3]], "all 4 clients"),
    ):
        assert Trace(cohorts=cohorts).phrase(4) == said


def test_a_trace_is_replayed_as_given() -> None:
    pattern = Trace(cohorts=[[3, 1], [], [0]], repeat=True).build(4, 0)
    assert [pattern.cohort(round).tolist() for round in range(1, 6)] == [[1, 3], [], [0], [1, 3], []]


@pytest.mark.parametrize("size", [1, 2, 6])
def test_weights_sum_to_one_whatever_the_cohort_size(size: int) -> None:
    config = random_quadratics(
        {"name": "fedavg"}, rounds=2, participation={"pattern": "uniform", "clients_per_round": size}
    )
    record = list(simulate(config))[-1]
    assert record.weights == pytest.approx([1 / size] * size)
    assert len(record.cohort) == size


def build(parameters: ParticipationParameters, num_clients: int, seed: int = 0) -> Participation:
    return parameters.build(num_clients, seed)


def test_regularized_participation_has_everybody_exactly_once_in_a_window() -> None:
    pattern = build(Regularized(clients_per_round=3), 12)
    for window in range(5):
        cohorts = [pattern.cohort(window * 4 + r).tolist() for r in range(1, 5)]
        assert sorted(client for cohort in cohorts for client in cohort) == list(range(12))
        assert all(len(cohort) == 3 for cohort in cohorts)
        # Available are those whose turn is still to come.
        left = [len(pattern.law(window * 4 + r).available) for r in range(1, 5)]
        assert left == [12, 9, 6, 3]
    assert pattern.cohort(1).tolist() != pattern.cohort(5).tolist()


def test_independent_participation_follows_the_binomial_law() -> None:
    """N = 30, a = 0.2: sizes over 4,000 rounds against the binomial; every client equally often."""
    pattern = build(Bernoulli(chance=0.2), 30)
    cohorts = [pattern.cohort(round) for round in range(1, 4001)]
    sizes = np.bincount([len(cohort) for cohort in cohorts], minlength=31)
    law = pattern.law(1)
    assert law.chances.sum() == pytest.approx(1)
    assert law.chances == pytest.approx(binom.pmf(law.sizes, 30, 0.2) / (1 - 0.8**30), abs=1e-12)
    likely = np.flatnonzero(4000 * binom.pmf(np.arange(31), 30, 0.2) > 10)
    observed, expected = sizes[likely], 4000 * binom.pmf(likely, 30, 0.2)
    assert chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-4
    assert chisquare(np.bincount(np.concatenate(cohorts), minlength=30)).pvalue > 1e-4


def test_inverse_weights_divide_by_how_many_were_expected() -> None:
    """N = 6, a = 0.5: three are expected, so a cohort of size M has weights 1/3 each, summing to M/3; averaging sums to 1."""
    for weighting, total in (("average", lambda size: 1.0), ("inverse", lambda size: size / 3)):
        turns = {"pattern": "bernoulli", "chance": 0.5, "weighting": weighting}
        for record in simulate(random_quadratics({"name": "fedavg"}, participation=turns)):
            if record.cohort:
                assert sum(record.weights) == pytest.approx(total(len(record.cohort)))


def test_on_and_off_times_have_their_means_and_their_long_run_share() -> None:
    """Mean on 4, mean off 12: a quarter of the time on; runs of both kinds geometric."""
    pattern = build(Markov(mean_on=4.0, mean_off=12.0), 200)
    on = np.zeros((600, 200), dtype=bool)
    for round in range(1, 601):
        on[round - 1, pattern.cohort(round)] = True
    assert on.mean() == pytest.approx(0.25, abs=0.02)
    assert on[0].mean() == pytest.approx(0.25, abs=0.13)
    leaving = (on[:-1] & ~on[1:]).sum() / on[:-1].sum()
    coming = (~on[:-1] & on[1:]).sum() / (~on[:-1]).sum()
    assert leaving == pytest.approx(1 / 4, abs=0.01)
    assert coming == pytest.approx(1 / 12, abs=0.005)
    assert build(Markov(mean_on=4.0, mean_off=12.0), 200).cohort(300).tolist() == np.flatnonzero(on[299]).tolist()


def test_stochastic_turns_are_likely_on_duty_rare_off_duty_and_never_more_than_asked() -> None:
    pattern = build(StochasticCyclic(clients_per_round=4, groups=2, availability=3, on_duty=0.8, off_duty=0.1), 20)
    rates = {True: [], False: []}
    for round in range(1, 3001):
        available = set(pattern.law(round).available.tolist())
        duty = set(pattern.on_duty(round).tolist())
        for client in range(20):
            rates[client in duty].append(client in available)
        cohort = pattern.cohort(round)
        assert len(cohort) == min(4, len(available))
        assert set(cohort.tolist()) <= available
    assert np.mean(rates[True]) == pytest.approx(0.8, abs=0.01)
    assert np.mean(rates[False]) == pytest.approx(0.1, abs=0.01)


def test_the_permutation_sampler_uses_up_one_list_of_all_before_the_next() -> None:
    """One group: nobody is skipped, so every N / S rounds are everybody once."""
    pattern = build(Cyclic(clients_per_round=2, groups=1, availability=1, sampler="permutation"), 10)
    for block in range(4):
        seen = [c for r in range(1, 6) for c in pattern.cohort(block * 5 + r).tolist()]
        assert sorted(seen) == list(range(10))
    turns = build(Cyclic(clients_per_round=2, groups=5, availability=2, sampler="permutation"), 20)
    later = turns.cohort(31).tolist()
    for round in range(1, 60):
        assert set(turns.cohort(round).tolist()) <= set(turns.on_duty(round).tolist())
        assert len(set(turns.cohort(round).tolist())) == 2
    assert turns.cohort(31).tolist() == later


def test_groups_by_label_put_equal_labels_together() -> None:
    labels = np.array([1, 0, 1, 0, 2, 2])
    pattern = Cyclic(clients_per_round=1, groups=3, availability=1, grouping="label").build(6, 0, labels)
    assert [group.tolist() for group in pattern.groups] == [[1, 3], [0, 2], [4, 5]]
    mixed = Cyclic(clients_per_round=1, groups=2, availability=1, grouping="random").build(100, 0)
    assert sorted(np.concatenate(mixed.groups).tolist()) == list(range(100))
    assert mixed.groups[0].tolist() != list(range(50))


@pytest.mark.parametrize(
    ("parameters", "window", "rho_squared", "seen"),
    [
        (Full(), 1, 1 / 12, 1),
        (Uniform(clients_per_round=3), 1, 1 / 3, 3 / 12),
        (Regularized(clients_per_round=3), 4, 1 / 3, 1),
        # Two of four on duty, for two rounds: missed with chance (1/2)^2.
        (Cyclic(clients_per_round=2, groups=3, availability=2), 6, 1 / 2, 3 / 4),
        # Groups of 3, 3, 2, 2 and 2: a client of the largest is drawn with chance 1/3, missed twice with (2/3)^2 = 4/9.
        (Cyclic(clients_per_round=1, groups=5, availability=2), 10, 1, 5 / 9),
        (Bernoulli(chance=0.25), 1, None, 0.25),
    ],
    ids=lambda x: getattr(x, "pattern", ""),
)
def test_patterns_state_what_the_theory_asks(
    parameters: ParticipationParameters, window: int, rho_squared: float | None, seen: float
) -> None:
    facts = parameters.facts(12)
    assert (facts.window, facts.rho_squared) == (window, rho_squared)
    assert facts.seen_in_window == pytest.approx(seen)
    if parameters.pattern != "full":  # measured over many windows
        pattern = build(parameters, 12, 5)
        hits = [
            client in {c for r in range(1, window + 1) for c in pattern.cohort(k * window + r).tolist()}
            for k in range(600)
            for client in (0, 5)  # of a largest group, where groups differ
        ]
        assert np.mean(hits) == pytest.approx(seen, abs=0.06)


def test_nothing_is_stated_where_a_shuffled_list_makes_rounds_depend_on_each_other() -> None:
    assert Cyclic(clients_per_round=2, groups=4, availability=3, sampler="permutation").facts(20).seen_in_window is None


def test_the_chance_of_an_empty_cohort() -> None:
    """(1 - a)^N; for stochastic turns the product over both kinds of clients."""
    assert Bernoulli(chance=0.1).facts(5).empty == pytest.approx(0.9**5)
    turns = StochasticCyclic(groups=2, on_duty=0.8, off_duty=0.1)
    assert turns.facts(4).empty == pytest.approx(0.2**2 * 0.9**2)
    assert Trace(cohorts=[[], [0], [], [1]]).facts(2).empty == 0.5


def test_a_tenth_of_seven_clients_is_about_one_and_the_records_say_how_many_it_was() -> None:
    """round(0.7) = 1. Over 300 rounds the realised sizes have mean 0.7, deviation sqrt(7 * 0.1 * 0.9 / 300) = 0.046."""
    assert Bernoulli(chance=0.1).phrase(7) == "about 1 of 7 clients"
    config = random_quadratics(
        {"name": "fedavg"}, num_clients=7, rounds=300, participation={"pattern": "bernoulli", "chance": 0.1}
    )
    records = list(simulate(config))[1:]
    sizes = [len(record.cohort) for record in records]
    assert sizes == [len(record.weights) for record in records]
    assert np.mean(sizes) == pytest.approx(0.7, abs=4 * 0.046)
    assert {0, 1, 2} <= set(sizes)


def test_a_round_without_participants_is_recorded_and_moves_nothing_and_others_do() -> None:
    """N = 6, a = 0.1: half of all rounds (0.9^6 = 0.53) are empty. Nobody is put in to fill them: cohorts are the pattern's own draws."""
    config = random_quadratics({"name": "fedavg"}, rounds=40, participation={"pattern": "bernoulli", "chance": 0.1})
    pattern, before, empty = build(config.participation, 6, config.seed), None, 0
    for record in simulate(config):
        if record.round:
            assert record.cohort == pattern.cohort(record.round).tolist()
            assert (record.w.tolist() == before) == (not record.cohort)
            empty += not record.cohort
        before = record.w.tolist()
    assert 8 <= empty <= 32


@pytest.mark.parametrize(
    "parameters",
    [
        Markov(mean_on=3.0, mean_off=4.0),
        Cyclic(clients_per_round=2, groups=4, availability=3, sampler="permutation"),
    ],
    ids=lambda p: p.pattern,
)
def test_patterns_with_a_past_tell_any_round_in_any_order_and_keep_no_history(
    parameters: ParticipationParameters,
) -> None:
    """A million rounds of a hundred thousand clients would be a hundred gigabytes of history."""
    pattern = build(parameters, 12)
    forward = [pattern.cohort(round).tolist() for round in range(1, 41)]
    assert len({str(cohort) for cohort in forward}) > 10
    for round in (7, 40, 39, 1, 2, 23, 23):
        assert pattern.cohort(round).tolist() == forward[round - 1]
        assert build(parameters, 12).cohort(round).tolist() == forward[round - 1]

    def kept() -> int:
        return len(pickle.dumps(vars(pattern)))

    pattern.cohort(100)
    early = kept()
    pattern.cohort(2000)
    assert kept() < early + 300


def test_a_trace_from_csv_is_read_whatever_wrote_it() -> None:
    """A header or none, any line ends, a byte order mark, quotes, spaces, rows in any order, rounds left out."""
    expected = [[3, 0], [], [], [2]]
    plain = "round,client\n1,3\n1,0\n4,2\n"
    for content in (
        plain,
        plain.encode(),
        plain.replace("\n", "\r\n").encode(),
        plain.replace("\n", "\r"),
        plain.encode("utf-8-sig"),
        "\ufeff" + plain,
        "1,3\n1,0\n\n4,2",
        "4,2\n1,3\n1,0",
        '"round","client"\n"1","3"\n1, 0 \n"4",2\n',
        " Round , CLIENT\n1,3\n1,0\n4,2",
    ):
        assert read_csv(content) == expected, content


def test_a_line_without_a_client_keeps_a_round_in_which_nobody_takes_part() -> None:
    """Every tenth of 200 rounds empty, the last one included: a line of its own says that there is a round 200."""
    lines = "".join(f"{r},{r % 7}\n" for r in range(1, 201) if r % 10)
    assert len(read_csv(lines)) == 199
    cohorts = read_csv(lines + "200,\n")
    assert cohorts == [[r % 7] if r % 10 else [] for r in range(1, 201)]
    assert Trace(cohorts=cohorts).problem_with(7, 200) is None
    assert read_csv("2, \n") == [[], []]
    assert read_csv("1,\n1,4\n") == [[4]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1,2\nx,3", "line 2, column 1 (round): got 'x'"),
        ("0,2", "line 1, column 1 (round): got '0', expected a whole number from 1"),
        ("1,-2", "line 1, column 2 (client): got '-2', expected a whole number from 0"),
        ("1", "line 1 has 1 column, expected 2"),
        ("1;2", "line 1 has 1 column, expected 2 with a comma between"),
        ("1,2,3", "line 1 has 3 columns, expected 2"),
        ("1,2.5", "column 2 (client): got '2.5'"),
        (",1", "line 1, column 1 (round): got ''"),
        ("1,0\n2,,", "line 2 has 3 columns"),
        ('1,"0\n', "line 1, column 2: a quote is opened and not closed"),
        ('1,0\n2,"1', "line 2, column 2: a quote is opened and not closed"),
        ('1,0\n"2,1\n3,1"\n', "line 2, column 1: a quote is opened and not closed"),
        ("1,99999999999", "column 2 (client): got '99999999999'"),
        ("1," + "9" * 10_000, "column 2 (client): got '99999999999999999999…'"),
        ("1,2\n1,\u00b2", "line 2, column 2 (client): got '²'"),
        ("1,2\n2,2\n1,2\n", "line 3, column 2 (client): round 1 has client 2 already, in line 1"),
        ("1,2\nround,client", "line 2, column 1 (round): got 'round'"),
        ("", "line 1: there are no rows"),
        (b"", "line 1: there are no rows"),
        ("round,client\n", "line 1: there are no rows"),
        (b"1,2\n1,3 caf\xe9\n", "line 2: this is not plain text in UTF-8: save the file as CSV (UTF-8)"),
        ("round,client\n1,2\n".encode("utf-16"), "line 1: this is not plain text"),
        ("round,client\n1,2\n".encode("utf-16-le"), "line 1: this is not plain text"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "line 1: this is not plain text"),
        (bytes(range(256)), "this is not plain text"),
        ("1," + "x" * 200_000, "line 1: cannot be read as CSV"),  # longer than a field of Python's csv may be
        (b"1,2\n" * 1_250_001, "more than the 5,000,000 characters that are allowed"),
    ],
    ids=range(27),
)
def test_a_trace_from_csv_names_what_is_wrong(content: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_csv(content)


@given(st.binary(max_size=200))
def test_no_file_whatsoever_is_answered_with_anything_but_cohorts_or_words(content: bytes) -> None:
    cohorts, said = None, ""
    try:
        cohorts = read_csv(content)
    except ValueError as error:
        said = str(error)
    assert cohorts is not None or said.startswith("line ")
    assert cohorts is None or (cohorts and all(len(set(cohort)) == len(cohort) for cohort in cohorts))
