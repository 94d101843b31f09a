"""Where a run comes from: version, device, the run it continues; with a warning where this server would compute it otherwise."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from fedviz import __version__
from fedviz.runs.run import Run
from fedviz.ui import words


def show(run: Run) -> None:
    """One line under the page, and what there is to warn of."""
    when = words.when(run.created, st.context.timezone)
    where = f" on {run.device}" if run.device else ""
    st.caption(words.escape(f"Started on {when}. Computed by fedviz {run.version}{where}."))
    if run.parent_id and run.forked_at is not None:
        st.caption(
            f":material/fork_right: Continues [another run](?run={run.parent_id}) from round {run.forked_at:,}. "
            + words.plain(run.note)
        )
    for warning in warnings(run, gpu=_has_gpu()):
        st.caption(f":orange[:material/warning: {words.escape(warning)}]")


def warnings(run: Run, *, gpu: bool) -> list[str]:
    """What may make a new run of the same settings differ from this one. gpu: whether this server has one."""
    found = []
    if run.imported:
        found.append(
            "Imported: not computed here. Its records are as in the file; to continue the run they are computed again and compared."
        )
    if run.version != __version__:
        found.append(
            f"This server is fedviz {__version__}, the run was computed by {run.version}: "
            "a new run of these settings may give other numbers."
        )
    on_gpu = run.device is not None and not run.device.startswith("CPU")
    if on_gpu and not gpu:
        found.append(
            f"The run was computed on {run.device}; this server has no GPU: a new run is slower and equal to rounding only."
        )
    return found


def _has_gpu() -> bool:
    """Whether this machine can compute on one, without asking torch, which takes seconds to load."""
    return Path("/dev/nvidia0").exists() or Path("/System/Library/Frameworks/Metal.framework").exists()
