"""Who took part and who holds which labels: pictures with one cell a client and a round (or label).

A cell is a pixel of a small PNG laid on the axes, so that 250 clients over 2,000 rounds cost as little as 10 over 10.
One colour on a transparent ground fits both themes. The numbers are in an invisible curve beneath, from which the page
reads what it says when one points at a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedviz.figures.drawing import axis, cursor_lines, figure, png, rounds_array, rounds_axis, typed, whole_ticks
from fedviz.figures.style import ALGORITHM_COLOURS, NEUTRAL, algorithm_colour, faint, percent, rgb
from fedviz.figures.views import Figure, RunView

MAX_COLUMNS, MAX_ROWS = 300, 120  # about what a chart has pixels for; beyond, neighbours share a cell
SHADES = 8
NAMED_CLIENTS = 8
PREVIEW_COLOUR = ALGORITHM_COLOURS["fedavg"]


def participation(view: RunView, cursor: int | None = None) -> Figure:
    """Clients over rounds: a mark where a client took part, on a pale ground where it was on duty."""
    records, planned = view.records, max(view.rounds, 1)
    cohorts = [records.cohort(index) for index in range(len(records))]
    sizes = np.array([len(cohort) for cohort in cohorts], dtype=int)
    rounds = np.repeat(records.rounds, sizes)
    clients = np.concatenate(cohorts) if cohorts else np.empty(0, dtype=np.int64)
    rows = np.arange(view.num_clients)
    label, shapes = "client", []
    if view.clusters is not None:
        label = "client, by cluster"
        order = np.argsort(view.clusters, kind="stable")
        rows[order] = np.arange(view.num_clients)
        shapes = _cluster_bands(np.bincount(view.clusters))
    duty = None if view.available is None else np.nonzero(view.available[:planned])
    grid = _Grid(planned, view.num_clients)
    image = _image(
        grid,
        marks=(rounds - 1, rows[clients]),
        ground=None if duty is None else (duty[0], rows[duty[1]]),
        colour=algorithm_colour(view.algorithm),
    )
    after_start = np.flatnonzero(records.rounds > 0)
    index = after_start[_spread(len(after_start))]
    texts = [_who(cohorts[i], view.num_clients) for i in index]
    up_to = len(index) if cursor is None else int(np.searchsorted(records.rounds[index], cursor, side="right"))
    chosen = max(up_to - 1, 0)
    now = texts[chosen] if texts else "–"
    trace = _invisible("took part", rounds_array(records.rounds[index]), typed(sizes[index], "u2"), texts, now)
    seen = len(np.unique(clients))
    when = f" in round {int(records.rounds[index][chosen])}" if texts else ""
    return figure(
        "Who took part",
        [trace],
        alt=f"Who took part, clients over rounds: {seen} of {view.num_clients} clients so far;{when} {now}.",
        notes=["pale: on duty"] if duty is not None else [],
        at=cursor,
        xaxis=rounds_axis(view.rounds, showgrid=False),
        yaxis=_clients_axis(view.num_clients, title={"text": label, "standoff": 4}),
        images=[image],
        shapes=[*shapes, *_windows(view), *cursor_lines(cursor, "x")],
    )


def participation_preview(mask: NDArray[np.bool_], available: NDArray[np.bool_] | None = None) -> Figure:
    """The same before a run: mask [rounds, N] says who will take part in rounds 1 ... , `available` who is on duty."""
    rounds, num_clients = mask.shape
    image = _image(
        _Grid(rounds, num_clients),
        marks=np.nonzero(mask),
        ground=None if available is None else np.nonzero(available),
        colour=PREVIEW_COLOUR,
    )
    sizes = mask.sum(axis=1)
    shown = _spread(rounds)
    texts = [_who(np.flatnonzero(mask[row]), num_clients, named=4) for row in shown]
    seen = int(mask.any(axis=0).sum())
    summary = f"{seen} of {num_clients} seen in {rounds} rounds"
    return figure(
        "Who will take part",
        [_invisible("clients", rounds_array(shown + 1), typed(sizes[shown], "u2"), texts, summary)],
        alt=f"Who will take part, clients over rounds: {seen} of {num_clients} clients in the first {rounds} rounds.",
        link="preview-rounds",
        xaxis=axis(
            range=[0.5, rounds + 0.5],
            showgrid=False,
            title={"text": "round", "standoff": 2},
            **whole_ticks(rounds, most=5),
        ),
        yaxis=_clients_axis(num_clients, tickmode="array", tickvals=[0, num_clients - 1]),
        images=[image],
        margin={"l": 40, "r": 8, "t": 9, "b": 34},
    )


def label_counts(counts: NDArray[np.int64], names: Sequence[str]) -> Figure:
    """Labels over clients: the darker, the larger the share of a client's samples that has the label. counts [N, C]."""
    num_clients, num_labels = counts.shape
    totals = counts.sum(axis=1)
    shares = counts / np.maximum(totals, 1)[:, None]
    columns = np.minimum(np.arange(num_clients) * min(num_clients, MAX_COLUMNS) // num_clients, MAX_COLUMNS - 1)
    width = int(columns[-1]) + 1
    mean = np.stack([np.bincount(columns, shares[:, c], width) for c in range(num_labels)]) / np.bincount(columns)
    # A square root keeps small shares visible; only an empty cell is blank.
    levels = np.ceil(np.sqrt(mean) * SHADES * 2).astype(np.uint8)
    palette = [(*rgb(PREVIEW_COLOUR), round(255 * level / (SHADES * 2))) for level in range(SHADES * 2 + 1)]
    image = {
        "source": png(levels, palette), "xref": "x", "yref": "y", "x": -0.5, "y": -0.5, "sizex": num_clients, "sizey": num_labels,
        "xanchor": "left", "yanchor": "top", "sizing": "stretch", "layer": "above",
    }  # fmt: skip
    largest = counts.argmax(axis=1)
    shown = _spread(num_clients)
    texts = [f"{totals[i]:,}, {percent(shares[i, largest[i]])} {names[largest[i]]}" for i in shown]
    typical = float(np.median(shares.max(axis=1)))
    summary = f"{int(np.median(totals)):,} each, {percent(typical)} one label"
    # As many label names as fit: a name takes about the height of ten rows in a small chart.
    step = max(1, num_labels // 5)
    ticks = list(range(0, num_labels, step))
    return figure(
        "Labels of each client",
        [_invisible("samples", rounds_array(shown), typed(totals[shown]), texts, summary)],
        alt=f"Labels over {num_clients} clients: half of the clients have {percent(typical)} or more of one label.",
        link="preview-clients",
        x="client",
        xaxis=axis(
            range=[-0.5, num_clients - 0.5], showgrid=False, title={"text": "client", "standoff": 2},
            **whole_ticks(num_clients, most=5),
        ),
        yaxis=axis(
            range=[num_labels - 0.5, -0.5], showgrid=False, tickmode="array", tickvals=ticks,
            ticktext=[str(names[tick])[:11] for tick in ticks], fixedrange=True,
        ),
        images=[image],
        margin={"l": 66, "r": 8, "t": 9, "b": 34},
    )  # fmt: skip


Cells = tuple[NDArray[np.integer[Any]], ...]  # (rounds, clients), both from 0


class _Grid:
    """Rounds x clients cut into at most MAX_COLUMNS x MAX_ROWS equal cells."""

    def __init__(self, rounds: int, clients: int) -> None:
        self.per_column, self.per_row = -(-rounds // MAX_COLUMNS), -(-clients // MAX_ROWS)
        self.columns, self.rows = -(-rounds // self.per_column), -(-clients // self.per_row)

    def count(self, cells: Cells) -> NDArray[np.integer[Any]]:
        """[rows, columns] how many (round, client) pairs fall into each cell."""
        rounds, clients = cells
        cell = clients // self.per_row * self.columns + rounds // self.per_column
        return np.bincount(cell, minlength=self.rows * self.columns).reshape(self.rows, self.columns)


def _image(
    grid: _Grid,
    *,
    marks: Cells,
    ground: Cells | None,
    colour: str,
) -> dict[str, Any]:
    """The picture: level 0 is empty, 1 on duty, above that taking part, the darker the more often within the cell."""
    counts = grid.count(marks)
    levels = np.zeros(counts.shape, dtype=np.uint8)
    if ground is not None:
        levels[grid.count(ground) > 0] = 1
    took = counts > 0
    levels[took] = 1 + np.ceil(counts[took] * SHADES / counts.max()) if took.any() else 0
    shades = [(*rgb(colour), round(255 * (0.45 + 0.55 * shade / SHADES))) for shade in range(1, SHADES + 1)]
    palette = [(0, 0, 0, 0), (*rgb(NEUTRAL), 56), *shades]
    return {
        "source": png(levels, palette), "xref": "x", "yref": "y", "x": 0.5, "y": -0.5,
        "sizex": grid.columns * grid.per_column, "sizey": grid.rows * grid.per_row,
        "xanchor": "left", "yanchor": "top", "sizing": "stretch", "layer": "above",
    }  # fmt: skip


def _spread(count: int) -> NDArray[np.intp]:
    """At most MAX_COLUMNS indices of `count` things, evenly spread, first and last among them."""
    return np.unique(np.linspace(0, max(count - 1, 0), min(count, MAX_COLUMNS)).astype(np.intp))


def _invisible(name: str, x: Any, y: Any, texts: list[str], now: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "markers", "name": name, "x": x, "y": y, "text": texts, "opacity": 0,
        "marker": {"size": 1}, "meta": {"now": now, "readout": True},
    }  # fmt: skip


def _who(cohort: NDArray[np.int64], num_clients: int, named: int = NAMED_CLIENTS) -> str:
    if not len(cohort):
        return "nobody"
    more = f", … {len(cohort) - named} more" if len(cohort) > named else ""
    return f"{len(cohort)} of {num_clients}: {', '.join(str(int(i)) for i in cohort[:named])}{more}"


def _clients_axis(num_clients: int, **options: Any) -> dict[str, Any]:
    """Client 0 at the top, as one reads."""
    ticks = whole_ticks(num_clients, most=5)
    return axis(range=[num_clients - 0.5, -0.5], showgrid=False, fixedrange=True, **{**ticks, **options})


def _cluster_bands(sizes: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Every other cluster on a pale band."""
    ends = np.cumsum(sizes)
    return [
        {"type": "rect", "xref": "paper", "yref": "y", "layer": "below", "x0": 0, "x1": 1, "line": {"width": 0},
         "y0": float(end - size - 0.5), "y1": float(end - 0.5), "fillcolor": faint(NEUTRAL, 0.1)}
        for size, end in list(zip(sizes, ends, strict=True))[1::2]
    ]  # fmt: skip


def _windows(view: RunView) -> list[dict[str, Any]]:
    """Where the pattern starts again, as long as the lines do not crowd."""
    if view.window <= 1 or not 1 < view.rounds / view.window <= 40:
        return []
    return [
        {"type": "line", "xref": "x", "yref": "paper", "x0": end + 0.5, "x1": end + 0.5, "y0": 0, "y1": 1,
         "line": {"color": faint(NEUTRAL, 0.5), "width": 1, "dash": "dot"}}
        for end in range(view.window, view.rounds, view.window)
    ]  # fmt: skip
