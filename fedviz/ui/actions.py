"""What the buttons do. Each is a callback: it tells the run manager, and the page shows the outcome. Pressing twice is harmless."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from fedviz.config import ConfigError
from fedviz.runs.admission import Refused
from fedviz.runs.run import Run
from fedviz.runs.store import StoreError
from fedviz.ui import controls, words
from fedviz.ui.manager import run_manager
from fedviz.ui.session import Session, session, uninterrupted, went_back
from fedviz.ui.visitor import visitor

RUN = "run"  # the query parameter
DOUBLE_CLICK = 0.3  # seconds between the two clicks of a double one
HEARD = 5.0  # seconds after which a browser has surely heard of a new address
LINKS = ("preset", "config")  # of links that open settings
PACES = {"2": 2.0, "10": 10.0, "50": 50.0, "max": None}  # rounds a second; None: as fast as it goes


def run_id() -> str | None:
    """The run in the address: where this session has just moved, also for what the browser sent before it heard of that."""
    own, told = session(), st.query_params.get(RUN)
    if went_back():
        own.left.clear()
    elif told != own.at and time.monotonic() - own.left.get(told, -math.inf) < HEARD:
        _write_address(own.at)
        return own.at
    return told


def _leave(shown: str | None, run_id: str | None, own: Session) -> None:
    """From the run that is shown to another; None: the page without one. The address is still to be written."""
    was_left = own.left.get(shown, -math.inf)
    own.left[shown] = time.monotonic()
    if time.monotonic() - was_left < HEARD:  # the browser has not heard of the last move either
        own.left[own.at] = time.monotonic()
    own.left.pop(run_id, None)
    own.at = run_id


def _write_address(run_id: str | None) -> None:
    for name in LINKS if run_id else (RUN, *LINKS):
        st.query_params.pop(name, None)
    if run_id:
        st.query_params[RUN] = run_id


def run_or_none(run_id: str | None) -> Run | None:
    """The run, None where there is none or its records cannot be read."""
    try:
        return run_manager().get(run_id) if run_id else None
    except StoreError:
        return None


def run_before(run: Run) -> Run | None:
    """The run that this session showed when it started this one."""
    started, before = session().before or ("", None)
    return run_or_none(before) if started == run.id else None


@uninterrupted
def start(*, again: bool = False) -> None:
    """Submit what the form says, and put the new run into the address. The run shown until now stays on the charts, faint.

    Where somebody has run the very same already, that run is offered first, unless `again` or the same run is on the page.
    """
    own, manager, me, shown = session(), run_manager(), visitor(), run_id()
    form, pace = controls.read(), PACES.get(st.session_state.get("pace", "max"))
    if form.config is None or form.reason:
        return
    with _click("again" if again else "run", own) as second:
        before = run_or_none(shown)
        unchanged = before is not None and not differs(form, before)
        if before is not None and unchanged and (before.live or second):
            return
        own.refused = own.offered = None
        try:
            same = None if again or unchanged else manager.same(form.config, form.reference)
            if same is not None:
                own.offered = same.id
                return
            run = manager.submit(form.config, form.reference, visitor=me)
            manager.set_pace(run.id, me, pace)
            if before is not None and before.live and before.id in own.started:
                manager.stop(before.id, me)  # this visitor has replaced it; runs of others go on
        except (Refused, ConfigError, StoreError, KeyError) as refusal:
            own.refused = words.reason(refusal)
            return
        own.loaded = run.id  # the controls say what it has
        _keep_own(run, before, shown, own)
    _write_address(run.id)


@uninterrupted
def fork(round: int) -> None:
    """Continue the run on the page from a round, with what the form says, as a run of its own."""
    own, manager, me, shown, form = session(), run_manager(), visitor(), run_id(), controls.read()
    with _click("fork", own) as second:
        parent = run_or_none(shown)
        if form.config is None or parent is None or second:
            return
        own.refused = None
        try:
            run = manager.fork(parent.id, round, form.config, visitor=me)
        except (Refused, ConfigError, StoreError, KeyError) as refusal:
            own.refused = words.reason(refusal)
            return
        own.loaded = None  # a fork has nothing to compare with: the controls are to say so
        _keep_own(run, parent, shown, own)
    _write_address(run.id)


def _keep_own(run: Run, before: Run | None, shown: str | None, own: Session) -> None:
    """A run was just started here."""
    own.before = (run.id, before.id) if before is not None else None
    own.started.append(run.id)
    _leave(shown, run.id, own)


@uninterrupted
def open_offered() -> None:
    """Show the run that was offered in place of a new one."""
    own = session()
    if own.offered:
        open_run(own.offered)
    own.offered = None


@uninterrupted
def run_again() -> None:
    """Start a run although there is the very same already."""
    forget_offer()
    start(again=True)


@uninterrupted
def forget_offer() -> None:
    """Offer nothing any more."""
    session().offered = None


def open_run(run_id: str) -> None:
    """Show an earlier run, as its link does."""
    own, shown = session(), st.query_params.get(RUN)
    _leave(shown, run_id, own)
    _write_address(run_id)


@uninterrupted
def start_page() -> None:
    """Back to the page as it is without a run: the recorded one, and the controls as they were for it."""
    own, shown = session(), st.query_params.get(RUN)
    own.loaded = own.refused = None
    controls.reset()
    _leave(shown, None, own)
    _write_address(None)


def differs(form: controls.Form, run: Run) -> bool:
    """Whether the form no longer says what the run has."""
    return (form.config, form.reference) != (run.config, run.reference.config if run.reference else None)


@uninterrupted
def pause() -> None:
    """Stand still after the round in flight."""
    with _click("pause", session()) as second:
        if not second:
            _tell("pause", run_id())


@uninterrupted
def resume() -> None:
    """Go on: a run that stands still, and one that ended early and left a checkpoint."""
    with _click("pause", session()) as second:
        if not second:
            _tell("resume", run_id())


@uninterrupted
def step() -> None:
    _tell("step", run_id())


@uninterrupted
def stop() -> None:
    _tell("stop", run_id())


@uninterrupted
def stop_run(run_id: str) -> None:
    """Stop any run, for admins."""
    _tell("stop", run_id)


@uninterrupted
def set_pace() -> None:
    """The pace is the run's, not the visitor's: all tabs on one run show the same."""
    chosen = st.session_state.pace
    run = run_or_none(run_id())
    if chosen in PACES and run is not None and run.live:  # a browser may say None while the page is made
        _tell("set_pace", run.id, PACES[chosen])


@contextmanager
def _click(button: str, own: Session) -> Iterator[bool]:
    """Whether a click is the second of a double one: when it comes the button may already stand for the opposite, or another run.

    Counted from when the first was dealt with: the second waits for that.
    """
    yield time.monotonic() - own.dealt.get(button, -math.inf) < DOUBLE_CLICK
    own.dealt[button] = time.monotonic()  # not where it was ended before it was dealt with, see `uninterrupted`


def _tell(what: str, run_id: str | None, *values: object) -> None:
    """Call the run manager in this visitor's name; what it refuses is said on the page."""
    own = session()
    own.refused = None
    if run_id and run_or_none(run_id):
        try:
            getattr(run_manager(), what)(run_id, visitor(), *values)
        except (Refused, StoreError, KeyError) as refusal:
            own.refused = words.reason(refusal)
