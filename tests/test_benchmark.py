"""The benchmark: its arithmetic with stand-in clocks, its yardstick against the product, its texts. No speed is asserted."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from typer.testing import CliRunner

from fedviz.__main__ import app
from fedviz.benchmarks import agreement, images, machine, plain, report, workloads
from fedviz.benchmarks.tables import Result, Table, markdown, shown
from fedviz.benchmarks.timing import counted, in_turn, speedup, spread
from fedviz.benchmarks.workloads import WORKLOADS, Plan
from fedviz.config import SimulationConfig
from fedviz.problems import Classification, ProblemError, datasets, workers
from fedviz.problems.architectures import TITLES, shapes
from fedviz.simulation.device import choose
from fedviz.simulation.loop import Simulation
from tests.problems import small_classification

ROOT = Path(__file__).parents[1]
TINY = Plan(seconds=0.001, blocks=2, tiny=True)


class StandInClock:
    """A clock that moves only when work is done: each unit of a contestant takes its own time."""

    def __init__(self) -> None:
        self.now, self.done = 0.0, []

    def work(self, name: str, *seconds: float) -> Any:
        """Work whose calls take so many seconds a unit, in turn; the last stays."""
        left = list(seconds)

        def do(units: int) -> None:
            self.done.append((name, units))
            self.now += units * (left.pop(0) if len(left) > 1 else left[0])

        return do


# --- timing -----------------------------------------------------------------------------------------------------------


def test_contestants_take_turns_in_blocks_that_last_as_long_as_asked() -> None:
    """a: 0.25 s a unit, so 4 in a second; b: 3 s, so one. Each is first called for one unit unseen and for one that is timed."""
    clock = StandInClock()
    contestants = {"a": clock.work("a", 9, 0.25), "b": clock.work("b", 3)}
    found = in_turn(contestants, seconds=1, blocks=2, clock=lambda: clock.now)
    assert found == {"a": [0.25, 0.25], "b": [3, 3]}
    assert clock.done == [*[("a", 1)] * 2, *[("b", 1)] * 2, *[("a", 4), ("b", 1)] * 2]


def test_what_the_device_still_has_to_do_counts() -> None:
    """Work is only handed over at 0 s; waiting for it takes 2 s a unit. Waiting before a block is not counted."""
    clock, owed = StandInClock(), [5.0]

    def ready() -> None:
        clock.now += owed.pop() if owed else 0

    assert in_turn({"": lambda units: owed.append(2.0 * units)}, 2, 3, ready, lambda: clock.now) == {"": [2, 2, 2]}


def test_a_ratio_is_taken_within_each_block_before_the_median() -> None:
    """The second block is ten times as slow for both: the ratios stay 2, 3, 4, where that of the medians would be 20 / 5."""
    found = speedup([2, 30, 20], [1, 10, 5])
    assert (found.median, found.low, found.high) == (3, 2, 4)


def test_spread_is_median_and_range() -> None:
    found = spread([5, 1, 2, 9])
    assert (found.median, found.low, found.high) == (3.5, 1, 9)


def test_rounds_go_on_from_block_to_block() -> None:
    seen: list[int] = []
    work = counted(seen.append)
    work(2)
    work(3)
    assert seen == [1, 2, 3, 4, 5]


# --- floors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flops", "moved", "seconds", "gap", "bound"),
    [(60, 20, 4, 4 / 3, "arithmetic"), (20, 60, 9, 1.5, "memory"), (60, 20, 30, 10, "neither")],
)
def test_a_roofline_names_the_higher_floor_and_how_far_it_is(
    flops: float, moved: float, seconds: float, gap: float, bound: str
) -> None:
    """20 FLOP/s and 10 B/s: 60 FLOP take 3 s and 20 B 2 s; 20 FLOP take 1 s and 60 B 6 s."""
    line = machine.roofline(flops, moved, 20, 10, seconds)
    assert (line.arithmetic, line.memory) == (flops / 20, moved / 10)
    assert line.gap == pytest.approx(gap)
    assert line.bound == bound
    assert shown(gap) in line.sentence()
    assert (bound if bound != "neither" else "arithmetic") in line.sentence()


def test_the_operations_of_softmax_regression_are_two_products() -> None:
    """Forward 2 D C; the gradient as much again, for the weights alone."""
    assert plain.flops("softmax", (1, 28, 28), 10) == (2 * 784 * 10, 4 * 784 * 10)


def test_the_operations_of_the_fedavg_cnn_by_hand() -> None:
    """2 x outputs x inputs of each for each layer; three times that for the gradient, but for that with respect to the image."""
    layers = [
        2 * 32 * 32 * 32 * 3 * 25,
        2 * 64 * 16 * 16 * 32 * 25,
        2 * 512 * 64 * 8 * 8,
        2 * 10 * 512,
    ]
    assert plain.flops("fedavg_cnn", (3, 32, 32), 10) == (sum(layers), 3 * sum(layers) - layers[0])


def test_what_a_round_needs_by_hand() -> None:
    """W1: 10 clients of 240 images, 30 steps of 32. FedAvg moves two vectors a client, SCAFFOLD four; 31,400 bytes stay in the cache."""
    for name, vectors in (("fedavg", 2), ("scaffold", 4)):
        flops, moved = workloads.needed(workloads.w1(Plan(), name))
        assert flops == 10 * 30 * 32 * 4 * 784 * 10
        assert moved == 4 * 10 * (240 * 784 + vectors * 7850)


def test_a_model_beyond_the_cache_is_moved_in_every_step() -> None:
    """The two-layer network has 159,010 parameters, 636 kB in single and 1.27 MB in double precision: more than 1 MiB.

    5 clients of 100 images take 2 steps of 8: 16 images each, and 2 + 3 x 2 vectors where the model does not fit.
    """
    for dtype, itemsize, vectors in (("float32", 4, 2), ("float64", 8, 8)):
        config = SimulationConfig.read(
            {
                "problem": {"kind": "classification", "model": "mlp", "dtype": dtype},
                "algorithm": {"name": "fedavg"},
                "local_steps": 2,
                "batch_size": 8,
            }
        )
        assert workloads.needed(config)[1] == itemsize * 5 * (16 * 784 + vectors * 159_010)


def test_peak_and_bandwidth_are_work_over_the_shortest_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three blocks of 2, 0.5 and 4 s a unit: a product of 10 x 10 matrices is 2,000 operations, a copy of 100 bytes moves 200."""
    monkeypatch.setattr(machine, "in_turn", lambda *_, **__: {"": [2.0, 0.5, 4.0]})
    assert machine.peak("cpu", 1, 1, size=10) == 4000
    assert machine.bandwidth("cpu", 1, 1, size=100) == 400


