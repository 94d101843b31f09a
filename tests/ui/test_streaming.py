"""A live page in a real Chromium: what is drawn grows in place, and no frame lacks a chart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from fedviz.config import SimulationConfig
from fedviz.runs.manager import RunManager
from fedviz.runs.store import RunStore
from fedviz.runs.visitor import LOCAL
from tests.ui.conftest import until
from tests.ui.test_browser import Server, Visit, browser, server  # noqa: F401  (fixtures)

pytestmark = pytest.mark.browser

CHARTS = ("loss", "accuracy", "decomposition", "participation", "heterogeneity")
SECONDS = 4

# In every frame: which charts lack a curve, or the picture of who took part.
LOOK = """async ([seconds, names]) => {
    const drawn = (name) => document.querySelector(`[data-chart=${name}] path.js-line, [data-chart=${name}] .main-svg image`);
    const end = performance.now() + 1000 * seconds, missing = new Set();
    let frames = 0;
    while (performance.now() < end) {
        await new Promise(requestAnimationFrame);
        frames += 1;
        for (const name of names) if (!drawn(name)) missing.add(name);
    }
    return [frames, [...missing]];
}"""
# The last round that a curve of the chart has reached, read from what plotly has drawn.
REACHED = """(name) => Math.max(...(document.querySelector(`[data-chart=${name}]`)?.data ?? [])
    .filter((trace) => trace.x.length).map((trace) => trace.x[trace.x.length - 1]))"""
HEIGHTS = (
    "() => Array.from(document.querySelectorAll('[data-chart]'), (plot) => [plot.dataset.chart, plot.clientHeight])"
)
STATE = """() => { const plot = document.querySelector("[data-chart=loss]"); return {
    range: Array.from(plot._fullLayout.xaxis.range),
    hidden: plot.data.filter((trace) => trace.visible === "legendonly").map((trace) => trace.name) }; }"""


def test_a_live_chart_grows_in_place_and_keeps_zoom_and_hidden_curves(
    server: Server,  # noqa: F811
    browser: Browser,  # noqa: F811
) -> None:
    visit = Visit(browser, server.url, height=2300)
    page = visit.page
    page.get_by_role("radio", name="10/s").click()
    visit.press("Run")
    # Until its first record the charts are those of the recorded run, which is complete.
    page.wait_for_function(
        f"() => {{ const round = ({REACHED})('decomposition'); return round > 5 && round < 100; }}", timeout=90_000
    )
    nodes = page.evaluate(
        "(names) => names.map((name) => document.querySelector(`[data-chart=${name}]`).seen = true)", CHARTS
    )
    assert len(nodes) == 5
    heights = page.evaluate(HEIGHTS)

    page.locator("[data-chart=loss]").scroll_into_view_if_needed()
    page.locator(".st-key-card-loss [data-curve=reference]").click()
    zoom(page, 0.01, 0.5)
    page.wait_for_function(f"() => ({STATE})().range[1] < 150")
    before = page.evaluate(STATE)
    assert before["hidden"] == ["FedAvg"]
    page.locator("[data-chart=loss] .nsewdrag").first.hover(position={"x": 40, "y": 40})  # other numbers in all legends
    reached = reach(page)

    frames, missing = page.evaluate(LOOK, [SECONDS, CHARTS])
    assert missing == []
    assert frames > SECONDS  # at least one a second, on however slow a machine
    grown = reach(page)
    for chart in ("loss", "accuracy", "participation", "heterogeneity"):  # the error is measured more rarely
        assert grown[chart] > reached[chart], chart
    assert page.evaluate(STATE) == before
    assert page.evaluate(HEIGHTS) == heights  # whatever came into legends and notes meanwhile
    kept = page.evaluate("(names) => names.map((name) => document.querySelector(`[data-chart=${name}]`).seen)", CHARTS)
    assert kept == [True] * 5  # the very elements of before

    page.get_by_role("button", name="Reset zoom").click()
    page.wait_for_function(f"() => ({STATE})().range[1] === 200")
    visit.press("Stop")
    visit.state("stopped")
    visit.close()


def test_zooming_in_on_a_long_run_draws_every_round_of_it(
    server: Server,  # noqa: F811
    browser: Browser,  # noqa: F811
) -> None:
    quadratics = {"kind": "quadratics"}
    config = SimulationConfig.read({"problem": quadratics, "rounds": 1500, "eval_every": 1, "probe_every": 0})
    with RunManager(RunStore(server.home / "runs.sqlite")) as runs:
        run = runs.submit(config, visitor=LOCAL)
        until(lambda: not run.live, seconds=120)
        expected = {record["round"]: record["evaluation"]["objective"] for record in run.records.dicts()}
    visit = Visit(browser, f"{server.url}?run={run.id}")
    page = visit.page
    assert len(visit.drawn("loss")[0]["x"]) <= 256
    zoom(page, 0.5, 0.6)
    page.wait_for_function("() => document.querySelector('[data-chart=loss]').data[0].x.length > 300", timeout=20_000)
    first, last = (round(edge) for edge in page.evaluate(f"() => ({STATE})().range"))
    assert 100 < last - first < 200
    drawn = dict(zip(visit.drawn("loss")[0]["x"], visit.drawn("loss")[0]["y"], strict=True))
    for each in range(first, last + 1):
        assert drawn[each] == pytest.approx(expected[each], rel=1e-6)
    # Upwards what is in view, which is nearly flat: powers of ten, with at least 0.02 of them and a ninth more shown.
    height = np.log10([expected[each] for each in range(first, last + 1)])
    low, high = page.evaluate("() => document.querySelector('[data-chart=loss]')._fullLayout.yaxis.range")
    assert low < height.min() <= height.max() < high
    assert high - low < max(0.02, height.max() - height.min()) * 1.2
    assert high - low < 0.1 * np.ptp(np.log10(list(expected.values())))
    page.get_by_role("button", name="Reset zoom").click()
    page.wait_for_function("() => document.querySelector('[data-chart=loss]').data[0].x.length <= 256", timeout=20_000)
    assert page.evaluate(f"() => ({STATE})().range") == [0, 1500]
    low, high = page.evaluate("() => document.querySelector('[data-chart=loss]')._fullLayout.yaxis.range")
    assert high - low > np.ptp(np.log10(list(expected.values())))
    visit.close()


@pytest.fixture(scope="module")
def code(server: Server, browser: Browser) -> Iterator[Page]:  # noqa: F811
    """A page that is nothing but the charts' code, to call its functions."""
    page = browser.new_page()
    page.goto(f"{server.url}app/static/live_plotly.js")
    yield page
    page.close()


