"""Loss, accuracy and the measures of heterogeneity over rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedviz.figures.drawing import (
    GAPS_NOTE,
    at,
    axis,
    cold_start,
    cursor_lines,
    curve,
    curves,
    figure,
    log_axis,
    measured,
    positive,
    readout,
    rounds_axis,
)
from fedviz.figures.style import (
    DISSIMILARITY,
    MEMORY_ERROR,
    ROLE_DASH,
    ROLE_OPACITY,
    STALENESS,
    WITHIN_CLUSTER,
    algorithm_colour,
    number,
    percent,
)
from fedviz.figures.views import Figure, RunView

SPREADS = ("dissimilarity", "within_cluster_dissimilarity", "state_error")
EXPECTED_AGE = "expected age in the long run"
AGE_PANEL = 0.44  # of the height; as much is above it, and between them room for its heading
LINEAR_NOTE = "linear scale: the objective is not positive everywhere"
EVALUATION = ("train_loss", "test_loss", "test_accuracy", "gradient_norm_sq", "objective", "distance")


def loss(views: Sequence[RunView], *, cursor: int | None = None, log: bool = False) -> Figure:
    """Training loss of each run; of an analytic problem the objective, on a log scale where it is never negative."""
    if _has(views, "train_loss") or not _has(views, "objective"):
        return _compare("Training loss", "train_loss", views, cursor, log=log)
    is_log = objective_fits_log(views)
    return _compare("Objective", "objective", views, cursor, log=is_log, notes=[] if is_log else [LINEAR_NOTE])


def objective_fits_log(views: Sequence[RunView]) -> bool:
    """Whether the objective of all these runs, which have one, can be drawn on a log scale: it falls by many powers of ten."""
    known = np.concatenate([view.records.column("evaluation.objective") for view in views])
    # An objective that ends at its optimum 0 may be off by rounding there: a gap, not a reason to change the scale.
    has_negative = bool((known < -1e-12 * np.nanmax(np.abs(known))).any())
    return not has_negative and bool((known > 0).any())


def accuracy(views: Sequence[RunView], *, cursor: int | None = None) -> Figure:
    """Test accuracy of each run; of an analytic problem the distance to the optimum, on a log scale."""
    if _has(views, "test_accuracy") or not _has(views, "distance"):
        return _compare("Test accuracy", "test_accuracy", views, cursor, unit="percent")
    return _compare("Distance to the optimum", "distance", views, cursor, log=True)


def _has(views: Sequence[RunView], measure: str) -> bool:
    return any(np.isfinite(view.records.column(f"evaluation.{measure}")).any() for view in views)


def _compare(
    title: str,
    measure: str,
    views: Sequence[RunView],
    cursor: int | None,
    *,
    log: bool = False,
    unit: str = "",
    notes: Sequence[str] = (),
) -> Figure:
    """One curve a run. The first view is the current run; the last drawn lies on top, so it is drawn last."""
    data: list[dict[str, Any]] = []
    said: list[str] = []
    gaps = False
    for index, view in enumerate(views):
        rounds, columns = measured(view, "evaluation", EVALUATION)
        values = columns[measure]
        drawn = positive(values) if log else None
        gaps |= log and bool((values <= 0).any())
        name = f"{view.name}, previous run" if view.role == "previous" else view.name
        data += curves(
            view, rounds, values, name, drawn=drawn, cursor=cursor, unit=unit,
            line={"color": algorithm_colour(view.algorithm), "width": 2.5, "dash": ROLE_DASH[view.role]},
            marker={"color": algorithm_colour(view.algorithm), "size": 6},
            opacity=ROLE_OPACITY[view.role],
            legendgroup=view.role,  # names may be equal
            zorder=len(views) - index,  # the current run, which comes first in the legend, lies on top
        )  # fmt: skip
        found = at(rounds, values, cursor)
        if found:
            said.append(f"{name} {(percent if unit else number)(found[1])} at round {found[0]:,}")
    shapes, shaded = cold_start(views[0])
    y_axis = log_axis() if log else axis(tickformat=".0%" if unit else "", nticks=6)
    return figure(
        title,
        data,
        alt=f"{title} over rounds: {'; '.join(said) or 'nothing measured yet'}.",
        notes=[*notes, *([GAPS_NOTE] if gaps else [])],
        shaded=shaded,
        at=cursor,
        xaxis=rounds_axis(views[0].rounds),
        yaxis=y_axis,
        shapes=[*shapes, *cursor_lines(cursor, "x")],
    )


def heterogeneity(view: RunView, *, cursor: int | None = None) -> Figure:
    """How far the clients' gradients lie apart, and, for methods with memories, how wrong and how old these are on average.

    Two panels over one another, each with a heading, because a squared distance and an age in rounds share no axis.
    """
    rounds, columns = measured(view, "decomposition", (*SPREADS, "largest_cluster_dissimilarity"))
    largest = columns["largest_cluster_dissimilarity"]
    age_rounds, ages = measured(view, "diagnostics", ("staleness",))
    age = ages["staleness"]
    groups, one_group = _groups(view)
    remembers = bool(np.isfinite(age).any())
    # What will be measured has its entry in the legend from the start.
    awaited = not len(rounds) and "decomposition" in view.awaits
    grouped = ["within_cluster_dissimilarity"] * ("groups" in view.awaits)
    coming = ("dissimilarity", *grouped, *(["state_error"] * remembers)) if awaited else ()
    looks = (
        ("all clients σ_g²", "dissimilarity", DISSIMILARITY, "solid"),
        (f"{groups} σ_K²", "within_cluster_dissimilarity", WITHIN_CLUSTER, "dash"),
        ("error of the memories", "state_error", MEMORY_ERROR, "dot"),
    )
    data, said = [], []
    shown = [columns[path] for path in SPREADS if np.isfinite(columns[path]).any()]
    for name, path, colour, dash in looks:
        values = columns[path]
        if path in coming or np.isfinite(values).any():
            line = {"color": colour, "width": 2.5, "dash": dash}
            drawn = positive(values)
            data.append(
                curve(
                    rounds, values, name, drawn=drawn, focus=view.focus, cursor=cursor, line=line,
                    marker={"color": colour, "size": 6},
                )
            )  # fmt: skip
            found = at(rounds, values, cursor)
            said.append(f"{name} {number(found[1] if found else None)}")
    if (awaited and grouped) or np.isfinite(largest).any():
        found = at(rounds, largest, cursor)
        data.append(
            readout(
                f"largest within {one_group}", number(found[1] if found else None), rounds, largest, focus=view.focus
            )
        )
    layout: dict[str, Any] = {
        "xaxis": rounds_axis(view.rounds),
        "yaxis": log_axis(most=4),
        "annotations": [_panel_title("squared distance of gradients", 1)],
        "margin": {"l": 56, "r": 22, "t": 24, "b": 40},
    }
    if remembers:
        line = {"color": STALENESS, "width": 2}
        data.append(
            curve(
                age_rounds, age, "average age of memories", focus=view.focus, cursor=cursor, line=line,
                marker={"color": STALENESS, "size": 6}, yaxis="y2",
            )
        )  # fmt: skip
        found = at(age_rounds, age, cursor)
        said.append(f"average age of memories {number(found[1] if found else None)} rounds")
        expected_rounds, expected = measured(view, "diagnostics", ("expected_staleness",))
        if len(expected_rounds):
            line = {"color": STALENESS, "width": 1.5, "dash": "dot"}
            data.append(
                curve(
                    expected_rounds, expected["expected_staleness"], EXPECTED_AGE, focus=view.focus, line=line,
                    mode="lines", yaxis="y2",
                )
            )  # fmt: skip
            said.append(f"{EXPECTED_AGE} {number(float(expected['expected_staleness'][-1]))} rounds")
        layout["xaxis"]["anchor"] = "y2"
        layout["yaxis"]["domain"] = [0.56, 1]
        layout["yaxis2"] = axis(domain=[0, AGE_PANEL], rangemode="tozero", nticks=5)
        layout["annotations"].append(_panel_title("age in rounds", AGE_PANEL))
    shapes, shaded = cold_start(view)
    gaps = any((values <= 0).any() for values in shown)
    return figure(
        "How different the clients are",
        data,
        alt=f"How different the clients are, over rounds: {'; '.join(said) or 'nothing measured yet'}.",
        notes=[GAPS_NOTE] if gaps else [],
        shaded=shaded,
        at=cursor,
        shapes=[*shapes, *cursor_lines(cursor, "x")],
        **layout,
    )


def _groups(view: RunView) -> tuple[str, str]:
    """What the second curve is about, and the word for one of them: a method's clusters, else clients of equal label."""
    counts = view.records.column("decomposition.clusters")
    known = counts[np.isfinite(counts)]
    count = f"{known[-1]:.0f} " if len(known) else ""
    if view.clusters is not None:
        return f"within {count}clusters", "one cluster"
    return "among clients of the same label" + (f" ({count}groups)" if count else ""), "one label"


def _panel_title(text: str, top: float) -> dict[str, Any]:
    """A heading over a panel that ends at `top`, small and on its left."""
    return {
        "text": text, "xref": "paper", "yref": "paper", "x": 0, "y": top, "xanchor": "left", "yanchor": "bottom",
        "showarrow": False, "font": {"size": 12}, "yshift": 2,
    }  # fmt: skip
