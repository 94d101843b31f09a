"""Loss, accuracy and the measures of heterogeneity over rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedviz.figures.drawing import (
    GAPS_NOTE,
    Array,
    at,
    axis,
    cold_start,
    cursor_lines,
    curve,
    figure,
    kept,
    log_axis,
    measured,
    positive,
    rounds_axis,
)
from fedviz.figures.style import (
    DISSIMILARITY,
    ROLE_DASH,
    ROLE_OPACITY,
    STALENESS,
    WITHIN_CLUSTER,
    algorithm_colour,
    number,
    percent,
)
from fedviz.figures.views import Figure, RunView

EVALUATION = ("train_loss", "test_loss", "test_accuracy", "gradient_norm_sq", "objective", "distance")


def loss(views: Sequence[RunView], *, cursor: int | None = None, log: bool = False) -> Figure:
    """Training loss of each run; of an analytic problem the objective, on a log scale where it is positive throughout."""
    if _has(views, "train_loss") or not _has(views, "objective"):
        return _compare("Training loss", "train_loss", views, cursor, log=log)
    known = np.concatenate([view.records.column("evaluation.objective") for view in views])
    is_positive = not (known <= 0).any()  # NaN compares as false
    notes = [] if is_positive else ["linear scale: the objective is not positive everywhere"]
    return _compare("Objective", "objective", views, cursor, log=is_positive, notes=notes)


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
    curves: list[dict[str, Any]] = []
    shown: list[Array] = []
    said: list[str] = []
    gaps = False
    for view in views:
        rounds, columns = measured(view, "evaluation", EVALUATION)
        values = columns[measure]
        drawn = positive(values) if log else None
        gaps |= log and bool((values <= 0).any())
        name = f"{view.name}, previous run" if view.role == "previous" else view.name
        curves.append(
            curve(
                rounds, values, name, drawn=drawn, cursor=cursor, unit=unit,
                line={"color": algorithm_colour(view.algorithm), "width": 2.5, "dash": ROLE_DASH[view.role]},
                marker={"color": algorithm_colour(view.algorithm), "size": 6},
                opacity=ROLE_OPACITY[view.role],
                legendgroup=view.role,  # names may be equal
                zorder=len(views) - len(curves),  # the current run, which comes first in the legend, lies on top
            )
        )  # fmt: skip
        shown.append(values)
        found = at(rounds, values, cursor)
        if found:
            said.append(f"{name} {(percent if unit else number)(found[1])} at round {found[0]}")
    shapes, shaded = cold_start(views[0])
    y_axis = log_axis(shown) if log else axis(tickformat=".0%" if unit else "", nticks=6)
    return figure(
        title,
        curves,
        alt=f"{title} over rounds: {'; '.join(said) or 'nothing measured yet'}.",
        notes=[*notes, *([GAPS_NOTE] if gaps else [])],
        shaded=shaded,
        at=cursor,
        xaxis=rounds_axis(views[0].rounds),
        yaxis=y_axis,
        shapes=[*shapes, *cursor_lines(cursor, "x")],
    )


def heterogeneity(view: RunView, *, cursor: int | None = None) -> Figure:
    """How far the clients' gradients lie apart, and, for methods with memories, how old these are on average.

    Two panels over one another, because a squared norm and an age in rounds share no axis.
    """
    rounds, columns = measured(view, "decomposition", ("dissimilarity", "within_cluster_dissimilarity"))
    sigma_g, sigma_k = columns["dissimilarity"], columns["within_cluster_dissimilarity"]
    age_rounds, ages = measured(view, "diagnostics", ("staleness",))
    age = ages["staleness"]
    clusters = view.records.column("decomposition.clusters")
    known = clusters[np.isfinite(clusters)]
    within = f"within {known[-1]:.0f} clusters σ_K²" if len(known) else "within clusters σ_K²"
    measures: list[tuple[str, NDArray[np.int64], Array, str, str]] = [
        ("all clients σ_g²", rounds, sigma_g, DISSIMILARITY, "solid"),
        (within, rounds, sigma_k, WITHIN_CLUSTER, "dash"),
    ]
    curves, said = [], []
    shown = [values for _, _, values, _, _ in measures if np.isfinite(values).any()]
    for name, x, values, colour, dash in measures:
        if np.isfinite(values).any():
            line = {"color": colour, "width": 2.5, "dash": dash}
            drawn = positive(values)
            curves.append(
                curve(x, values, name, drawn=drawn, cursor=cursor, line=line, marker={"color": colour, "size": 6})
            )
            found = at(x, values, cursor)
            said.append(f"{name} {number(found[1] if found else None)}")
    has_age = bool(np.isfinite(age).any())
    layout: dict[str, Any] = {"xaxis": rounds_axis(view.rounds), "yaxis": log_axis(shown, most=3)}
    if has_age:
        line = {"color": STALENESS, "width": 2}
        curves.append(
            curve(
                age_rounds, age, "mean age of memories (rounds)", keep=kept(age), cursor=cursor, line=line,
                marker={"color": STALENESS, "size": 6}, yaxis="y2",
            )
        )  # fmt: skip
        found = at(age_rounds, age, cursor)
        said.append(f"mean age of memories {number(found[1] if found else None)} rounds")
        layout["xaxis"]["anchor"] = "y2"
        layout["yaxis"]["domain"] = [0.46, 1]
        layout["yaxis2"] = axis(domain=[0, 0.34], rangemode="tozero", nticks=4)
    shapes, shaded = cold_start(view)
    gaps = any((values <= 0).any() for values in shown)
    return figure(
        "How different the clients are",
        curves,
        alt=f"How different the clients are, over rounds: {'; '.join(said) or 'nothing measured yet'}.",
        notes=[GAPS_NOTE] if gaps else [],
        shaded=shaded,
        at=cursor,
        shapes=[*shapes, *cursor_lines(cursor, "x")],
        **layout,
    )
