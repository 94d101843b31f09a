"""The papers' claims: statistics and verdicts by hand on made-up numbers, valid configs, exit codes; and the shortest claim for real."""

from __future__ import annotations

import json
import math
import multiprocessing
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fedviz.__main__ as command_line
from fedviz.config import SimulationConfig, fill_in
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
from fedviz.papers.kept import Kept, write_whole
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
CPU = "CPU with PyTorch"  # what quadratics are computed with
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


def test_runs_made_together_give_the_numbers_that_each_gives_alone_and_each_ends_when_its_own_is_settled() -> None:
    jobs = [*engine.jobs_for([toy_claim()], {toy_claim().id: 1}).values()]
    together = engine.measure_together(jobs)
    assert [outcome.values for outcome in together] == [engine.measure(job).values for job in jobs]
    assert len({outcome.values for outcome in together}) > 1
    assert engine.measure_together(jobs, deadline=0.0) == [Outcome(failure=engine.TIME_UP)] * len(jobs)


def test_on_a_gpu_runs_of_one_model_and_length_are_made_in_lockstep_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fedviz.simulation import device

    monkeypatch.setattr(device, "_chosen", lambda config: "cuda" if config.problem.kind == "classification" else "cpu")
    monkeypatch.setattr(engine, "TOGETHER", 2)

    def job(**values: Any) -> Job:
        return Job(SimulationConfig.read(fill_in(values)).to_dict(), ())

    jobs = {
        "a": job(seed=1),
        "other length": job(rounds=7),
        "b": job(algorithm={"name": "scaffold"}),
        "analytic": job(problem={"kind": "quadratics"}),
        "c": job(client_lr=0.5),
        "other model": job(problem={"model": "mlp"}),
    }
    assert engine.batches(jobs) == [["a", "b"], ["other length"], ["c"], ["other model"]]
    made: list[int] = []
    monkeypatch.setattr(
        engine, "measure_together", lambda some, deadline: made.append(len(some)) or [Outcome((1.0,))] * len(some)
    )
    assert [key for key, _ in engine.make(jobs, workers=1)] == [
        "a",
        "b",
        "other length",
        "c",
        "other model",
        "analytic",
    ]
    assert made == [2, 1, 1, 1, 1]
    assert list(engine.make(jobs, workers=1, deadline=0.0)) == []
    monkeypatch.setattr(device, "_chosen", lambda config: "cpu")
    assert engine.batches(jobs) == []


def test_data_that_is_not_at_hand_is_a_claim_that_did_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fedviz.problems import datasets

    monkeypatch.setattr(datasets, "MINI", tmp_path / "gone.npz")
    monkeypatch.setattr(datasets, "_LOADED", {})
    claim = next(claim for claim in CLAIMS if claim.id == "fedvarp-loss")
    (job, *_) = engine.jobs_for([claim], {claim.id: 1}).values()
    assert "gone.npz is missing or damaged" in engine.measure(job).failure


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where finished runs are kept: empty for each test."""
    monkeypatch.setenv("FEDVIZ_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "reproduce"


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
        (["scaffold", "--seeds", "0"], "Invalid value for '--seeds': got 0, allowed 1 to 1,000."),
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


# --- going on after a stop --------------------------------------------------------------------------------------------


class StandIn:
    """Makes runs in no time: every number is 1 / 3. `stop_at`: the call, from 1, in which somebody presses Ctrl-C."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, claim: Claim, stop_at: int = 0) -> None:
        self.stop_at, self.made = stop_at, list[tuple[int, int, str]]()
        monkeypatch.setattr(library, "CLAIMS", [claim])
        monkeypatch.setattr(engine, "measure", self.measure)

    def measure(self, job: Job, deadline: float) -> Outcome:
        if len(self.made) + 1 == self.stop_at:
            raise KeyboardInterrupt
        algorithm = job.config["algorithm"]["name"]
        self.made.append((job.config["seed"], job.config["local_steps"], algorithm))
        return Outcome((1 / 3,) * len(job.statistics), 0.7, CPU)


# All of what toy_claim() needs with two seeds.
SIX = [(seed, steps, name) for seed in (0, 1) for steps, name in ((1, "sgd"), (2, "scaffold"), (10, "scaffold"))]


