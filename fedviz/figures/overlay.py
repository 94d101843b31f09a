"""Several runs on one chart, to be compared: loss or accuracy, one colour a run, whatever they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedviz.figures.curves import LINEAR_NOTE, objective_fits_log
from fedviz.figures.drawing import GAPS_NOTE, at, axis, curves, figure, log_axis, measured, positive, rounds_axis
from fedviz.figures.style import number, percent
from fedviz.figures.views import Figure, RunView

# After Okabe and Ito, with a contrast of 3:1 on light and dark grounds; told apart by dash as well.
LOOKS = (
    ("#2E80CC", "solid"), ("#D9720B", "dash"), ("#00936B", "dot"),
    ("#C2548C", "dashdot"), ("#9A7B00", "longdash"), ("#7B6CC4", "longdashdot"),
)  # fmt: skip
MOST = len(LOOKS)


@dataclass(frozen=True)
class Measure:
    """What is drawn: the first of the columns that any of the runs has.

    scale_is_free: whether to draw it on a log scale is the visitor's choice; else it is as in a run's own charts.
    """

    title: str
    column: str
    unit: str = ""
    scale_is_free: bool = False


LOSS = (Measure("Training loss", "train_loss", scale_is_free=True), Measure("Objective", "objective"))
ACCURACY = (Measure("Test accuracy", "test_accuracy", "percent"), Measure("Distance to the optimum", "distance"))


def measure_of(views: Sequence[tuple[str, RunView]], measures: Sequence[Measure]) -> Measure:
    """What `overlay` draws of these runs."""
    return next((measure for measure in measures if any(_has(view, measure) for _, view in views)), measures[0])


def overlay(views: Sequence[tuple[str, RunView]], measures: Sequence[Measure], *, log: bool = False) -> Figure:
    """Up to `MOST` runs, each with the name it has in the legend. The x axis reaches as far as the longest got.

    log: how to draw what may be drawn either way. Objectives are on a log scale where they can be, distances always.
    """
    measure = measure_of(views, measures)
    write = percent if measure.unit else number
    notes = ["thin: until then the run that is continued"] if any(view.continues for _, view in views) else []
    if measure.column == "objective":
        log = objective_fits_log([view for _, view in views])
        notes += [] if log else [LINEAR_NOTE]
    elif not measure.scale_is_free:
        log = measure.column == "distance"
    data, said, gaps = [], [], False
    for index, ((name, view), (colour, dash)) in enumerate(zip(views, LOOKS, strict=False)):
        rounds, columns = measured(view, "evaluation", (measure.column,))
        values = columns[measure.column]
        gaps |= log and bool((values <= 0).any())
        data += curves(
            view, rounds, values, name, before=colour, drawn=positive(values) if log else None, unit=measure.unit,
            legendgroup=f"run {index + 1}", line={"color": colour, "width": 2.5, "dash": dash},
            marker={"color": colour, "size": 6},
        )  # fmt: skip
        if found := at(rounds, values, None):
            said.append(f"{name} {write(found[1])} at round {found[0]:,}")
    return figure(
        measure.title,
        data,
        alt=f"{measure.title} over rounds: {'; '.join(said) or 'nothing measured yet'}.",
        notes=[*notes, *([GAPS_NOTE] if gaps else [])],
        xaxis=rounds_axis(
            max((int(view.records.rounds[-1]) for _, view in views if len(view.records.rounds)), default=1)
        ),
        yaxis=log_axis() if log else axis(tickformat=".0%" if measure.unit else "", nticks=6),
    )


def _has(view: RunView, measure: Measure) -> bool:
    return bool(np.isfinite(view.records.column(f"evaluation.{measure.column}")).any())
