"""A live page in a real Chromium: what is drawn grows in place, and no frame lacks a chart."""

from __future__ import annotations

from typing import Any

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

    page.locator("[data-chart=loss]").scroll_into_view_if_needed()
    page.locator(".st-key-card-loss [data-curve=reference]").click()
    zoom(page, 0.01, 0.5)
    page.wait_for_function(f"() => ({STATE})().range[1] < 150")
    before = page.evaluate(STATE)
    assert before["hidden"] == ["FedAvg"]
    reached = reach(page)

    frames, missing = page.evaluate(LOOK, [SECONDS, CHARTS])
    assert missing == []
    assert frames > SECONDS  # at least one a second, on however slow a machine
    grown = reach(page)
    for chart in ("loss", "accuracy", "participation", "heterogeneity"):  # the error is measured more rarely
        assert grown[chart] > reached[chart], chart
    assert page.evaluate(STATE) == before
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
    page.get_by_role("button", name="Reset zoom").click()
    page.wait_for_function("() => document.querySelector('[data-chart=loss]').data[0].x.length <= 256", timeout=20_000)
    assert page.evaluate(f"() => ({STATE})().range") == [0, 1500]
    visit.close()


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
