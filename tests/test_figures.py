"""Charts say what the records say: expected values are worked out by hand or by a plain loop beside the code under test."""

import base64
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
    assert drawing.kept(np.arange(600.0)).tolist() == list(range(600))


@pytest.mark.parametrize("length", [601, 1000, 20_000])
def test_decimation_keeps_ends_extremes_and_order(length):
    y = np.sin(np.arange(length) / 7.0)
    y[length // 3], y[length // 2], y[0], y[-1] = 40.0, -30.0, 5.0, 6.0
    keep = drawing.kept(y)
    assert 300 <= len(keep) <= 600
    assert (np.diff(keep) > 0).all()
    assert {0, length - 1, length // 3, length // 2} <= set(keep.tolist())


def test_decimation_keeps_the_low_and_high_point_of_every_stretch():
    y = np.random.default_rng(0).standard_normal(6000)
    keep, inner, buckets = set(drawing.kept(y).tolist()), list(range(1, 5999)), 299
    for bucket in range(buckets):
        stretch = [i for place, i in enumerate(inner) if place * buckets // len(inner) == bucket]
        assert min(stretch, key=lambda i: y[i]) in keep
        assert max(stretch, key=lambda i: y[i]) in keep


def test_decimation_keeps_gaps_within_the_bound():
    y = np.ones(5000)
    y[1234] = y[4000] = np.nan
    keep = drawing.kept(y)
    assert len(keep) <= 600
    assert {1234, 4000} <= set(keep.tolist())


def test_no_trace_of_a_long_run_has_more_than_600_points():
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
            assert 0 < len(numbers(trace["x"])) == len(numbers(trace["y"])) <= 600


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


def test_shares_are_written_in_percent():
    assert style.percent(0.8056) == "80.6 %"


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
    assert trace["meta"]["now"] == "80.6 %"
    assert "80.6 % at round 1" in figure.alt


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
    assert figures.reading(empty) == "No decomposition has been measured yet."


def test_all_charts_of_a_run_share_the_planned_rounds_as_x_range():
    run = probed(parts(), rounds=37)
    for figure in (figures.loss([run]), figures.accuracy([run]), figures.decomposition(run, run), figures.participation(run),
                   figures.heterogeneity(run)):  # fmt: skip
        axes = [axis for name, axis in figure.spec["layout"].items() if name.startswith("xaxis")]
        assert all(axis["range"] == [0, 37] for axis in axes)
        assert axes


def test_what_the_viewer_zoomed_survives_new_data():
    assert (
        figures.loss([evaluated([1.0])]).spec["layout"]["uirevision"]
        == figures.loss([evaluated([1.0, 2.0])]).spec["layout"]["uirevision"]
    )


def test_cold_start_is_shaded_by_degree_up_to_its_last_round_and_named():
    cold = [1.0, 0.75, 0.5, 0.0, 0.0]
    run = view([record(r, evaluation={"train_loss": 1.0}, diagnostics={"cold": c}) for r, c in enumerate(cold)])
    layout = figures.loss([run]).spec["layout"]
    shades = [s for s in layout["shapes"] if s["type"] == "rect"]
    assert [(s["x0"], s["x1"]) for s in shades] == [(0, 1), (1, 2), (2, 3)]
    opacities = [float(s["fillcolor"].rstrip(")").split(",")[-1]) for s in shades]
    assert opacities == sorted(opacities, reverse=True)
    assert layout["meta"]["shaded"] == "cold start until round 2"
    assert figures.loss([evaluated([1.0, 1.0])]).spec["layout"]["meta"]["shaded"] == ""


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
        "κ": "0.250",
        "cosine": "0.500",
    }


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
    figure = figures.decomposition(probed(parts(), parts(check=15.0, check_error=0.5)))
    [check] = traces(figure, name="checked by random cohorts")
    assert (numbers(check["x"]), numbers(check["y"]), numbers(check["error_y"]["array"])) == ([2], [15.0], [0.5])
    assert not traces(figures.decomposition(probed(parts())), name="checked by random cohorts")


def test_the_note_says_when_drift_includes_the_noise_bias():
    assert "drift includes" in notes(figures.decomposition(probed(parts(mode="cheap"))))
    assert "drift includes" not in notes(figures.decomposition(probed(parts(mode="full"))))


def test_reading_gives_the_shares_of_the_latest_probe_or_of_that_at_the_cursor():
    run = probed(
        parts(participation=12.0, noise=3.0, drift=85.0, perpendicular=None),
        parts(participation=1.0, noise=1.0, drift=2.0, perpendicular=None),
    )
    assert figures.reading(run) == "At round 2: 25 % who took part · 25 % minibatch noise · 50 % client drift."
    assert figures.reading(run, 1) == "At round 1: 12 % who took part · 3 % minibatch noise · 85 % client drift."


def test_reading_names_the_group_bias_only_where_there_is_one_and_counts_negatives_as_zero():
    run = probed(parts(participation=1.0, bias=1.0, noise=-5.0, drift=2.0, perpendicular=None))
    assert figures.reading(run) == (
        "At round 1: 25 % who took part · 25 % which group was on duty · 0 % minibatch noise · 50 % client drift."
    )


def test_reading_says_that_raw_drift_is_mostly_a_shorter_step_and_compares_with_the_reference():
    run = probed(parts(participation=0.1, noise=0.0, drift=99.9, shrinkage=0.04, cosine=0.95))
    reference = probed(parts(participation=5.0), name="FedAvg")
    assert figures.reading(run, reference=reference) == (
        "At round 1: <1 % who took part · 0 % minibatch noise · >99 % client drift (mostly a shorter step: κ 0.0400, cosine 0.950)."
        " FedAvg's part from who took part is 50.0 times as large."
    )


def test_reading_does_not_call_drift_across_the_gradient_a_shorter_step():
    assert "shorter" not in figures.reading(probed(parts(participation=0.0, drift=14.0, perpendicular=8.0)))


def test_relative_reading_uses_the_drift_across_the_gradient():
    assert figures.reading(probed(parts()), relative=True) == (
        "At round 1: 50 % who took part · 25 % minibatch noise · 25 % drift across the gradient;"
        " together 1.00 of the step's squared length."
    )


def test_the_sentence_for_screen_readers_is_the_reading():
    run = probed(parts())
    assert figures.reading(run) in figures.decomposition(run).alt


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
    assert cells.shape[1] <= 300
    assert (cells.max(axis=0) > 0).all()
    assert (cells.max(axis=1) > 0).all()


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


def test_heterogeneity_shows_both_dissimilarities_and_the_age_in_a_panel_of_its_own():
    run = view([record(r, [0], decomposition=parts(), diagnostics={"staleness": 2.0 + r}) for r in range(1, 4)])
    figure = figures.heterogeneity(run)
    assert {t["name"]: numbers(t["y"])[-1] for t in figure.spec["data"]} == {
        "all clients σ_g²": 5.0, "within 10 clusters σ_K²": 1.0, "mean age of memories (rounds)": 5.0,
    }  # fmt: skip
    assert [t.get("yaxis", "y") for t in figure.spec["data"]] == ["y", "y", "y2"]
    without = figures.heterogeneity(probed(parts()))
    assert "yaxis2" not in without.spec["layout"]


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
    ],
)
@pytest.mark.parametrize("ground", [LIGHT, DARK])
def test_every_curve_stands_out_from_both_grounds(colour, ground):
    assert contrast(colour, ground) >= 3