def test_a_command_that_was_stopped_goes_on_with_the_runs_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = StandIn(monkeypatch, toy_claim(seeds=2), stop_at=5)
    code, shown = reproduce("scaffold", "--jobs", "1")
    assert (code, stopped.made) == (130, SIX[:4])
    assert "Interrupted with 4 of 6 runs finished. The same command goes on from there." in shown
    second = StandIn(monkeypatch, toy_claim(seeds=2))
    code, shown = reproduce("scaffold", "--jobs", "1")
    assert second.made == SIX[4:]
    assert "4 of 6 runs were finished before and are taken up" in shown
    assert "(2 seeds, 4 s)" in shown  # 6 x 0.7 s: the time of the runs themselves, whenever they were made
    assert "0.3333" in shown
    third = StandIn(monkeypatch, toy_claim(seeds=2))
    reproduce("scaffold", "--jobs", "1")
    assert third.made == []
    code, shown = reproduce("scaffold", "--jobs", "1", "--fresh")
    assert third.made == SIX
    assert "taken up" not in shown


@pytest.mark.parametrize("where", ["fedviz.papers.reproduce.chosen", "fedviz.papers.kept.Kept.found"])
def test_a_command_that_is_stopped_before_its_first_run_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """While the claims are read, or the numbers of former runs."""
    StandIn(monkeypatch, toy_claim(seeds=2))

    def pressed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, pressed)
    code, shown = reproduce("scaffold", "--jobs", "1")
    assert code == 130
    assert "Interrupted. The same command goes on with the runs that are not finished yet." in " ".join(shown.split())


def at_once_or_slowly(job: Job, deadline: float) -> Outcome:
    """Leaves a file behind when it gets to its end."""
    time.sleep(job.config["seconds"])
    Path(job.config["file"]).touch()
    return Outcome((1.0,))


def test_a_stop_ends_the_runs_that_are_under_way_in_other_processes(tmp_path: Path) -> None:
    jobs = {name: Job({"seconds": wait, "file": str(tmp_path / name)}, ()) for name, wait in (("a", 0), ("b", 8))}
    under_way = engine.carry_out(jobs, workers=2, do=at_once_or_slowly)
    assert next(under_way) == ("a", Outcome((1.0,)))
    under_way.close()
    assert multiprocessing.active_children() == []
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_stop_stores_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(report, "save", partial(report.save, folder=tmp_path))
    StandIn(monkeypatch, toy_claim(seeds=2), stop_at=5)
    assert reproduce("scaffold", "--jobs", "1", "--save")[0] == 130
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_numbers_of_another_setting_version_or_device_are_not_taken_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedviz.papers import kept
    from fedviz.simulation import device

    def made_now(claim: Claim) -> int:
        stand_in = StandIn(monkeypatch, claim)
        reproduce("scaffold", "--jobs", "1")
        return len(stand_in.made)

    claim = toy_claim(seeds=1)
    assert [made_now(claim), made_now(claim)] == [3, 0]
    slower = merged(claim.arms["SGD"], client_lr=0.1)
    assert made_now(replace(claim, arms={**claim.arms, "SGD": slower})) == 1
    with monkeypatch.context() as changed:
        changed.setattr(kept, "__version__", "99")
        assert made_now(claim) == 3
    with monkeypatch.context() as changed:
        changed.setattr(kept, "version", lambda package: f"another {package}")
        assert made_now(claim) == 3
    with monkeypatch.context() as changed:
        changed.setattr(device, "describe", lambda config: "another device")
        assert made_now(claim) == 3
    assert made_now(claim) == 0


def test_a_run_is_made_again_for_another_number_and_the_first_still_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    first = toy_claim(seeds=1)
    second = replace(first, statistic=FirstHit(OBJECTIVE, 1e-6 * (1 + 1e-9)))  # its words are the same as the first's
    assert str(second.statistic) == str(first.statistic)
    for claim, made in ((first, 3), (second, 3), (first, 0), (second, 0)):
        stand_in = StandIn(monkeypatch, claim)
        reproduce("scaffold", "--jobs", "1")
        assert len(stand_in.made) == made


