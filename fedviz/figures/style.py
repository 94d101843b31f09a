"""How charts look: fixed colours, one set of words, numbers with three significant digits.

Each colour has a contrast of at least 3:1 against both the light and the dark page, so that a curve keeps its colour
when the theme changes. Algorithms keep one colour everywhere. What tells runs on one chart apart is the dash as well:
the current run is solid, its reference dotted, the previous run dashed and faint. Parts of the error differ in marker
shape too, because vermilion and amber look alike to some eyes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedviz.figures.views import Role

ALGORITHM_COLOURS = {
    "sgd": "#5C7FA3", "fedavg": "#2E80CC", "fedprox": "#5B93DB",
    "scaffold": "#D9720B",
    "fedvarp": "#00936B", "cluster_fedvarp": "#5FA33A",
    "mifa": "#12929B",
    "amplified_fedavg": "#8F6FDC", "amplified_scaffold": "#A855C7",
    "fedavgm": "#A0704B", "fedadam": "#8C7B62", "fedyogi": "#80828A",
}  # fmt: skip
NEUTRAL = "#808792"
DISSIMILARITY, WITHIN_CLUSTER, STALENESS, MEMORY_ERROR = "#7B6CC4", "#1E9494", "#A0704B", "#C2548C"

PERCENT = "\u00a0%"  # no line ends between a number and its sign

ROLE_DASH: dict[Role, str] = {"current": "solid", "recorded": "solid", "reference": "dot", "previous": "dash"}
ROLE_OPACITY: dict[Role, float] = {"current": 1.0, "recorded": 1.0, "reference": 1.0, "previous": 0.45}


@dataclass(frozen=True)
class Part:
    """One part of the server's error, as drawn."""

    words: str
    colour: str
    symbol: str


PARTS = {
    "participation": Part("who took part", "#CF3F10", "circle"),
    "bias": Part("which group was on duty", "#C4609A", "square"),
    "noise": Part("gradient noise", "#2A86BA", "diamond"),
    "drift": Part("client drift", "#C07F00", "triangle-up"),
    "interaction": Part("interaction", NEUTRAL, "circle"),
    "total": Part("total", NEUTRAL, "circle"),
}
MOVEMENT = Part("movement within the window", "#7B6CC4", "square")  # a part of windows only


def algorithm_colour(algorithm: str) -> str:
    return ALGORITHM_COLOURS.get(algorithm, NEUTRAL)


def faint(colour: str, opacity: float) -> str:
    """A #rrggbb colour as rgba()."""
    red, green, blue = rgb(colour)
    return f"rgba({red},{green},{blue},{opacity:.3g})"


def rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def number(value: float | None, *, trim: bool = False) -> str:
    """Three significant digits: 0.0591, 38.2, 1,230; powers of ten below 0.001 and from 100,000 on; "–" for none.

    trim: without zeros at the end, for values that were set rather than measured: 0.3, not 0.300.
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    # The exponent after rounding: 9.999 is 10.0, not 10.00.
    exponent = math.floor(math.log10(abs(float(f"{value:.2e}"))))
    if -3 <= exponent < 5:
        text, power = f"{round(value, 2 - exponent):,.{max(0, 2 - exponent)}f}", ""
    else:
        text, power = f"{value / 10.0**exponent:.2f}", f"×10{superscript(exponent)}"
    if trim and "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"{text}{power}".replace("-", "−")


def percent(share: float | None, *, trim: bool = False) -> str:
    """A share in [0, 1] as 80.6 %."""
    return "–" if share is None or not math.isfinite(share) else f"{number(100 * share, trim=trim)}{PERCENT}"


def superscript(exponent: int) -> str:
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
