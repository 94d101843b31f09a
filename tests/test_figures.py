"""Charts say what the records say: expected values are worked out by hand or by a plain loop beside the code under test."""

import base64
import re
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest

from fedviz import figures
from fedviz.algorithms import ALGORITHMS
from fedviz.figures import Figure, RunView, drawing, style
from fedviz.runs.columns import Columns

LIGHT, DARK = "#fcfcfd", "#16181d"


def record(round, cohort=(), *, evaluation=None, decomposition=None, diagnostics=None):
    return {
        "round": round,
        "cohort": list(cohort),
        "weights": [1 / len(cohort) for _ in cohort],
        "evaluation": evaluation,
        "decomposition": decomposition,
        "costs": {"seconds": 0.0},
        "diagnostics": diagnostics or {},
    }


def parts(**values):
    """A decomposition whose parts are small whole numbers, so that shares can be told by eye."""
    base = {
        "participation": 4.0, "participation_sampling": 1.0, "noise": 2.0, "bias": 0.0, "drift": 10.0, "interaction": 0.0,
        "total": 16.0, "mode": "cheap", "gradient_norm_sq": 10.0, "direction_norm_sq": 8.0, "shrinkage": 0.25,
        "cosine": 0.5, "perpendicular": 2.0, "dissimilarity": 5.0, "within_cluster_dissimilarity": 1.0, "clusters": 10,
        "probed_clients": 4, "check": None, "check_error": None,
    }  # fmt: skip
    return {**base, **values}


def view(records, name="FedVARP", algorithm="fedvarp", role="current", num_clients=4, rounds=10, **more):
    return RunView(name, algorithm, role, num_clients, rounds, Columns(records).view(), **more)


def evaluated(losses, **more):
    return view([record(r, evaluation={"train_loss": v, "test_accuracy": 0.5}) for r, v in enumerate(losses)], **more)


def probed(*decompositions, first=1, **more):
    start = [record(0)]
    return view(start + [record(first + i, [0], decomposition=d) for i, d in enumerate(decompositions)], **more)


def numbers(packed):
    """What a typed array holds, read with struct rather than numpy."""
    size, letter = {"f4": (4, "f"), "u2": (2, "H")}[packed["dtype"]]
    raw = base64.b64decode(packed["bdata"])
    return list(struct.unpack(f"<{len(raw) // size}{letter}", raw))


def traces(figure: Figure, **wanted):
    return [t for t in figure.spec["data"] if all(t.get(key) == value for key, value in wanted.items())]


def part(figure: Figure, name, panel="x"):
    [found] = [t for t in traces(figure, legendgroup=name, xaxis=panel) if t["mode"] != "markers"]
    return found


def notes(figure: Figure):
    return " · ".join(figure.spec["layout"]["meta"]["notes"])


# --- typed arrays and decimation ------------------------------------------------------------------------------------


def test_typed_arrays_are_little_endian_base64():
    assert drawing.typed([1.0, -2.5]) == {
        "dtype": "f4",
        "bdata": base64.b64encode(struct.pack("<2f", 1.0, -2.5)).decode(),
    }
    assert drawing.rounds_array([0, 65535]) == {
        "dtype": "u2",
        "bdata": base64.b64encode(struct.pack("<2H", 0, 65535)).decode(),
    }
    assert numbers(drawing.rounds_array([0, 65536])) == [0.0, 65536.0]


def test_short_curves_are_drawn_whole():
    assert drawing.kept(np.arange(256.0)).tolist() == list(range(256))


@pytest.mark.parametrize("length", [257, 1000, 20_000])
def test_decimation_keeps_ends_extremes_and_order(length):
    y = np.sin(np.arange(length) / 7.0)
    y[length // 3], y[length // 2], y[0], y[-1] = 40.0, -30.0, 5.0, 6.0
    keep = drawing.kept(y)
    assert 170 <= len(keep) <= 256
    assert (np.diff(keep) > 0).all()
    assert {0, length - 1, length // 3, length // 2} <= set(keep.tolist())


def test_decimation_keeps_the_low_and_high_point_of_every_stretch():
    """A plain loop over 125 stretches of 48 points: 3 times a power of two, the first such width with at most 127 stretches."""
    y = np.random.default_rng(0).standard_normal(6000)
    keep = set(drawing.kept(y).tolist())
    for start in range(1, 5999, 48):
        stretch = range(start, min(start + 48, 5999))
        assert min(stretch, key=lambda i: y[i]) in keep
        assert max(stretch, key=lambda i: y[i]) in keep


def test_decimation_keeps_gaps_within_the_bound():
    y = np.ones(5000)
    y[1234] = y[4000] = np.nan
    keep = drawing.kept(y)
    assert len(keep) <= 256
    assert {1234, 4000} <= set(keep.tolist())


def test_what_is_drawn_of_the_past_stays_while_a_curve_grows():
    y = np.random.default_rng(1).standard_normal(6000)
    before, after = (drawing.kept(y[:length]).tolist() for length in (5700, 6000))
    assert before[:-3] == after[: len(before) - 3]  # but for the last stretch, which was not full yet, and the end


def test_no_trace_of_a_long_run_has_more_than_256_points():
    rounds = range(3000)
    long = view(
        [
            record(r, [r % 4] if r else [], evaluation={"train_loss": 1.0 + r % 7, "test_accuracy": 0.5}, decomposition=parts(),
                   diagnostics={"staleness": 2.0 + r % 3, "cold": 0.0})
            for r in rounds
        ],
        rounds=3000,
    )  # fmt: skip
    reference = replace(long, role="reference", name="FedAvg")
    drawn = [
        figures.loss([long, reference]), figures.accuracy([long]), figures.participation(long), figures.heterogeneity(long),
        figures.decomposition(long, reference), figures.decomposition(long, reference, scale="linear"),
    ]  # fmt: skip
    for figure in drawn:
        for trace in figure.spec["data"]:
            assert 0 < len(numbers(trace["x"])) == len(numbers(trace["y"])) <= 256


def test_of_rounds_zoomed_in_on_every_one_is_drawn_and_outside_as_many_as_ever():
    values = np.random.default_rng(1).standard_normal(6000)
    rounds = np.arange(0, 12_000, 2)
    plain, zoomed = drawing.kept(values), drawing.kept_of(rounds, values, (4001, 4400))
    within = set(range(2000, 2202))  # rounds 4000 ... 4402: one at each side of them, too
    assert set(zoomed.tolist()) == within | set(plain.tolist())
    wide = drawing.kept_of(rounds, values, (1000, 9000))
    assert 256 < len(wide) <= 512


def test_a_curve_says_whether_it_has_more_points_than_it_draws():
    rounds = np.arange(300)
    thinned, whole = (drawing.curve(rounds[:n], np.sin(rounds[:n]), "loss") for n in (257, 256))
    assert thinned["meta"]["thinned"]
    assert "thinned" not in whole["meta"]


def test_all_charts_over_rounds_draw_more_of_those_zoomed_in_on():
    long = view(
        [
            record(r, [r % 4] if r else [], evaluation={"train_loss": 1.0 + r % 7, "test_accuracy": 0.5}, decomposition=parts(),
                   diagnostics={"staleness": 2.0 + r % 3, "cold": 0.0})
            for r in range(3000)
        ],
        rounds=3000,
    )  # fmt: skip
    zoomed = replace(long, focus=(1000, 1100))
    drawn = [
        figures.loss([zoomed]), figures.accuracy([zoomed]), figures.heterogeneity(zoomed),
        figures.decomposition(zoomed, zoomed), figures.decomposition(zoomed, zoomed, scale="linear"),
    ]  # fmt: skip
    for figure in drawn:
        for trace in figure.spec["data"]:
            if trace["meta"].get("thinned"):
                assert set(range(1000, 1101)) <= set(numbers(trace["x"])), trace["name"]


# --- numbers in words -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (0.4567, "0.457"), (0.46, "0.460"), (12.34, "12.3"), (9.999, "10.0"), (999.6, "1,000"), (1234, "1,230"),
        (-0.05, "−0.0500"), (0.001, "0.00100"), (0.00051, "5.10×10⁻⁴"), (123456, "1.23×10⁵"), (float("nan"), "–"), (None, "–"),
    ],
)  # fmt: skip
def test_numbers_have_three_significant_digits(value, text):
    assert style.number(value) == text


