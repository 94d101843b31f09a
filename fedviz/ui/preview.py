"""Small pictures beside the controls that redraw at once, before anything runs: clients x labels, clients x rounds."""

from __future__ import annotations

import numpy as np
import streamlit as st

from fedviz import figures
from fedviz.config import SimulationConfig
from fedviz.problems import Classification, ProblemError
from fedviz.problems.classification import label_counts
from fedviz.simulation.clients import participation_of
from fedviz.ui.live_plotly import live_plotly

ROUNDS = 60  # how many of the first rounds are shown
HEIGHT = 145  # px of a plot
ABOVE = 46  # px of its title and of one row of legend
FORMER = "Of the last valid settings, for what is set now cannot be run."


def labels(config: SimulationConfig | None) -> None:
    """How many samples of each label each client holds."""
    drawn = _latest_valid(config)
    if not isinstance(drawn.problem, Classification):
        return
    try:
        figure = _labels(drawn.problem.model_dump_json(), drawn.num_clients, drawn.seed)
    except ProblemError as error:
        st.caption(f":material/info: {error}")
        return
    _say_if_former(config)
    live_plotly(figure, key="preview-labels", height=HEIGHT, above=ABOVE)


def participation(config: SimulationConfig | None) -> None:
    """Who takes part in the first rounds: the very cohorts that Run will use."""
    try:
        figure = _participation(_latest_valid(config).model_dump_json())
    except ProblemError as error:
        st.caption(f":material/info: {error}")
        return
    _say_if_former(config)
    live_plotly(figure, key="preview-participation", height=HEIGHT, above=ABOVE)


def small_clients(config: SimulationConfig) -> str:
    """A note where clients hold fewer samples than a batch, else ""."""
    if not isinstance(config.problem, Classification):
        return ""
    try:
        sizes = label_counts(config.problem, config.num_clients, config.seed).sum(1)
    except ProblemError:
        return ""
    small = int((sizes < config.batch_size).sum())
    if not small:
        return ""
    who = f"All {len(sizes):,} clients have" if small == len(sizes) else f"{small:,} of {len(sizes):,} clients have"
    return f"{who} fewer than {config.batch_size:,} samples and use all they have in each step."


def _latest_valid(config: SimulationConfig | None) -> SimulationConfig:
    """While a value is wrong, the pictures stay as they were (and say so, see `_say_if_former`)."""
    if config is not None:
        st.session_state.previewed = config
    previewed: SimulationConfig = st.session_state.get("previewed") or SimulationConfig()
    return previewed


def _say_if_former(config: SimulationConfig | None) -> None:
    if config is None:
        st.caption(f":material/history: {FORMER}")


@st.cache_data(max_entries=32, show_spinner=False)
def _labels(problem_json: str, num_clients: int, seed: int) -> figures.Figure:
    problem = Classification.model_validate_json(problem_json)
    counts = label_counts(problem, num_clients, seed)
    return figures.label_counts(counts, problem.info.labels)


@st.cache_data(max_entries=32, show_spinner=False)
def _participation(config_json: str) -> figures.Figure:
    config = SimulationConfig.read(config_json)
    taking_part, rounds = participation_of(config), min(config.rounds, ROUNDS)
    mask, on_duty = np.zeros((2, rounds, config.num_clients), dtype=bool)
    turns = False
    for row in range(rounds):
        mask[row, taking_part.cohort(row + 1)] = True
        if (group := taking_part.on_duty(row + 1)) is not None:
            on_duty[row, group], turns = True, True
    return figures.participation_preview(mask, on_duty if turns else None)
