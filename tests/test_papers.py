"""The papers' claims: statistics and verdicts by hand on made-up numbers, valid configs, exit codes; and the shortest claim for real."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedviz.__main__ as command_line
from fedviz.papers import library, report
from fedviz.papers import reproduce as engine
from fedviz.papers.claims import PAPERS, Claim, merged
from fedviz.papers.expectations import (
    Bounds,
    Expectation,
    Fraction,
    Levels,
    Ordering,
    Same,
    SmallestDrop,
    median,
)
from fedviz.papers.reproduce import Job, Outcome, Result
from fedviz.papers.statistics import Best, Final, FirstHit, Late, LateShare, PathMean, Statistic

OBJECTIVE = "evaluation.objective"
FALLS = {OBJECTIVE: [(0, 1.0), (2, 0.3), (4, 0.2), (6, 0.25), (8, 0.1), (10, 0.15)]}


# --- statistics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statistic", "expected"),
    [
        (FirstHit(OBJECTIVE, 0.2), 4),  # at the threshold counts
        (FirstHit(OBJECTIVE, 0.19), 8),
        (FirstHit(OBJECTIVE, 0.05), math.inf),
        (FirstHit(OBJECTIVE, 0.5, above=True), 0),
        (FirstHit(OBJECTIVE, 1.5, above=True), math.inf),
        (Late(OBJECTIVE), 0.15),  # rounds above 9
        (Late(OBJECTIVE, share=0.5), (0.25 + 0.1 + 0.15) / 3),  # rounds above 5
        (Late(OBJECTIVE, percentile=50, share=0.5), 0.15),
        (Late(OBJECTIVE, percentile=0, share=0.5), 0.1),
        (Best(OBJECTIVE), 1.0),
        (Final(OBJECTIVE), 0.15),
        (PathMean(OBJECTIVE), 2.0 / 6),
    ],
    ids=str,
)
def test_statistics_by_hand(statistic: Statistic, expected: float) -> None:
    assert statistic.of(FALLS, 10) == pytest.approx(expected)


def test_share_of_another_measure_in_the_last_half() -> None:
    """Rounds 6 and 8 of 8: (1 + 2) / (4 + 4)."""
    part, whole = "decomposition.participation", "decomposition.total"
    measured = {part: [(4, 9.0), (6, 1.0), (8, 2.0)], whole: [(4, 9.0), (6, 4.0), (8, 4.0)]}
    assert LateShare(part, whole).of(measured, 8) == pytest.approx(3 / 8)


def test_a_run_may_end_early_only_when_nothing_can_change() -> None:
    assert FirstHit(OBJECTIVE, 0.2).is_settled(FALLS)
    assert not FirstHit(OBJECTIVE, 0.05).is_settled(FALLS)
    assert not Late(OBJECTIVE).is_settled(FALLS)


@pytest.mark.parametrize(
    "statistic", [Late(OBJECTIVE), Best(OBJECTIVE), Final(OBJECTIVE), PathMean(OBJECTIVE)], ids=str
)
def test_a_run_that_ended_before_its_measure_gives_no_value(statistic: Statistic) -> None:
    assert math.isnan(statistic.of({OBJECTIVE: []}, 10))


# --- verdicts ---------------------------------------------------------------------------------------------------------

NEVER, NAN = math.inf, math.nan
LADDER = Ordering((("A",), ("B", "C"), ("D",)), higher_is_better=True, alike_within=0.01)


@pytest.mark.parametrize(
    ("expectation", "values", "holds"),
    [
        (Levels({"A": 800}), {"A": [800, 800, 900]}, True),  # the median
        (Levels({"A": 800}), {"A": [800, 900, 900]}, False),
        (Levels({"A": 800}), {"A": [NEVER]}, False),
        (Levels({"A": 800}), {"A": [800, NAN, 800]}, False),  # one seed diverged
        (Levels({"A": 0.842}, absolute=0.005), {"A": [0.8465]}, True),
        (Levels({"A": 0.842}, absolute=0.005), {"A": [0.836]}, False),
        (Levels({"A": 358.0}, relative=0.01), {"A": [361.0]}, True),
        (Levels({"A": 358.0}, relative=0.01), {"A": [362.0]}, False),
        (Bounds({"A": (0.5, math.inf)}), {"A": [0.5]}, True),
        (Bounds({"A": (0.5, math.inf)}), {"A": [0.49]}, False),
        (Bounds({"A": (0.5, math.inf)}), {"A": [NAN]}, False),
        (LADDER, {"A": [0.9], "B": [0.80], "C": [0.809], "D": [0.7]}, True),
        (LADDER, {"A": [0.9], "B": [0.80], "C": [0.82], "D": [0.7]}, False),  # B and C are not alike
        (LADDER, {"A": [0.9], "B": [0.80], "C": [0.80], "D": [0.80]}, False),  # D is as good as they are
        (LADDER, {"A": [0.8], "B": [0.80], "C": [0.80], "D": [0.7]}, False),
        (LADDER, {"A": [NAN], "B": [0.80], "C": [0.80], "D": [0.7]}, False),
        (Ordering((("A",), ("B",)), higher_is_better=False), {"A": [30], "B": [NEVER]}, True),
        (Ordering((("A",), ("B",)), higher_is_better=False), {"A": [NEVER], "B": [NEVER]}, False),
        (Ordering((("A",), ("B",)), higher_is_better=False), {"A": [1, 9, 1], "B": [2, 2, 2]}, True),
        (Same(("A", "B"), relative=1e-9), {"A": [2.0], "B": [2.0 + 1e-10]}, True),
        (Same(("A", "B"), relative=1e-9), {"A": [2.0], "B": [2.0 + 1e-8]}, False),
        (Same(("A", "B"), relative=1e-9), {"A": [0.0], "B": [0.0]}, True),
        (Same(("A", "B"), relative=1e-9), {"A": [NAN], "B": [1.0]}, False),
        (Same(("A", "B"), relative=1e-9), {"A": [1.0], "B": [NAN]}, False),
        (Fraction("A", of="B", at_most=0.05), {"A": [0.2], "B": [4.0]}, True),
        (Fraction("A", of="B", at_most=0.05), {"A": [0.3], "B": [4.0]}, False),
        (Fraction("A", of="B", at_most=0.05), {"A": [0.0], "B": [0.0]}, False),
        # X loses 0.004; Y loses 0.01, or only 0.003.
        (SmallestDrop({"X": ("a", "b"), "Y": ("c", "d")}, 0.005), {"a": [0.844], "b": [0.840], "c": [0.8], "d": [0.79]}, True),
        (SmallestDrop({"X": ("a", "b"), "Y": ("c", "d")}, 0.005), {"a": [0.844], "b": [0.840], "c": [0.8], "d": [0.797]}, False),
        (SmallestDrop({"X": ("a", "b"), "Y": ("c", "d")}, 0.003), {"a": [0.844], "b": [0.840], "c": [0.8], "d": [0.79]}, False),
        (SmallestDrop({"X": ("a", "b"), "Y": ("c", "d")}, 0.005), {"a": [0.844], "b": [NAN], "c": [0.8], "d": [0.79]}, False),
    ],
)  # fmt: skip
def test_verdicts_by_hand(expectation: Expectation, values: dict[str, list[float]], holds: bool) -> None:
    found, why = expectation.judge(values)
    assert found is holds
    assert why


def test_the_median_over_seeds() -> None:
    assert median([1, NEVER, 3]) == 3
    assert median([1, NEVER, NEVER]) == NEVER
    assert math.isnan(median([1, NAN, 3]))


def test_a_verdict_says_what_is_wrong() -> None:
    _, why = Levels({"SGD": 50}).judge({"SGD": [52]})
    assert why == "SGD 52, expected 50"
    _, why = LADDER.judge({"A": [0.9], "B": [0.80], "C": [0.80], "D": [0.85]})
    assert why == "B (0.8) is not better than D (0.85); C (0.8) is not better than D (0.85)"
    _, why = Ordering((("A",), ("B",)), higher_is_better=False).judge({"A": [NEVER], "B": [7]})
    assert why == "A (never) is not better than B (7)"


@pytest.mark.parametrize(
    ("values", "shown"),
    [([1900, 1900, 2000], "1900 (1900 to 2000)"), ([800, 800], "800"), ([0.25], "0.25"), ([5, NEVER], "never (5 to never)"), ([], "-")],
)  # fmt: skip
def test_spread_over_seeds(values: list[float], shown: str) -> None:
    assert report.spread(values) == shown


# --- the claims as data -----------------------------------------------------------------------------------------------

CLAIMS = library.CLAIMS


def test_ids_are_unique_and_every_paper_has_claims() -> None:
    assert max(Counter(claim.id for claim in CLAIMS).values()) == 1
    assert {claim.paper for claim in CLAIMS} == set(PAPERS)
    for claim in CLAIMS:
        assert claim.id.startswith(claim.paper)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_is_either_complete_and_valid_or_says_why_it_cannot_be_tried(claim: Claim) -> None:
    if claim.incomparable:
        assert not claim.arms
        assert not claim.must_run_seeds
        return
    assert claim.statistic is not None
    assert claim.expectation is not None
    assert set(claim.expectation.arms) == set(claim.arms)
    assert str(claim.statistic)
    for arm in claim.arms:
        config = claim.config(arm, 3)  # raises where it is not valid
        assert config.seed == 3
        assert claim.expectation.expected_of(arm)
        for measure in claim.statistic.measures:
            interval = config.eval_every if measure.startswith("evaluation") else config.probe_every
            assert interval, f"{arm} never takes {measure}"


def test_the_must_run_list_has_every_paper_and_nothing_that_takes_hours() -> None:
    must = [claim for claim in CLAIMS if claim.must_run_seeds]
    assert {claim.paper for claim in must} == set(PAPERS)
    assert all(claim.cost != "hours" and claim.should_hold for claim in must)


def test_configs_are_merged_deeply_and_the_base_is_left_alone() -> None:
    base = {"a": {"x": 1, "y": 2}, "b": 3}
    assert merged(base, a={"x": 5}, c=4) == {"a": {"x": 5, "y": 2}, "b": 3, "c": 4}
    assert base == {"a": {"x": 1, "y": 2}, "b": 3}


# --- the engine, with made-up outcomes --------------------------------------------------------------------------------


def toy_claim(**changes: object) -> Claim:
    speed = next(claim for claim in CLAIMS if claim.id == "scaffold-toy-speed")
    return replace(speed, **{"seeds": 3, **changes})  # type: ignore[arg-type]


def outcomes_of(claim: Claim, table: dict[str, list[float]]) -> tuple[dict[str, Job], dict[str, Outcome]]:
    """Made-up outcomes: arm -> the value of each seed. A missing seed is a run that was not made."""
    jobs = engine.jobs_for([claim], {claim.id: max(map(len, table.values()))})
    made = {
        engine.key_of(claim.config(arm, seed)): Outcome((value,), 2.0, "CPU")
        for arm, values in table.items()
        for seed, value in enumerate(values)
    }
    return jobs, made


def test_a_run_that_two_claims_need_is_made_once_and_seeds_go_round_in_turn() -> None:
    first = toy_claim()
    second = replace(first, id="scaffold-other", statistic=Final(OBJECTIVE))
    jobs = engine.jobs_for([first, second], {first.id: 2, second.id: 1})
    assert len(jobs) == 6  # three arms, two seeds
    assert [job.config["seed"] for job in jobs.values()] == [0, 0, 0, 1, 1, 1]
    assert [len(job.statistics) for job in jobs.values()] == [2, 2, 2, 1, 1, 1]


def test_the_verdict_is_on_the_seeds_for_which_every_arm_ran() -> None:
    claim = toy_claim()
    jobs, made = outcomes_of(claim, {"SGD": [50, 50], "SCAFFOLD, 2 steps": [25, 25], "SCAFFOLD, 10 steps": [10]})
    result = engine.conclude(claim, 2, jobs, made)
    assert (result.verdict, result.seeds, result.seconds) == ("reproduced", [0], 6.0)
    assert result.values == {"SGD": [50], "SCAFFOLD, 2 steps": [25], "SCAFFOLD, 10 steps": [10]}


def test_a_claim_is_not_reproduced_not_run_or_not_comparable() -> None:
    claim = toy_claim()
    jobs, made = outcomes_of(claim, {"SGD": [51], "SCAFFOLD, 2 steps": [25], "SCAFFOLD, 10 steps": [10]})
    assert engine.conclude(claim, 1, jobs, made).verdict == "not reproduced"
    assert engine.conclude(claim, 1, jobs, {}).verdict == "not run"
    missing = dict.fromkeys(made, Outcome(failure="no data here"))
    assert (engine.conclude(claim, 1, jobs, missing).verdict, engine.conclude(claim, 1, jobs, missing).why) == (
        "not run",
        "no data here",
    )
    other = next(claim for claim in CLAIMS if claim.incomparable)
    assert engine.conclude(other, 3, {}, {}).verdict == "not comparable"


@pytest.mark.parametrize(
    ("verdict", "changes", "named", "fails"),
    [
        ("reproduced", {}, False, False),
        ("not reproduced", {}, False, True),
        ("not reproduced", {"should_hold": False}, False, False),
        ("not comparable", {}, False, False),
        ("not run", {"must_run_seeds": 1}, False, True),
        ("not run", {"must_run_seeds": 0}, False, False),
        ("not run", {"must_run_seeds": 0}, True, True),
    ],
)
def test_what_makes_the_command_fail(verdict: str, changes: dict, named: bool, fails: bool) -> None:
    result = Result(toy_claim(**changes), verdict, "because")  # type: ignore[arg-type]
    assert bool(engine.shortcomings([result], named=named)) is fails


def test_no_run_is_begun_after_the_deadline() -> None:
    jobs = engine.jobs_for([toy_claim()], {"scaffold-toy-speed": 1})
    assert list(engine.carry_out(jobs, workers=1, deadline=0.0)) == []
    assert len(list(engine.carry_out(jobs, workers=1, do=lambda job, deadline: Outcome((1.0,))))) == 3


def test_a_run_past_the_deadline_is_given_up() -> None:
    (job, *_) = engine.jobs_for([toy_claim()], {"scaffold-toy-speed": 1}).values()
    assert engine.measure(job, deadline=0.0).failure == "the time was up"


def test_a_run_ends_when_its_number_is_settled_and_divergence_is_never() -> None:
    """f = x^2 / 2: with rate 3 every step of SGD multiplies x by -2, past the largest float64 after 1,024 rounds."""
    claim = toy_claim()
    (job, *_) = engine.jobs_for([claim], {claim.id: 1}).values()
    assert engine.measure(job).values == (50.0,)
    diverging = {**job.config, "client_lr": 3.0, "rounds": 2000}
    hit, late = FirstHit(OBJECTIVE, 1e-6), Late(OBJECTIVE)
    values = engine.measure(Job(diverging, (hit, late))).values
    assert values[0] == math.inf
    assert math.isnan(values[1])


def test_data_that_is_not_at_hand_is_a_claim_that_did_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fedviz.problems import datasets

    monkeypatch.setattr(datasets, "MINI", tmp_path / "gone.npz")
    monkeypatch.setattr(datasets, "_LOADED", {})
    claim = next(claim for claim in CLAIMS if claim.id == "fedvarp-loss")
    (job, *_) = engine.jobs_for([claim], {claim.id: 1}).values()
    assert "gone.npz is missing or damaged" in engine.measure(job).failure


# --- the command ------------------------------------------------------------------------------------------------------


def reproduce(*arguments: str) -> tuple[int, str]:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(command_line.app, ["reproduce", *arguments])
    return done.exit_code, " ".join(done.output.split())


def test_the_shortest_claim_for_real() -> None:
    """SCAFFOLD's toy: 50, 25 and 10 rounds."""
    code, shown = reproduce("scaffold", "--claim", "scaffold-toy-speed", "--jobs", "1")
    assert code == 0
    for words in ("SGD", "50", "25", "10", "reproduced: as expected", "1 seed,"):
        assert words in shown


