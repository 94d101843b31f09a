"""A live chart: stays mounted while its data grows, so that zoom, hidden curves and the pointer survive every tick.

Streamlit 1.67 takes a plotly chart away and makes a new one whenever its data changes. This component keeps the plot
and hands new data to `Plotly.react`; every tick carries the whole (decimated) figure, so that a lost or merged message
costs nothing. The message is two bytes of height and compressed JSON, made once for all viewers of a figure.

A tick of a live page brings the messages of all its charts in one element, the feed, which shows nothing itself: it hands each to
the chart with its key; see feed.py.

The code is `static/live_plotly.js` with its style sheet, which the browser fetches once, together with plotly.js
(`static/plotly-basic.min.js`, npm plotly.js-basic-dist-min 4.1.1, MIT): what is given to `js=` rides in every message.

What a chart is in the page:
    .live-chart                  title, legend, notes and the plot; role="figure", labelled with the figure's sentence
    .live-plotly[data-chart=KEY] the plot. `element.data[k].x` and `.y` are typed arrays of what is drawn (for a test:
                                 `Array.from(element.data[k].y)`), `.customdata` the recorded values where they differ
    [data-curve=NAME]            a legend entry, by legendgroup (a run's role, a part of the error) or by name; where
                                 it is a button, aria-pressed says whether its curves are shown
    [data-value]                 a value in it: the latest, that at the cursor, or that at the round pointed at on any
                                 linked chart; .at beside the title says which round
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from functools import lru_cache
from pathlib import Path

import streamlit as st

from fedviz.figures import Figure
from fedviz.ui.feed import packed

STATIC = Path(__file__).resolve().parents[2] / "static"


def _version() -> str:
    """Part of the address, so that a browser does not keep an old copy."""
    code = b"".join((STATIC / name).read_bytes() for name in ("live_plotly.js", "live_plotly.css"))
    return hashlib.sha256(code).hexdigest()[:12]


_CODE = """
const code = import(new URL("app/static/live_plotly.js?v=%s", document.baseURI.replace(/[^/]*$/, "")).href);
"""
_CHART = """
export default function (component) {
  let close = () => {};
  let gone = false;
  const height = component.data[0] + 256 * component.data[1];
  component.parentElement.querySelector(".live-chart").style.minHeight = `${height}px`;  // before the code is there
  code.then((module) => { if (!gone) close = module.show(component); })
    .catch((error) => {
      component.parentElement.querySelector(".live-chart").textContent = `The chart could not be loaded: ${error.message}`;
    });
  return () => { gone = true; close(); };
}
"""

_FEED = """
export default function ({ data }) {
  if (data?.length) code.then((module) => module.feed(data)).catch(() => {});  // the charts themselves say what is wrong
}
"""

_load = _CODE % _version()
_chart = st.components.v2.component(
    "fedviz_live_plotly", html='<div class="live-chart"></div>', js=_load + _CHART, isolate_styles=False
)
_feed = st.components.v2.component("fedviz_live_feed", html="<span></span>", js=_load + _FEED, isolate_styles=False)


ABOVE = 95  # px that title, two rows of legend and a note take


def live_plotly(figure: Figure, *, key: str, height: int, above: int = ABOVE) -> None:
    """Show a figure, in place where a chart with this key is already shown.

    height: px of the plot, which keeps them however many rows title and legend above it have; above: px for these at first.
    Where the visitor zooms in on rounds of which the chart has more points than it draws, the page runs again and finds these
    rounds in `st.session_state[key]["focus"]`, as [first, last].
    """
    _chart(key=key, height="content", data=_message(figure, key, height, above), on_focus_change=lambda: None)


def feed_plotly(figures: dict[str, tuple[Figure, int]]) -> None:
    """Give new figures, with their heights, to charts that are shown, by their keys."""
    _feed(key="feed", data=packed({key: _message(figure, key, height) for key, (figure, height) in figures.items()}))


@lru_cache(maxsize=256)
def _message(figure: Figure, key: str, height: int, above: int = ABOVE) -> bytes:
    """What the browser gets: the height of all, which is needed first, as two bytes, then the rest as compressed JSON."""
    content = {"key": key, "height": height, "spec": figure.spec, "alt": figure.alt}
    return struct.pack("<H", height + above) + zlib.compress(json.dumps(content).encode(), 1)