def test_settings_are_written_without_zeros_at_the_end():
    texts = [style.number(value, trim=True) for value in (0.3, 20, 1500.0, -2.5, 0.0004, 1_000_000)]
    assert texts == ["0.3", "20", "1,500", "−2.5", "4×10⁻⁴", "1×10⁶"]
    assert style.percent(0.05, trim=True) == "5\u00a0%"


def test_shares_are_written_in_percent():
    assert style.percent(0.8056) == "80.6\u00a0%"


# --- loss and accuracy ----------------------------------------------------------------------------------------------


def test_loss_draws_each_evaluated_round_and_joins_over_the_others():
    records = [record(r, evaluation={"train_loss": 2.0 - r} if r % 2 == 0 else None) for r in range(5)]
    [trace] = figures.loss([view(records)]).spec["data"]
    assert numbers(trace["x"]) == [0, 2, 4]
    assert numbers(trace["y"]) == [2.0, 0.0, -2.0]


def test_a_measure_missing_at_an_evaluation_is_a_gap():
    values = [
        {"train_loss": 1.0, "test_loss": 1.0},
        {"train_loss": None, "test_loss": 1.0},
        {"train_loss": 3.0, "test_loss": 1.0},
    ]
    [trace] = figures.loss([view([record(r, evaluation=v) for r, v in enumerate(values)])]).spec["data"]
    assert numbers(trace["x"]) == [0, 1, 2]
    assert np.isnan(numbers(trace["y"])[1])
    assert trace["connectgaps"] is False


def test_zero_and_below_are_gaps_on_a_log_axis_and_a_note_says_so():
    run = evaluated([4.0, 0.0, -1.0, 2.0])
    figure = figures.loss([run], log=True)
    [trace] = figure.spec["data"]
    assert [v if v == v else None for v in numbers(trace["y"])] == [4.0, None, None, 2.0]
    assert numbers(trace["customdata"]) == [4.0, 0.0, -1.0, 2.0]
    assert "zero or below" in notes(figure)
    assert "zero or below" not in notes(figures.loss([run]))
    assert figure.spec["layout"]["yaxis"]["type"] == "log"


def test_legend_value_is_the_latest_or_that_at_the_cursor():
    run = view(
        [record(r, evaluation={"train_loss": v} if v else None) for r, v in enumerate([5.0, None, 3.0, None, 1.0])]
    )
    shown = {
        cursor: figures.loss([run], cursor=cursor).spec["data"][0]["meta"]["now"] for cursor in (None, 0, 1, 2, 3, 99)
    }
    assert shown == {None: "1.00", 0: "5.00", 1: "5.00", 2: "3.00", 3: "3.00", 99: "1.00"}


def test_the_cursor_is_a_line_at_its_round():
    layout = figures.loss([evaluated([3.0, 2.0])], cursor=1).spec["layout"]
    [line] = [s for s in layout["shapes"] if s["type"] == "line"]
    assert (line["x0"], line["x1"], layout["meta"]["at"]) == (1, 1, 1)


def test_runs_keep_colour_and_dash():
    run = evaluated([3.0, 2.0])
    current, reference, previous = figures.loss(
        [run, replace(run, role="reference", algorithm="fedavg", name="FedAvg"), replace(run, role="previous")]
    ).spec["data"]
    assert [t["line"]["dash"] for t in (current, reference, previous)] == ["solid", "dot", "dash"]
    assert current["line"]["color"] == previous["line"]["color"] != reference["line"]["color"]
    assert current["opacity"] == 1 > previous["opacity"]
    assert len({t["legendgroup"] for t in (current, reference, previous)}) == 3


def test_accuracy_is_drawn_as_recorded_and_written_in_percent():
    figure = figures.accuracy(
        [view([record(0, evaluation={"test_accuracy": 0.25}), record(1, evaluation={"test_accuracy": 0.806})])]
    )
    [trace] = figure.spec["data"]
    assert numbers(trace["y"]) == pytest.approx([0.25, 0.806])
    assert trace["meta"]["now"] == "80.6\u00a0%"
    assert "80.6\u00a0% at round 1" in figure.alt


def analytic(objectives, distances):
    pairs = enumerate(zip(objectives, distances, strict=True))
    return view([record(r, evaluation={"objective": o, "distance": d}) for r, (o, d) in pairs])


def test_analytic_problems_show_objective_and_distance_on_log_scales():
    run = analytic([4.0, 1.0], [2.0, 1.0])
    objective, distance = figures.loss([run]), figures.accuracy([run])
    assert numbers(objective.spec["data"][0]["y"]) == [4.0, 1.0]
    assert numbers(distance.spec["data"][0]["y"]) == [2.0, 1.0]
    assert objective.spec["layout"]["yaxis"]["type"] == distance.spec["layout"]["yaxis"]["type"] == "log"
    assert (objective.spec["layout"]["title"]["text"], distance.spec["layout"]["title"]["text"]) == (
        "Objective",
        "Distance to the optimum",
    )


