"""How a figure is put together: typed arrays, decimation, axes, shading, and the words that the page turns into a legend.

Arrays travel as base64 typed arrays ({"dtype", "bdata"}, which plotly.js reads), at most `MAX_POINTS` a trace, so that a tick costs
the same however long the run. What plotly has no word for stands in `meta`:

    layout.meta   link    charts with the same word show the same x when one of them is hovered
                  x       what x is called beside a hovered value ("round")
                  at      the x that the values of the legend belong to, where a cursor is set
                  notes   short remarks under the legend
                  shaded  the name of the shaded rounds, "" without any
                  panels  the x axes of panels that are left out on narrow screens
                  continued  of a run that continues another: {"until": the last round that is the other's, "name": its name}
    trace.meta    now     the value beside the name in the legend: the latest one, or that at the cursor
                  unit    "", "percent" or "estimate" (with its error and round): how to write other values
                  run     whose value it is, where one legend entry holds the values of two runs
                  quiet   drawn, without a value of its own in the legend
                  readout not drawn, a value only
    trace.customdata      the values as recorded, where what is drawn differs from them (clipped, gaps)

Traces with the same legendgroup share one legend entry.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedviz.figures.style import NEUTRAL, algorithm_colour, faint, number, percent
from fedviz.figures.views import Figure, RunView

MARKS = 30  # of a curve in view, which can still be told apart
MAX_POINTS = 256  # the lowest and the highest of every 4 to 8 px of a chart
FLOAT32 = np.finfo(np.float32)
Array = NDArray[np.float64]


def typed(values: ArrayLike, dtype: str = "f4") -> dict[str, str]:
    """A flat array in plotly's base64 form; "f4" is float32, "u2" uint16.

    Values that float32 would turn into 0 or infinity (a run that converges or diverges by many powers of ten) go as float64.
    """
    if dtype == "f4":
        sizes = np.abs(np.asarray(values, dtype=float))
        sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
        if sizes.size and (sizes.min() < FLOAT32.tiny or sizes.max() > FLOAT32.max):
            dtype = "f8"
    raw = np.ascontiguousarray(values, dtype=f"<{dtype}")
    return {"dtype": dtype, "bdata": base64.b64encode(raw.tobytes()).decode()}


def rounds_array(rounds: ArrayLike) -> dict[str, str]:
    """Rounds as the smallest type that holds them exactly (float32 does up to 16 million)."""
    rounds = np.asarray(rounds)
    return typed(rounds, "u2" if not rounds.size or rounds.max() < 2**16 else "f4")


def kept(values: ArrayLike, limit: int = MAX_POINTS) -> NDArray[np.intp]:
    """Ascending indices of at most `limit` points that look like all of them.

    First and last are kept; what lies between is cut into buckets, of which the lowest, the highest and a gap (NaN) are kept.
    Buckets begin at the same places however long the curve has become, until their width grows: a live curve does not shimmer.
    """
    y = np.asarray(values, dtype=float)
    if len(y) <= limit:
        return np.arange(len(y))
    inner = y[1:-1]
    gaps = np.isnan(inner)
    has_gaps = bool(gaps.any())
    width = _bucket_width(len(inner), (limit - 2) // (3 if has_gaps else 2))
    starts = np.arange(0, len(inner), width)
    chosen = np.zeros(len(y), dtype=bool)
    chosen[[0, -1]] = True
    for filling, pick in ((np.inf, np.argmin), (-np.inf, np.argmax)):
        filled = np.full(len(starts) * width, filling)
        np.copyto(filled[: len(inner)], inner, where=~gaps if has_gaps else True)
        chosen[1 + starts + pick(filled.reshape(-1, width), axis=1)] = True
    if has_gaps:
        padded = np.zeros(len(starts) * width, dtype=bool)
        padded[: len(inner)] = gaps
        gap = padded.reshape(-1, width)
        chosen[(1 + starts + gap.argmax(axis=1))[gap.any(axis=1)]] = True
    return np.flatnonzero(chosen)


def kept_of(
    rounds: NDArray[np.int64], values: ArrayLike, focus: tuple[int, int] | None, limit: int = MAX_POINTS
) -> NDArray[np.intp]:
    """As `kept`, with as many points again among the rounds zoomed in on, and one at each side of them."""
    if focus is None or len(rounds) <= limit:
        return kept(values, limit)
    first = max(0, int(np.searchsorted(rounds, focus[0])) - 1)
    last = int(np.searchsorted(rounds, focus[1], side="right")) + 1
    within = first + kept(np.asarray(values)[first:last], limit)
    return np.union1d(kept(values, limit), within)


def _bucket_width(count: int, buckets: int) -> int:
    """The smallest of 2, 3, 4, 6, 8, 12, 16, 24 ... with which so many buckets hold all."""
    step = 1
    while 2 * step * buckets < count and 3 * step * buckets < count:
        step *= 2
    return 2 * step if 2 * step * buckets >= count else 3 * step


def at(rounds: NDArray[np.int64], values: Array, cursor: int | None) -> tuple[int, float] | None:
    """(round, value) of the last number up to round `cursor` (of the first one, before that); the latest without a cursor."""
    if cursor is None and len(values) and np.isfinite(values[-1]):
        return int(rounds[-1]), float(values[-1])
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return None
    up_to = len(known) if cursor is None else int(np.searchsorted(rounds[known], cursor, side="right"))
    index = known[max(up_to - 1, 0)]
    return int(rounds[index]), float(values[index])


def measured(view: RunView, group: str, paths: Sequence[str]) -> tuple[NDArray[np.int64], dict[str, Array]]:
    """The rounds in which `group` was measured at all, and its columns there: NaN that remains is a gap, not a pause."""
    columns = {path: view.records.column(f"{group}.{path}") for path in paths}
    rows = np.zeros(len(view.records), dtype=bool)
    for column in columns.values():
        rows |= np.isfinite(column)
    index = np.flatnonzero(rows)
    # All rounds from the first on, as a rule: then nothing is copied.
    together = len(index) and index[-1] - index[0] + 1 == len(index)
    select = slice(index[0], index[-1] + 1) if together else index
    return view.records.rounds[select], {path: column[select] for path, column in columns.items()}


def curve(
    rounds: NDArray[np.int64],
    values: Array,
    name: str,
    *,
    drawn: Array | None = None,
    keep: NDArray[np.intp] | None = None,
    focus: tuple[int, int] | None = None,
    cursor: int | None = None,
    unit: str = "",
    meta: dict[str, Any] | None = None,
    **style: Any,
) -> dict[str, Any]:
    """A line. `values` are as recorded; `drawn`, where given, is what stands on the paper instead. `keep`: which points, where the
    curve does not choose them itself. meta.thinned says that it has more of them than are drawn.
    """
    y = values if drawn is None else drawn
    keep = kept_of(rounds, y, focus) if keep is None else keep
    found = at(rounds, values, cursor)
    write = percent if unit == "percent" else number
    trace = {
        "type": "scatter",
        "mode": "lines" if len(rounds) > 2 else "lines+markers",  # a single point would have no line to show
        "name": name,
        "x": rounds_array(rounds[keep]),
        "y": typed(y[keep]),
        "connectgaps": False,
        "cliponaxis": False,
        "meta": {"now": write(found[1] if found else None), "unit": unit, **(meta or {})},
        **style,
    }
    if trace["mode"] == "lines+markers":
        trace["marker"] = {**trace.get("marker", {}), "maxdisplayed": MARKS}
    if len(keep) < len(rounds):
        trace["meta"]["thinned"] = True
    if drawn is not None and not np.array_equal(y[keep], values[keep], equal_nan=True):
        trace["customdata"] = typed(values[keep])
    return trace


def curves(
    view: RunView,
    rounds: NDArray[np.int64],
    values: Array,
    name: str,
    *,
    before: str | None = None,
    drawn: Array | None = None,
    **look: Any,
) -> list[dict[str, Any]]:
    """A line of a run as `curve` draws it; of a run that continues another, what it has from there is a thin line of its own.

    That line has the other method's colour, or the one given as `before`, and no entry in the legend: it is shown and hidden with
    the first one, which has all values, so that pointing at any round reads it.
    """
    parent = view.continues
    if parent is None or not len(rounds):
        return [curve(rounds, values, name, drawn=drawn, focus=view.focus, **look)]
    y = values if drawn is None else drawn
    own = max(int(np.searchsorted(rounds, parent.until, side="right")) - 1, 0)  # from the other's last value on
    colour = before or algorithm_colour(parent.algorithm)
    inherited = {
        **look,
        "line": {"color": colour, "width": 2},
        "marker": {"color": colour, "size": 4},
        "meta": {"quiet": True},
    }
    first = slice(0, own + 1)
    return [
        curve(rounds, values, name, drawn=np.where(np.arange(len(y)) < own, np.nan, y), focus=view.focus, **look),
        curve(rounds[first], values[first], parent.name, drawn=y[first], focus=view.focus, **inherited),
    ]


def positive(values: Array) -> Array:
    """What a log axis can show: NaN, hence a gap, for zero and below."""
    return np.where(values > 0, values, np.nan)


def readout(
    name: str, now: str, rounds: NDArray[np.int64], values: Array, *, focus: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Numbers to read in the legend, not a curve to draw; `now` is the one that stands there."""
    return curve(rounds, values, name, focus=focus, visible=False, meta={"readout": True, "now": now})