def test_threads_are_as_asked_within_and_as_before_after() -> None:
    before = torch.get_num_threads(), workers.cores()
    with machine.threads(3, torch_threads=2):
        assert (torch.get_num_threads(), workers.cores()) == (2, 3)
    assert (torch.get_num_threads(), workers.cores()) == before


def test_the_rate_of_measuring_counts_only_what_it_adds() -> None:
    """100 sample gradients in 2 s of training; 900 more in the 3 s that a round with measuring takes longer."""
    assert workloads.rates_of_both(100, 900, [2, 2], [5, 5]) == (50, 300)
    assert workloads.rates_of_both(100, 900, [2, 2], [2, 1]) == (50, None)


def test_the_most_memory_of_a_process_remembers_what_was_given_back() -> None:
    """200 MB are held and given back: the most is that much, or nearly, above what is held afterwards."""
    block = np.ones(200_000_000, np.uint8)
    del block
    assert machine.peak_memory() > psutil.Process().memory_info().rss + 150_000_000


def test_a_fresh_process_gives_the_number_that_it_prints() -> None:
    code = "import sys; sys.modules['torch'] = None; import fedviz; print(2.5 if 'numpy' not in sys.modules else 0)"
    assert machine.in_fresh_process(code) == 2.5


# --- the yardstick ----------------------------------------------------------------------------------------------------


class WithTheProductsChance(plain.PlainLoop):
    """The plain loop with the cohorts and minibatches of a run."""

    def __init__(self, run: Simulation) -> None:
        super().__init__(run.config, run.w)
        self.run = run

    def cohort(self, round: int) -> list[int]:
        return self.run.participation.cohort(round).tolist()

    def batches(self, client: int, round: int) -> Any:
        rows, _ = self.run.problem.minibatches(np.array([client]), round, self.run.config.local_steps, 0)  # type: ignore[attr-defined]
        return iter(torch.as_tensor(rows[0]))