def test_an_objective_below_zero_is_drawn_whole_on_a_linear_scale():
    figure = figures.loss([analytic([1.0, -2.0], [1.0, 1.0])])
    assert numbers(figure.spec["data"][0]["y"]) == [1.0, -2.0]
    assert figure.spec["layout"]["yaxis"].get("type") != "log"
    assert "linear scale" in notes(figure)


def test_a_run_without_records_is_an_empty_chart():
    empty = view([])
    for figure in (figures.loss([empty]), figures.accuracy([empty]), figures.decomposition(empty), figures.participation(empty),
                   figures.heterogeneity(empty)):  # fmt: skip
        assert all(not numbers(t["x"]) for t in figure.spec["data"])
        assert figure.alt
    assert figures.reading(empty) == "No decomposition has been measured."


def test_all_charts_of_a_run_share_the_planned_rounds_as_x_range():
    run = probed(parts(), rounds=37)
    for figure in (figures.loss([run]), figures.accuracy([run]), figures.decomposition(run, run), figures.participation(run),
                   figures.heterogeneity(run)):  # fmt: skip
        axes = [axis for name, axis in figure.spec["layout"].items() if name.startswith("xaxis")]
        assert all(axis["range"] == [0, 37] for axis in axes)
        assert axes


def test_cold_start_is_shaded_by_degree_up_to_its_last_round_and_named():
    cold = [1.0, 0.75, 0.5, 0.0, 0.0]
    run = view([record(r, evaluation={"train_loss": 1.0}, diagnostics={"cold": c}) for r, c in enumerate(cold)])
    layout = figures.loss([run]).spec["layout"]
    shades = [s for s in layout["shapes"] if s["type"] == "rect"]
    assert [(s["x0"], s["x1"]) for s in shades] == [(0, 1), (1, 2), (2, 3)]
    opacities = [float(s["fillcolor"].rstrip(")").split(",")[-1]) for s in shades]
    assert opacities == sorted(opacities, reverse=True)
    assert layout["meta"]["shaded"] == "grey: some clients not yet remembered, until round 2"
    assert figures.loss([evaluated([1.0, 1.0])]).spec["layout"]["meta"]["shaded"] == ""


def test_memories_that_are_empty_at_the_start_only_are_not_shaded():
    run = view([record(r, evaluation={"train_loss": 1.0}, diagnostics={"cold": float(r == 0)}) for r in range(3)])
    for records in (run, view([record(0, evaluation={"train_loss": 1.0}, diagnostics={"cold": 1.0})])):
        layout = figures.loss([records]).spec["layout"]
        assert (layout["shapes"], layout["meta"]["shaded"]) == ([], "")


QUADRATICS = {
    "problem": {"kind": "quadratics", "curvature": [[2.0], [0.0]], "linear": [[1.0], [-1.0]], "start": [1.0]},
    "num_clients": 2,
    "participation": {"pattern": "full"},
    "local_steps": 2,
    "client_lr": 0.1,
    "rounds": 3,
    "eval_every": 1,
    "probe_every": 1,
}


def test_a_real_run_of_quadratics_shows_the_objective():
    """f(w) = w^2 / 2 from w = 1; w after a round of FedAvg, by hand: the passes end at 0.46 and 1.2, their mean is 0.83."""
    from fedviz.config import SimulationConfig, fill_in
    from fedviz.simulation.loop import simulate

    config = SimulationConfig.read(fill_in({**QUADRATICS, "algorithm": {"name": "fedavg"}}))
    run = view([r.to_dict() for r in simulate(config)], num_clients=2, rounds=3)
    figure = figures.loss([run])
    assert figure.spec["layout"]["title"]["text"] == "Objective"
    assert figure.spec["layout"]["yaxis"]["type"] == "log"
    assert numbers(figure.spec["data"][0]["y"])[:2] == pytest.approx([0.5, 0.83**2 / 2])
    assert figures.reading(run).startswith("At round 3: ")


def test_rounding_below_zero_at_the_optimum_is_a_gap_on_the_log_scale():
    figure = figures.loss([analytic([4.0, 1e-18, -1e-18, 0.0], [1.0] * 4)])
    assert figure.spec["layout"]["yaxis"]["type"] == "log"
    assert "zero or below" in notes(figure)


# --- decomposition --------------------------------------------------------------------------------------------------


def test_each_part_is_drawn_at_the_probed_rounds_with_its_fixed_colour():
    figure = figures.decomposition(probed(parts(), parts(participation=1.0)))
    drawn = {name: part(figure, name) for name in ("participation", "noise", "drift", "total")}
    assert numbers(drawn["participation"]["x"]) == [1, 2]
    assert numbers(drawn["participation"]["y"]) == [4.0, 1.0]
    assert {name: numbers(t["y"])[0] for name, t in drawn.items()} == {
        "participation": 4.0,
        "noise": 2.0,
        "drift": 10.0,
        "total": 16.0,
    }
    # Vermilion, sky blue, amber, grey: fixed, also in screenshots and slides of users.
    colours = {name: t["line"]["color"] for name, t in drawn.items()}
    assert colours == {"participation": "#CF3F10", "noise": "#2A86BA", "drift": "#C07F00", "total": "#808792"}


def test_bias_and_interaction_are_shown_only_where_they_are_more_than_rounding():
    without = figures.decomposition(probed(parts(bias=1e-12, interaction=-1e-9)))
    assert not traces(without, legendgroup="bias")
    assert not traces(without, legendgroup="interaction")
    with_both = figures.decomposition(probed(parts(bias=1.0, interaction=3.0, total=20.0)))
    assert numbers(part(with_both, "bias")["y"]) == [1.0]
    assert part(with_both, "bias")["line"]["color"] == "#C4609A"
    assert numbers(part(with_both, "interaction")["y"]) == [3.0]


def test_a_negative_interaction_shows_its_size_under_that_name_on_a_log_scale():
    figure = figures.decomposition(probed(parts(interaction=-3.0), parts(interaction=2.0)))
    trace = part(figure, "interaction")
    assert trace["name"] == "|interaction|"
    assert numbers(trace["y"]) == [3.0, 2.0]
    assert numbers(trace["customdata"]) == [-3.0, 2.0]
    assert "|interaction|" in notes(figure)
    assert numbers(
        part(figures.decomposition(probed(parts(interaction=-3.0)), scale="linear"), "interaction")["y"]
    ) == [-3.0]


def test_negative_estimates_are_gaps_on_log_zero_when_stacked_and_raw_in_words():
    run = probed(parts(noise=-1.0), parts())
    log, linear = figures.decomposition(run), figures.decomposition(run, scale="linear")
    assert np.isnan(numbers(part(log, "noise")["y"])[0])
    assert numbers(part(linear, "noise")["y"]) == [0.0, 2.0]
    assert numbers(part(linear, "noise")["customdata"]) == [-1.0, 2.0]
    assert part(figures.decomposition(run, scale="linear", cursor=1), "noise")["meta"]["now"] == "−1.00"
    assert "zero or below" in notes(log)
    assert "below zero" in notes(linear)
    assert "below zero" not in notes(figures.decomposition(probed(parts()), scale="linear"))