def test_a_claim_that_should_hold_and_does_not_ends_with_code_one(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = toy_claim(seeds=1, expectation=Levels({"SGD": 49, "SCAFFOLD, 2 steps": 25, "SCAFFOLD, 10 steps": 10}))
    monkeypatch.setattr(library, "CLAIMS", [wrong])
    code, shown = reproduce("scaffold", "--jobs", "1")
    assert code == 1
    assert "scaffold-toy-speed should hold and was not reproduced: SGD 50, expected 49" in shown
    monkeypatch.setattr(library, "CLAIMS", [replace(wrong, should_hold=False)])
    code, shown = reproduce("scaffold", "--jobs", "1")
    assert code == 0
    assert "not reproduced: SGD 50, expected 49 (known)" in shown


def test_a_must_run_claim_for_which_there_was_no_time_ends_with_code_one() -> None:
    code, shown = reproduce("all", "--must-run", "--budget", "0", "--jobs", "1")
    assert code == 1
    assert "scaffold-toy-speed did not run: the time was up" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "got 'nonsense', allowed scaffold, fedvarp, amplified or all"),
        (["scaffold", "--claim", "nonsense"], "there is no claim nonsense of scaffold; there are: scaffold-toy-speed"),
        (["scaffold", "--cost", "days"], "--cost: got 'days', allowed seconds, minutes, hours"),
        (["scaffold", "--seeds", "0"], "greater than or equal to 1"),
    ],
)
def test_bad_requests_end_with_code_two(arguments: list[str], message: str) -> None:
    code, shown = reproduce(*arguments)
    assert code == 2
    assert message in shown


