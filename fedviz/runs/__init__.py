"""Runs: the manager that owns them, the controls, and the store that keeps them. Nothing here imports Streamlit, or
torch before a run needs it.
"""

from fedviz.runs.admission import Refused
from fedviz.runs.columns import Columns, Records
from fedviz.runs.limits import LimitError, Limits
from fedviz.runs.manager import RunManager
from fedviz.runs.overview import Overview
from fedviz.runs.run import Run, RunState
from fedviz.runs.store import RunStore, StoreError
from fedviz.runs.visitor import LOCAL, NotYours, Visitor

__all__ = [
    "LOCAL",
    "Columns",
    "LimitError",
    "Limits",
    "NotYours",
    "Overview",
    "Records",
    "Refused",
    "Run",
    "RunManager",
    "RunState",
    "RunStore",
    "StoreError",
    "Visitor",
]