FOUND = """async ([rounds, values, at]) => {
    const { foundAt } = await import("./live_plotly.js");
    return foundAt({ x: rounds, y: values.map((value) => value ?? NaN), meta: {} }, at)?.x ?? null;
}"""


def test_pointing_at_a_round_finds_the_last_one_before_it_in_which_something_was_measured(code: Page) -> None:
    def found(values: list[float | None], at: int) -> int | None:
        return code.evaluate(FOUND, [[0, 8, 16], values, at])  # type: ignore[no-any-return]

    assert [found([1.0, 2.0, 3.0], at) for at in (0, 7, 8, 10, 16, 40)] == [0, 0, 8, 8, 16, 16]
    assert found([1.0, None, 3.0], 10) == 0
    assert found([None, 2.0, 3.0], 3) == 8  # nothing before: the first
    assert found([None, None, None], 3) is None


ABOUT = """async ([before, after, name]) => {
    const { about } = await import("./live_plotly.js");
    return about(before, name) === about(after, name);
}"""


def test_a_zoom_is_kept_as_long_as_its_axis_is_about_the_same(code: Page) -> None:
    def same(name: str, before: dict[str, Any], after: dict[str, Any]) -> bool:
        return bool(code.evaluate(ABOUT, [{name: before}, {name: after}, name]))

    log = {"type": "log", "title": {"text": "squared distance"}}
    assert same("yaxis", log, {**log, "nticks": 4, "range": [0, 1]})
    assert not same("yaxis", log, {**log, "type": "linear"})
    assert not same("yaxis", log, {**log, "title": {"text": "of the step's squared length"}})
    assert same("xaxis", {"range": [0, 200]}, {"range": [0, 200], "dtick": 1})
    assert not same("xaxis", {"range": [0, 200]}, {"range": [0, 60]})


# What `fit` makes of two curves on an axis (a third is hidden), of three layers on one from zero, and of marks with bars.
FIT = """async ([type, zoomed, names]) => {
    const { fit } = await import(location.href);
    const x = [0, 2, 4, 6, 8, 10], curve = { x, y: [1000, 500, 100, 20, 10, 3], mode: "lines" };
    const data = [curve, { ...curve, y: [1e6, 1e6, NaN, NaN, NaN, 1e6] }, { ...curve, y: x.map(() => 9e9), visible: "legendonly" },
      ...[1, 2, 3].map((height) => ({ x, y: x.map(() => height), mode: "lines", stackgroup: "a", yaxis: "y2" })),
      { x, y: x.map(() => 50), mode: "markers", error_y: { array: x.map(() => 5) }, yaxis: "y3" }];
    const layout = { xaxis: { range: [0, 10] }, yaxis: { type, nticks: 6 }, yaxis2: { rangemode: "tozero" }, yaxis3: {},
      yaxis4: { matches: "y" }, yaxis5: { range: [7, 8] }, yaxis6: {}, margin: { l: 0 } };
    fit(data, layout, new Map(zoomed));
    return names.map((name) => layout[name].range);
}"""