def test_the_linear_scale_stacks_the_parts_under_a_line_of_the_total():
    figure = figures.decomposition(probed(parts(), parts()), scale="linear")
    stacked = [t["legendgroup"] for t in figure.spec["data"] if t.get("stackgroup")]
    assert stacked == ["participation", "noise", "drift"]
    assert "stackgroup" not in part(figure, "total")
    assert sum(numbers(part(figure, name)["y"])[0] for name in stacked) == numbers(part(figure, "total")["y"])[0]


def test_stacked_layers_of_a_long_run_share_their_points():
    rng = np.random.default_rng(1)
    run = probed(*(parts(drift=float(v), noise=float(1 / v)) for v in rng.uniform(1, 9, 2000)), rounds=2000)
    figure = figures.decomposition(run, scale="linear")
    assert len({tuple(numbers(t["x"])) for t in figure.spec["data"] if t.get("stackgroup")}) == 1


def test_the_relative_view_divides_by_the_squared_length_of_the_mean_direction():
    run = probed(parts(), parts(direction_norm_sq=-0.1))
    figure = figures.decomposition(run, relative=True)
    values = {name: numbers(part(figure, name)["y"])[0] for name in ("participation", "noise", "drift")}
    assert values == {"participation": 4 / 8, "noise": 2 / 8, "drift": 2 / 8}  # the drift across the gradient
    assert np.isnan(numbers(part(figure, "noise")["y"])[1])  # a length estimated below zero divides nothing
    assert not traces(figure, legendgroup="total")
    assert {t["name"]: t["meta"]["now"] for t in figure.spec["data"] if t["meta"].get("readout")} == {
        "length along the gradient κ": "0.250",
        "cosine": "0.500",
    }


def test_all_numbers_of_the_legend_are_of_one_probe():
    run = probed(parts(), parts(participation=1.0, shrinkage=None, cosine=None))
    figure = figures.decomposition(run)
    now = {t["name"]: t["meta"]["now"] for t in figure.spec["data"]}
    assert now["who took part"] == "1.00"
    assert now["length along the gradient κ"] == now["cosine"] == "–"
    # A probe that has nothing relative to show is passed over by all of them.
    now = {
        t["name"]: t["meta"]["now"]
        for t in figures.decomposition(probed(parts(), parts(direction_norm_sq=-1.0, cosine=0.9)), relative=True).spec[
            "data"
        ]
    }
    assert (now["who took part"], now["cosine"]) == ("0.500", "0.500")


def test_the_drift_that_noise_causes_is_told_where_it_was_measured():
    def told(run):
        return [
            t["meta"]["now"] for t in figures.decomposition(run).spec["data"] if t["name"] == "drift that noise causes"
        ]

    assert told(probed(parts(mode="full", noise_drift=0.25))) == ["0.250"]
    assert told(probed(parts(noise_drift=None))) == []


def test_columns_that_are_absent_altogether_are_left_out():
    bare = {k: v for k, v in parts().items() if k in ("participation", "noise", "drift", "total", "mode")}
    run = probed(bare)
    names = [t["name"] for t in figures.decomposition(run).spec["data"]]
    assert names == ["who took part", "gradient noise", "client drift", "total"]
    assert (
        figures.reading(run)
        == "At round 1: 25\u00a0% who took part · 12\u00a0% gradient noise · 62\u00a0% client drift."
    )
    assert not figures.heterogeneity(run).spec["data"]
    assert figures.windows(run) is None


def test_the_theory_split_moves_the_participants_noise_and_keeps_the_total():
    figure = figures.decomposition(probed(parts()), split="theory")
    values = {name: numbers(part(figure, name)["y"])[0] for name in ("participation", "noise", "drift", "total")}
    assert values == {"participation": 1.0, "noise": 2.0 + 3.0, "drift": 10.0, "total": 16.0}


def test_the_reference_stands_beside_the_run_and_its_participation_over_it_dotted():
    run, reference = (
        probed(parts(participation=0.5)),
        probed(parts(participation=6.0), name="FedAvg", algorithm="fedavg", role="reference"),
    )
    figure = figures.decomposition(run, reference)
    assert numbers(part(figure, "participation", "x2")["y"]) == [6.0]
    [ghost] = [t for t in traces(figure, legendgroup="participation") if t["line"]["dash"] == "dot"]
    assert ghost.get("xaxis", "x") == "x"
    assert numbers(ghost["y"]) == [6.0]
    assert ghost["line"]["color"] == part(figure, "participation")["line"]["color"]
    assert figure.spec["layout"]["yaxis2"]["matches"] == "y"
    assert figure.spec["layout"]["meta"]["panels"] == ["x2"]
    assert [a["text"] for a in figure.spec["layout"]["annotations"]] == ["<b>FedVARP</b>", "<b>FedAvg</b>"]
    spoken = [
        (t["meta"].get("run"), t["meta"]["now"])
        for t in traces(figure, legendgroup="participation")
        if not t["meta"].get("quiet")
    ]
    assert spoken == [(None, "0.500"), ("FedAvg", "6.00")]


def test_the_independent_check_has_its_error_bar_where_it_was_taken():
    run = probed(parts(), parts(check=15.0, check_error=0.5), parts())
    figure = figures.decomposition(run, replace(run, name="FedAvg", role="reference"))
    check, other = traces(figure, name="check of the total")
    assert (numbers(check["x"]), numbers(check["y"]), numbers(check["error_y"]["array"])) == ([2], [15.0], [0.5])
    assert check["meta"]["now"] == "15.0 ± 0.500 (round 2)"
    assert (check["mode"], other["xaxis"]) == ("markers", "x2")
    assert not traces(figures.decomposition(probed(parts())), name="check of the total")


def test_the_note_says_when_drift_includes_the_noise_bias():
    assert "drift includes" in notes(figures.decomposition(probed(parts(mode="cheap"))))
    assert "drift includes" not in notes(figures.decomposition(probed(parts(mode="full"))))


def test_reading_gives_the_shares_of_the_latest_probe_or_of_that_at_the_cursor():
    run = probed(
        parts(participation=12.0, noise=3.0, drift=85.0, perpendicular=None),
        parts(participation=1.0, noise=1.0, drift=2.0, perpendicular=None),
    )
    assert (
        figures.reading(run)
        == "At round 2: 25\u00a0% who took part · 25\u00a0% gradient noise · 50\u00a0% client drift."
    )
    assert (
        figures.reading(run, 1)
        == "At round 1: 12\u00a0% who took part · 3\u00a0% gradient noise · 85\u00a0% client drift."
    )


