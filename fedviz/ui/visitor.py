"""Who is looking at the page: by the cookie, else by the browser session, and on one's own machine simply whoever sits there."""

from __future__ import annotations

import secrets
from dataclasses import replace

import streamlit as st

from fedviz.runs.run import Run
from fedviz.runs.visitor import LOCAL, Visitor
from fedviz.ui import cookie
from fedviz.ui.manager import run_manager
from fedviz.ui.session import session

NOT_YOURS = "This run belongs to another visitor: only who started it can control it. Run starts one of your own."
FORGETFUL = (
    "This server cannot know you again after this page is closed or reloaded: your browser, or the host, keeps no cookie for it. "
    "Runs that you start can be controlled in this tab only; keep their links to see them again."
)


def visitor() -> Visitor:
    """The visitor of this session, as the run manager knows them."""
    if not run_manager().limits.hosted:
        return LOCAL
    secret = _cookie() or st.session_state.setdefault("secret", secrets.token_urlsafe(32))
    return replace(Visitor.of_secret(secret), admin=session().is_admin)


def is_forgotten() -> bool:
    """Whether what this visitor owns is theirs only until this tab is closed or reloaded."""
    return run_manager().limits.hosted and _cookie() is None


def not_yours(run: Run | None) -> str:
    """Why this visitor cannot control a run; "" where they can."""
    return "" if run is None or run_manager().may_control(run, visitor()) else NOT_YOURS


def _cookie() -> str | None:
    secret = st.context.cookies.get(cookie.NAME)
    return secret if cookie.is_secret(secret) else None
