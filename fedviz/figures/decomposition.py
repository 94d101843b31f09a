"""Where the server's error comes from: the heart of the page.

E|v − ∇f|² = participation + noise + bias + drift + interaction at the probed rounds.

How it is drawn, and why.
* The question is "does the participation part collapse?", and the answer is a comparison. The left panel has the
  current run's parts; its reference's participation part lies over them, dotted in the same colour, so that the gap
  between the two lines is the answer. The right panel has all parts of the reference over the same y axis. Where the
  chart is narrower than 640 px the right panel is left out: two panels of 150 px show less than the overlay, which
  still holds the comparison.
* A log scale, because the parts lie decades apart. Zero and below are gaps there. The interaction may be negative:
  there the log scale shows its size under the name |interaction|, and the legend its value with the sign.
* The linear scale stacks the parts, with the total as a line. Unbiased estimates may fall below zero: they are drawn
  as zero, and a note says so. The interaction is a line of its own, since a negative layer cannot be stacked; the
  total line includes it.
* Raw drift is mostly a shortened step: many local steps make a direction shorter than the gradient, which a larger
  rate would undo. The relative view sets who took part, noise and the drift across the gradient against the squared
  length of the mean direction, |E v̄|², and gives κ (how long the step is along the gradient) and the cosine. It has no
  interaction and no total, which belong to all of drift.
* The theory split counts the participants' noise as noise rather than as participation: the same total, cut at
  another place.

Values in the legend, in `customdata` and in sentences are the recorded ones, never the clipped ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

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
    typed,
)
from fedviz.figures.style import NEUTRAL, PARTS, faint, number
from fedviz.figures.views import Figure, RunView

Scale = Literal["log", "linear"]
Split = Literal["telescoped", "theory"]

COLUMNS = (
    "participation", "participation_sampling", "noise", "bias", "drift", "interaction", "total",
    "direction_norm_sq", "shrinkage", "cosine", "perpendicular", "check", "check_error",
)  # fmt: skip
# Bottom to top: participation stands on the axis, where its height can be read.
SUMMANDS = ("participation", "bias", "noise", "drift")
ROUNDING = 1e-6  # of the total; float32 leaves about 1e-8 of cross terms that are zero in exact arithmetic


def decomposition(
    view: RunView,
    reference: RunView | None = None,
    *,
    scale: Scale = "log",
    relative: bool = False,
    split: Split = "telescoped",
    cursor: int | None = None,
) -> Figure:
    """The parts of the server's error over rounds, those of `reference` beside them."""
    panels = [_Probes(view, relative, split)]
    if reference is not None and len(reference.records):
        panels.append(_Probes(reference, relative, split))
    log = scale == "log"
    # Which-group bias and interaction are there for some patterns only; the relative view has neither sum nor cross terms.
    shown = [
        part
        for part in PARTS
        if (part not in ("bias", "interaction") or any(p.ever(part) for p in panels))
        and not (relative and part in ("interaction", "total"))
    ]
    signed = log and any((p.parts["interaction"] < 0).any() for p in panels) and "interaction" in shown

    data: list[dict[str, Any]] = []
    for column, probes in enumerate(panels):
        data += _panel(probes, shown, column, log=log, signed=signed, cursor=cursor)
    if len(panels) == 2:
        data += _ghost(panels[1], log=log, cursor=cursor)
    if not relative:
        data += _checks(panels[0])
    data += _readouts(panels[0], cursor)

    two = len(panels) == 2
    x_axes = ["x", "x2"] if two else ["x"]
    drawn = [p.parts[part] for p in panels for part in shown]
    y_axis = log_axis([np.abs(v) for v in drawn] if signed else drawn) if log else axis(rangemode="tozero", nticks=6)
    layout: dict[str, Any] = {
        "xaxis": rounds_axis(view.rounds, domain=[0, 0.482] if two else [0, 1]),
        "yaxis": y_axis,
        "annotations": [_heading(p.view.name, x) for p, x in zip(panels, x_axes, strict=True)] if two else [],
    }
    if two:
        layout["xaxis2"] = rounds_axis(view.rounds, domain=[0.518, 1], anchor="y2")
        layout["yaxis2"] = {**y_axis, "anchor": "x2", "matches": "y", "showticklabels": False}
        layout["margin"] = {"l": 56, "r": 14, "t": 26, "b": 40}
    shapes = cursor_lines(cursor, *x_axes)
    cold_shapes, shaded = cold_start(view)
    title = "Error of the server's step, relative to its length" if relative else "Where the server's error comes from"
    return figure(
        title,
        data,
        alt=f"{title}. {reading(view, cursor, relative=relative, split=split, reference=reference)}",
        notes=_notes(panels, shown, log=log, signed=signed, relative=relative),
        shaded=shaded,
        at=cursor,
        panels=["x2"] if two else [],
        shapes=[*cold_shapes, *shapes],
        **layout,
    )