GAPS_NOTE = "gaps: zero or below, which a log scale cannot show"


def axis(**options: Any) -> dict[str, Any]:
    return {
        "zeroline": False,
        "ticks": "",
        "fixedrange": False,
        "exponentformat": "power",
        "separatethousands": True,
        **options,
    }


def rounds_axis(rounds: int, **options: Any) -> dict[str, Any]:
    """0 ... rounds, the same on all charts of a run."""
    ticks = whole_ticks(max(1, rounds), most=8)
    title = {"text": "round", "standoff": 4}
    return axis(**{"range": [0, max(1, rounds)], **ticks, "tickformat": ",", "title": title, **options})


def whole_ticks(count: int, *, most: int) -> dict[str, Any]:
    """About `most` ticks, never between whole numbers: there is no client 0.5."""
    return {"tick0": 0, "dtick": 1} if count <= most else {"nticks": most}


def log_axis(*, most: int = 7, **options: Any) -> dict[str, Any]:
    """A log axis; the page names at most about `most` heights of it, as fit what is in view."""
    return axis(type="log", nticks=most, **options)


def cursor_lines(cursor: int | None, *x_axes: str) -> list[dict[str, Any]]:
    """The chosen round, as a vertical line in each panel."""
    if cursor is None:
        return []
    return [
        {"type": "line", "xref": x, "yref": "paper", "x0": cursor, "x1": cursor, "y0": 0, "y1": 1,
         "line": {"color": NEUTRAL, "width": 1.5}}
        for x in x_axes
    ]  # fmt: skip