def test_reading_names_the_bias_only_where_there_is_one_and_counts_negatives_as_zero():
    biased = parts(participation=1.0, bias=1.0, noise=-5.0, drift=2.0, perpendicular=None)

    def said(**more):
        return figures.reading(probed(biased, **more))

    assert said() == (
        "At round 1: 25\u00a0% who took part · 25\u00a0% who was available · 0\u00a0% gradient noise · 50\u00a0% client drift."
    )
    duty = np.ones((10, 4), dtype=bool)
    assert "25\u00a0% which group was on duty" in said(available=duty)
    assert "25\u00a0% old memories" in said(algorithm="mifa")
    assert "25\u00a0% who was on duty and old memories" in said(algorithm="mifa", available=duty)


def against(mine, theirs, **more):
    reference = probed(*theirs, name="FedAvg", algorithm="fedavg", role="reference")
    return figures.reading(probed(*mine, **more), reference=reference)


def test_reading_leads_with_the_comparison_and_gives_the_shares_that_are_drawn():
    """Of 99.4, 99 are drift, 0.3 who took part and 0.1 noise: what the chart shows is what the sentence says."""
    mine = parts(participation=0.3, noise=0.1, drift=99.0, total=99.4, shrinkage=0.04, perpendicular=0.1)
    shares = "<1\u00a0% who took part · <1\u00a0% gradient noise · >99\u00a0% client drift (mostly a step much shorter than the gradient)."
    assert against([mine], [parts(participation=6.0)]) == (
        "At round 1: who took part adds 0.300 to FedVARP's error, 20.0 times less than to FedAvg's (6.00). FedVARP's error is "
        + shares
    )
    assert figures.reading(probed(mine)) == f"At round 1: {shares}"


def test_a_larger_rate_is_said_to_undo_the_drift_only_where_the_step_points_along_the_gradient():
    """A step of the best length is off by 1 - cosine^2 of the gradient's square: by 10 % with 0.95, by 91 % with 0.3."""
    short = {"participation": 0.3, "noise": 0.1, "drift": 99.0, "shrinkage": 0.04, "perpendicular": 0.1}
    assert figures.reading(probed(parts(**short, cosine=0.95))).endswith(
        "99\u00a0% client drift (mostly a step much shorter than the gradient, which a larger rate would undo)."
    )
    assert figures.reading(probed(parts(**short, cosine=0.3))).endswith(
        "99\u00a0% client drift (mostly a step much shorter than the gradient)."
    )


def test_a_step_of_next_to_no_length_is_not_called_one_against_the_gradient():
    gone = parts(participation=0.0, noise=0.0, drift=10.0, shrinkage=-2e-15, cosine=-0.2, perpendicular=0.0)
    assert "a step much shorter than the gradient" in figures.reading(probed(gone))


def test_reading_says_when_the_round_looked_at_was_not_measured():
    """Rounds 8, 16 and 24 of 30 are measured: 20 is looked at with the numbers of 16, the end with those of 24."""
    rows = [record(r, [0] if r else [], decomposition=parts() if r and r % 8 == 0 else None) for r in range(31)]
    run = view(rows, rounds=30)
    assert figures.reading(run, 20).startswith("Last measured in round 16: ")
    assert figures.reading(run, 16).startswith("At round 16: ")
    assert figures.reading(run).startswith("Last measured in round 24: ")
    figure = figures.decomposition(run, cursor=20)
    assert figure.spec["layout"]["meta"]["at"] == 16  # the round of the numbers in the legend
    assert [shape["x0"] for shape in figure.spec["layout"]["shapes"]] == [20]


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [
        (5.0, 0.5, "adds 5.00 to FedVARP's error, 10.0 times as much as to FedAvg's (0.500)"),
        (1.2, 1.0, "adds 1.20 to FedVARP's error, 20.0\u00a0% more than to FedAvg's (1.00)"),
        (0.75, 1.0, "adds 0.750 to FedVARP's error, 25.0\u00a0% less than to FedAvg's (1.00)"),
        (1.02, 1.0, "adds 1.02 to FedVARP's error, about the same as to FedAvg's (1.00)"),
        (1.0, 1.0, "adds 1.00 to FedVARP's error, and as much to FedAvg's"),
        (0.0, 1.0, "adds nothing to FedVARP's error, and 1.00 to FedAvg's"),
        (-0.5, 1.0, "adds −0.500 to FedVARP's error, and 1.00 to FedAvg's"),
    ],
)
def test_comparisons_are_in_plain_words(mine, theirs, words):
    assert f"who took part {words}. " in against([parts(participation=mine)], [parts(participation=theirs)])


def test_the_comparison_counts_the_bias_with_who_took_part():
    mine = parts(participation=1.0, bias=1.0)
    assert (
        "who took part and who was available add 2.00 to FedVARP's error, 4.00 times less than to FedAvg's (8.00)"
        in (against([mine], [parts(participation=3.0, bias=5.0)]))
    )


def test_where_everybody_takes_part_drift_is_compared():
    mine, theirs = parts(participation=0.0, drift=1.0), parts(participation=0.0, drift=50.0)
    assert "client drift adds 1.00 to FedVARP's error, 50.0 times less than to FedAvg's (50.0)" in against(
        [mine], [theirs]
    )


def test_runs_are_compared_at_a_probe_that_both_have():
    two, one = [parts(participation=1.0), parts(participation=2.0)], [parts(participation=4.0)]
    assert against(two, one).startswith("At round 1: who took part adds 1.00 to FedVARP's error, 4.00 times less")
    # A reference that ended long ago is not compared with.
    assert against([*two, parts()], one) == figures.reading(probed(*two, parts()))


def test_the_relative_comparison_says_that_each_is_measured_against_its_own_step():
    reference = probed(parts(direction_norm_sq=2.0), name="FedAvg", role="reference")
    assert figures.reading(probed(parts()), relative=True, reference=reference) == (
        "At round 1: measured against each run's own step, who took part adds 0.500 to FedVARP's error, 4.00 times less than to "
        "FedAvg's (2.00). FedVARP's error is 50\u00a0% who took part · 25\u00a0% gradient noise · 25\u00a0% drift across the gradient; "
        "together 1.00 of the step's squared length."
    )


@pytest.mark.parametrize(
    ("kappa", "cosine", "words"),
    [
        (0.7, 0.9, " (mostly a step shorter than the gradient)"),
        (4.0, 0.9, " (mostly a step longer than the gradient)"),
        (-2.0, -0.9, " (mostly a step against the gradient)"),
        (None, 0.9, ""),
        (0.7, None, ""),
        (0.04, None, ""),
    ],
)
def test_how_the_step_is_off_is_said_only_where_it_is_so(kappa, cosine, words):
    run = probed(parts(participation=0.0, noise=0.0, drift=10.0, shrinkage=kappa, cosine=cosine, perpendicular=0.5))
    assert figures.reading(run) == (
        f"At round 1: 0\u00a0% who took part · 0\u00a0% gradient noise · 100\u00a0% client drift{words}."
    )


