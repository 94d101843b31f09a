"""The one run manager of this server, shared by all its visitors."""

import streamlit as st

from fedviz.runs.limits import Limits
from fedviz.runs.manager import RunManager
from fedviz.runs.store import RunStore


@st.cache_resource(show_spinner=False)
def run_manager() -> RunManager:
    """Opens the store; runs that a killed server left behind become "interrupted"."""
    return RunManager(RunStore(), limits=Limits.from_environment())
