"""The page in a real Chromium: what is drawn is what is stored, and it goes on through reloads, clicks and restarts.

Chromium is that of FEDVIZ_CHROMIUM, else one on the path, else Playwright's own. Screenshots are left in test-artifacts/.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from fedviz.catalogue import KINDS, catalogue
from fedviz.config import SimulationConfig
from fedviz.runs.columns import Records
from fedviz.runs.manager import RunManager
from fedviz.runs.run import RunState
from fedviz.runs.store import RunStore
from fedviz.runs.visitor import LOCAL
from tests.runs.test_imports import as_file, exported
from tests.ui.conftest import until

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
ARTIFACTS = ROOT / "test-artifacts"
IDLE = '[data-testid="stApp"][data-test-connection-state="CONNECTED"][data-test-script-state="notRunning"]'
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

# Reads what plotly has drawn: trace name -> [x, y] and the recorded values where those differ.
DRAWN = """(key) => document.querySelector(`[data-chart=${key}]`).data.map((trace) => ({
    name: trace.name, run: trace.meta.run ?? null, axis: trace.xaxis ?? "x",
    x: Array.from(trace.x), y: Array.from(trace.y), recorded: trace.customdata ? Array.from(trace.customdata) : null }))"""


class Server:
    """The dashboard as a process of its own, on a folder and a port that outlive it."""

    def __init__(self, home: Path, **variables: str) -> None:
        self.home, self.variables = home, variables
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://localhost:{self.port}/"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "streamlit",
            "run",
            "server.py",
            "--server.port",
            str(self.port),
            "--server.headless",
            "true",
        ]
        log = (self.home / "server.log").open("ab")
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "FEDVIZ_HOME": str(self.home), **self.variables},
            stdout=log,
            stderr=log,
        )
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"{self.url}_stcore/health", timeout=1):
                    return
            except OSError:
                assert self.process.poll() is None, (self.home / "server.log").read_text()
                time.sleep(0.1)
        raise AssertionError("the server did not come up")

    def kill(self) -> None:
        """As a power cut does it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def has_loaded_torch(self) -> bool:
        assert self.process is not None
        return "libtorch" in Path(f"/proc/{self.process.pid}/maps").read_text()

    def stored(self, run_id: str) -> Records:
        """Of the run, as they stand in the database."""
        store = RunStore(self.home / "runs.sqlite")
        try:
            return store.records(run_id)
        finally:
            store.close()

    def records(self, run_id: str) -> tuple[Records, Records]:
        """(of the run, of its reference) as they stand in the database."""
        store = RunStore(self.home / "runs.sqlite")
        try:
            row = store.load(run_id)
            assert row is not None
            assert row.reference_id is not None
            return store.records(run_id), store.records(row.reference_id)
        finally:
            store.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("home"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = os.environ.get("FEDVIZ_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """A visitor's page, with what the browser has complained about."""

    def __init__(
        self, browser: Browser, url: str, *, width: int = 1440, height: int = 900, scheme: Any = "light"
    ) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(url)
        self.settle()

    def settle(self) -> None:
        self.page.wait_for_selector(IDLE, timeout=60_000)

    def press(self, name: str) -> None:
        # Streamlit has a button of its own named Stop in its header while a script runs.
        self.page.get_by_test_id("stMainBlockContainer").get_by_role("button", name=name, exact=True).click()

    def state(self, word: str) -> None:
        """Wait until the badge says so."""
        expect(self.page.locator(".stMarkdownBadge").filter(has_text=re.compile(rf"\b{word}$")).first).to_be_visible(
            timeout=60_000
        )

    def drawn(self, chart: str) -> list[dict[str, Any]]:
        self.page.wait_for_selector(f"[data-chart={chart}] .main-svg", state="attached", timeout=60_000)
        return self.page.evaluate(DRAWN, chart)  # type: ignore[no-any-return]

    def last_round(self, chart: str = "loss") -> float:
        return max((trace["x"][-1] for trace in self.drawn(chart) if trace["x"]), default=-1)

    def grows_beyond(self, last: float, chart: str = "loss") -> None:
        self.page.wait_for_function(
            "([key, last]) => (document.querySelector(`[data-chart=${key}]`)?.data ?? []).some((t) => t.x[t.x.length - 1] > last)",
            arg=[chart, last],
            timeout=60_000,
        )

    @property
    def run_id(self) -> str:
        found = re.search(r"[?&]run=([\w-]+)", self.page.url)
        assert found, self.page.url
        return found[1]

    def forgive_the_address(self) -> None:
        """On a page with an address of its own Streamlit looks for its server below that first."""
        self.complaints = [each for each in self.complaints if "status of 404" not in each]

    def close(self) -> None:
        assert self.page.get_by_test_id("stException").count() == 0
        assert self.complaints == []
        self.context.close()


def assert_drawn_as_stored(visit: Visit, server: Server) -> int:
    """Every drawn point of loss, accuracy and decomposition is a stored record; returns how many were compared."""
    time.sleep(1)  # a record is durable within a second
    drawn = {chart: visit.drawn(chart) for chart in ("loss", "accuracy", "decomposition")}
    run, reference = server.records(visit.run_id)
    compared = 0
    for chart, path in (("loss", "evaluation.train_loss"), ("accuracy", "evaluation.test_accuracy")):
        assert {trace["name"] for trace in drawn[chart]} == {"FedVARP", "FedAvg"}
        for trace in drawn[chart]:
            compared += compare(trace, run if trace["name"] == "FedVARP" else reference, path)
    parts = {"who took part": "participation", "gradient noise": "noise", "client drift": "drift"}
    found = dict.fromkeys(parts, 0)
    for trace in drawn["decomposition"]:
        if trace["name"] in parts and trace["x"]:
            found[trace["name"]] += compare(
                trace, reference if trace["run"] == "FedAvg" else run, f"decomposition.{parts[trace['name']]}"
            )
    assert all(found.values()), found
    return compared + sum(found.values())


def compare(trace: dict[str, Any], records: Records, path: str) -> int:
    """The trace's points against the column; with up to 600 values none may be missing."""
    column, rounds = records.column(path), records.rounds
    values = trace["recorded"] or trace["y"]
    stored = dict(zip(rounds.tolist(), column.astype(np.float32).tolist(), strict=True))
    for x, y in zip(trace["x"], values, strict=True):
        assert y == stored[int(x)], (path, x)
    known = rounds[np.isfinite(column)]
    expected = known[known <= trace["x"][-1]]
    if len(expected) <= 600:
        assert trace["x"] == expected.tolist()
    return len(trace["x"])


def test_a_run_from_click_to_restart(server: Server, browser: Browser) -> None:
    visit = Visit(browser, server.url)
    page = visit.page
    assert not server.has_loaded_torch()

    page.get_by_role("radio", name="10/s").click()
    page.get_by_role("button", name="Run", exact=True).dblclick()  # the second click must change nothing
    visit.state("running")
    run_id = visit.run_id
    visit.grows_beyond(3)
    first = visit.last_round()
    visit.grows_beyond(first)  # it really grows, by itself
    assert visit.run_id == run_id
    page.screenshot(path=ARTIFACTS / "running.png")

    page.reload()
    visit.settle()
    assert visit.run_id == run_id
    visit.grows_beyond(first)

    visit.press("Pause")
    visit.state("paused")
    expect(page.get_by_text(re.compile(r"Paused after round \d+"))).to_be_visible()
    paused_at = int(re.findall(r"Paused after round (\d+)", page.inner_text("body"))[0])
    expect(page.get_by_text(f"round {paused_at} of 200", exact=False).first).to_be_visible()
    assert assert_drawn_as_stored(visit, server) > 10

    visit.press("Step")
    expect(page.get_by_text(f"Paused after round {paused_at + 1}.", exact=True)).to_be_visible()
    time.sleep(1)  # durable within a second
    run, reference = server.records(run_id)
    assert (run.rounds[-1], reference.rounds[-1]) == (paused_at + 1, paused_at + 1)

    other = Visit(browser, f"{server.url}?run={run_id}")  # another browser on the same run
    other.state("paused")
    other.press("Resume")
    other.grows_beyond(paused_at + 3)
    other.state("running")
    other.press("Stop")
    other.state("stopped")
    visit.state("stopped")  # seen by both
    assert visit.drawn("loss") == other.drawn("loss")
    assert assert_drawn_as_stored(visit, server) > 20
    before = visit.drawn("loss")
    other.close()
    visit.close()

    server.kill()
    server.start()
    again = Visit(browser, f"{server.url}?run={run_id}")
    again.state("stopped")
    assert again.drawn("loss") == before
    assert not server.has_loaded_torch()  # to look at a run needs no torch either
    again.close()


@pytest.fixture(scope="module")
def finished(server: Server) -> str:
    """The id of a finished run, made by another process on the same store."""
    config = SimulationConfig.read({"rounds": 80, "probe_every": 10})
    with RunManager(RunStore(server.home / "runs.sqlite")) as runs:
        run = runs.submit(
            config, SimulationConfig.read({**config.to_dict(), "algorithm": {"name": "fedavg"}}), visitor=LOCAL
        )
        until(lambda: not run.live, seconds=120)
    assert run.state is RunState.FINISHED
    return run.id


def test_a_run_is_continued_from_a_round_with_another_method(server: Server, browser: Browser, finished: str) -> None:
    visit = Visit(browser, f"{server.url}?run={finished}")
    page = visit.page
    visit.drawn("loss")
    slider = page.get_by_role("slider", name="Look at round")
    slider.press("Home")
    for _ in range(12):
        slider.press("ArrowRight")
    expect(page.locator(".st-key-card-loss .at")).to_have_text("round 12")
    page.get_by_role("combobox", name="Algorithm").click()
    page.get_by_role("option", name="SCAFFOLD", exact=True).click()
    expect(page.get_by_text("settings changed")).to_be_visible()
    page.get_by_role("button", name="Continue", exact=True).click()
    page.wait_for_url(lambda address: finished not in address)
    until(lambda: len(server.stored(visit.run_id)) == 81, seconds=60)
    visit.state("finished")
    page.wait_for_function("() => document.querySelector('[data-chart=loss]').data[0].x.at(-1) === 80", timeout=20_000)
    for chart in ("loss", "decomposition", "participation", "heterogeneity"):
        expect(page.locator(f".st-key-card-{chart} .legend")).to_contain_text(
            "continued from round 12, until then FedVARP"
        )
    page.locator("[data-chart=loss] .nsewdrag").first.hover(position={"x": 10, "y": 10})
    expect(page.locator(".st-key-card-decomposition .at")).to_have_text(re.compile(r"^round \d+ of FedVARP$"))
    parent, fork = server.stored(finished), server.stored(visit.run_id)
    assert fork.rounds.tolist() == list(range(81))
    before, after = (records.column("evaluation.train_loss") for records in (parent, fork))
    measured = np.flatnonzero(np.isfinite(before))
    assert before[measured[measured <= 12]].tolist() == after[measured[measured <= 12]].tolist()
    assert before[80] != after[80]
    assert compare(visit.drawn("loss")[0], fork, "evaluation.train_loss") == len(measured)
    visit.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_it_looks_right(server: Server, browser: Browser, finished: str, width: int, height: int, scheme: str) -> None:
    """Screenshots of a finished run, to be looked at; nothing is wider than the window."""
    visit = Visit(browser, f"{server.url}?run={finished}", width=width, height=height, scheme=scheme)
    for chart in ("loss", "accuracy", "decomposition", "participation", "heterogeneity"):
        visit.drawn(chart)
    # Without scrolling: on a desktop half of the decomposition, on a phone the first curves.
    chart = visit.page.locator(f"[data-chart={'decomposition' if width > 1000 else 'loss'}]").bounding_box()
    assert chart is not None
    assert chart["y"] + chart["height"] / 2 <= height
    # Both panels of the last chart are high enough to be read from afar, and beside one another cards are equally high.
    panels = visit.page.evaluate(
        """() => { const drawn = document.querySelector("[data-chart=heterogeneity]")._fullLayout;
                   return [drawn.yaxis._length, drawn.yaxis2._length]; }"""
    )
    assert min(panels) >= 70
    cards = [visit.page.locator(f".st-key-card-{name}").bounding_box() for name in ("participation", "heterogeneity")]
    assert width < 1000 or len({card["height"] for card in cards if card}) == 1
    name = f"{width}x{height}-{scheme}"
    visit.page.screenshot(path=ARTIFACTS / f"{name}.png")
    too_wide = visit.page.evaluate(
        """() => Array.from(document.querySelectorAll('[data-testid="stMain"] *'))
            .filter((e) => !e.closest(".katex-mathml, .katex .stretchy") && e.tagName !== "INPUT")  // clipped by their parents
            .filter((e) => { const box = e.getBoundingClientRect(); return box.width > 0 && box.right > innerWidth + 1; })
            .map((e) => e.className.toString() + " " + e.textContent.slice(0, 40))"""
    )
    assert too_wide == []
    visit.page.set_viewport_size({"width": width, "height": 2300 if width > 1000 else 4200})
    visit.page.wait_for_timeout(700)
    visit.page.screenshot(path=ARTIFACTS / f"{name}-whole.png")
    visit.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_the_reference_page_typesets_every_formula_within_its_card(
    server: Server, browser: Browser, width: int, height: int, scheme: str
) -> None:
    visit = Visit(browser, server.url, width=width, height=height, scheme=scheme)
    visit.page.get_by_role("link", name="All methods, problems and settings").click()
    for kind, title in KINDS.items():
        visit.page.get_by_role("tab", name=title, exact=True).click()
        panel = visit.page.get_by_role("tabpanel").filter(visible=True)
        expected = sum(bool(entry["formula"]) for entry in catalogue()[kind].values())
        expect(panel.locator(".katex-display")).to_have_count(expected)
        written = panel.locator(".katex-html").all_text_contents()
        assert not [text for text in written if "\\" in text]  # a command that KaTeX does not know, left as it stands
        beyond_its_card = panel.locator("table, .katex-html .base").evaluate_all(
            """(all) => all.filter((e) => {
                const text = e.closest('[data-testid="stMarkdown"]').getBoundingClientRect();
                return e.getBoundingClientRect().right > text.right + 1;
            }).map((e) => e.textContent.slice(0, 60))"""
        )
        assert beyond_its_card == []
        visit.page.screenshot(path=ARTIFACTS / f"reference-{kind}-{width}x{height}-{scheme}.png")
    visit.close()


def test_the_embedded_page_has_charts_and_no_controls(server: Server, browser: Browser, finished: str) -> None:
    visit = Visit(browser, f"{server.url}?run={finished}&embed=true")
    visit.drawn("decomposition")
    assert visit.page.get_by_role("button", name="Run", exact=True).count() == 0
    assert visit.page.get_by_test_id("stSidebar").count() == 0
    visit.state("finished")
    heading = visit.page.get_by_role("heading", name="FedVARP · 5 of 100 clients")
    expect(heading).to_be_visible()
    place = heading.bounding_box()
    assert place is not None
    assert place["y"] < 30  # no empty band above it: a frame has little room
    visit.close()
    recorded = Visit(browser, f"{server.url}?embed=true")
    recorded.state("recorded")
    recorded.close()


def test_back_right_after_run_leads_back(server: Server, browser: Browser) -> None:
    visit = Visit(browser, f"{server.url}?config={quote(json.dumps({'rounds': 5_000, 'seed': 88}))}")
    page = visit.page
    page.get_by_role("radio", name="2/s").click()
    visit.press("Run")
    page.wait_for_url("**run=*")
    page.go_back()
    expect(page.locator(".stMarkdownBadge").filter(has_text="recorded").first).to_be_visible(timeout=60_000)
    time.sleep(2)
    assert "run=" not in page.url
    page.go_forward()
    visit.state("running")
    visit.press("Stop")
    visit.state("stopped")
    page.get_by_role("button", name="Start page").click()
    page.wait_for_url(lambda url: "run=" not in url)
    page.go_back()
    visit.state("stopped")
    visit.close()


def test_charts_stay_where_they_are_when_run_is_pressed(server: Server, browser: Browser) -> None:
    visit = Visit(browser, server.url)
    card = visit.page.locator(".st-key-card-loss")
    visit.drawn("loss")
    before = card.bounding_box()
    visit.page.get_by_role("radio", name="10/s").click()
    visit.press("Run")
    visit.state("running")
    visit.grows_beyond(1)
    assert card.bounding_box() == before
    visit.press("Pause")
    visit.state("paused")
    visit.settle()
    assert card.bounding_box() == before
    visit.press("Stop")
    visit.state("stopped")
    visit.close()


def test_a_chart_has_its_height_before_its_code_is_there(server: Server, browser: Browser, finished: str) -> None:
    visit = Visit(browser, server.url)
    visit.page.route("**/live_plotly.js*", lambda route: route.abort())
    visit.page.goto(f"{server.url}?run={finished}")
    visit.settle()
    expect(visit.page.locator(".live-chart").first).to_contain_text("could not be loaded")
    heights = visit.page.evaluate("() => Array.from(document.querySelectorAll('.live-chart'), (e) => e.clientHeight)")
    assert min(heights) >= 150
    visit.complaints.clear()  # of the file that was kept from it
    visit.close()


PLACES = """(rows) => rows.map((row) => row.getBoundingClientRect().top + document.querySelector('[data-testid="stMain"]').scrollTop)"""
IMAGES = as_file(exported(config=SimulationConfig.read({"rounds": 4}).to_dict()))
IN_SIGHT = """(element) => { const box = element.getBoundingClientRect();
    return element.contains(document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2)); }"""


@pytest.fixture(scope="module")
def imported(server: Server) -> list[str]:
    """The ids of four runs of images."""
    with RunManager(RunStore(server.home / "runs.sqlite")) as runs:
        return [runs.import_run(IMAGES, LOCAL).id for _ in range(4)]


def test_ticks_move_no_row_and_compare_brings_the_charts_into_view(
    server: Server, browser: Browser, imported: list[str]
) -> None:
    link = f"{server.url}runs?compare={imported[0]},{imported[1]}&draw_loss_scale=Log"
    visit = Visit(browser, link, width=390, height=844, scheme="dark")
    page = visit.page
    rows, boxes = page.locator('[class*="st-key-run-"]'), page.locator('[class*="st-key-compare-"] label')
    assert len(visit.drawn("compared-loss")) == 2
    assert page.evaluate("() => document.querySelector('[data-chart=compared-loss]')._fullLayout.yaxis.type") == "log"
    visit.press("Clear")
    expect(page.locator("[data-chart]")).to_have_count(0)
    expect(page.get_by_role("checkbox", checked=True)).to_have_count(0)
    visit.settle()
    before = rows.evaluate_all(PLACES)
    boxes.nth(0).click()
    expect(page.get_by_text("Tick another one to compare.")).to_be_visible()
    assert rows.evaluate_all(PLACES) == before
    boxes.nth(1).click()
    boxes.nth(3).click()  # while the page is still dealing with the one before
    expect(page.get_by_role("button", name="Compare 3 runs")).to_be_in_viewport()
    assert rows.evaluate_all(PLACES) == before
    page.screenshot(path=ARTIFACTS / "runs-ticked.png")
    visit.press("Compare 3 runs")
    assert len(visit.drawn("compared-loss")) == 3
    expect(page.locator("[data-chart=compared-loss]")).to_be_in_viewport(ratio=1)
    page.screenshot(path=ARTIFACTS / "runs-compared.png")
    visit.forgive_the_address()
    visit.close()


def test_what_came_of_an_import_is_in_sight_and_covers_no_button(
    server: Server, browser: Browser, imported: list[str]
) -> None:
    visit = Visit(browser, f"{server.url}runs", width=390, height=844)
    page = visit.page
    visit.press("Import")
    for content, told in ((b"{}", "it is an empty group"), (IMAGES, "The run was imported.")):
        page.locator("input[type=file]").set_input_files(
            {"name": "run.json", "mimeType": "application/json", "buffer": content}
        )
        alert = page.get_by_test_id("stAlert").filter(has_text=told)
        expect(alert).to_be_in_viewport(ratio=1)
        assert alert.evaluate(IN_SIGHT)
        assert page.get_by_role("button", name="Import", exact=True).evaluate(IN_SIGHT)
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("stAlert")).to_have_count(0)
    visit.press("Import")
    expect(page.get_by_text("A run that was exported as JSON")).to_be_visible()
    visit.settle()
    expect(page.get_by_test_id("stAlert")).to_have_count(0)  # it was said
    visit.forgive_the_address()
    visit.close()
