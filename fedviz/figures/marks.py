"""A round marked on a finished chart: where a run leaves the one that it continues."""

from __future__ import annotations

from functools import lru_cache

from fedviz.figures.style import NEUTRAL, faint
from fedviz.figures.views import Figure, Parent


@lru_cache(maxsize=256)  # a tick that changes nothing gets the same object, whose message is made already
def marked(figure: Figure, parent: Parent | None) -> Figure:
    """The chart with all that is the parent's faded, up to a dotted line, in every panel over rounds; as it is for None.

    Faded by a veil, which the page gives the colour of its ground: so curves, layers and pictures are faded alike.
    """
    if parent is None:
        return figure
    layout = figure.spec["layout"]
    over_rounds = [
        name.replace("axis", "")
        for name, axis in layout.items()
        if name.startswith("xaxis") and axis.get("range") == layout["xaxis"].get("range")
    ]
    veils = [
        {"type": "rect", "name": "veil", "xref": x, "yref": "paper", "x0": 0, "x1": parent.until, "y0": 0, "y1": 1,
         "line": {"width": 0}, "fillcolor": faint(NEUTRAL, 0.3)}
        for x in over_rounds
    ]  # fmt: skip
    lines = [
        {"type": "line", "name": "fork", "xref": x, "yref": "paper", "x0": parent.until, "x1": parent.until, "y0": 0, "y1": 1,
         "line": {"color": NEUTRAL, "width": 1.5, "dash": "dot"}}
        for x in over_rounds
    ]  # fmt: skip
    meta = {**layout["meta"], "continued": {"until": parent.until, "name": parent.name}}
    shapes = [*veils, *layout.get("shapes", []), *lines]
    said = f"Up to round {parent.until:,} it is {parent.name}, which this run continues."
    return Figure({**figure.spec, "layout": {**layout, "shapes": shapes, "meta": meta}}, f"{figure.alt} {said}")