def test_never_and_no_value_are_kept_as_such(home: Path) -> None:
    (job, *_) = engine.jobs_for([toy_claim()], {"scaffold-toy-speed": 1}).values()
    job = replace(job, statistics=(FirstHit(OBJECTIVE, 0.1), Late(OBJECTIVE), Final(OBJECTIVE)))
    kept = Kept(home, pytest.fail)
    kept.keep(job, Outcome((NEVER, NAN, 0.1 + 0.2), 1 / 3, CPU))
    found = kept.found({"a": job})["a"]
    assert (found.values[0], found.values[2], found.seconds, found.device) == (NEVER, 0.1 + 0.2, 1 / 3, CPU)
    assert math.isnan(found.values[1])


def test_a_run_that_failed_is_not_finished(home: Path) -> None:
    (job, *_) = engine.jobs_for([toy_claim()], {"scaffold-toy-speed": 1}).values()
    kept = Kept(home, pytest.fail)
    kept.keep(job, Outcome(failure=engine.TIME_UP))
    assert kept.found({"a": job}) == {}


@pytest.mark.parametrize(
    "content", ["", '{"config": ', "[]", "[" * 100_000, '{"values": 3}', "another run's", "text for a number"]
)
def test_a_file_that_cannot_be_used_is_set_aside_with_a_message(
    content: str, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    StandIn(monkeypatch, toy_claim(seeds=1))
    reproduce("scaffold", "--jobs", "1")
    damaged, other, _ = sorted(home.iterdir())
    whole = damaged.read_text()
    damaged.write_text(
        {
            "another run's": other.read_text(),
            "text for a number": whole.replace("0.333", '"0.333').replace("3333\n", '3333"\n'),
        }.get(content, content)
    )
    again = StandIn(monkeypatch, toy_claim(seeds=1))
    _, shown = reproduce("scaffold", "--jobs", "1")
    assert len(again.made) == 1
    assert "cannot be used" in shown
    assert f"set aside as {damaged.stem}.damaged, and the run is made again" in shown
    assert damaged.with_suffix(".damaged").exists()
    assert damaged.read_text() == whole


def test_a_folder_that_cannot_be_written_is_told_once_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    home.parent.mkdir()
    home.write_text("a file where the folder should be")
    stand_in = StandIn(monkeypatch, toy_claim(seeds=2))
    code, shown = reproduce("scaffold", "--jobs", "1", "--fresh")
    assert code == 1  # 1 / 3 is not what the paper says
    assert stand_in.made == SIX
    assert shown.count("Finished runs cannot be kept in") == 1


def test_a_budget_that_ends_early_stores_what_it_has_and_of_how_many_seeds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Five of six runs are made: all three of seed 0, two of seed 1."""
    claim = toy_claim(seeds=2)
    stand_in = StandIn(monkeypatch, claim)
    monkeypatch.setattr(
        engine,
        "measure",
        lambda job, _: Outcome(failure=engine.TIME_UP) if len(stand_in.made) == 5 else stand_in.measure(job, 0),
    )
    monkeypatch.setattr(report, "save", partial(report.save, folder=tmp_path))
    _, shown = reproduce("scaffold", "--jobs", "1", "--save")
    assert "The time was up for 1 of 6 runs; the same command makes these." in shown
    assert "(1 of 2 seeds, 2 s)" in shown
    stored = json.loads((tmp_path / "reproduced" / "scaffold-toy-speed.json").read_text())
    assert (stored["seeds"], stored["seeds_wanted"]) == ([0], 2)
    assert "\n1 of 2 seeds, 2 s on CPU" in (tmp_path / "REPRODUCED.md").read_text()


def test_a_file_that_is_being_written_when_the_command_is_stopped_stays_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "table.md"
    write_whole(file, "before")

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        write_whole(file, "after")
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


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
            assert SimulationConfig.read(kept["config"]) == claim.config(arm, 0), f"{file.name}: {arm}"
        assert result["statistic"] == str(claim.statistic)
        # The verdict follows from the stored numbers. null stands for a threshold never reached.
        values = {arm: [math.inf if v is None else v for v in kept["values"]] for arm, kept in result["arms"].items()}
        assert claim.expectation is not None
        as_expected, _ = claim.expectation.judge(values)
        assert result["verdict"] == ("reproduced" if as_expected else "not reproduced"), file.name