def test_every_algorithm_has_a_colour_of_its_own():
    assert ALGORITHMS.keys() <= style.ALGORITHM_COLOURS.keys()
    assert len(set(style.ALGORITHM_COLOURS.values())) == len(style.ALGORITHM_COLOURS)


def test_log_ticks_are_few_and_written_out():
    wide = drawing.log_axis([np.array([2e-6, 40.0])])
    assert len(wide["tickvals"]) <= 12
    assert dict(zip(wide["tickvals"], wide["ticktext"], strict=True))[100.0] == "100"
    narrow = drawing.log_axis([np.array([0.42, 2.3])])
    inside = [text for value, text in zip(narrow["tickvals"], narrow["ticktext"], strict=True) if 0.4 <= value <= 2.4]
    assert inside == ["0.5", "1", "2"]
    small = drawing.log_axis([np.array([1e-8, 1e-5])])
    assert "10⁻⁵" in small["ticktext"]


def test_values_beyond_float32_are_neither_zero_nor_infinite():
    """1e-60 and 1e60 lie outside float32 (1e-38 to 3e38): such curves go as float64; others stay small."""
    assert drawing.typed([1e-3, 1.0])["dtype"] == "f4"
    for values in ([1e-60, 1.0], [1.0, 1e60, np.nan], [-1e39]):
        sent = drawing.typed(values)
        assert sent["dtype"] == "f8"
        assert np.array_equal(np.frombuffer(base64.b64decode(sent["bdata"]), "<f8"), values, equal_nan=True)
