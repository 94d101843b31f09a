"""Runs over one another, and the mark where one leaves the other."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from fedviz import figures
from fedviz.figures.overlay import ACCURACY, LOSS, MOST, Measure
from fedviz.figures.views import RunView
from fedviz.runs.columns import Columns


def view(losses: list[float], *, measure: str = "train_loss", rounds: int = 10) -> RunView:
    records = Columns({"round": i, "evaluation": {measure: loss}} for i, loss in enumerate(losses)).view()
    return RunView("FedAvg", "fedavg", "current", 10, rounds, records)


def points(packed: dict[str, Any], kind: str = "<f4") -> list[float]:
    found: list[float] = np.frombuffer(base64.b64decode(packed["bdata"]), kind).tolist()
    return found


def test_runs_of_one_method_are_told_apart_by_colour_and_dash_and_named():
    figure = figures.overlay([(f"run {i}", view([3.0, 2.0, float(i)])) for i in range(MOST)], LOSS)
    traces = figure.spec["data"]
    assert [trace["name"] for trace in traces] == [f"run {i}" for i in range(6)]
    assert len({trace["line"]["color"] for trace in traces}) == len({trace["line"]["dash"] for trace in traces}) == 6
    go.Figure(figure.spec)
    assert "run 5 5.00 at round 2" in figure.alt


def test_the_axis_reaches_as_far_as_the_longest_run_got_not_as_far_as_one_that_was_stopped_was_to_go():
    figure = figures.overlay([("a", view([1.0] * 4, rounds=70)), ("b", view([1.0] * 8, rounds=10))], LOSS)
    assert figure.spec["layout"]["xaxis"]["range"] == [0, 7]


def test_what_is_drawn_is_what_the_runs_have():
    assert (
        figures.overlay([("a", view([1.0], measure="objective"))], LOSS).spec["layout"]["title"]["text"] == "Objective"
    )
    assert "nothing measured" in figures.overlay([("a", view([]))], ACCURACY).alt


def test_compared_losses_are_on_a_log_scale_where_it_is_chosen_and_say_why_there_are_gaps():
    views = [("a", view([4.0, 0.0, 1.0])), ("b", view([3.0, 2.0, 1.0]))]
    assert "type" not in figures.overlay(views, LOSS).spec["layout"]["yaxis"]
    logarithmic = figures.overlay(views, LOSS, log=True)
    assert logarithmic.spec["layout"]["yaxis"]["type"] == "log"
    assert logarithmic.spec["layout"]["meta"]["notes"] == ["gaps: zero or below, which a log scale cannot show"]
    drawn = points(logarithmic.spec["data"][0]["y"])
    assert (drawn[0], drawn[2]) == (4.0, 1.0)
    assert np.isnan(drawn[1])
    assert points(logarithmic.spec["data"][0]["customdata"]) == [4.0, 0.0, 1.0]


def test_compared_analytic_runs_are_on_the_scales_of_their_own_charts():
    """A distance, and an objective that is positive everywhere, on a log scale, an accuracy never."""

    def scale(values: list[float], measure: str, measures: Sequence[Measure], *, log: bool = False) -> str | None:
        spec = figures.overlay([("a", view(values, measure=measure))], measures, log=log).spec
        found: str | None = spec["layout"]["yaxis"].get("type")
        return found

    assert scale([3.0, 1.0], "objective", LOSS) == "log"
    assert scale([3.0, -1.0], "objective", LOSS, log=True) is None
    assert scale([3.0, 1.0], "distance", ACCURACY) == "log"
    assert scale([0.3, 0.5], "test_accuracy", ACCURACY, log=True) is None
    negative = figures.overlay([("a", view([3.0, -1.0], measure="objective"))], LOSS)
    assert negative.spec["layout"]["meta"]["notes"] == ["linear scale: the objective is not positive everywhere"]


PARENT = figures.Parent("FedVARP", "fedvarp", 2)


@pytest.mark.parametrize("cursor", [None, 1])
def test_what_a_run_has_from_another_is_faded_up_to_a_dotted_line_and_the_chart_is_otherwise_unchanged(cursor):
    figure = figures.loss([view([3.0, 2.0, 1.0])], cursor=cursor)
    marked = figures.marked(figure, PARENT)
    shapes = {shape.get("name"): shape for shape in marked.spec["layout"]["shapes"]}
    assert (shapes["fork"]["x0"], shapes["fork"]["xref"], shapes["fork"]["line"]["dash"]) == (2, "x", "dot")
    assert (shapes["veil"]["x0"], shapes["veil"]["x1"], shapes["veil"]["xref"]) == (0, 2, "x")
    assert marked.spec["layout"]["meta"]["continued"] == {"until": 2, "name": "FedVARP"}
    assert marked.alt.endswith("Up to round 2 it is FedVARP, which this run continues.")
    assert marked.spec["data"] is figure.spec["data"]
    assert len(figure.spec["layout"]["shapes"]) == (cursor is not None)
    go.Figure(marked.spec)


def test_no_fork_changes_nothing():
    figure = figures.loss([view(list(np.linspace(3, 1, 5)))])
    assert figures.marked(figure, None) is figure


def test_a_continued_run_has_its_own_look_from_the_fork_on_and_the_other_ones_before():
    """Rounds 0 to 2 are FedVARP's: thin, in its colour; FedAvg's line begins there, and is read in all rounds."""
    values = [5.0, 4.0, 3.0, 2.0, 1.0]
    own, inherited = figures.loss([replace(view(values), continues=PARENT)]).spec["data"]
    assert points(own["x"], "<u2") == [0, 1, 2, 3, 4]
    assert np.isnan(points(own["y"])[:2]).all()
    assert points(own["y"])[2:] == [3.0, 2.0, 1.0]
    assert points(own["customdata"]) == values
    assert (points(inherited["x"], "<u2"), points(inherited["y"])) == ([0, 1, 2], [5.0, 4.0, 3.0])
    assert (inherited["name"], inherited["line"]["color"]) == ("FedVARP", "#00936B")
    assert own["line"]["color"] == "#2E80CC"
    assert inherited["line"]["width"] < own["line"]["width"]
    assert inherited["legendgroup"] == own["legendgroup"]
    assert inherited["meta"]["quiet"]


def test_compared_runs_show_what_they_have_from_another_as_well():
    continued = replace(view([3.0, 2.0, 1.0]), continues=figures.Parent("FedAvg", "fedavg", 1))
    figure = figures.overlay([("a", continued), ("b", view([3.0, 2.5]))], LOSS)
    own, inherited, _ = figure.spec["data"]
    assert inherited["line"]["width"] < own["line"]["width"]
    assert inherited["line"]["color"] == own["line"]["color"]  # of the run, whatever its methods
    assert points(inherited["x"], "<u2") == [0, 1]
    assert figure.spec["layout"]["meta"]["notes"] == ["thin: until then the run that is continued"]