@pytest.mark.parametrize("model", TITLES)
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_the_plain_loop_does_the_work_of_a_run(algorithm: str, model: str) -> None:
    """With the same cohorts and minibatches, in double precision, both end at the same model; some clients come twice."""
    config = small_classification(
        {"name": algorithm},
        problem={"kind": "classification", "model": model, "dtype": "float64"},
        num_clients=10,
        local_steps=3,
        batch_size=4,
        client_lr=0.1,
        probe_every=0,
        eval_every=0,
    )
    run = workloads.started(config)
    loop, start = WithTheProductsChance(run), run.w.clone()
    assert torch.equal(loop.flat(), start)
    for round in (1, 2, 3):
        run.advance(round)
        loop.advance(round)
    assert float((run.w - start).abs().max()) > 1e-3
    assert float((run.w - loop.flat()).abs().max()) < 1e-10


def test_the_plain_loop_draws_whole_batches_of_shuffled_epochs() -> None:
    """A client of 10 images with batches of 4: two batches an epoch, no image twice in one, all its own."""
    config = small_classification({"name": "fedavg"}, problem=_digits(), num_clients=140, batch_size=4)
    loop = plain.PlainLoop(config, workloads.started(config).w)
    own = set(loop.parts[7].tolist())
    batches = loop.batches(7, 1)
    for _ in range(5):
        first, second = next(batches).tolist(), next(batches).tolist()
        assert len(first) == len(second) == 4
        assert len({*first, *second}) == 8
        assert {*first, *second} <= own
    cohort = loop.cohort(1)
    assert len(set(cohort)) == 4
    assert set(cohort) <= set(range(140))


def _digits() -> dict[str, Any]:
    return {"kind": "classification", "dataset": "digits", "partition": {"name": "iid"}}


@pytest.mark.parametrize("model", [*TITLES, "fedavg_cnn"])
def test_plain_networks_have_the_layers_of_the_models(model: str) -> None:
    found = [tuple(part.shape) for part in plain.network(model, (3, 32, 32), 10).parameters()]
    if model == "softmax":  # the bias is one more input there
        assert found == [(10, 3072), (10,)]
    elif model == "fedavg_cnn":
        assert found == [(32, 3, 5, 5), (32,), (64, 32, 5, 5), (64,), (512, 4096), (512,), (10, 512), (10,)]
    else:
        assert found == [shape[:1] if i % 2 else shape for i, shape in enumerate(shapes(model, (3, 32, 32), 10))]


def test_a_model_or_an_algorithm_without_a_plain_form_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r'"resnet", which has no plain form'):
        plain.network("resnet", (1, 28, 28), 10)
    config = small_classification({"name": "fedvarp"})
    with pytest.raises(ValueError, match="got fedvarp, allowed fedavg and scaffold"):
        plain.PlainLoop(config, workloads.started(config).w)


# --- data that is not at hand -----------------------------------------------------------------------------------------


def test_random_images_stand_in_for_data_that_is_not_at_hand_and_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDVIZ_DATA", str(tmp_path))
    monkeypatch.setattr(datasets, "cache_folder", lambda: tmp_path)
    small = datasets.Info("Small", 50, 10, (1, 4, 4), ("a", "b"), (0.5,), (0.5,))
    monkeypatch.setitem(datasets.DATASETS, "mnist", small)
    datasets.train_labels.cache_clear()
    with images.at_hand("mnist") as what:
        assert what == "random images of the shape of Small"
        data = datasets.load("mnist")
        assert data.train_images.shape == (50, 16)
        assert data.test_images.shape == (10, 16)
        assert data.train_images.dtype == np.uint8
        assert len(np.unique(data.train_images)) > 100
        assert set(data.train_labels) == {0, 1}
        assert datasets.train_labels("mnist") is data.train_labels
    with pytest.raises(ProblemError):
        datasets.train_labels("mnist")
    images.random_images.cache_clear()


def test_data_that_is_at_hand_is_used_itself() -> None:
    before = datasets.load("digits")
    with images.at_hand("digits") as what:
        assert datasets.load("digits") is before
    assert what.startswith("Digits, 1,438")
    assert datasets.load("digits") is before