def reading(
    view: RunView,
    cursor: int | None = None,
    *,
    relative: bool = False,
    split: Split = "telescoped",
    reference: RunView | None = None,
) -> str:
    """The chart in a sentence: "At round 140: 12 % who took part · 3 % minibatch noise · 85 % client drift".

    Shares of the parts that add up, without the interaction (which may be negative); a part estimated below zero counts
    as zero. In the relative view the drift is that across the gradient. With a reference, how its participation part
    compares.
    """
    probes = _Probes(view, relative, split)
    index = probes.index(cursor)
    if index is None:
        return "No decomposition has been measured yet."
    parts = {
        part: max(float(probes.parts[part][index]), 0.0) for part in SUMMANDS if part != "bias" or probes.ever("bias")
    }
    whole = sum(parts.values())
    words = (
        " · ".join(f"{_share(value / whole)} {_words(part, relative)}" for part, value in parts.items())
        if whole
        else "no error"
    )
    sentence = f"At round {probes.rounds[index]}: {words}"
    if relative:
        sentence += f"; together {number(whole)} of the step's squared length"
    elif whole and parts["drift"] > 0.5 * whole and probes.perpendicular[index] < 0.5 * parts["drift"]:
        sentence += f" (mostly a shorter step: κ {number(probes.kappa[index])}, cosine {number(probes.cosine[index])})"
    if reference is not None:
        sentence += _compared(probes, index, _Probes(reference, relative, split))
    return sentence + "."


def _compared(probes: _Probes, index: int, other: _Probes) -> str:
    """How the reference's participation part at the same probe stands to this one, "" where there is nothing to divide."""
    there = other.index(int(probes.rounds[index]))
    if there is None:
        return ""
    mine, theirs = float(probes.parts["participation"][index]), float(other.parts["participation"][there])
    if not (mine > 0 and theirs > 0):
        return ""
    ratio, than = (theirs / mine, "times as large") if theirs >= mine else (mine / theirs, "times smaller")
    return f". {other.view.name}'s part from who took part is {number(ratio)} {than}"


def _share(share: float) -> str:
    if 0 < share < 0.005:
        return "<1 %"
    if 0.995 < share < 1:
        return ">99 %"
    return f"{share:.0%}".replace("%", " %")


def _words(part: str, relative: bool) -> str:
    return "drift across the gradient" if relative and part == "drift" else PARTS[part].words


class _Probes:
    """The probed rounds of a run with the parts as they are to be read: split and, if wanted, relative to |E v̄|²."""

    def __init__(self, view: RunView, relative: bool, split: Split) -> None:
        self.view = view
        self.rounds, columns = measured(view, "decomposition", COLUMNS)
        parts: dict[str, Array] = {part: columns[part] for part in PARTS}
        if split == "theory":
            moved = columns["participation"] - columns["participation_sampling"]
            parts["participation"] = columns["participation_sampling"]
            parts["noise"] = columns["noise"] + moved
        if relative:
            parts["drift"] = columns["perpendicular"]
            scale = np.where(columns["direction_norm_sq"] > 0, columns["direction_norm_sq"], np.nan)
            parts = {part: values / scale for part, values in parts.items()}
        self.parts: Mapping[str, Array] = parts
        self.kappa, self.cosine, self.perpendicular = columns["shrinkage"], columns["cosine"], columns["perpendicular"]
        self.check, self.check_error = columns["check"], columns["check_error"]

    def ever(self, part: str) -> bool:
        """Whether the part was ever there: more than what rounding leaves of a sum that should vanish."""
        return bool((np.abs(self.parts[part]) > ROUNDING * np.abs(self.parts["total"])).any())

    def index(self, cursor: int | None) -> int | None:
        """The last probe up to round `cursor`, or the first one."""
        found = at(self.rounds, self.parts["participation"], cursor)
        return None if found is None else int(np.flatnonzero(self.rounds == found[0])[0])


