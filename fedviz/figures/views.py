"""What goes into a chart (`RunView`, over any `Records`) and what comes out (`Figure`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Role = Literal["current", "reference", "previous", "recorded"]


class Records(Protocol):
    """A snapshot of a run's records as columns."""

    def __len__(self) -> int: ...

    @property
    def rounds(self) -> NDArray[np.int64]:
        """[n] round of each record, ascending."""

    def column(self, path: str) -> NDArray[np.float64]:
        """[n] a number of each record by dotted path, such as "evaluation.train_loss"; NaN where there is none."""

    @property
    def cohorts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(clients, offsets [n + 1]): those of record i that took part are clients[offsets[i] : offsets[i + 1]]."""

    @property
    def mode(self) -> str | None:
        """How the decomposition was measured: "cheap", "full", or None without one."""


@dataclass(frozen=True)
class Parent:
    """The run that another one continues."""

    name: str  # as the legend writes it
    algorithm: str  # the id
    until: int  # up to this round the records of both are the same


@dataclass(frozen=True, eq=False)
class RunView:
    """A run as the charts see it."""

    name: str  # as the legend writes it: "FedVARP"
    algorithm: str  # the id: "fedvarp"
    role: Role
    num_clients: int
    rounds: int  # planned; the x axis of all charts spans 0 ... rounds
    records: Records
    clusters: NDArray[np.int64] | None = None  # [N] cluster of each client, for cluster methods
    window: int = 1  # P, after how many rounds the participation pattern repeats
    available: NDArray[np.bool_] | None = None  # [rounds, N] who is on duty in rounds 1 ... , where not all are
    focus: tuple[int, int] | None = (
        None  # the rounds that are zoomed in on: there more points are drawn, outside as many as ever
    )
    continues: Parent | None = None
    awaits: frozenset[str] = (
        frozenset()
    )  # of "decomposition", "check" and "groups" (of clients): what is, or will be, measured


@dataclass(frozen=True, eq=False)
class Figure:
    """A chart: plotly JSON, and one sentence with the latest numbers for those who cannot see it."""

    spec: dict[str, Any]
    alt: str