def test_an_axis_fits_what_is_in_view_as_long_as_nobody_has_zoomed_it(code: Page) -> None:
    def fitted(*zoomed: list[Any], type: str = "linear", axes: tuple[str, ...] = ("yaxis",)) -> list[list[float]]:
        return code.evaluate(FIT, [type, zoomed, axes])  # type: ignore[no-any-return]

    rounds = ["xaxis", [3, 8]]
    # At round 3 the line is halfway from 500 to 100. Room: an 18th of what lies between.
    assert fitted(rounds) == [pytest.approx([10 - 290 / 18, 300 + 290 / 18])]
    tens = (np.log10(500) + np.log10(100)) / 2
    assert fitted(rounds, type="log") == [pytest.approx([1 - (tens - 1) / 18, tens + (tens - 1) / 18])]
    # Layers stand on one another and on zero; bars of errors are in view; what matches follows; what has its range keeps it.
    assert fitted(rounds, axes=("yaxis2", "yaxis3", "yaxis4", "yaxis5", "yaxis6")) == [
        pytest.approx([0, 6 + 6 / 18]), pytest.approx([45 - 10 / 18, 55 + 10 / 18]), *fitted(rounds), [7, 8], None,
    ]  # fmt: skip
    assert fitted(rounds, ["yaxis", [0, 7]], axes=("yaxis", "yaxis4")) == [[0, 7], [0, 7]]
    assert fitted() == [pytest.approx([3 - 999_997 / 18, 1e6 + 999_997 / 18])]


PERCENT_TICKS = (
    "async ([a, b]) => { const { percentTicks } = await import(location.href); return percentTicks(a, b, 6); }"
)


@pytest.mark.parametrize(
    ("low", "high", "values", "names"),
    [
        (0.05, 0.87, [0.2, 0.4, 0.6, 0.8], ["20", "40", "60", "80"]),
        (-0.03, 0.55, [0, 0.1, 0.2, 0.3, 0.4, 0.5], ["0", "10", "20", "30", "40", "50"]),
        (
            0.8305,
            0.8331,
            [0.8305, 0.831, 0.8315, 0.832, 0.8325, 0.833],
            ["83.05", "83.1", "83.15", "83.2", "83.25", "83.3"],
        ),
    ],
)
def test_ticks_in_percent_are_written_as_in_the_legend(
    code: Page, low: float, high: float, values: list[float], names: list[str]
) -> None:
    ticks = code.evaluate(PERCENT_TICKS, [low, high])
    assert ticks == {"tickvals": pytest.approx(values), "ticktext": [f"{name}\u00a0%" for name in names]}


LOG_TICKS = "async (ranges) => { const { logTicks } = await import(location.href); return ranges.map(([a, b]) => logTicks(a, b, 7)); }"


@pytest.mark.parametrize(
    ("low", "high", "names"),
    [
        (2e-6, 40, ["10⁻⁵", "10⁻⁴", "0.001", "0.01", "0.1", "1", "10"]),
        (0.4, 2.4, ["0.5", "1", "2"]),
        (8e-9, 1.2e-5, ["10⁻⁸", "3×10⁻⁸", "10⁻⁷", "3×10⁻⁷", "10⁻⁶", "3×10⁻⁶", "10⁻⁵"]),
        (4e3, 6e4, ["5,000", "10,000", "20,000", "50,000"]),
        (0.4457, 0.4525, ["0.446", "0.447", "0.448", "0.449", "0.45", "0.451", "0.452"]),
        (6.9e-6, 7.3e-6, ["6.9×10⁻⁶", "7×10⁻⁶", "7.1×10⁻⁶", "7.2×10⁻⁶", "7.3×10⁻⁶"]),
    ],
)
def test_log_ticks_are_few_and_written_out(code: Page, low: float, high: float, names: list[str]) -> None:
    [ticks] = code.evaluate(LOG_TICKS, [[np.log10(low) - 1e-9, np.log10(high) + 1e-9]])
    assert ticks["ticktext"] == names


def test_a_log_axis_has_some_ticks_and_not_too_many_however_wide_or_narrow(code: Page) -> None:
    """From a hundredth of a power of ten to all that a float can hold, 10^-323 to 10^308; no name stands twice."""
    rng = np.random.default_rng(0)
    ranges = [(start := rng.uniform(-300, 300 - width), start + width) for width in np.geomspace(0.02, 300, 200)]
    for (low, high), ticks in zip(ranges, code.evaluate(LOG_TICKS, ranges), strict=True):
        assert 2 <= len(ticks["tickvals"]) <= 8, (low, high)
        assert len(set(ticks["ticktext"])) == len(ticks["tickvals"])
        assert all(low - 1e-9 <= math.log10(value) <= high + 1e-9 for value in ticks["tickvals"])
    extreme = [(-323, 308.3), (308.2, 308.4), (-323.5, -323), (-310, -305)]
    assert all(
        0 < value < np.inf and np.isfinite(value)
        for ticks in code.evaluate(LOG_TICKS, extreme)
        for value in ticks["tickvals"]
    )


def zoom(page: Page, start: float, end: float) -> None:
    """Drag over a part of the loss chart's width, from share to share."""
    box = page.locator("[data-chart=loss] .nsewdrag").first.bounding_box()
    assert box is not None
    height = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], height)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], height, steps=5)
    page.mouse.up()


def reach(page: Any) -> dict[str, float]:
    return {chart: page.evaluate(REACHED, chart) for chart in CHARTS}
