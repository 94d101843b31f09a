"""The page on which one chooses, presses Run and watches: the sidebar's form, the title, the live view, the explanation."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from fedviz.runs.limits import LimitError
from fedviz.runs.run import Run
from fedviz.runs.store import StoreError
from fedviz.ui import actions, controls, links, live, origin, pages, words
from fedviz.ui.links import LinkError
from fedviz.ui.live import Scene
from fedviz.ui.manager import run_manager
from fedviz.ui.offer import offer
from fedviz.ui.session import session
from fedviz.ui.share import share
from fedviz.ui.shown import Shown, recorded_default
from fedviz.ui.visitor import FORGETFUL, is_forgotten, not_yours

ICON = str(Path(__file__).parents[2] / "assets" / "icon.png")
STYLE = Path(__file__).with_name("page.css")


def simulate() -> None:
    """The whole page, once through."""
    st.html(STYLE)
    try:
        run_manager()
    except (StoreError, LimitError) as error:  # the database of runs is damaged, or another version's; a wrong setting
        st.error(str(error), icon=":material/database_off:")
        st.stop()
    run, unknown = _run_in_address()
    if run is None:
        unknown = _settings_in_address() or unknown
        _as_without_a_run()
    st.session_state.last_shown = run.id if run else None
    embedded = bool(st.context.is_embedded)
    if not embedded:
        st.logo(ICON, size="large")
        with st.sidebar:
            st.header("fedviz", anchor=False)
            controls.show(controls.read())
    form = controls.read()
    parent = actions.run_or_none(run.parent_id) if run else None
    previous = parent or (actions.run_before(run) if run else None)
    scene = Scene(
        run=run,
        shown=None if run else recorded_default(),
        previous=Shown.of(previous) if previous and previous is not run else None,
        form=form,
        changed=_changed(form, run),
        embedded=embedded,
        not_yours=not_yours(run),
    )
    shown = Shown.of(run) if run else scene.shown
    config = shown.config if shown else form.config
    if unknown:
        st.error(words.plain(unknown), icon=":material/link_off:")
    _title(_name(run) or (words.title(config) if config else "fedviz"), run, form, embedded)
    if is_forgotten() and not embedded:
        st.caption(f":material/cookie_off: {FORGETFUL}")
    live.show(scene)
    if config and not embedded:
        _looking_at(shown)
        if run is not None:
            origin.show(run)
        offer()


def _run_in_address() -> tuple[Run | None, str]:
    """(the run that the link names, "") or (None, what to tell a visitor whose link names an unknown one)."""
    wanted = actions.run_id()
    if not wanted:
        return None, ""
    try:
        run = run_manager().get(wanted)
    except StoreError as error:
        return None, str(error)
    if run is None or not run.owner:  # deleted; kept only as long as others continue it
        return None, (
            "This link names a run that is not kept here: it may be from another computer, or have been deleted. "
            "Ask for a new link, or press Run for a run of your own."
        )
    if session().loaded != run.id:  # opened by its link: the controls say what the run has
        session().loaded = run.id
        if st.session_state.get("last_shown", run.id) is None:
            st.session_state.without_run = dict(controls.draft())
        controls.load(run.config, run.reference.config if run.reference else None)
    return run, ""


def _as_without_a_run() -> None:
    """Set the controls back to what they were before a run was opened, after Back and Forward; not where the visitor has changed them."""
    before = st.session_state.pop("without_run", None)
    opened = actions.run_or_none(session().loaded)
    if before and opened and not actions.differs(controls.read(), opened):
        session().loaded = None
        controls.draft().update(before)


def _settings_in_address() -> str:
    """Set the controls to what a link says, once for each link; what to tell a visitor whose link says nothing sensible, else ""."""
    given = {name: text for name in actions.LINKS if (text := st.query_params.get(name))}
    if not given:
        return ""
    try:
        settings = links.read_preset(given["preset"]) if "preset" in given else links.read_config(given["config"])
    except LinkError as error:
        return str(error)
    if st.session_state.get("linked") != given:
        st.session_state.linked = given
        controls.load(*settings)
    return ""


def _changed(form: controls.Form, run: Run | None) -> bool:
    if run is not None:
        return actions.differs(form, run)
    recorded = recorded_default()
    return recorded is not None and (form.config, form.reference) != (recorded.config, recorded.reference)


def _name(run: Run | None) -> str:
    """What its owner calls a run, as plain text."""
    return words.plain(run.title) if run is not None and run.title else ""


def _title(text: str, run: Run | None, form: controls.Form, embedded: bool) -> None:
    with st.container(key="title", horizontal=True, vertical_alignment="center", gap="small"):
        st.header(text, anchor=False)
        if embedded:
            return
        pages.to_runs()
        if run is not None:
            st.button("Start page", key="start_page", icon=":material/home:", on_click=actions.start_page)
        share(run, form)


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
        st.caption(words.typeset(words.error_symbols(shown.config)))
        pages.to_reference()