def test_reading_says_where_all_of_the_error_is_a_shorter_step():
    run = probed(parts(participation=0.0, noise=0.0, drift=10.0, shrinkage=0.1, cosine=1.0, perpendicular=0.0))
    assert figures.reading(run) == (
        "At round 1: 0\u00a0% who took part · 0\u00a0% gradient noise · 100\u00a0% client drift (mostly a step much shorter "
        "than the gradient, which a larger rate would undo)."
    )


def test_reading_does_not_call_drift_across_the_gradient_a_shorter_step():
    assert "shorter" not in figures.reading(probed(parts(participation=0.0, drift=14.0, perpendicular=8.0)))


@pytest.mark.parametrize("rest", [1e-26, 0.0, -1e-30])
def test_what_rounding_leaves_is_no_error(rest):
    gone = parts(participation=0.0, noise=0.0, drift=rest, total=rest, perpendicular=0.0)
    assert figures.reading(probed(gone)) == "At round 1: no error beyond rounding."
    assert against([gone], [parts()]) == "At round 1: no error beyond rounding with FedVARP; with FedAvg, 16.0."


def test_rounding_is_seen_against_the_largest_error():
    small = parts(participation=0.0, noise=0.0, drift=1e-10, total=1e-10, perpendicular=None)
    assert "100\u00a0% client drift" in figures.reading(probed(small))
    assert figures.reading(probed(parts(total=1e12), small)) == "At round 2: no error beyond rounding."


def test_relative_reading_uses_the_drift_across_the_gradient():
    assert figures.reading(probed(parts()), relative=True) == (
        "At round 1: 50\u00a0% who took part · 25\u00a0% gradient noise · 25\u00a0% drift across the gradient;"
        " together 1.00 of the step's squared length."
    )


def test_the_sentence_for_screen_readers_is_the_reading():
    run = probed(parts())
    assert figures.reading(run) in figures.decomposition(run).alt


# --- long runs, and runs that have just begun ------------------------------------------------------------------------


def test_a_curve_has_at_most_30_marks_in_view():
    """`maxdisplayed` is plotly's own: so many of the points within the axes, evenly spread, however far one zooms."""
    long = probed(*(parts(check=15.0, check_error=0.5) for _ in range(200)), rounds=200)
    drawn = figures.decomposition(long, long).spec["data"]
    marked = [t for t in drawn if t["mode"] == "lines+markers"]
    assert len(marked) == 3 + 3  # participation, noise and drift of both
    assert {t["marker"]["maxdisplayed"] for t in marked} == {30}
    assert {t["marker"]["symbol"] for t in marked} == {"circle", "diamond", "triangle-up"}
    checks = [t for t in drawn if t["mode"] == "markers"]  # these have bars, so they are sent as few
    assert [10 <= len(numbers(t["x"])) <= 30 for t in checks] == [True, True]


def test_no_number_of_four_digits_lacks_its_comma():
    diagnostics = {"cold": 0.5, "staleness": 2500.0}
    rows = [
        record(r, [r % 4] if r else [], evaluation={"train_loss": 0.5, "test_accuracy": 0.8}, diagnostics=diagnostics,
               decomposition=parts(check=15.0, check_error=0.5) if r else None)
        for r in range(1501)
    ]  # fmt: skip
    rows += [record(r, [0], evaluation=rows[1]["evaluation"], diagnostics={"cold": 0.0}) for r in range(1501, 1601)]
    run = view(rows, rounds=2000, num_clients=3000)
    drawn = [f([run], cursor=1550) for f in (figures.loss, figures.accuracy)]
    drawn += [f(run, cursor=1550) for f in (figures.decomposition, figures.participation, figures.heterogeneity)]
    drawn += [figures.participation_preview(np.ones((1200, 1100), dtype=bool))]
    drawn = [figures.marked(figure, figures.Parent("FedAvg", "fedavg", 1234)) for figure in drawn]
    said = [figures.reading(run, 1550), figures.reading(run)]
    for figure in drawn:
        meta = figure.spec["layout"]["meta"]
        said += [figure.alt, meta["shaded"], *meta["notes"], *(t["meta"]["now"] for t in figure.spec["data"])]
        said += [text for t in figure.spec["data"] for text in t.get("text", [])]
        for name, each in figure.spec["layout"].items():
            assert not name.startswith("xaxis") or each["tickformat"] == ",", figure.spec["layout"]["title"]
    assert "Last measured in round 1,500" in said[0]
    assert [text for text in said if re.search(r"\d{4}", text)] == []


def test_what_will_be_measured_has_its_place_in_the_legend_from_the_start():
    """So that nothing moves when it comes: the same entries before the first measurement as after all."""
    memory = {"cold": 0.5, "staleness": 2.0}
    awaits = frozenset({"decomposition", "check", "groups"})
    measured = parts(check=15.0, check_error=0.5, largest_cluster_dissimilarity=1.0, state_error=1.0, clusters=None)
    begun = view([record(0), record(1, [0], diagnostics=memory)], awaits=awaits)
    later = view(
        [record(0), record(1, [0], diagnostics=memory), record(2, [1], diagnostics=memory, decomposition=measured)],
        awaits=awaits,
    )
    for draw in (figures.decomposition, figures.heterogeneity):
        before, after = draw(begun).spec, draw(later).spec
        assert [t["name"] for t in before["data"]] == [t["name"] for t in after["data"]]
        assert before["layout"]["meta"]["shaded"] == after["layout"]["meta"]["shaded"]
    assert {t["meta"]["now"] for t in figures.decomposition(begun).spec["data"]} == {"–"}
    ungrouped = figures.heterogeneity(replace(begun, awaits=awaits - {"groups"})).spec["data"]
    assert not any("label" in trace["name"] for trace in ungrouped)
    turns = np.ones((10, 4), dtype=bool)
    names = [t["name"] for t in figures.decomposition(replace(begun, available=turns)).spec["data"]]
    assert "which group was on duty" in names


def test_relative_to_a_step_without_length_no_error_is_said_to_be_none_at_the_round_where_it_was_measured():
    gone = parts(participation=0.0, noise=0.0, drift=0.0, total=0.0, perpendicular=0.0, direction_norm_sq=0.0)
    run = view([record(0), record(1, [0], decomposition=parts()), record(2, [0], decomposition=gone)])
    assert figures.reading(run, relative=True, reference=run) == "At round 2: no error beyond rounding."