def test_which_claims_are_tried() -> None:
    def ids(**how: object) -> set[str]:
        asked = {"paper": "amplified", "ids": [], "cost": "minutes", "must_run": False, **how}
        return {claim.id for claim in engine.chosen(CLAIMS, **asked)}  # type: ignore[arg-type]

    assert ids() == {"amplified-synthetic", "amplified-synthetic-offset"}
    assert ids(must_run=True) == {"amplified-synthetic"}
    assert ids(ids=["amplified-clothes-order"]) == {"amplified-clothes-order"}  # named: whatever it costs
    assert {"amplified-clothes-order", "amplified-cifar10"} < ids(cost="hours")
    assert {claim.split("-")[0] for claim in ids(paper="all")} == set(PAPERS)


def test_how_many_seeds() -> None:
    synthetic = next(claim for claim in CLAIMS if claim.id == "amplified-synthetic")
    assert engine.seeds_of(synthetic, None, must_run=False) == 20
    assert engine.seeds_of(synthetic, None, must_run=True) == 2
    assert engine.seeds_of(synthetic, 5, must_run=True) == 5
    assert engine.seeds_of(toy_claim(seeds=1), 5, must_run=False) == 1  # nothing in it is random


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_results_are_stored_with_their_provenance_and_the_table_is_made_of_them(tmp_path: Path) -> None:
    claim = toy_claim()
    jobs, made = outcomes_of(claim, {"SGD": [50, 52], "SCAFFOLD, 2 steps": [25, 25], "SCAFFOLD, 10 steps": [10, NEVER]})
    result = engine.conclude(claim, 2, jobs, made)
    table = report.save([result], "python -m fedviz reproduce scaffold", [claim], tmp_path)
    stored = json.loads((tmp_path / "reproduced" / "scaffold-toy-speed.json").read_text())
    assert stored["verdict"] == "not reproduced"
    assert stored["arms"]["SGD"]["values"] == [50, 52]
    assert stored["arms"]["SCAFFOLD, 10 steps"]["values"] == [10, None]
    assert stored["arms"]["SGD"]["config"] == claim.config("SGD", 0).to_dict()
    assert stored["seeds"] == [0, 1]
    assert stored["seconds"] == 12.0
    assert stored["device"] == "CPU"
    assert stored["command"] == "python -m fedviz reproduce scaffold"
    for key in ("fedviz", "torch", "date", "statistic"):
        assert stored[key], key
    text = table.read_text()
    assert "| SGD | 50 | 51 (50 to 52) |" in text
    assert "**Not reproduced**: SGD 51, expected 50" in text