def _panel(
    probes: _Probes, shown: list[str], column: int, *, log: bool, signed: bool, cursor: int | None
) -> list[dict[str, Any]]:
    """The curves (log) or layers (linear) of one run. Layers share their points, or they could not be stacked."""
    axes = {"xaxis": "x2", "yaxis": "y2"} if column else {"xaxis": "x", "yaxis": "y"}
    keep: NDArray[np.intp] | None = None if log else kept(probes.parts["total"])
    traces = []
    for part in shown:
        look, values = PARTS[part], probes.parts[part]
        relative_drift = part == "drift" and "total" not in shown
        name = "drift across the gradient" if relative_drift else look.words
        thin = part in ("interaction", "total")
        style: dict[str, Any] = {
            "line": {
                "color": look.colour,
                "width": 1.5 if thin else 2.5,
                "dash": "dot" if part == "interaction" else "solid",
            },
            "marker": {"color": look.colour, "symbol": look.symbol, "size": 6},
            "mode": "lines" if (thin or not log) and len(probes.rounds) > 1 else "lines+markers",
            "legendgroup": part,
        }
        drawn: Array | None = None
        if log:
            drawn = positive(np.abs(values) if part == "interaction" and signed else values)
            style["zorder"] = -1 if thin else 0  # where one part makes up nearly all of the total, the part is seen
            name = "|interaction|" if part == "interaction" and signed else name
        elif not thin:
            drawn = np.where(values < 0, 0.0, values)
            style |= {"stackgroup": f"panel{column}", "fillcolor": faint(look.colour, 0.7)}
            style["line"]["width"] = 0.5
        meta: dict[str, Any] = {"run": probes.view.name, "quiet": part == "participation"} if column else {}
        traces.append(
            curve(probes.rounds, values, name, drawn=drawn, keep=keep, cursor=cursor, meta=meta, **axes, **style)
        )
    return traces


def _ghost(reference: _Probes, *, log: bool, cursor: int | None) -> list[dict[str, Any]]:
    """The reference's participation part over the current run's: the comparison that matters."""
    look, values = PARTS["participation"], reference.parts["participation"]
    return [
        curve(
            reference.rounds, values, look.words, drawn=positive(values) if log else np.where(values < 0, 0.0, values),
            cursor=cursor, meta={"run": reference.view.name}, legendgroup="participation",
            mode="lines" if len(reference.rounds) > 1 else "lines+markers",
            line={"color": look.colour, "width": 2.5, "dash": "dot"}, marker={"color": look.colour, "size": 6},
        )
    ]  # fmt: skip


def _checks(probes: _Probes) -> list[dict[str, Any]]:
    """The independent estimates of the total, each with its standard error."""
    known = np.isfinite(probes.check)
    if not known.any():
        return []
    rounds, check, error = probes.rounds[known], probes.check[known], np.nan_to_num(probes.check_error[known])
    keep = kept(check)
    return [
        curve(
            rounds, check, "checked by random cohorts", mode="markers", meta={"quiet": True},
            marker={"color": NEUTRAL, "symbol": "line-ew-open", "size": 11, "line": {"width": 2}},
            error_y={"type": "data", "array": typed(error[keep]), "color": NEUTRAL, "thickness": 1.5, "width": 0},
        )
    ]  # fmt: skip


def _readouts(probes: _Probes, cursor: int | None) -> list[dict[str, Any]]:
    """κ and the cosine: numbers to read, not curves to draw."""
    return [
        curve(probes.rounds, values, name, cursor=cursor, visible=False, meta={"readout": True})
        for name, values in (("κ", probes.kappa), ("cosine", probes.cosine))
        if np.isfinite(values).any()
    ]


def _heading(name: str, x: str) -> dict[str, Any]:
    return {
        "text": f"<b>{name}</b>", "xref": f"{x} domain", "yref": "paper", "x": 0, "y": 1, "xanchor": "left", "yanchor": "bottom",
        "showarrow": False, "yshift": 3,
    }  # fmt: skip


def _notes(panels: list[_Probes], shown: list[str], *, log: bool, signed: bool, relative: bool) -> list[str]:
    """What a viewer must know to read the chart right."""
    below = any((p.parts[part] < 0).any() for p in panels for part in shown if part in SUMMANDS)
    zero = any((p.parts[part] == 0).any() for p in panels for part in shown if part in SUMMANDS)
    return [
        *(["1 is an error as large as the step"] if relative else []),
        *(
            ["drift includes the bias that noise causes"]
            if panels[0].view.records.mode == "cheap" and not relative
            else []
        ),
        *([GAPS_NOTE] if log and (below or zero) else []),
        *(["|interaction|: its size, the sign is in the legend"] if signed else []),
        *(["estimates below zero are drawn as zero"] if not log and below else []),
    ]
