"""What a visitor takes away from a run: its link, its command lines, its numbers."""

from __future__ import annotations

import json
import os
from urllib.parse import urlsplit, urlunsplit

import streamlit as st

from fedviz.config import SimulationConfig
from fedviz.runs import export
from fedviz.runs.run import Run

LONGEST_COMMAND = 8_000  # characters: the shell of Windows takes 8,191
PYTHON = r".venv\Scripts\python" if os.name == "nt" else ".venv/bin/python"  # as the README writes it


def share(run: Run | None) -> None:
    """The Share button of the page; disabled while there is no run to share."""
    with st.popover(
        "Share",
        icon=":material/share:",
        disabled=run is None,
        help=None if run else "Press Run first: then there is something to share.",
    ):
        if run is None:
            return
        st.caption("The button at the right of each box copies it.")
        st.markdown("The link to this very run, also while it is going on:")
        st.code(link(run.id), language=None, wrap_lines=True)
        beside = f", then {run.reference.config.algorithm.title} to compare with" if run.reference else ""
        st.markdown(f"The same without a browser, in fedviz's folder{beside}:")
        name = f"fedviz-{run.config.algorithm.name}-{run.id[:8]}"
        for each, file in ((run, f"{name}.json"), (run.reference, f"{name}-reference.json")):
            if each is not None:
                _command(each, file)
        with st.container(horizontal=True):
            _download(run, "Download CSV", f"{name}.csv")
            if run.reference is not None:
                _download(
                    run.reference, f"Reference as CSV ({run.reference.config.algorithm.title})", f"{name}-reference.csv"
                )


def link(run_id: str) -> str:
    """The address of this page with the run in it."""
    here = urlsplit(str(st.context.url or "http://localhost:8501/"))
    # After a restart of the server Streamlit names the page itself in the address, which a link need not.
    path = here.path.removesuffix("/").removesuffix("/simulate") + "/"
    return urlunsplit((here.scheme, here.netloc, path, f"run={run_id}", ""))


def command(config: SimulationConfig) -> str:
    """The command line of a config, with the Python that bootstrap.py has made."""
    return PYTHON + config.to_command().removeprefix("python")


def _command(run: Run, file_name: str) -> None:
    """The command line of a run; with a list too long for one, the settings as a file and the command that reads it."""
    whole = command(run.config)
    if len(whole) > LONGEST_COMMAND:
        title, count = run.config.algorithm.title, f"{len(whole):,}"
        st.markdown(
            f"These settings hold a list too long for a command line ({count} characters): keep them as a file first."
        )
        st.download_button(
            f"Settings as JSON ({title})",
            data=lambda: json.dumps(run.config.to_dict()),
            file_name=file_name,
            mime="application/json",
            icon=":material/download:",
            on_click="ignore",
            key=f"download-{file_name}",
        )
        whole = f"{PYTHON} -m fedviz run --config {file_name}"
    st.code(whole, language="bash", wrap_lines=True)


def _download(run: Run, label: str, file_name: str) -> None:
    st.download_button(
        label,
        data=lambda: export.to_csv(run.records, run.config),  # made when it is clicked: the rounds computed until then
        file_name=file_name,
        mime="text/csv",
        icon=":material/download:",
        on_click="ignore",
        key=f"download-{file_name}",
    )
