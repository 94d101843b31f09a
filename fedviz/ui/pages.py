"""Ways from page to page. Links, not buttons: a link can be opened in another tab, and leaves behind what the address said of the page."""

from __future__ import annotations

import streamlit as st

from fedviz.ui import actions
from fedviz.ui.session import session


def to_runs() -> None:
    """To the page of all runs."""
    st.page_link(
        "pages/runs.py", label="Runs", icon=":material/history:", help="Earlier runs: open, compare, rename, import."
    )


def to_run(run_id: str, label: str) -> None:
    """To a run; label in Markdown."""
    st.page_link("pages/simulate.py", label=label, query_params={actions.RUN: run_id})


def to_reference() -> None:
    """To the page that explains everything."""
    st.page_link("pages/reference.py", label="All methods, problems and settings", icon=":material/menu_book:")


def back() -> None:
    """To the simulation, and to the run that was on it."""
    session().left.clear()  # who is on another page knows where they are
    run_id = st.session_state.get("last_shown")
    st.page_link(
        "pages/simulate.py",
        label="Back to the simulation",
        icon=":material/arrow_back:",
        query_params={actions.RUN: run_id} if run_id else None,
    )
