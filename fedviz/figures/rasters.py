"""Who took part and who holds which labels: pictures with one cell a client and a round (or label).

A cell is a pixel of a small PNG laid on the axes, so that 250 clients over 2,000 rounds cost as little as 10 over 10.
One colour on a transparent ground fits both themes. The numbers are in an invisible curve beneath, from which the page
reads what it says when one points at a round.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedviz.figures.drawing import axis, cursor_lines, figure, png, rounds_array, rounds_axis, typed, whole_ticks
from fedviz.figures.style import ALGORITHM_COLOURS, NEUTRAL, algorithm_colour, faint, percent, rgb
from fedviz.figures.views import Figure, Records, RunView

MAX_COLUMNS, MAX_ROWS = 200, 120  # about what a chart has pixels for; beyond, neighbours share a cell
SHADES = 8
NAMED_CLIENTS = 8
PREVIEW_COLOUR = ALGORITHM_COLOURS["fedavg"]


def participation(view: RunView, cursor: int | None = None, taken: Taken | None = None) -> Figure:
    """Clients over rounds: a mark where a client took part, on a pale ground where it was on duty.

    taken: the counts of the same run at an earlier look, which are brought up to date: then only new rounds are counted.
    """
    records = view.records
    counts = (taken or Taken(view)).up_to(records)
    label, shapes = "client", []
    if view.clusters is not None:
        label = "client, by cluster"
        shapes = _cluster_bands(np.bincount(view.clusters))
    clients, offsets = records.cohorts
    rounds, sizes = records.rounds, np.diff(offsets)
    after_start = np.flatnonzero(rounds > 0)
    index = after_start[_spread(len(after_start))]
    texts = [_who(clients[offsets[i] : offsets[i + 1]], view.num_clients) for i in index]
    up_to = len(index) if cursor is None else int(np.searchsorted(rounds[index], cursor, side="right"))
    chosen = max(up_to - 1, 0)
    now = texts[chosen] if texts else "–"
    trace = _invisible("took part", rounds_array(rounds[index]), typed(sizes[index], "u2"), texts, now)
    when = f" in round {int(rounds[index][chosen]):,}" if texts else ""
    return figure(
        "Who took part",
        [trace],
        alt=f"Who took part, clients over rounds: {counts.seen:,} of {view.num_clients:,} clients so far;{when} {now}.",
        notes=["pale: on duty"] if counts.ground is not None else [],
        at=cursor,
        xaxis=rounds_axis(view.rounds, showgrid=False),
        yaxis=_clients_axis(view.num_clients, title={"text": label, "standoff": 4}),
        images=[_image(counts.grid, counts.marks, counts.ground, algorithm_colour(view.algorithm))],
        shapes=[*shapes, *_windows(view), *cursor_lines(cursor, "x")],
    )


@dataclass(frozen=True)
class _Counts:
    grid: _Grid
    marks: NDArray[np.integer[Any]]  # [rows, columns] how often clients of a cell took part
    ground: NDArray[np.integer[Any]] | None  # the same for being on duty
    seen: int  # clients that have taken part at all


class Taken:
    """How often clients of each cell of the picture took part in a run, counted once a record. For any number of threads."""

    def __init__(self, view: RunView) -> None:
        self._grid = _Grid(max(view.rounds, 1), view.num_clients)
        self._rows = np.arange(view.num_clients)  # where each client stands
        if view.clusters is not None:
            self._rows[np.argsort(view.clusters, kind="stable")] = np.arange(view.num_clients)
        self._ground = None
        if view.available is not None:
            rounds, clients = np.nonzero(view.available[: max(view.rounds, 1)])
            self._ground = self._grid.count(rounds, self._rows[clients])
        self._lock = threading.Lock()
        self._records, self._marks, self._seen = self._nothing()

    def up_to(self, records: Records) -> _Counts:
        """The counts of all records of a snapshot of the run."""
        with self._lock:
            if len(records) < self._records:  # an older snapshot than the last one
                self._records, self._marks, self._seen = self._nothing()
            clients, offsets = records.cohorts
            fresh = slice(self._records, len(records))
            rounds = np.repeat(records.rounds[fresh], np.diff(offsets[self._records :]))
            clients = clients[offsets[self._records] :]
            self._marks = self._marks + self._grid.count(rounds - 1, self._rows[clients])
            self._seen[clients] = True
            self._records = len(records)
            return _Counts(self._grid, self._marks, self._ground, int(self._seen.sum()))

    def _nothing(self) -> tuple[int, NDArray[np.integer[Any]], NDArray[np.bool_]]:
        marks = np.zeros((self._grid.rows, self._grid.columns), dtype=np.int64)
        return 0, marks, np.zeros(len(self._rows), dtype=bool)


def participation_preview(mask: NDArray[np.bool_], available: NDArray[np.bool_] | None = None) -> Figure:
    """The same before a run: mask [rounds, N] says who will take part in rounds 1 ... , `available` who is on duty."""
    rounds, num_clients = mask.shape
    grid = _Grid(rounds, num_clients)
    ground = None if available is None else grid.count(*np.nonzero(available))
    image = _image(grid, grid.count(*np.nonzero(mask)), ground, PREVIEW_COLOUR)
    sizes = mask.sum(axis=1)
    shown = _spread(rounds)
    texts = [_who(np.flatnonzero(mask[row]), num_clients, named=4) for row in shown]
    seen = int(mask.any(axis=0).sum())
    summary = f"{seen:,} of {num_clients:,} seen in {rounds:,} rounds"
    return figure(
        "Who will take part",
        [_invisible("clients", rounds_array(shown + 1), typed(sizes[shown], "u2"), texts, summary)],
        alt=f"Who will take part, clients over rounds: {seen:,} of {num_clients:,} clients in the first {rounds:,} rounds.",
        link="preview-rounds",
        xaxis=axis(
            range=[0.5, rounds + 0.5],
            showgrid=False,
            tickformat=",",
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
        alt=f"Labels over {num_clients:,} clients: half of the clients have {percent(typical)} or more of one label.",
        link="preview-clients",
        x="client",
        xaxis=axis(
            range=[-0.5, num_clients - 0.5], showgrid=False, tickformat=",", title={"text": "client", "standoff": 2},
            **whole_ticks(num_clients, most=5),
        ),
        yaxis=axis(
            range=[num_labels - 0.5, -0.5], showgrid=False, tickmode="array", tickvals=ticks,
            ticktext=[str(names[tick])[:11] for tick in ticks], fixedrange=True,
        ),
        images=[image],
        margin={"l": 66, "r": 8, "t": 9, "b": 34},
    )  # fmt: skip


class _Grid:
    """Rounds x clients cut into at most MAX_COLUMNS x MAX_ROWS equal cells."""

    def __init__(self, rounds: int, clients: int) -> None:
        self.per_column, self.per_row = -(-rounds // MAX_COLUMNS), -(-clients // MAX_ROWS)
        self.columns, self.rows = -(-rounds // self.per_column), -(-clients // self.per_row)

    def count(self, rounds: NDArray[np.integer[Any]], clients: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
        """[rows, columns] how many pairs of rounds[i] and clients[i], both from 0, fall into each cell."""
        cell = clients // self.per_row * self.columns + rounds // self.per_column
        return np.bincount(cell, minlength=self.rows * self.columns).reshape(self.rows, self.columns)


def _image(
    grid: _Grid, counts: NDArray[np.integer[Any]], ground: NDArray[np.integer[Any]] | None, colour: str
) -> dict[str, Any]:
    """The picture: level 0 is empty, 1 on duty, above that taking part, the darker the more often within the cell."""
    levels = np.zeros(counts.shape, dtype=np.uint8)
    if ground is not None:
        levels[ground > 0] = 1
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
    more = f", … {len(cohort) - named:,} more" if len(cohort) > named else ""
    return f"{len(cohort):,} of {num_clients:,}: {', '.join(str(int(i)) for i in cohort[:named])}{more}"


def _clients_axis(num_clients: int, **options: Any) -> dict[str, Any]:
    """Client 0 at the top, as one reads."""
    ticks = whole_ticks(num_clients, most=5)
    return axis(
        range=[num_clients - 0.5, -0.5], showgrid=False, fixedrange=True, tickformat=",", **{**ticks, **options}
    )


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
