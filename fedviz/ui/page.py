"""The page on which one chooses, presses Run and watches: the sidebar's form, the title, the live view, the explanation."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from fedviz.runs.run import Run
from fedviz.runs.store import StoreError
from fedviz.ui import actions, controls, live, words
from fedviz.ui.live import Scene
from fedviz.ui.manager import run_manager
from fedviz.ui.recent import ways_back
from fedviz.ui.share import share
from fedviz.ui.shown import Shown, recorded_default

ICON = str(Path(__file__).parents[2] / "assets" / "icon.png")
STYLE = Path(__file__).with_name("page.css")


def simulate() -> None:
    """The whole page, once through."""
    st.html(STYLE)
    try:
        run_manager()
    except StoreError as error:  # the database of runs is damaged, or another version's
        st.error(str(error), icon=":material/database_off:")
        st.stop()
    run, unknown = _run_in_address()
    embedded = bool(st.context.is_embedded)
    if not embedded:
        st.logo(ICON, size="large")
        with st.sidebar:
            st.header("fedviz", anchor=False)
            controls.show(controls.read())
    form = controls.read()
    previous = actions.run_or_none(st.session_state.get("previous")) if run else None
    scene = Scene(
        address=actions.run_id(),
        run=run,
        shown=None if run else recorded_default(),
        previous=Shown.of(previous) if previous and previous is not run else None,
        form=form,
        changed=_changed(form, run),
        embedded=embedded,
    )
    shown = Shown.of(run) if run else scene.shown
    config = shown.config if shown else form.config
    if unknown:
        st.info(unknown, icon=":material/link_off:")
    _title(words.title(config) if config else "fedviz", run, embedded)
    live.show(scene)
    if config and not embedded:
        _looking_at(shown)


def _run_in_address() -> tuple[Run | None, str]:
    """(the run that the link names, "") or (None, what to tell a visitor whose link names an unknown one)."""
    wanted = actions.run_id()
    if not wanted:
        return None, ""
    try:
        run = run_manager().get(wanted)
    except StoreError as error:
        return None, str(error)
    if run is None:
        return None, (
            "This link names a run that is not kept here: it may be from another computer, or have been deleted. "
            "Below is the normal page; press Run for a run of your own."
        )
    if st.session_state.get("loaded") != run.id:  # opened by its link: the controls say what the run has
        st.session_state.loaded = run.id
        controls.load(run.config, run.reference.config if run.reference else None)
    return run, ""


def _changed(form: controls.Form, run: Run | None) -> bool:
    if run is not None:
        return actions.differs(form, run)
    recorded = recorded_default()
    return recorded is not None and (form.config, form.reference) != (recorded.config, recorded.reference)


def _title(text: str, run: Run | None, embedded: bool) -> None:
    with st.container(key="title", horizontal=True, vertical_alignment="center", gap="small"):
        st.header(text, anchor=False)
        if not embedded:
            ways_back(run)
            share(run)


def _looking_at(shown: Shown | None) -> None:
    """Three plain sentences, the formulas, the paper."""
    if shown is None:
        return
    algorithm = shown.config.algorithm
    with st.container(border=True):
        st.subheader("What you are looking at", anchor=False)
        setting, method, watch = map(words.escape, words.looking_at(shown.config, shown.reference))
        st.markdown(f"- **The setting.** {setting}\n- **The method.** {method}\n- **What to watch.** {watch}")
        left, right = st.columns(2)
        with left:
            st.caption(f"{algorithm.title}'s step of the server, in gradient units. {algorithm.paper}.")
            st.latex(algorithm.formula)
        with right:
            st.caption(words.error_caption(shown.config))
            st.latex(words.error_formula(shown.config))
        st.caption(words.error_symbols(shown.config))
        st.page_link("pages/reference.py", label="All methods, problems and settings", icon=":material/menu_book:")
