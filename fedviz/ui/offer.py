"""A class presses Run: where somebody has run the very same already, or is running it, that run is offered first."""

from __future__ import annotations

import streamlit as st

from fedviz.ui import actions, words
from fedviz.ui.session import session


def offer() -> None:
    """The question, while it is open."""
    if actions.run_or_none(session().offered) is not None:
        _question()


@st.dialog("This has been run already", icon=":material/content_copy:", on_dismiss=actions.forget_offer)
def _question() -> None:
    run = actions.run_or_none(session().offered)
    if run is None:  # answered: the dialog goes with the next run of the page
        st.rerun()
    live = run.live or run.foreign
    standing = f"is going on, at round {max(run.round, 0):,} of {run.config.rounds:,}" if live else "has finished"
    st.markdown(
        f"A run with exactly these settings {standing}: {words.escape(words.title(run.config))}. "
        "The same settings give the same curves, so there is no need to compute them anew."
    )
    with st.container(horizontal=True):
        st.button(
            "Watch it live" if live else "Open the finished run", key="open_offered", type="primary",
            icon=":material/visibility:", on_click=actions.open_offered,
        )  # fmt: skip
        st.button("Run again", key="run_again", icon=":material/replay:", on_click=actions.run_again)