def test_a_run_that_measures_nothing_keeps_no_places():
    begun = view([record(0), record(1, [0])])
    assert figures.heterogeneity(begun).spec["data"] == []
    assert [t["name"] for t in figures.decomposition(begun).spec["data"]] == [
        "who took part", "gradient noise", "client drift", "total",
    ]  # fmt: skip


# --- pictures -------------------------------------------------------------------------------------------------------


def pixels(figure: Figure):
    """Opacity of every cell [rows, columns], read from the PNG by its format alone."""
    [image] = figure.spec["layout"]["images"]
    raw = base64.b64decode(image["source"].removeprefix("data:image/png;base64,"))
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, place = {}, 8
    while place < len(raw):
        (length,) = struct.unpack(">I", raw[place : place + 4])
        kind, body = raw[place + 4 : place + 8], raw[place + 8 : place + 8 + length]
        assert struct.unpack(">I", raw[place + 8 + length : place + 12 + length]) == (zlib.crc32(kind + body),)
        chunks[kind] = body
        place += 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    rows = zlib.decompress(chunks[b"IDAT"])
    levels = [list(rows[r * (width + 1) + 1 : (r + 1) * (width + 1)]) for r in range(height)]
    return np.array([[chunks[b"tRNS"][level] for level in row] for row in levels])


def test_the_picture_marks_who_took_part_in_which_round():
    run = view([record(0), record(1, [0, 2]), record(2, [3])], rounds=4)
    cells = pixels(figures.participation(run))
    assert cells.shape == (4, 4)
    assert set(zip(*(axis.tolist() for axis in np.nonzero(cells)), strict=True)) == {(0, 0), (2, 0), (3, 1)}


def test_the_group_on_duty_is_a_paler_ground():
    duty = np.array([[True, True, False, False], [False, False, True, True]])
    run = view([record(0), record(1, [0]), record(2, [3])], rounds=2, available=duty)
    cells = pixels(figures.participation(run))
    assert (cells > 0).tolist() == [[True, False], [True, False], [False, True], [False, True]]
    assert 0 < cells[1, 0] < cells[0, 0]


def test_clients_of_a_cluster_stand_together():
    run = view([record(0), record(1, [1])], rounds=1, clusters=np.array([1, 0, 1, 0]))
    assert np.flatnonzero(pixels(figures.participation(run))[:, 0]).tolist() == [
        0
    ]  # client 1 is the first of cluster 0


def test_large_pictures_lose_no_participant():
    run = view([record(r, [r % 997] if r else []) for r in range(3001)], num_clients=997, rounds=3000)
    cells = pixels(figures.participation(run))
    assert cells.shape[0] <= 120
    assert cells.shape[1] <= 200
    assert (cells.max(axis=0) > 0).all()
    assert (cells.max(axis=1) > 0).all()


def test_counting_on_from_an_earlier_look_gives_the_same_picture():
    """Looked at after 0, 1, 40 and 90 rounds, then once again at fewer, as a slower viewer does."""
    rows = [record(r, [r % 7, 7 + r % 3] if r else []) for r in range(91)]
    taken = figures.Taken(view(rows[:1], num_clients=10, rounds=90))
    for count in (1, 2, 41, 91, 30):
        seen = view(rows[:count], num_clients=10, rounds=90)
        expected = np.zeros((10, 90), dtype=bool)
        for row in rows[1:count]:
            expected[row["cohort"], row["round"] - 1] = True
        assert (pixels(figures.participation(seen, taken=taken)) > 0).tolist() == expected.tolist()
        assert figures.participation(seen, taken=taken).alt == figures.participation(seen).alt


def test_pointing_at_a_round_names_its_clients():
    run = view([record(0), record(1, [0, 2]), record(2, [])], rounds=2)
    [trace] = figures.participation(run).spec["data"]
    assert numbers(trace["x"]) == [1, 2]
    assert trace["text"] == ["2 of 4: 0, 2", "nobody"]
    assert trace["meta"]["now"] == "nobody"
    assert figures.participation(run, 1).spec["data"][0]["meta"]["now"] == "2 of 4: 0, 2"


def test_the_preview_marks_the_mask():
    mask = np.array([[True, False, False], [False, False, True]])
    cells = pixels(figures.participation_preview(mask))
    assert ((cells > 0) == mask.T).all()
    assert figures.participation_preview(mask).spec["data"][0]["meta"]["now"] == "2 of 3 seen in 2 rounds"


def test_label_counts_are_darker_for_larger_shares():
    cells = pixels(figures.label_counts(np.array([[9, 0, 1], [0, 5, 5]]), ["a", "b", "c"]))
    assert cells.shape == (3, 2)
    assert cells[1, 0] == cells[0, 1] == 0
    assert cells[0, 0] > cells[1, 1] == cells[2, 1] > cells[2, 0] > 0


def test_label_counts_with_empty_clients_and_many_labels_are_drawn():
    figure = figures.label_counts(np.zeros((400, 62), dtype=int), [str(i) for i in range(62)])
    assert not pixels(figure).any()


# --- heterogeneity --------------------------------------------------------------------------------------------------


def test_the_expected_age_is_a_quiet_line_beside_the_measured_one():
    rows = [record(0, diagnostics={"cold": 1.0, "expected_staleness": 20.0})]
    rows += [record(r, [0], diagnostics={"staleness": 1.0 + r, "expected_staleness": 20.0}) for r in range(1, 4)]
    figure = figures.heterogeneity(view(rows, rounds=3))
    age, expected = figure.spec["data"]
    assert (age["name"], expected["name"]) == ("average age of memories", "expected age in the long run")
    assert (numbers(expected["x"]), numbers(expected["y"])) == ([0, 1, 2, 3], [20, 20, 20, 20])
    assert numbers(age["y"]) == [2, 3, 4]
    assert age["yaxis"] == expected["yaxis"] == "y2"
    assert expected["line"]["dash"] == "dot"
    assert expected["line"]["width"] < age["line"]["width"]
    assert expected["meta"]["now"] == "20.0"
    assert "expected age in the long run 20.0 rounds" in figure.alt
    without = figures.heterogeneity(view([record(r, [0], diagnostics={"staleness": 1.0}) for r in range(3)]))
    assert [trace["name"] for trace in without.spec["data"]] == ["average age of memories"]


