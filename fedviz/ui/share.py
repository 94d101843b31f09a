"""What a visitor takes away from a run: its link, its command line, its numbers."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

import streamlit as st

from fedviz.runs import export
from fedviz.runs.run import Run


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
        st.markdown("**Copy link**: shows this very run, also while it is going on.")
        st.code(link(run.id), language=None, wrap_lines=True)
        st.markdown("**Copy command**: the same run without a browser.")
        st.code(run.config.to_command(), language="bash", wrap_lines=True)
        name = f"fedviz-{run.config.algorithm.name}-{run.id[:8]}"
        with st.container(horizontal=True):
            _download(run, "Download CSV", f"{name}.csv")
            if run.reference is not None:
                _download(
                    run.reference, f"Reference as CSV ({run.reference.config.algorithm.title})", f"{name}-reference.csv"
                )


def link(run_id: str) -> str:
    """The address of this page with the run in it."""
    here = urlsplit(str(st.context.url or "http://localhost:8501/"))
    return urlunsplit((here.scheme, here.netloc, here.path or "/", f"run={run_id}", ""))


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
