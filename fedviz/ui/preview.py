"""Small pictures beside the controls that redraw at once, before anything runs: clients x labels, clients x rounds."""

from __future__ import annotations

import numpy as np
import streamlit as st
from pydantic import TypeAdapter

from fedviz import figures
from fedviz.config import SimulationConfig
from fedviz.participation import AnyParticipation, Cyclic, Participation
from fedviz.problems import Classification, ProblemError
from fedviz.problems.classification import label_counts
from fedviz.ui.live_plotly import live_plotly

ROUNDS = 60  # how many of the first rounds are shown
HEIGHT = 190


def labels(config: SimulationConfig | None) -> None:
    """How many samples of each label each client holds."""
    config = _latest_valid(config)
    if not isinstance(config.problem, Classification):
        return
    try:
        figure = _labels(config.problem.model_dump_json(), config.num_clients, config.seed)
    except ProblemError as error:
        st.caption(f":material/info: {error}")
        return
    live_plotly(figure, key="preview-labels", height=HEIGHT)


def participation(config: SimulationConfig | None) -> None:
    """Who takes part in the first rounds: the very cohorts that Run will use."""
    config = _latest_valid(config)
    figure = _participation(
        config.participation.model_dump_json(), config.num_clients, config.seed, min(config.rounds, ROUNDS)
    )
    live_plotly(figure, key="preview-participation", height=HEIGHT)


def small_clients(config: SimulationConfig) -> str:
    """A note where clients hold fewer samples than a batch, else ""."""
    if not isinstance(config.problem, Classification):
        return ""
    try:
        sizes = label_counts(config.problem.dataset, config.problem.partition, config.num_clients, config.seed).sum(1)
    except ProblemError:
        return ""
    small = int((sizes < config.batch_size).sum())
    if not small:
        return ""
    who = f"All {len(sizes):,} clients have" if small == len(sizes) else f"{small:,} of {len(sizes):,} clients have"
    return f"{who} fewer than {config.batch_size:,} samples and use all they have in each step."


def _latest_valid(config: SimulationConfig | None) -> SimulationConfig:
    """While a value is wrong, the pictures stay as they were."""
    if config is not None:
        st.session_state.previewed = config
    previewed: SimulationConfig = st.session_state.get("previewed") or SimulationConfig()
    return previewed


@st.cache_data(max_entries=32, show_spinner=False)
def _labels(problem_json: str, num_clients: int, seed: int) -> figures.Figure:
    problem = Classification.model_validate_json(problem_json)
    counts = label_counts(problem.dataset, problem.partition, num_clients, seed)
    return figures.label_counts(counts, problem.info.labels)


@st.cache_data(max_entries=32, show_spinner=False)
def _participation(pattern_json: str, num_clients: int, seed: int, rounds: int) -> figures.Figure:
    pattern = TypeAdapter(AnyParticipation).validate_json(pattern_json)
    taking_part = Participation(pattern, num_clients, seed)
    mask, on_duty = np.zeros((2, rounds, num_clients), dtype=bool)
    for row in range(rounds):
        mask[row, taking_part.cohort(row + 1)] = True
        on_duty[row, taking_part.law(row + 1).available] = True
    restricted = isinstance(pattern, Cyclic)
    return figures.participation_preview(mask, on_duty if restricted else None)
