"""The page "Reference": every algorithm, pattern, partition, problem, data set and model, from the catalogue."""

from __future__ import annotations

import streamlit as st

from fedviz.catalogue import KINDS, SYMBOLS, Entry, allowed, catalogue, default_of
from fedviz.ui import pages
from fedviz.ui.page import STYLE
from fedviz.ui.words import escape, typeset

WIDTH = 960  # pixels; longer lines are hard to read


def show() -> None:
    """The whole page: a tab for each kind, a card for each thing."""
    st.html(STYLE)
    with st.container(horizontal_alignment="center"), st.container(width=WIDTH):
        pages.back()
        st.header("Reference", anchor=False)
        st.caption("All that can be chosen, with the names that the command line uses.")
        with st.expander("What the symbols stand for", icon=":material/function:", key="symbols"):
            st.markdown("\n".join(f"- {_symbols(symbols)}: {typeset(meaning)}" for symbols, meaning in SYMBOLS.items()))
        everything = _catalogue()
        for kind, tab in zip(KINDS, st.tabs(list(KINDS.values())), strict=True):
            with tab:
                for entry in everything[kind].values():
                    _card(entry)


@st.cache_data(show_spinner=False)
def _catalogue() -> dict[str, dict[str, Entry]]:
    return catalogue()


def _symbols(names: str) -> str:
    """As in "m, s", typeset as in formulas."""
    return ", ".join(typeset(name) if "_" in name else f"${name}$" for name in names.split(", "))


def _card(entry: Entry) -> None:
    with st.container(border=True):
        st.subheader(escape(entry["title"]), anchor=False)
        st.markdown(escape(entry["summary"]))
        if entry["formula"]:
            st.latex(entry["formula"])
        if entry["costs"]:
            st.markdown("\n".join(f"- {escape(what)}: {escape(value)}" for what, value in entry["costs"].items()))
        if entry["parameters"]:
            st.markdown(_table(entry["parameters"]))
        notes = [entry["paper"] and f"{escape(entry['paper'])}.", entry["choose"] and f"`--set {entry['choose']}`"]
        if any(notes):
            st.caption(" ".join(filter(None, notes)))


def _table(parameters: list[Entry]) -> str:
    """A Markdown table of three columns, which still fits on a phone; a data grid would have to be scrolled."""
    rows = ["| Parameter | Values | Meaning |", "|---|---|---|"]
    for p in parameters:
        name = f"{p['label']} ({p['symbol']})" if p["symbol"] else str(p["label"])
        default = default_of(p) if p["required"] else f"by default {default_of(p)}"
        cells = (name, f"{allowed(p)}; {default}", p["help"])
        rows.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    return typeset(text).replace("|", "\\|")