# --- workloads --------------------------------------------------------------------------------------------------------


def test_w1_is_what_it_says() -> None:
    one = workloads.w1(Plan(), "scaffold")
    assert isinstance(one.problem, Classification)
    assert (one.problem.dataset, one.problem.model, one.algorithm.name) == ("fashion_mnist", "softmax", "scaffold")
    assert (one.num_clients, one.local_steps, one.batch_size) == (250, 30, 32)
    assert one.participation.model_dump() == {"pattern": "uniform", "clients_per_round": 10}
    assert (one.eval_every, one.probe_every, one.device) == (0, 0, "cpu")


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name != "lockstep"])
def test_every_workload_gives_tables_of_positive_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    found = WORKLOADS[name].measure(TINY)
    assert all(found.notes)
    for table in found.tables:
        assert table.rows
        for row in table.rows:
            assert len(row) == len(table.columns)
            for cell in row:
                assert cell is None or isinstance(cell, str) or (np.isfinite(cell) and cell > 0)
    json.dumps(report.section(found, TINY, "command"), allow_nan=False)


def test_both_of_w1_and_w2_are_set_against_the_plain_loop_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain loop with 1 thread is 1 by definition; W1 has both algorithms, with 1 and with 2 threads."""
    monkeypatch.setattr(workloads.workers, "cores", lambda: 2)
    ratios, floors = WORKLOADS["w1"].measure(TINY).tables
    assert [row[:3] for row in ratios.rows] == [
        [algorithm, what, count]
        for algorithm in ("FedAvg", "SCAFFOLD")
        for what, count in (("plain loop", 1), ("fedviz", 1), ("fedviz", 2))
    ]
    assert [row[3:6] for row in ratios.rows if row[1:3] == ["plain loop", 1]] == [[1, 1, 1]] * 2
    assert [row[:2] for row in floors.rows] == [[name, n] for name in ("FedAvg", "SCAFFOLD") for n in (1, 2)]


def test_lockstep_sets_the_runs_together_against_the_same_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, real = [], workloads.simulate_many
    monkeypatch.setattr(workloads, "simulate_many", lambda configs: asked.append(configs) or real(configs))
    found = WORKLOADS["lockstep"].measure(TINY)
    assert [row[0] for row in found.tables[0].rows] == [1, 2]
    assert all(isinstance(cell, float) and cell > 0 for row in found.tables[0].rows for cell in row[1:])
    assert len({config.client_lr for config in asked[-1]}) == 2


def test_a_run_is_tried_with_every_back_end_that_can_compute_it() -> None:
    of = {
        model: list(workloads.with_backends(small_classification({"name": "fedavg"}, problem=_model(model))))
        for model in ("softmax", "cnn")
    }
    assert set(of["softmax"]) >= {"torch", "numba"}
    assert "numba" not in of["cnn"]
    assert "torch" in of["cnn"]
    assert not any("auto" in names for names in of.values())


def _model(name: str) -> dict[str, Any]:
    return {"kind": "classification", "model": name}


def test_a_device_that_is_not_there_is_refused_with_what_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert workloads.device_for("auto") == "cpu"
    for asked in ("cuda", "mps"):
        with pytest.raises(ValueError, match=f'got "{asked}", allowed auto, or one of what this machine has: cpu'):
            workloads.device_for(asked)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert workloads.device_for("auto") == "cuda"
    assert workloads.device_for("cpu") == "cpu"
    assert Plan("cuda").threads() == [1]


# --- tables and texts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ("a", "a"),
        (12_345, "12,345"),
        (1234.5, "1,234"),
        (999.7, "1,000"),
        (99.94, "99.9"),
        (0.01234, "0.0123"),
        (1.0, "1"),
    ],
)
def test_numbers_are_written_with_three_digits(value: Any, text: str) -> None:
    assert shown(value) == text


def test_a_table_in_markdown() -> None:
    table = Table("Title", ["what", "number"], [["a|b", 1.5], ["c", None]])
    assert markdown(table) == ["**Title**", "", "| what | number |", "| --- | ---: |", r"| a\|b | 1.5 |", "| c | - |"]


def stored(rows: list[Any], **changes: str) -> dict[str, Any]:
    """A section as it is stored."""
    table = Table("T", ["model", "back end", "chosen", "times the plain loop", "rounds per second"], rows)
    return {**report.section(Result([table], ["A note."]), Plan(), "python -m fedviz bench"), **changes}


def test_saving_replaces_the_sections_that_were_measured_and_keeps_the_others(tmp_path: Path) -> None:
    old, new = [["old", "x", "", 1.5, 2.0]], [["new", "x", "", 2.5, 3.0]]
    report.save({"cpu/w1": stored(old), "cpu/w2": stored(old)}, tmp_path)
    page = report.save({"cpu/w1": stored(new, command="again")}, tmp_path)
    sections = report.read(tmp_path)
    assert [row[0] for row in sections["cpu/w1"]["tables"][0]["rows"]] == ["new"]
    assert [row[0] for row in sections["cpu/w2"]["tables"][0]["rows"]] == ["old"]
    text = page.read_text()
    assert text.count("| new | x |  | 2.5 | 3 |") == 1
    assert text.count("| old | x |  | 1.5 | 2 |") == 1
    assert text.count("`again`") == 1
    assert WORKLOADS["w1"].title in text
    assert text == report.text(sections)


def test_the_page_says_machine_versions_date_and_what_is_not_measured(tmp_path: Path) -> None:
    text = report.text({"cpu/w1": stored([["m", "b", "", 1.0, 1.0]], date="2026-03-04T05:06:07", machine="Abacus")})
    assert "Abacus. fedviz " in text
    assert "2026-03-04, medians of 3 blocks of about 1 s" in text
    gpu = text[text.index("## NVIDIA GPU") : text.index("## Other simulators")]
    assert "Not measured yet" in gpu
    assert "gpu_check.py" in gpu
    others = text[text.index("## Other simulators") :]
    assert "Measured earlier" in others
    assert "| Flower 1.42 (Ray, 2 actors) | 4.8 | - | 0.39 |" in others
    assert "Not measured yet" not in report.text({"cuda/w1": stored([]), "cpu/w1": stored([])})


def test_results_that_cannot_be_used_are_refused_in_words(tmp_path: Path) -> None:
    assert report.read(tmp_path) == {}
    for damaged in ("{", "[1]", '{"cpu/w1": {}}', '{"cpu/w1": {"tables": [{"heading": 1}]}}'):
        (tmp_path / "results.json").write_text(damaged)
        with pytest.raises(ValueError, match="cannot be used"):
            report.read(tmp_path)


def test_the_explanation_follows_the_rule_and_quotes_the_stored_figures() -> None:
    """For softmax on a CPU the fastest comes first, whatever the order it was stored in; the plain loop itself is no back end."""
    rows = [
        ["softmax", "torch", "", 2.5, 1.0],
        ["softmax", "numba", "yes", 14.25, 1.0],
        ["softmax", "plain loop", "", 1.0, 1.0],
        ["cnn", "torch", "yes", 1.5, 1.0],
    ]
    table = report.explain({"cpu/backends": stored(rows)})
    found = {(row[0], row[1]): row for row in table.rows}
    for model, title in TITLES.items():
        for device, where in report.DEVICES.items():
            row = found[title, where]
            assert row[2] == Classification.model_validate({"model": model}).backend(device)
            assert row[3]
    assert found[TITLES["softmax"], "CPU"][4] == "numba 14.2, torch 2.5"
    assert found[TITLES["cnn"], "CPU"][4] == "torch 1.5"
    assert found[TITLES["mlp"], "CPU"][4] == "not measured yet"
    assert found[TITLES["softmax"], "NVIDIA GPU"][4] == "not measured yet"
    quadratics = SimulationConfig.read({"problem": {"kind": "quadratics"}})
    assert choose(quadratics) == "cpu"
    assert found[quadratics.problem.title, "any"][2] == "torch, on the CPU"
    precision = table.columns.index("precision (dtype)")
    assert found[TITLES["softmax"], "CPU"][precision] == "float32, float64"
    assert found[TITLES["softmax"], "NVIDIA GPU"][precision] == "float32, float64, mixed_bfloat16"
    assert found[TITLES["cnn"], "CPU"][precision] == "float32, float64, mixed_bfloat16"
    assert found[TITLES["cnn"], "Apple GPU"][precision] == "float32, mixed_bfloat16"


# --- agreement and commands -------------------------------------------------------------------------------------------


def test_the_difference_of_runs_is_relative_above_one_and_infinite_where_they_tell_different_things() -> None:
    assert agreement._apart({"a": [0.5, 200.0]}, {"a": [0.75, 100.0]}) == 0.5
    assert agreement._apart({"a": [0.5, 2.0]}, {"a": [0.75, 2.0]}) == 0.25
    for a, b in (({"a": 1}, {"b": 1}), ([1], [1, 2]), (1.0, None), (1.0, float("nan")), ("x", "y")):
        assert agreement._apart(a, b) == float("inf")
    assert agreement._apart({"a": None, "b": "x"}, {"a": None, "b": "x"}) == 0


def test_runs_that_differ_are_told_apart() -> None:
    """Another client rate moves the model by another amount in the first round; the same run agrees to the bit."""
    one = small_classification({"name": "fedavg"}, rounds=1)
    assert agreement.difference(one, one) == 0
    assert agreement.difference(one, small_classification({"name": "fedavg"}, rounds=1, client_lr=0.02)) > 1e-3


def test_models_are_compared_even_where_nothing_was_measured() -> None:
    one, other = (
        small_classification({"name": "fedavg"}, rounds=1, eval_every=0, probe_every=0, client_lr=rate)
        for rate in (0.01, 0.02)
    )
    assert agreement.difference(one, other) > 1e-3


def bench(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["bench", *arguments], env={"COLUMNS": "200"})
    return done.exit_code, " ".join(done.output.split())


def test_bench_measures_what_is_named_and_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.json"
    monkeypatch.setattr("sys.argv", ["fedviz", "bench", "decomposition", "--tiny"])
    code, text = bench("decomposition", "--tiny", "--device", "cpu", "--seconds", "0.001", "--json", str(out))
    assert code == 0
    assert "sample gradients per second" in text
    sections = json.loads(out.read_text())
    assert list(sections) == ["cpu/decomposition"]
    assert sections["cpu/decomposition"]["command"] == "python -m fedviz bench decomposition --tiny"
    assert [row[0] for row in sections["cpu/decomposition"]["tables"][0]["rows"]] == ["training", "measuring"]


def test_bench_stores_where_it_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report.save, "__defaults__", (tmp_path,))
    monkeypatch.setattr(report.read, "__defaults__", (tmp_path,))
    monkeypatch.setitem(WORKLOADS, "start", workloads.Workload("A title", lambda plan: Result([], ["A note."])))
    code, text = bench("start", "--save", "--device", "cpu")
    assert code == 0
    assert "RESULTS.md" in text
    assert "A note." in (tmp_path / "RESULTS.md").read_text()
    assert list(report.read(tmp_path)) == ["cpu/start"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["w7"], "got w7, allowed w1, w2, default"),
        (["--tiny", "--save"], "the numbers of --tiny mean nothing"),
        (["--device", "abacus"], 'got "abacus", allowed auto'),
        (["w1", "--json", "no/such/folder/out.json"], "cannot write no/such/folder/out.json"),
    ],
)
def test_a_request_that_is_not_valid_ends_with_code_two_and_a_sentence(arguments: list[str], message: str) -> None:
    code, text = bench(*arguments)
    assert code == 2
    assert message in text


def test_bench_explains_without_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "in_turn", None)
    code, text = bench("--explain")
    assert code == 0
    assert "back end" in text
    assert "numba" in text


def test_the_help_names_every_workload() -> None:
    assert ", ".join(WORKLOADS) in bench("--help")[1].replace("│ │ ", "").replace("│", "")


def test_the_prepared_gpu_script_runs_on_a_cpu() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/gpu_check.py", "--device", "cpu", "--tiny", "--seconds", "0.001"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for model in TITLES:
        assert f"| {model} | CPU with PyTorch against CPU with " in done.stdout
    for name in ("w1", "w2", "lockstep"):
        assert WORKLOADS[name].title in done.stdout
    assert "Waiting for the device within rounds" in done.stdout
    assert "Mixed precision (bfloat16) against single" in done.stdout


def test_the_page_of_results_is_made_of_the_stored_numbers() -> None:
    assert (report.FOLDER / "RESULTS.md").read_text(encoding="utf-8") == report.text(report.read())
