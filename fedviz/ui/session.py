"""What a session remembers of what its visitor did.

One plain object, fetched before a callback does anything: every access to `st.session_state` ends the callback there and then if
another message of the browser is waiting (a second click, the tick of a live chart), and what it has done would be half forgotten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import streamlit as st

NOWHERE = (None, None, -math.inf)


@dataclass
class Session:
    """Of one browser tab, as long as it is open."""

    refused: str | None = None  # why the last action was not done
    offered: str | None = None  # the run that was offered in place of a new one
    loaded: str | None = None  # the run whose settings the controls were set to
    started: list[str] = field(default_factory=list)  # the runs that were started here
    before: tuple[str, str] | None = None  # a run that was started here, and the one that was on the page until then
    moved: tuple[str | None, str | None, float] = NOWHERE  # from which run, to which, and when
    dealt: dict[str, float] = field(default_factory=dict)  # when the last click on each button was dealt with
    said: str | None = None  # what the page of runs has refused
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
