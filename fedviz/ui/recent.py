"""The way back: to the page as it was at first, and to earlier runs."""

from __future__ import annotations

from urllib.parse import urlsplit

import streamlit as st

from fedviz.runs.run import Run
from fedviz.runs.store import StoreError
from fedviz.runs.visitor import LOCAL
from fedviz.ui import actions, words
from fedviz.ui.manager import run_manager

MOST = 12
THIS_MACHINE = {"localhost", "127.0.0.1", "::1"}


def ways_back(run: Run | None) -> None:
    """The list of recent runs, and a button to the start page where one is not there already."""
    if _at_home():
        with st.popover("Recent runs", icon=":material/history:", key="recent", on_change="rerun") as popover:
            if popover.open:  # else nobody has asked the database
                _list(run)
    if run is not None:
        st.button("Start page", key="start_page", icon=":material/home:", on_click=actions.start_page)


def _at_home() -> bool:
    """Whether the visitor sits at the server: only then are all runs theirs. Elsewhere a run is opened by its link."""
    return urlsplit(str(st.context.url or "http://localhost/")).hostname in THIS_MACHINE


def _list(current: Run | None) -> None:
    try:
        runs = run_manager().runs(LOCAL, limit=MOST)
    except StoreError as error:
        st.markdown(words.escape(str(error)))
        return
    if not runs:
        st.markdown("None yet. Press Run.")
    for run in runs:
        badge = words.BADGES[run.state]
        when = run.created.astimezone().strftime("%d %b, %H:%M")
        st.button(
            f"{when} · {words.escape(words.title(run.config))} · {badge.word}",
            key=f"open-{run.id}",
            icon=badge.icon,
            type="tertiary",
            on_click=actions.open_run,
            args=(run.id,),
            disabled=current is not None and current.id == run.id,
        )
