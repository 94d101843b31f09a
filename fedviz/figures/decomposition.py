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
* The sentence above the chart answers the same question. It leads with the comparison of the two runs, then gives the
  shares of the parts as they are drawn, and says where drift is mostly a step of another length.
* All values in the legend and in the sentence are those of one probe.
* What will be measured has its entry in the legend from the start, so that the chart does not jump when it comes.
* The theory split counts the participants' noise as noise rather than as participation: the same total, cut at
  another place.

Values in the legend, in `customdata` and in sentences are the recorded ones, never the clipped ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedviz.figures.drawing import (
    GAPS_NOTE,
    MARKS,
    Array,
    at,
    axis,
    cold_start,
    cursor_lines,
    curve,
    figure,
    kept_of,
    log_axis,
    measured,
    positive,
    readout,
    rounds_axis,
    typed,
)
from fedviz.figures.style import NEUTRAL, PARTS, PERCENT, faint, number, percent
from fedviz.figures.views import Figure, RunView

Scale = Literal["log", "linear"]
Split = Literal["telescoped", "theory"]

COLUMNS = (
    "participation", "participation_sampling", "noise", "bias", "drift", "interaction", "total",
    "direction_norm_sq", "shrinkage", "cosine", "perpendicular", "noise_drift", "check", "check_error",
)  # fmt: skip
# Bottom to top: participation stands on the axis, where its height can be read.
SUMMANDS = ("participation", "bias", "noise", "drift")
ROUNDING = 1e-6  # of the total, and of the gradient's length; float32 leaves about 1e-8 of cross terms that are zero in exact arithmetic
NO_ERROR, NO_ERROR_LEFT = 1e-25, 1e-20  # a total below the first, or below the second of the largest, is rounding alone
MUCH_SHORTER = 0.5  # κ below it
ALIGNED = (
    0.9  # a cosine above it: another length would undo more than 80 % (its square) of the distance to the gradient
)
STEPS = {
    "much shorter": "a step much shorter than the gradient",
    "shorter": "a step shorter than the gradient",
    "longer": "a step longer than the gradient",
    "opposite": "a step against the gradient",
}
ACROSS = "drift across the gradient"


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
    if reference is not None:
        panels.append(_Probes(reference, relative, split))
    sentence = _read(panels[0], panels[1] if len(panels) == 2 else None, cursor, relative)
    log = scale == "log"
    # Which-group bias and interaction are there for some patterns only; the relative view has neither sum nor cross terms.
    shown = [
        part
        for part in PARTS
        if (part not in ("bias", "interaction") or any(p.ever(part) or p.expects(part) for p in panels))
        and not (relative and part in ("interaction", "total"))
    ]
    signed = log and any((p.parts["interaction"] < 0).any() for p in panels) and "interaction" in shown

    index, there = _chosen(panels[0], panels[1] if len(panels) == 2 else None, cursor)
    chosen = [index, there if there is not None or len(panels) == 1 else panels[1].index(cursor)]
    bias = _bias_words(panels)
    data: list[dict[str, Any]] = []
    for column, probes in enumerate(panels):
        data += _panel(probes, shown, column, chosen[column], bias=bias, log=log, signed=signed)
    if len(panels) == 2:
        data += _ghost(panels[1], chosen[1], log=log)
    if not relative:
        for column, probes in enumerate(panels):
            data += _checks(probes, column, cursor)
    data += _readouts(panels[0], index)

    two = len(panels) == 2
    x_axes = ["x", "x2"] if two else ["x"]
    y_title = {"text": "of the step's squared length" if relative else "squared distance", "standoff": 6}
    y_axis = log_axis() if log else axis(rangemode="tozero", nticks=6)
    y_axis["title"] = y_title
    layout: dict[str, Any] = {
        "xaxis": rounds_axis(view.rounds, domain=[0, 0.482] if two else [0, 1]),
        "yaxis": y_axis,
        "annotations": [_heading(p.view.name, x) for p, x in zip(panels, x_axes, strict=True)] if two else [],
        "margin": {"l": 74, "r": 22, "t": 26 if two else 8, "b": 40},
    }
    if two:
        layout["xaxis2"] = rounds_axis(view.rounds, domain=[0.518, 1], anchor="y2", matches="x")
        layout["yaxis2"] = {**y_axis, "anchor": "x2", "matches": "y", "showticklabels": False, "title": {"text": ""}}
    shapes = cursor_lines(cursor, *x_axes)
    cold_shapes, shaded = cold_start(view)
    title = "Error of the server's step, relative to its length" if relative else "Where the server's error comes from"
    return figure(
        title,
        data,
        alt=f"{title}. {sentence}",
        notes=_notes(panels, shown, log=log, signed=signed, relative=relative),
        shaded=shaded,
        at=None if cursor is None or index is None else int(panels[0].rounds[index]),
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
    """The chart in one or two sentences.

    "At round 200: who took part adds 0.00116 to FedVARP's error, 102 times less than to FedAvg's (0.119). FedVARP's error is <1 %
    who took part · <1 % gradient noise · >99 % client drift (mostly a step much shorter than the gradient)."

    Where another round is looked at than was measured, it begins with "Last measured in round 200". Shares are of the parts that
    add up, without the interaction (which may be negative); a part estimated below zero counts as zero. In the relative view all
    numbers are divided by the squared length of the run's own mean step.
    """
    other = _Probes(reference, relative, split) if reference is not None else None
    return _read(_Probes(view, relative, split), other, cursor, relative)


def _read(probes: _Probes, other: _Probes | None, cursor: int | None, relative: bool) -> str:
    view = probes.view
    index, there = _chosen(probes, other, cursor)
    if index is None:
        return "No decomposition has been measured."
    when = f"{_when(probes, index, cursor)}: "
    if probes.is_rounding(index):
        beside = "" if relative else _total_there(probes, other, there)  # which has no relative total
        return f"{when}no error beyond rounding{beside}."
    compared = "" if other is None or there is None else _compared(probes, index, other, there, relative)
    shares = _shares(probes, index, relative, of=f"{view.name}'s error is " if compared else "")
    return f"{when}{compared}. {shares[0].upper()}{shares[1:]}." if compared else f"{when}{shares}."


def _when(probes: _Probes, index: int, cursor: int | None) -> str:
    """The round of a probe, and whether it is an earlier one than is looked at."""
    round, looked_at = int(probes.rounds[index]), probes.view.records.rounds[-1] if cursor is None else cursor
    newest = index == probes.index(cursor)
    return f"Last measured in round {round:,}" if newest and round < looked_at else f"At round {round:,}"


def _chosen(probes: _Probes, other: _Probes | None, cursor: int | None) -> tuple[int | None, int | None]:
    """(the probe to read, that of the other run in the same round).

    While both runs compute, one may be a probe ahead: then the one before, which both have, is read.
    """
    mine = probes.index(cursor)
    if mine is None or other is None:
        return mine, None
    for index in [mine] if cursor is not None or mine == 0 else [mine, mine - 1]:
        there = other.index(int(probes.rounds[index]))
        if there is not None and other.rounds[there] == probes.rounds[index] and probes.is_known(index):
            return index, there
    return mine, None


def _total_there(probes: _Probes, other: _Probes | None, there: int | None) -> str:
    if other is None or there is None:
        return ""
    theirs = "none either" if other.is_rounding(there) else number(float(other.total[there]))
    return f" with {probes.view.name}; with {other.view.name}, {theirs}"


def _compared(probes: _Probes, index: int, other: _Probes, there: int, relative: bool) -> str:
    """How much of the error comes from who takes part, in both runs; where that is nothing in either, how much from drift."""
    mine, theirs = probes.of_who(index), other.of_who(there)
    if probes.is_nothing(mine, index) and other.is_nothing(theirs, there):
        mine, theirs = float(probes.parts["drift"][index]), float(other.parts["drift"][there])
        what, adds = ACROSS if relative else PARTS["drift"].words, "adds"
    elif probes.ever("bias") or other.ever("bias"):
        what, adds = f"{PARTS['participation'].words} and {_bias_words([probes, other])}", "add"
    else:
        what, adds = PARTS["participation"].words, "adds"
    against = "measured against each run's own step, " if relative else ""
    mine_words = "nothing" if probes.is_nothing(mine, index) else number(mine)
    theirs_words = "nothing" if other.is_nothing(theirs, there) else number(theirs)
    said = f"{against}{what} {adds} {mine_words} to {probes.view.name}'s error"
    name = other.view.name
    if mine_words == theirs_words:
        return f"{said}, and as much to {name}'s" if mine_words != "nothing" else f"{said} and to {name}'s"
    if "nothing" in (mine_words, theirs_words) or min(mine, theirs) <= 0:
        return f"{said}, and {theirs_words} to {name}'s"
    return f"{said}, {_times(mine / theirs)} to {name}'s ({theirs_words})"


def _times(ratio: float) -> str:
    """A ratio as words before "to": "102 times less than", "20.0 % more than", "3.00 times as much as"."""
    if 1 / 1.05 < ratio < 1.05:
        return "about the same as"
    if ratio >= 2:
        return f"{number(ratio)} times as much as"
    if ratio > 0.5:
        return f"{percent(abs(ratio - 1))} {'more' if ratio > 1 else 'less'} than"
    return f"{number(1 / ratio)} times less than"


def _shares(probes: _Probes, index: int, relative: bool, of: str) -> str:
    """The shares of the parts as they are drawn, begun with `of`, and what drift is where it is most of the error."""
    parts = {
        part: max(float(probes.parts[part][index]), 0.0) for part in SUMMANDS if part != "bias" or probes.ever("bias")
    }
    words = of + _listed(probes, parts, across=relative)
    if relative:
        whole = sum(parts.values())
        return f"{words}; together {number(whole)} of the step's squared length"
    along = probes.along(index, parts)
    undone = along == "much shorter" and float(probes.cosine[index]) > ALIGNED
    return f"{words} (mostly {STEPS[along]}{', which a larger rate would undo' if undone else ''})" if along else words


def _listed(probes: _Probes, parts: Mapping[str, float], *, across: bool) -> str:
    whole = sum(parts.values())
    if not whole:
        return "no part above zero"
    names = {**{part: PARTS[part].words for part in parts}, "bias": _bias_words([probes])}
    if across:
        names["drift"] = ACROSS
    return " · ".join(f"{_share(value / whole)} {names[part]}" for part, value in parts.items())


def _share(share: float) -> str:
    if 0 < share < 0.005:
        return f"<1{PERCENT}"
    if 0.995 < share < 1:
        return f">99{PERCENT}"
    return f"{share:.0%}".replace("%", PERCENT)


def _bias_words(panels: Sequence[_Probes]) -> str:
    """What the bias comes from: whose turn it is, who else is available, or MIFA, which leans on the past."""
    in_turns = any(p.view.available is not None for p in panels)
    lags = any(p.view.algorithm == "mifa" for p in panels if p.ever("bias"))
    if lags:
        return "who was on duty and old memories" if in_turns else "old memories"
    return PARTS["bias"].words if in_turns else "who was available"


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
        self.total, self.drift = columns["total"], columns["drift"]  # absolute in both views
        self.kappa, self.cosine, self.perpendicular = columns["shrinkage"], columns["cosine"], columns["perpendicular"]
        self.noise_drift = columns["noise_drift"]
        self.check, self.check_error = columns["check"], columns["check_error"]
        self._ever: dict[str, bool] = {}

    def ever(self, part: str) -> bool:
        """Whether the part was ever there: more than what rounding leaves of a sum that should vanish."""
        if part not in self._ever:
            there = np.abs(self.parts[part]) > ROUNDING * np.abs(self.parts["total"])
            self._ever[part] = bool(there.any())
        return self._ever[part]

    def expects(self, part: str) -> bool:
        """Whether the part will surely be there, where nothing has been measured yet."""
        biased = self.view.available is not None or self.view.algorithm == "mifa"
        return part == "bias" and biased and self.awaited

    @property
    def awaited(self) -> bool:
        return not len(self.rounds) and "decomposition" in self.view.awaits

    def index(self, cursor: int | None) -> int | None:
        """The last probe up to round `cursor`, or the first one."""
        known = self.parts["participation"]
        # Relative to a step without length there are no numbers, but without an error there is something to say.
        rounding = self.total < np.maximum(NO_ERROR, NO_ERROR_LEFT * np.fmax.accumulate(self.total))
        found = at(self.rounds, np.where(np.isnan(known) & rounding, 0.0, known), cursor)
        return None if found is None else int(np.flatnonzero(self.rounds == found[0])[0])

    def is_known(self, index: int) -> bool:
        return bool(np.isfinite(self.parts["participation"][index])) or self.is_rounding(index)

    def is_rounding(self, index: int) -> bool:
        """Whether nothing is left of the error at this probe but what rounding leaves."""
        total = float(self.total[index])
        return total < NO_ERROR or total < NO_ERROR_LEFT * float(np.nanmax(self.total[: index + 1]))

    def of_who(self, index: int) -> float:
        """What comes from who takes part: who was drawn, and who was there to be drawn from."""
        bias = float(self.parts["bias"][index]) if self.ever("bias") else 0.0
        return float(self.parts["participation"][index]) + (bias if np.isfinite(bias) else 0.0)

    def is_nothing(self, value: float, index: int) -> bool:
        """Whether a part is zero, or what rounding leaves of a zero."""
        return value == 0 or self.is_rounding(index) or abs(value) < 1e-12 * abs(float(self.parts["total"][index]))

    def along(self, index: int, parts: Mapping[str, float]) -> str:
        """How the step is off along the gradient, where that is most of the error: a key of STEPS, or ""."""
        kappa, cosine, across = (float(values[index]) for values in (self.kappa, self.cosine, self.perpendicular))
        if not np.isfinite([kappa, cosine, across]).all() or kappa in (0, 1):
            return ""
        if parts["drift"] <= 0.5 * sum(parts.values()) or across >= 0.5 * parts["drift"]:
            return ""
        if kappa < -ROUNDING:
            return "opposite"
        return "longer" if kappa > 1 else "much shorter" if kappa < MUCH_SHORTER else "shorter"


def _panel(
    probes: _Probes, shown: list[str], column: int, index: int | None, *, bias: str, log: bool, signed: bool
) -> list[dict[str, Any]]:
    """The curves (log) or layers (linear) of one run, with the values of probe `index` in the legend.

    Layers share their points, or they could not be stacked.
    """
    axes = _axes(column)
    keep: NDArray[np.intp] | None = None if log else kept_of(probes.rounds, probes.parts["total"], probes.view.focus)
    traces = []
    for part in shown:
        look, values = PARTS[part], probes.parts[part]
        relative_drift = part == "drift" and "total" not in shown
        name = ACROSS if relative_drift else bias if part == "bias" else look.words
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
        meta: dict[str, Any] = {"now": _now(values, index)}
        if column:
            meta |= {"run": probes.view.name, "quiet": part == "participation"}
        traces.append(
            curve(
                probes.rounds, values, name, drawn=drawn, keep=keep, focus=probes.view.focus, meta=meta, **axes, **style
            )
        )
    return traces


def _axes(column: int) -> dict[str, Any]:
    return {"xaxis": "x2", "yaxis": "y2"} if column else {"xaxis": "x", "yaxis": "y"}


def _now(values: Array, index: int | None) -> str:
    return number(None if index is None else float(values[index]))


def _ghost(reference: _Probes, index: int | None, *, log: bool) -> list[dict[str, Any]]:
    """The reference's participation part over the current run's: the comparison that matters."""
    look, values = PARTS["participation"], reference.parts["participation"]
    return [
        curve(
            reference.rounds, values, look.words, drawn=positive(values) if log else np.where(values < 0, 0.0, values),
            meta={"run": reference.view.name, "now": _now(values, index)}, legendgroup="participation", focus=reference.view.focus,
            mode="lines" if len(reference.rounds) > 1 else "lines+markers",
            line={"color": look.colour, "width": 2.5, "dash": "dot"}, marker={"color": look.colour, "size": 6},
        )
    ]  # fmt: skip


def _checks(probes: _Probes, column: int, cursor: int | None) -> list[dict[str, Any]]:
    """The independent estimates of the total, each with its standard error as a thin bar."""
    known = np.isfinite(probes.check)
    if not known.any() and "check" not in probes.view.awaits:
        return []
    rounds, check, error = probes.rounds[known], probes.check[known], np.nan_to_num(probes.check_error[known])
    keep = kept_of(rounds, check, probes.view.focus, MARKS)  # with their bars, which plotly does not thin with marks
    found = at(rounds, check, cursor)
    now = "–"
    if found:
        bar = float(error[np.searchsorted(rounds, found[0])])
        now = f"{number(found[1])} ± {number(bar)} (round {found[0]:,})"
    # Rarer than probes, so each says its own round.
    meta: dict[str, Any] = {"now": now, "unit": "estimate"}
    if column:
        meta |= {"run": probes.view.name, "quiet": True}
    return [
        curve(
            rounds, check, "check of the total", keep=keep, mode="markers", legendgroup="check",
            marker={"color": NEUTRAL, "symbol": "line-ew-open", "size": 11, "line": {"width": 2}},
            error_y={"type": "data", "array": typed(error[keep]), "color": NEUTRAL, "thickness": 1.5, "width": 0},
            meta=meta, **_axes(column),
        )
    ]  # fmt: skip


def _readouts(probes: _Probes, index: int | None) -> list[dict[str, Any]]:
    """Numbers to read, not curves to draw: all of the same probe as the parts."""
    numbers = (
        ("length along the gradient κ", probes.kappa),
        ("cosine", probes.cosine),
        ("drift that noise causes", probes.noise_drift),
    )
    return [
        readout(name, _now(values, index), probes.rounds, values, focus=probes.view.focus)
        for name, values in numbers
        if np.isfinite(values).any() or (probes.awaited and values is not probes.noise_drift)
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
