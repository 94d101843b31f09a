"""A run as the charts need it: one snapshot of its records, of its reference's, and what they were made with."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from fedviz.config import ConfigError, SimulationConfig
from fedviz.figures import Parent, RunView
from fedviz.figures.views import Role
from fedviz.problems import Classification, ProblemError
from fedviz.runs.columns import Columns, Records
from fedviz.runs.run import Run
from fedviz.runs.store import StoreError
from fedviz.simulation.clients import clusters_of, participation_of
from fedviz.ui.manager import run_manager

MOST_CELLS = 2_000_000  # rounds x clients for which the ground of who is on duty is drawn
RECORDED = Path(__file__).parents[2] / "assets" / "recorded_default.json.gz"


@dataclass(frozen=True)
class Shown:
    """All charts of one tick are drawn from one of these, so that they agree."""

    key: str
    config: SimulationConfig
    records: Records
    reference: SimulationConfig | None = None
    reference_records: Records | None = None
    role: Role = "current"
    parent: Parent | None = None  # the run that it continues
    title: str = ""  # given by its owner

    @classmethod
    def of(cls, run: Run) -> Shown:
        reference = run.reference
        return cls(
            run.id,
            run.config,
            run.records,
            reference.config if reference else None,
            reference.records if reference else None,
            parent=_parent(run),
            title=run.title,
        )

    @property
    def extent(self) -> tuple[str, int, int]:
        """Which records these are, in few words: records of a run are only ever added to."""
        others = self.reference_records
        return self.key, len(self.records), -1 if others is None else len(others)

    @property
    def last_round(self) -> int:
        return int(self.records.rounds[-1]) if len(self.records) else 0

    @cached_property
    def view(self) -> RunView:
        return replace(_view(self.config, self.records, self.role), continues=self.parent)

    @cached_property
    def reference_view(self) -> RunView | None:
        if self.reference is None or self.reference_records is None:
            return None
        return _view(self.reference, self.reference_records, "reference")

    def before(self, now: Shown) -> RunView | None:
        """As the run before `now`, to be drawn faint, under its title if it has one; None where nothing of it can be compared.

        How the data is dealt may differ, for that is worth comparing; what is trained on what may not.
        """
        if not len(self.records) or _trained(self.config) != _trained(now.config):
            return None
        name = self.title or self.view.name
        return replace(self.view, name=name, role="previous", records=_Until(self.records, now.config.rounds))


def _parent(run: Run) -> Parent | None:
    if run.parent_id is None or run.forked_at is None:
        return None
    try:
        title, name = _method(run.parent_id)
    except (KeyError, StoreError):  # deleted, or the database does not answer
        title, name = "another run", ""
    return Parent(title, name, run.forked_at)


@st.cache_data(max_entries=256, show_spinner=False)
def _method(run_id: str) -> tuple[str, str]:
    """(title, id) of a run's algorithm."""
    run = run_manager().get(run_id)
    if run is None:
        raise KeyError(run_id)
    return run.config.algorithm.title, run.config.algorithm.name


def _trained(config: SimulationConfig) -> dict[str, Any]:
    return config.problem.model_dump(exclude={"partition"})


class _Until:
    """Records up to a round, so that a longer run does not reach beyond the axis of a shorter one."""

    def __init__(self, records: Records, last: int) -> None:
        self._records = records
        self._count = int(np.searchsorted(records.rounds, last, side="right"))

    def __len__(self) -> int:
        return self._count

    @property
    def rounds(self) -> NDArray[np.int64]:
        return self._records.rounds[: self._count]

    def column(self, path: str) -> NDArray[np.float64]:
        return self._records.column(path)[: self._count]

    @property
    def cohorts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        clients, offsets = self._records.cohorts
        return clients[: offsets[self._count]], offsets[: self._count + 1]

    @property
    def mode(self) -> str | None:
        return self._records.mode


@st.cache_resource(show_spinner=False)
def recorded_default() -> Shown | None:
    """The default run as it was recorded once; None where the file is missing or from another version."""
    try:
        saved = json.loads(gzip.decompress(RECORDED.read_bytes()))
        run, reference = saved, saved["reference"]
        return Shown(
            "recorded",
            SimulationConfig.read(run["config"]),
            Columns(run["records"]).view(),
            SimulationConfig.read(reference["config"]) if reference else None,
            Columns(reference["records"]).view() if reference else None,
            "recorded",
        )
    except (OSError, ValueError, KeyError, ConfigError):
        return None


def _view(config: SimulationConfig, records: Records, role: Role) -> RunView:
    text = config.model_dump_json()
    clusters = _clusters(text)
    measured = {
        "decomposition": config.probe_every,
        "check": config.probe_every and config.probe.check_every,
        "groups": isinstance(config.problem, Classification) or clusters is not None,
    }
    return RunView(
        name=config.algorithm.title,
        algorithm=config.algorithm.name,
        role=role,
        num_clients=config.num_clients,
        rounds=config.rounds,
        records=records,
        clusters=clusters,
        window=config.participation.window(config.num_clients),
        available=_on_duty(text),
        awaits=frozenset(name for name, whether in measured.items() if whether),
    )


@st.cache_data(max_entries=32, show_spinner=False)
def _clusters(config_json: str) -> NDArray[np.int64] | None:
    """[N] the cluster of each client for a method with clusters; None without, or while the data is not at hand."""
    try:
        return clusters_of(SimulationConfig.read(config_json))
    except ProblemError:
        return None


@st.cache_data(max_entries=32, show_spinner=False)
def _on_duty(config_json: str) -> NDArray[np.bool_] | None:
    """[rounds, N] whose turn it is, for patterns with turns."""
    config = SimulationConfig.read(config_json)
    if config.rounds * config.num_clients > MOST_CELLS:
        return None
    try:
        participation = participation_of(config)
    except ProblemError:
        return None
    mask = np.zeros((config.rounds, config.num_clients), dtype=bool)
    for row in range(config.rounds):
        group = participation.on_duty(row + 1)
        if group is None:
            return None
        mask[row, group] = True
    return mask