def test_heterogeneity_shows_the_spreads_and_the_age_in_panels_with_headings():
    probe = parts(state_error=7.0, largest_cluster_dissimilarity=3.0)
    run = view([record(r, [0], decomposition=probe, diagnostics={"staleness": 2.0 + r}) for r in range(1, 4)])
    figure = figures.heterogeneity(run)
    drawn = [t for t in figure.spec["data"] if not t["meta"].get("readout")]
    assert {t["name"]: numbers(t["y"])[-1] for t in drawn} == {
        "all clients σ_g²": 5.0, "among clients of the same label (10 groups) σ_K²": 1.0, "error of the memories": 7.0,
        "average age of memories": 5.0,
    }  # fmt: skip
    assert [t.get("yaxis", "y") for t in drawn] == ["y", "y", "y", "y2"]
    assert {t["name"]: t["meta"]["now"] for t in figure.spec["data"] if t not in drawn} == {
        "largest within one label": "3.00"
    }
    headings = {a["text"]: a["y"] for a in figure.spec["layout"]["annotations"]}
    assert headings == {
        "squared distance of gradients": figure.spec["layout"]["yaxis"]["domain"][1],
        "age in rounds": figure.spec["layout"]["yaxis2"]["domain"][1],
    }
    without = figures.heterogeneity(probed(parts()))
    assert "yaxis2" not in without.spec["layout"]


def test_clusters_are_named_for_methods_that_have_some():
    figure = figures.heterogeneity(probed(parts(), clusters=np.array([0, 0, 1, 1])))
    assert "within 10 clusters σ_K²" in [t["name"] for t in figure.spec["data"]]


# --- windows --------------------------------------------------------------------------------------------------------


def test_windows_show_their_parts_where_they_end():
    window = {
        "participation": 4.0,
        "noise": None,
        "drift": 2.0,
        "movement": 1.0,
        "interaction": -0.5,
        "total": 6.5,
        "rounds": 2,
    }
    records = [record(r, [0]) | {"window": {**window, "drift": float(r)} if r in (2, 6) else None} for r in range(1, 7)]
    figure = figures.windows(view(records))
    drawn = {t["name"]: numbers(t["y"]) for t in figure.spec["data"] if not t["meta"].get("readout")}
    assert drawn == {
        "who took part": [4.0, 4.0], "client drift": [2.0, 6.0], "movement within the window": [1.0, 1.0], "total": [6.5, 6.5],
    }  # fmt: skip
    assert all(numbers(t["x"]) == [2, 6] for t in figure.spec["data"])
    assert [t["meta"]["now"] for t in traces(figure, name="interaction")] == ["−0.500"]
    assert figure.spec["layout"]["title"]["text"] == "Error of a whole window of 2 rounds"
    assert "drift includes the bias" in notes(figure)
    assert figure.alt.endswith(
        "round 6: who took part 4.00, client drift 6.00, movement within the window 1.00, interaction −0.500, total 6.50."
    )
    assert [t["meta"]["now"] for t in traces(figures.windows(view(records), cursor=3), name="client drift")] == ["2.00"]
    assert figures.windows(view([record(1, [0]), record(2, [0])])) is None


# --- axes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clients", [1, 2, 5])
def test_few_clients_and_rounds_have_whole_ticks(clients):
    run = view([record(0), record(1, [0])], num_clients=clients, rounds=2)
    counts = np.ones((clients, 3), dtype=int)
    axes = [
        figures.participation(run).spec["layout"]["yaxis"],
        figures.participation(run).spec["layout"]["xaxis"],
        figures.label_counts(counts, ["a", "b", "c"]).spec["layout"]["xaxis"],
    ]
    assert [(axis["tick0"], axis["dtick"]) for axis in axes] == [(0, 1)] * 3


def test_axes_say_what_the_title_does_not():
    assert figures.decomposition(probed(parts())).spec["layout"]["yaxis"]["title"]["text"] == "squared distance"
    relative = figures.decomposition(probed(parts()), relative=True)
    assert relative.spec["layout"]["yaxis"]["title"]["text"] == "of the step's squared length"


# --- colours --------------------------------------------------------------------------------------------------------


def contrast(one, other):
    """WCAG 2 contrast of two #rrggbb colours."""

    def luminance(colour):
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    "colour",
    [
        *style.ALGORITHM_COLOURS.values(),
        *(p.colour for p in style.PARTS.values()),
        style.DISSIMILARITY,
        style.WITHIN_CLUSTER,
        style.STALENESS,
        style.MEMORY_ERROR,
        style.MOVEMENT.colour,
    ],
)
@pytest.mark.parametrize("ground", [LIGHT, DARK])
def test_every_curve_stands_out_from_both_grounds(colour, ground):
    assert contrast(colour, ground) >= 3


def test_every_algorithm_has_a_colour_of_its_own():
    assert ALGORITHMS.keys() <= style.ALGORITHM_COLOURS.keys()
    assert len(set(style.ALGORITHM_COLOURS.values())) == len(style.ALGORITHM_COLOURS)
    # The runs of one chart differ in dash too, whatever their algorithms.
    assert len({style.ROLE_DASH[role] for role in ("current", "reference", "previous")}) == 3


def test_values_beyond_float32_are_neither_zero_nor_infinite():
    """1e-60 and 1e60 lie outside float32 (1e-38 to 3e38): such curves go as float64; others stay small."""
    assert drawing.typed([1e-3, 1.0])["dtype"] == "f4"
    for values in ([1e-60, 1.0], [1.0, 1e60, np.nan], [-1e39]):
        sent = drawing.typed(values)
        assert sent["dtype"] == "f8"
        assert np.array_equal(np.frombuffer(base64.b64decode(sent["bdata"]), "<f8"), values, equal_nan=True)


def test_plotly_itself_accepts_every_figure():
    """plotly's own validators know every property of a trace and a layout, and refuse what is not one."""
    from plotly import graph_objects

    losses = {"train_loss": 0.5, "test_loss": 0.6, "test_accuracy": 0.8, "gradient_norm_sq": 1.0}
    memory = {"cold": 0.5, "staleness": 2.0}
    rows = [
        record(r, [r % 4] if r else [], evaluation=losses, decomposition=parts(), diagnostics=memory) for r in range(6)
    ]
    shown = view(rows, window=2)
    drawn = [f([shown]) for f in (figures.loss, figures.accuracy)]
    drawn += [f(shown) for f in (figures.decomposition, figures.participation, figures.heterogeneity)]
    for figure in drawn:
        assert len(graph_objects.Figure(figure.spec).data) == len(figure.spec["data"]) > 0


def test_a_reference_without_records_yet_has_its_panel_already():
    """So that the chart does not change its shape while a run starts."""
    run = probed(parts())
    empty = view([], role="reference", name="FedAvg", algorithm="fedavg")
    figure = figures.decomposition(run, empty)
    assert figure.spec["layout"]["meta"]["panels"] == ["x2"]
    assert "FedVARP's error" not in figure.alt  # nothing to compare with yet
    assert [t["name"] for t in figures.loss([evaluated([1.0]), empty]).spec["data"]] == ["FedVARP", "FedAvg"]
