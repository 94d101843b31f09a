"""Continue a run from the round that is looked at, with the settings as they stand in the sidebar."""

from __future__ import annotations

import streamlit as st

from fedviz.runs.run import Run
from fedviz.ui import actions
from fedviz.ui.controls import Form

SAME = {"problem": "the problem and its data", "num_clients": "the number of clients", "seed": "the seed"}


def fork_button(form: Form, run: Run, round: int) -> None:
    """The button, beside the round that it starts from; where it is off, its help says why."""
    why = _obstacle(form, run, round)
    st.button(
        "Continue",
        key="fork",
        icon=":material/fork_right:",
        on_click=actions.fork,
        args=(round,),
        disabled=bool(why),
        help=why
        or f"Continue from round {round:,}: a new run that has all of this one up to there, and then the settings at the left.",
    )


def _obstacle(form: Form, run: Run, round: int) -> str:
    """Why the run cannot be continued from a round with what the form says, "" where it can."""
    if form.config is None or form.reason:
        return form.reason
    kept = [name for field, name in SAME.items() if getattr(form.config, field) != getattr(run.config, field)]
    if kept:
        return f"A continued run keeps {' and '.join(kept)}: set them at the left as they are in this run."
    if form.config == run.config:
        return "Change the method, its rates, who takes part or the clusters at the left: the run then continues with that."
    if form.config.rounds <= round:
        return f"The settings at the left end after round {form.config.rounds:,}: set more rounds, or look at an earlier one."
    return ""
