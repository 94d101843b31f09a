"""The admin view, in no menu: what runs, what waits, memory, disk and limits, and a way to end any run."""

from __future__ import annotations

import hmac
import threading
import time
from collections import deque

import streamlit as st

from fedviz.runs.admission import Refused, in_words
from fedviz.runs.run import Run
from fedviz.runs.store import StoreError
from fedviz.ui import actions, pages, words
from fedviz.ui.manager import run_manager
from fedviz.ui.page import STYLE
from fedviz.ui.session import session, uninterrupted
from fedviz.ui.visitor import visitor

OFF = (
    "There is no admin view here: the server was started without FEDVIZ_ADMIN_TOKEN. Set it and start the server again."
)
TICK = 2.0  # seconds between two looks
DELAY, LONGEST_DELAY = 0.1, 2.0  # seconds, for each wrong token of late


class Attempts:
    """Wrong tokens of late, of one session, which then waits, or of all together, which only get slow: nobody can lock the operator
    out by guessing.
    """

    def __init__(self, most: int = 5, seconds: float = 60.0) -> None:
        self._most, self._seconds, self._failed, self._lock = most, seconds, deque[float](), threading.Lock()

    def check(self, typed: str, token: str, now: float) -> str:
        """Why the typed token is not taken, "" where it is. Takes as long however much of it is right."""
        with self._lock:
            self._forget_old(now)
            if len(self._failed) >= self._most:
                wait = self._seconds - (now - self._failed[0])
                return f"Too many wrong tokens: try again in {words.duration(wait)}."
            if hmac.compare_digest(typed.encode(errors="replace"), token.encode()):
                return ""
            self._failed.append(now)
            return "That is not the token. It is the value of FEDVIZ_ADMIN_TOKEN with which the server was started."

    def slow_down(self, now: float) -> float:
        """Seconds that the answer to a further wrong token takes: the more there were, the longer."""
        with self._lock:
            self._forget_old(now)
            self._failed.append(now)
            return min(LONGEST_DELAY, len(self._failed) * DELAY)

    def _forget_old(self, now: float) -> None:
        while self._failed and now - self._failed[0] >= self._seconds:
            self._failed.popleft()


@st.cache_resource(show_spinner=False)
def _attempts() -> Attempts:
    """Of all sessions: one that has used up its own can be thrown away."""
    return Attempts()


def show() -> None:
    """The whole page: a password field, and behind it the view."""
    st.html(STYLE)
    pages.back()
    st.header("Admin", anchor=False)
    if run_manager().limits.admin_token is None:
        st.info(OFF, icon=":material/lock:")
        return
    if not session().is_admin:
        st.text_input("Admin token", type="password", key="admin_token", max_chars=200, on_change=_unlock, width=420)
        if session().not_admin:
            st.error(session().not_admin, icon=":material/lock:")
        return
    st.button("Lock again", icon=":material/lock:", key="lock", on_click=_lock)
    st.fragment(_overview, run_every=TICK)()


@uninterrupted
def _unlock() -> None:
    own, token = session(), run_manager().limits.admin_token or ""
    attempts = st.session_state.setdefault("admin_attempts", Attempts())
    typed = st.session_state.admin_token
    st.session_state.admin_token = ""  # does not stay in the page
    own.not_admin = attempts.check(typed, token, time.monotonic())
    if own.not_admin:
        time.sleep(_attempts().slow_down(time.monotonic()))
    own.is_admin = not own.not_admin


@uninterrupted
def _lock() -> None:
    session().is_admin = False


def _overview() -> None:
    try:
        now = run_manager().overview()
        ended = [run for run in run_manager().runs(visitor(), everyone=True, limit=50) if not run.live]
    except (StoreError, Refused) as error:
        st.error(words.plain(str(error)), icon=":material/database_off:")
        return
    for column, (label, value) in zip(
        st.columns(5),
        (
            ("Begun", f"{len(now.computing):,} of {now.limits.begun:,}; {now.limits.concurrent:,} compute at a time"),
            ("Waiting", f"{len(now.queued):,} of {now.limits.queue_length:,}"),
            ("Memory in use", f"{in_words(now.memory_used)}, {in_words(now.memory_free)} free"),
            ("Stored", f"{words.count(now.stored_runs, 'run')}, {in_words(now.stored_bytes)}"),
            ("Disk free", in_words(now.disk_free)),
        ),
        strict=True,
    ):
        with column, st.container(border=True, height="stretch"):
            st.caption(label)
            st.markdown(f"**{value}**")
    own = session()
    refused, own.refused = own.refused, None
    if refused:
        st.error(words.plain(refused))
    _list("Begun: they compute, are paced or paused", now.computing)
    _list("Waiting, in the order in which they start", now.queued)
    _list("Ended, the newest", ended)
    st.subheader("Limits", anchor=False)
    st.markdown("\n".join(f"- {words.escape(line)}" for line in now.limits.describe()))


def _list(title: str, runs: list[Run]) -> None:
    st.subheader(title, anchor=False)
    if not runs:
        st.caption("None.")
    for run in runs:
        badge = words.BADGES[run.state]
        done = (
            f"round {max(run.round, 0):,} of {run.config.rounds:,}"
            if run.live
            else words.count(run.config.rounds, "round")
        )
        facts = [words.when(run.created, st.context.timezone), done]
        facts += [end] if (end := words.standing(run.state, run.message)) else []
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"admin-{run.id}"):
            st.badge(badge.word, icon=badge.icon, color=badge.color)
            pages.to_run(run.id, words.plain(run.title or words.title(run.config)))
            st.caption(words.plain(" · ".join(facts)))
            if run.live:
                st.button(
                    "Cancel", key=f"cancel-{run.id}", icon=":material/stop:", type="tertiary",
                    on_click=actions.stop_run, args=(run.id,),
                )  # fmt: skip