COLD_STEPS = 8
COLD_NAME = "grey: some clients not yet remembered"


def cold_start(view: RunView, x_axis: str = "x") -> tuple[list[dict[str, Any]], str]:
    """(shapes, their name) for the rounds in which some clients' memories were still empty: the more of them, the darker.

    At the start all are: a method for which that is over with the first round is not shaded.
    """
    cold, rounds = view.records.column("diagnostics.cold"), view.records.rounds
    some = np.flatnonzero(cold > 0)  # not NaN, which stands for methods without memories
    if not len(some) or rounds[some[-1]] == 0:
        return [], ""
    levels = np.ceil(np.clip(np.nan_to_num(cold[: some[-1] + 1]), 0, 1) * COLD_STEPS).astype(int)
    change = np.flatnonzero(np.diff(levels)) + 1
    starts, ends = np.append(0, change), np.append(change, len(levels))
    shapes = [
        {"type": "rect", "xref": x_axis, "yref": "paper", "layer": "below", "y0": 0, "y1": 1,
         "x0": int(rounds[start]), "x1": int(rounds[min(end, len(rounds) - 1)]),
         "line": {"width": 0}, "fillcolor": faint(NEUTRAL, 0.06 + 0.2 * levels[start] / COLD_STEPS)}
        for start, end in zip(starts, ends, strict=True)
        if levels[start]
    ]  # fmt: skip
    last = int(rounds[np.flatnonzero(levels)[-1]])
    return shapes, COLD_NAME + (f", until round {last:,}" if last < rounds[-1] else "")


def figure(
    title: str,
    data: list[dict[str, Any]],
    *,
    alt: str,
    notes: Sequence[str] = (),
    at: int | None = None,
    link: str = "rounds",
    x: str = "round",
    panels: Sequence[str] = (),
    shaded: str = "",
    **layout: Any,
) -> Figure:
    """A figure with the house's layout. Colours of text, grid and ground are the page's."""
    meta = {"link": link, "x": x, "at": at, "notes": list(notes), "panels": list(panels), "shaded": shaded}
    return Figure(
        {
            "data": data,
            "layout": {
                "title": {"text": title},
                "hovermode": False,  # the page shows the values in the legend, on all charts at once
                "dragmode": "zoom",
                "showlegend": True,
                "margin": {"l": 56, "r": 22, "t": 8, "b": 40},
                "meta": meta,
                **layout,
            },
        },
        alt,
    )


def png(levels: NDArray[np.uint8], palette: Sequence[tuple[int, int, int, int]]) -> str:
    """A picture with one pixel a cell as a data URI; levels [rows, columns] point into a palette of RGBA colours."""
    height, width = levels.shape
    rows = np.zeros((height, width + 1), dtype=np.uint8)  # each row starts with its filter: none
    rows[:, 1:] = levels

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    colours, opacities = bytes(c for p in palette for c in p[:3]), bytes(p[3] for p in palette)
    image = b"\x89PNG\r\n\x1a\n" + b"".join(
        (
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            chunk(b"PLTE", colours),
            chunk(b"tRNS", opacities),
            chunk(b"IDAT", zlib.compress(rows.tobytes(), 4)),
            chunk(b"IEND", b""),
        )
    )
    return "data:image/png;base64," + base64.b64encode(image).decode()