def test_a_claim_that_did_not_run_does_not_overwrite_what_is_stored(tmp_path: Path) -> None:
    claim = toy_claim()
    jobs, made = outcomes_of(claim, {"SGD": [50], "SCAFFOLD, 2 steps": [25], "SCAFFOLD, 10 steps": [10]})
    report.save([engine.conclude(claim, 1, jobs, made)], "first", [claim], tmp_path)
    report.save([engine.conclude(claim, 1, jobs, {})], "second", [claim], tmp_path)
    assert json.loads((tmp_path / "reproduced" / "scaffold-toy-speed.json").read_text())["command"] == "first"


def test_the_table_in_the_repository_is_that_of_the_stored_results() -> None:
    assert (report.FOLDER / "REPRODUCED.md").read_text(encoding="utf-8") == report.markdown(CLAIMS)


def test_stored_results_are_of_todays_claims() -> None:
    """A claim whose setting changed must be tried again: its stored configs would not be those it speaks of."""
    stored = list((report.FOLDER / "reproduced").glob("*.json"))
    assert stored
    claims = {claim.id: claim for claim in CLAIMS}
    for file in stored:
        result, claim = json.loads(file.read_text(encoding="utf-8")), claims[file.stem]
        assert set(result["arms"]) == set(claim.arms), file.name
        for arm, kept in result["arms"].items():
            assert kept["config"] == claim.config(arm, 0).to_dict(), f"{file.name}: {arm}"
        assert result["statistic"] == str(claim.statistic)
        # The verdict follows from the stored numbers. null stands for a threshold never reached.
        values = {arm: [math.inf if v is None else v for v in kept["values"]] for arm, kept in result["arms"].items()}
        assert claim.expectation is not None
        as_expected, _ = claim.expectation.judge(values)
        assert result["verdict"] == ("reproduced" if as_expected else "not reproduced"), file.name
