"""What a visitor takes away: links to the run and to its settings, its command lines and program, its numbers."""

from __future__ import annotations

import json
import os
from urllib.parse import urlsplit, urlunsplit

import streamlit as st

from fedviz.config import SimulationConfig
from fedviz.runs import export
from fedviz.runs.run import Run
from fedviz.ui import links
from fedviz.ui.controls import Form

LONGEST_COMMAND = 8_000  # characters: the shell of Windows takes 8,191
PYTHON = r".venv\Scripts\python" if os.name == "nt" else ".venv/bin/python"  # as the README writes it


def share(run: Run | None, form: Form) -> None:
    """The Share button of the page: of the run that is shown, else of the settings."""
    config, reference = form.config, form.reference
    if run is not None:
        config, reference = run.config, run.reference.config if run.reference else None
    with st.popover("Share", icon=":material/share:", disabled=config is None, help=None if config else form.reason):
        if config is None:
            return
        st.caption("The button at the right of each box copies it.")
        if run is not None:
            st.markdown("The link to this very run, also while it is going on. Whoever has it can watch:")
            st.code(link(f"run={run.id}"), language=None, wrap_lines=True)
        _settings_link(config, reference)
        beside = f", then {reference.algorithm.title} to compare with" if reference else ""
        st.markdown(f"The same without a browser, in fedviz's folder{beside}:")
        name = f"fedviz-{config.algorithm.name}-{run.id[:8] if run else 'settings'}"
        _command(config, f"{name}.json")
        if reference is not None:
            _command(reference, f"{name}-reference.json")
        st.markdown("The same in Python:")
        python = export.to_python(config)
        if len(python) <= LONGEST_COMMAND:
            st.code(python, language="python")
        else:
            st.caption(
                "These settings hold a list too long to be shown: read them from the file above with SimulationConfig.read."
            )
        if run is not None:
            _downloads(run, name)


def link(query: str) -> str:
    """The address of this page with a query in it."""
    here = urlsplit(str(st.context.url or "http://localhost:8501/"))
    # After a restart of the server Streamlit names the page itself in the address, which a link need not.
    path = here.path.removesuffix("/").removesuffix("/simulate") + "/"
    return urlunsplit((here.scheme, here.netloc, path, query, ""))


def _settings_link(config: SimulationConfig, reference: SimulationConfig | None) -> None:
    whole = link(f"config={links.to_parameter(config, reference)}")
    if len(whole) > links.LONGEST_OFFERED:
        st.caption("These settings hold a list too long for a link: send the file or the run's JSON instead.")
        return
    st.markdown("The link to these settings, ready to run; it starts nothing:")
    st.code(whole, language=None, wrap_lines=True)


def command(config: SimulationConfig) -> str:
    """The command line of a config, with the Python that bootstrap.py has made."""
    return PYTHON + config.to_command().removeprefix("python")


def _command(config: SimulationConfig, file_name: str) -> None:
    """The command line of a config; with a list too long for one, the settings as a file and the command that reads it."""
    whole = command(config)
    if len(whole) > LONGEST_COMMAND:
        title, count = config.algorithm.title, f"{len(whole):,}"
        st.markdown(
            f"These settings hold a list too long for a command line ({count} characters): keep them as a file first."
        )
        st.download_button(
            f"Settings as JSON ({title})",
            data=lambda: json.dumps(config.to_dict()),
            file_name=file_name,
            mime="application/json",
            icon=":material/download:",
            on_click="ignore",
            key=f"download-{file_name}",
        )
        whole = f"{PYTHON} -m fedviz run --config {file_name}"
    st.code(whole, language="bash", wrap_lines=True)


def _downloads(run: Run, name: str) -> None:
    """Its numbers, made when it is clicked: the rounds computed until then."""
    with st.container(horizontal=True):
        st.download_button(
            "Whole run as JSON", data=lambda: json.dumps(export.to_json(run), allow_nan=False), file_name=f"{name}.json",
            mime="application/json", icon=":material/download:", on_click="ignore", key="download-run-json",
            help="It can be imported again on the page of all runs.",
        )  # fmt: skip
        tables = [("Download CSV", run, f"{name}.csv")]
        if run.reference is not None:
            title = run.reference.config.algorithm.title
            tables.append((f"Reference as CSV ({title})", run.reference, f"{name}-reference.csv"))
        for label, each, file_name in tables:
            st.download_button(
                label,
                data=lambda each=each: export.to_csv(each.records, each.config),  # type: ignore[misc]
                file_name=file_name,
                mime="text/csv",
                icon=":material/download:",
                on_click="ignore",
                key=f"download-{file_name}",
            )
