"""Runs over one another, and the mark where one leaves the other."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import pytest

from fedviz import figures
from fedviz.figures.overlay import ACCURACY, LOSS, MOST
from fedviz.figures.views import RunView
from fedviz.runs.columns import Columns


def view(losses: list[float], *, measure: str = "train_loss", rounds: int = 10) -> RunView:
    records = Columns({"round": i, "evaluation": {measure: loss}} for i, loss in enumerate(losses)).view()
    return RunView("FedAvg", "fedavg", "current", 10, rounds, records)


def test_runs_of_one_method_are_told_apart_by_colour_and_dash_and_named():
    figure = figures.overlay([(f"run {i}", view([3.0, 2.0, float(i)])) for i in range(MOST)], LOSS)
    traces = figure.spec["data"]
    assert [trace["name"] for trace in traces] == [f"run {i}" for i in range(6)]
    assert len({trace["line"]["color"] for trace in traces}) == len({trace["line"]["dash"] for trace in traces}) == 6
    go.Figure(figure.spec)
    assert "run 5 5.00 at round 2" in figure.alt


def test_the_axis_reaches_to_the_end_of_the_longest_run():
    figure = figures.overlay([("a", view([1.0], rounds=10)), ("b", view([1.0], rounds=70))], LOSS)
    assert figure.spec["layout"]["xaxis"]["range"] == [0, 70]


def test_what_is_drawn_is_what_the_runs_have():
    assert (
        figures.overlay([("a", view([1.0], measure="objective"))], LOSS).spec["layout"]["title"]["text"] == "Objective"
    )
    assert "nothing measured" in figures.overlay([("a", view([]))], ACCURACY).alt


@pytest.mark.parametrize("cursor", [None, 1])
def test_a_fork_is_a_dotted_line_with_a_note_and_the_chart_is_otherwise_unchanged(cursor):
    figure = figures.loss([view([3.0, 2.0, 1.0])], cursor=cursor)
    marked = figures.marked(figure, 2, "dotted line: continued from round 2")
    lines = [shape for shape in marked.spec["layout"]["shapes"] if shape.get("name") == "fork"]
    assert [(line["x0"], line["xref"], line["line"]["dash"]) for line in lines] == [(2, "x", "dot")]
    assert marked.spec["layout"]["meta"]["notes"][-1] == "dotted line: continued from round 2"
    assert marked.spec["data"] is figure.spec["data"]
    assert len(figure.spec["layout"]["shapes"]) == (cursor is not None)
    go.Figure(marked.spec)


def test_no_fork_changes_nothing():
    figure = figures.loss([view(list(np.linspace(3, 1, 5)))])
    assert figures.marked(figure, None, "") is figure
