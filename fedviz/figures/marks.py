"""A round marked on a finished chart: where a run leaves the one that it continues."""

from __future__ import annotations

from functools import lru_cache

from fedviz.figures.style import NEUTRAL
from fedviz.figures.views import Figure


@lru_cache(maxsize=256)  # a tick that changes nothing gets the same object, whose message is made already
def marked(figure: Figure, round: int | None, note: str) -> Figure:
    """The chart with a dotted line at a round in every panel over rounds, and a note on what it is; as it is for None."""
    if round is None:
        return figure
    layout = figure.spec["layout"]
    over_rounds = [
        name.replace("axis", "")
        for name, axis in layout.items()
        if name.startswith("xaxis") and axis.get("range") == layout["xaxis"].get("range")
    ]
    lines = [
        {"type": "line", "name": "fork", "xref": x, "yref": "paper", "x0": round, "x1": round, "y0": 0, "y1": 1,
         "line": {"color": NEUTRAL, "width": 1.5, "dash": "dot"}}
        for x in over_rounds
    ]  # fmt: skip
    meta = {**layout["meta"], "notes": [*layout["meta"]["notes"], note]}
    shapes = [*layout.get("shapes", []), *lines]
    return Figure({**figure.spec, "layout": {**layout, "shapes": shapes, "meta": meta}}, f"{figure.alt} {note}.")
