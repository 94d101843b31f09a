"""What a session remembers of what its visitor did.

One plain object, fetched before a callback does anything: every access to `st.session_state` or the address ends a callback there
and then if another click or change is waiting, and what it has done would be half forgotten. Callbacks are `uninterrupted`: one that
was ended before it did anything is done again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import ParamSpec

import streamlit as st
from streamlit.runtime.scriptrunner import RerunException, get_script_run_ctx

P = ParamSpec("P")


@dataclass
class Session:
    """Of one browser tab, as long as it is open."""

    refused: str | None = None  # why the last action was not done
    offered: str | None = None  # the run that was offered in place of a new one
    loaded: str | None = None  # the run whose settings the controls were set to
    started: list[str] = field(default_factory=list)  # the runs that were started here
    before: tuple[str, str] | None = None  # a run that was started here, and the one that was on the page until then
    at: str | None = None  # the run to which the last action has moved; None: to the page without one
    left: dict[str | None, float] = field(default_factory=dict)  # those from which actions have moved, and when
    dealt: dict[str, float] = field(default_factory=dict)  # when the last click on each button was dealt with
    is_admin: bool = False
    not_admin: str = ""  # why the typed token was not taken
    said: str | None = None  # why a run was not deleted
    kept_as_it_is: tuple[str, str] | None = None  # a run, and why its name was not changed, or it was not published
    imports: int = 0  # files that were taken up
    imported: str | None = None  # the run that the last of them was
    not_imported: str = ""  # or why it was none
    ticked: tuple[str, ...] = ()  # on the page of runs
    compared: tuple[str, ...] = ()  # those whose curves are shown there
    chosen: float = -math.inf  # when a click has changed either
    boxes_lag: bool = False  # the boxes are to show what is ticked, not the other way round
    pressed: str = ""  # "compare" or "clear", until it is dealt with


def session() -> Session:
    """Of the visitor whose page is being made, or whose click is being dealt with."""
    remembered: Session = st.session_state.setdefault("session", Session())
    return remembered


def uninterrupted(act: Callable[P, object]) -> Callable[P, None]:
    """A callback that is done although other messages wait. It reads first and acts then, so that it can be done again until it acts."""

    @wraps(act)
    def dealt_with(*args: P.args, **keywords: P.kwargs) -> None:
        waiting: list[RerunException] = []
        while len(waiting) < 10:
            try:
                act(*args, **keywords)
                break
            except RerunException as message:
                waiting.append(message)
        if waiting:
            # Streamlit puts the last one back, to be dealt with next, together with what is there already.
            context = get_script_run_ctx()
            for earlier in waiting[:-1]:
                if context is not None and context.script_requests is not None:
                    context.script_requests.request_rerun(earlier.rerun_data)
            raise waiting[-1]

    return dealt_with


def went_back() -> bool:
    """Whether Back or Forward of the browser has led here: then it knows where it is."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation
