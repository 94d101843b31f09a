"""The error of whole windows of rounds, for the methods that act once in a window (the amplified ones).

A single round of such a method may point anywhere; what counts is the move of the whole window. Its parts stand at the round in
which the window ends, on a log scale, with the same colours as those of a round.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedviz.figures.drawing import (
    GAPS_NOTE,
    at,
    cursor_lines,
    curve,
    figure,
    log_axis,
    measured,
    positive,
    readout,
    rounds_axis,
)
from fedviz.figures.style import MOVEMENT, PARTS, number
from fedviz.figures.views import Figure, RunView

LOOKS = {
    **{part: PARTS[part] for part in ("participation", "noise", "drift")},
    "movement": MOVEMENT,
    "total": PARTS["total"],
}


def windows(view: RunView, *, cursor: int | None = None) -> Figure | None:
    """The parts of each measured window; None without any."""
    rounds, columns = measured(view, "window", (*LOOKS, "interaction", "rounds"))
    found = at(rounds, columns["total"], cursor)
    if found is None:
        return None
    index = int(np.flatnonzero(rounds == found[0])[0])
    data: list[dict[str, Any]] = []
    said, shown = [], []
    for part, look in LOOKS.items():
        values = columns[part]
        if not np.isfinite(values).any():
            continue
        total = part == "total"
        now = number(float(values[index]))
        said.append(f"{look.words} {now}")
        shown.append(values)
        data.append(
            curve(
                rounds, values, look.words, drawn=positive(values), mode="lines+markers", legendgroup=part, focus=view.focus,
                line={"color": look.colour, "width": 1 if total else 1.5, "dash": "solid" if total else "dot"},
                marker={"color": look.colour, "symbol": look.symbol, "size": 5 if total else 8},
                meta={"now": now}, zorder=-1 if total else 0,
            )
        )  # fmt: skip
    interaction = columns["interaction"]
    if np.isfinite(interaction).any():
        now = number(float(interaction[index]))
        said.insert(-1, f"{PARTS['interaction'].words} {now}")
        data.append(readout(PARTS["interaction"].words, now, rounds, interaction, focus=view.focus))
    length = int(columns["rounds"][index])
    gaps = any((values <= 0).any() for values in shown)
    return figure(
        f"Error of a whole window of {length:,} rounds",
        data,
        alt=f"Error of a whole window of {length:,} rounds, the one that ended in round {found[0]:,}: {', '.join(said)}.",
        notes=[
            "marks: the measured windows, where they end",
            *(["drift includes the bias that noise causes"] if not np.isfinite(columns["noise"]).any() else []),
            *([GAPS_NOTE] if gaps else []),
        ],
        at=cursor,
        xaxis=rounds_axis(view.rounds),
        yaxis={**log_axis(most=4), "title": {"text": "squared distance", "standoff": 6}},
        margin={"l": 74, "r": 22, "t": 8, "b": 40},
        shapes=cursor_lines(cursor, "x"),
    )
