"""The charts of a run, each in its card: loss and accuracy, then why, then who.

`draw` lays them out and `feed` brings them up to date. Only `feed` runs in a tick: Streamlit takes 0.2 ms and more for every
element that a tick writes, whether it changed or not, and the cards have over fifty.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fedviz import figures
from fedviz.figures import Figure, RunView
from fedviz.problems import Classification
from fedviz.ui import words
from fedviz.ui.live_plotly import feed_plotly, live_plotly
from fedviz.ui.once import Once
from fedviz.ui.shown import Shown

HEIGHT: Final = 170  # px of a plot
HEIGHTS: Final = {
    "decomposition": 245,
    "participation": 310,
    "heterogeneity": 250,
}  # both of the last are about as high with legends
OPTIONS: Final = {  # how to draw; the first is what is chosen at first
    "loss_scale": {"linear": "Linear", "log": "Log"},
    "scale": {"log": "Log", "linear": "Linear"},
    "size": {"absolute": "Absolute", "relative": "Relative"},
    "split": {"telescoped": "As measured", "theory": "As in theory"},
}

once = Once(most=256)


@dataclass(frozen=True)
class Drawn:
    """What the cards hold, and the places of what a tick writes beside the charts."""

    figures: dict[str, Figure]
    reading: DeltaGenerator
    cost: DeltaGenerator


def draw(shown: Shown, previous: Shown | None, cursor: int | None) -> Drawn:
    """All cards, with what they hold. previous: drawn faint. cursor: the round to look at, None for the last."""
    cards: dict[str, DeltaGenerator] = {}
    left, right = st.columns(2)
    cards["loss"], cards["accuracy"] = _card("loss", left), _card("accuracy", right)
    with cards["loss"], _tools("loss"):
        if _scale_of_loss_is_free(shown):
            _option("loss_scale")
        _help("loss", words.measured_on(shown.config))
    with cards["accuracy"], _tools("accuracy"):
        _help("accuracy", words.measured_on(shown.config))
    with _card("decomposition"):  # the heart of the page: where the server's error comes from
        reading = st.container(key="reading").empty()
        cards["decomposition"] = st.container(key="decomposition-chart")
        with cards["decomposition"], _tools("decomposition"):
            for name in ("scale", "size", "split"):
                _option(name)
        cost = st.container(key="cost").empty()
    made = _figures(shown, previous, cursor)  # the options are known now
    if "windows" in made:
        cards["windows"] = _card("windows")
        with cards["windows"], _tools("windows"):
            _help("windows")
    for name, column in zip(("participation", "heterogeneity"), st.columns(2), strict=True):
        cards[name] = _card(name, column)
        with cards[name], _tools(name):
            _help(name)
    for name, figure in made.items():
        with cards[name]:
            live_plotly(figure, key=name, height=HEIGHTS.get(name, HEIGHT))
    drawn = Drawn(made, reading, cost)
    _write(drawn, shown, cursor)
    return drawn


def feed(drawn: Drawn, shown: Shown, previous: Shown | None, cursor: int | None) -> bool:
    """Bring what was drawn up to date; whether it has places for all charts that there are now.

    A chart is sent where it is not as it was drawn, whatever was sent meanwhile: so a tick that gets lost costs nothing.
    """
    made = _figures(shown, previous, cursor)
    if made.keys() != drawn.figures.keys():
        return False
    feed_plotly(
        {
            name: (figure, HEIGHTS.get(name, HEIGHT))
            for name, figure in made.items()
            if figure is not drawn.figures[name]
        }
    )
    _write(drawn, shown, cursor)
    return True


def _figures(shown: Shown, previous: Shown | None, cursor: int | None) -> dict[str, Figure]:
    """By their names. Each is made once for all who look at the same records in the same way."""
    alone, compared = (shown.extent, cursor), (shown.extent, previous and previous.extent, cursor)
    log = _scale_of_loss_is_free(shown) and _chosen("loss_scale") == "log"
    scale: Literal["log", "linear"] = "log" if _chosen("scale") == "log" else "linear"
    relative, split = _sizes()
    run, reference = shown.view, shown.reference_view
    before = previous.before(shown) if previous else None
    taken = once(("taken", shown.key), lambda: figures.Taken(run))

    def made(name: str, look: Hashable, make: Callable[..., Any]) -> Any:
        """`make` of the run, of its reference and of the run before; look: all else that the figure depends on."""
        focus = _focus(name)

        def views() -> list[RunView | None]:
            return [view and (replace(view, focus=focus) if focus else view) for view in (run, reference, before)]

        return once((name, look, focus), lambda: make(*views()))

    found: dict[str, Figure | None] = {
        "loss": made("loss", (compared, log), lambda *views: figures.loss(_there(views), cursor=cursor, log=log)),
        "accuracy": made("accuracy", compared, lambda *views: figures.accuracy(_there(views), cursor=cursor)),
        "decomposition": made(
            "decomposition",
            (alone, relative, split, scale),
            lambda view, reference, _: figures.decomposition(
                view, reference, scale=scale, relative=relative, split=split, cursor=cursor
            ),
        ),
        "windows": made("windows", alone, lambda view, *_: figures.windows(view, cursor=cursor)),
        "participation": made("participation", alone, lambda view, *_: figures.participation(view, cursor, taken)),
        "heterogeneity": made("heterogeneity", alone, lambda view, *_: figures.heterogeneity(view, cursor=cursor)),
    }
    return {name: figures.marked(figure, shown.parent) for name, figure in found.items() if figure is not None}


def _there(views: Iterable[RunView | None]) -> list[RunView]:
    return [view for view in views if view is not None]


def _focus(name: str) -> tuple[int, int] | None:
    """The rounds that the visitor has zoomed in on, where a chart has more to show of them; whatever the browser says."""
    told = st.session_state.get(name)
    focus = told.get("focus") if isinstance(told, Mapping) else None
    if not isinstance(focus, list) or len(focus) != 2:
        return None
    first, last = focus
    # No bool is meant, and no number beyond any round.
    if type(first) is not int or type(last) is not int or not 0 <= first < last < 10**9:
        return None
    return first, last


def _write(drawn: Drawn, shown: Shown, cursor: int | None) -> None:
    """The sentence over the decomposition, and what the probes cost."""
    view, reference = shown.view, shown.reference_view
    relative, split = _sizes()
    sentence = once(
        ("reading", shown.extent, cursor, relative, split),
        lambda: figures.reading(view, cursor, relative=relative, split=split, reference=reference),
    )
    drawn.reading.markdown(f"**{words.escape(sentence)}**", help=words.CHART_HELP["decomposition"])
    gradients, probes = (shown.records.last(f"costs.{name}_evaluations") for name in ("gradient", "probe"))
    if cost := words.probe_share(gradients, probes):
        drawn.cost.caption(cost)
    else:
        drawn.cost.empty()


def _scale_of_loss_is_free(shown: Shown) -> bool:
    """The objective of an analytic problem chooses its scale itself: it falls, or rises, by many powers of ten."""
    return isinstance(shown.config.problem, Classification)


def scale_of_loss(name: str) -> bool:
    """The choice of how to draw a training loss, in the row of the title of that chart; whether on a log scale."""
    with _tools(name):
        _option("loss_scale")
    return _chosen("loss_scale") == "log"


def _sizes() -> tuple[bool, Literal["telescoped", "theory"]]:
    """Whether the parts of the error are drawn relative to the whole, and which parts."""
    return _chosen("size") == "relative", "theory" if _chosen("split") == "theory" else "telescoped"


def _card(name: str, column: DeltaGenerator | None = None) -> DeltaGenerator:
    """Over the whole width, or in a column and as high as its neighbour."""
    if column is None:
        return st.container(border=True, key=f"card-{name}")
    return column.container(border=True, key=f"card-{name}", height="stretch")


def _tools(name: str) -> DeltaGenerator:
    """What stands in the row of a chart's title, at its right."""
    return st.container(key=f"tools-{name}", horizontal=True, width="content")


def _help(name: str, further: str = "") -> None:
    st.markdown("&nbsp;", help=f"{words.CHART_HELP[name]} {further}".strip())


def _option(name: str) -> None:
    """A small choice of how to draw; it redraws the charts and nothing else."""
    choices = OPTIONS[name]
    st.segmented_control(
        name.replace("_", " "),
        list(choices),
        default=next(iter(choices)),
        key=f"draw_{name}",
        bind="query-params",  # a reload, and whoever gets the link, sees it drawn the same
        required=True,
        format_func=choices.__getitem__,
        label_visibility="collapsed",
    )


def _chosen(name: str) -> str:
    """What was chosen of an option, or will be at first."""
    return str(st.session_state.get(f"draw_{name}", next(iter(OPTIONS[name]))))
