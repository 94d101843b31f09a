"""What the buttons do. Each is a callback: it tells the run manager, and the page shows the outcome. Pressing twice is harmless."""

from __future__ import annotations

import streamlit as st

from fedviz.config import ConfigError
from fedviz.runs.admission import Refused
from fedviz.runs.run import Run
from fedviz.runs.store import StoreError
from fedviz.runs.visitor import LOCAL
from fedviz.ui import controls
from fedviz.ui.manager import run_manager

RUN = "run"  # the query parameter
PACES = {"2": 2.0, "10": 10.0, "50": 50.0, "max": None}  # rounds a second; None: as fast as it goes


def run_id() -> str | None:
    """The run in the address."""
    return st.query_params.get(RUN)


def run_or_none(run_id: str | None) -> Run | None:
    """The run, None where there is none or its records cannot be read."""
    try:
        return run_manager().get(run_id) if run_id else None
    except StoreError:
        return None


def start() -> None:
    """Submit what the form says, and put the new run into the address. The run shown until now stays on the charts, faint."""
    manager, form = run_manager(), controls.read()
    before = run_or_none(run_id())
    if form.config is None or form.reason:
        return
    if before is not None and before.live and not differs(form, before):
        return
    try:
        run = manager.submit(form.config, reference=form.reference, visitor=LOCAL)
    except (Refused, ConfigError) as refusal:
        st.session_state.refused = str(refusal)
        return
    manager.set_pace(run.id, LOCAL, PACES.get(st.session_state.pace))
    mine: list[str] = st.session_state.setdefault("mine", [])
    if before is not None:
        st.session_state.previous = before.id
        if before.live and before.id in mine:
            manager.stop(before.id, LOCAL)  # this visitor has replaced it; runs of others go on
    mine.append(run.id)
    st.session_state.loaded = run.id
    st.session_state.refused = None
    st.query_params[RUN] = run.id


def open_run(run_id: str) -> None:
    """Show an earlier run, as its link does."""
    st.session_state.previous = None
    st.query_params[RUN] = run_id


def start_page() -> None:
    """Back to the page as it is without a run: the recorded one, and the controls as they were for it."""
    st.session_state.previous = st.session_state.loaded = st.session_state.refused = None
    st.query_params.pop(RUN, None)
    controls.reset()


def differs(form: controls.Form, run: Run) -> bool:
    """Whether the form no longer says what the run has."""
    return (form.config, form.reference) != (run.config, run.reference.config if run.reference else None)


def pause() -> None:
    _tell("pause")


def resume() -> None:
    _tell("resume")


def step() -> None:
    _tell("step")


def stop() -> None:
    _tell("stop")


def set_pace() -> None:
    """The pace is the run's, not the visitor's: all tabs on one run show the same."""
    current, chosen = run_id(), st.session_state.pace
    if chosen in PACES and current and run_or_none(current):  # a browser may say None while the page is made
        run_manager().set_pace(current, LOCAL, PACES[chosen])


def _tell(what: str) -> None:
    current = run_id()
    if current and run_or_none(current):
        getattr(run_manager(), what)(current, LOCAL)
