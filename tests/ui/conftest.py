"""A page with a store of its own for each test, and small runs that take a fraction of a second."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from fedviz.runs.manager import RunManager
from fedviz.runs.run import Run
from fedviz.ui import actions, manager
from fedviz.ui.feed import unpacked
from tests.runs.fakes import Local

DOUBLE_CLICK, HEARD = actions.DOUBLE_CLICK, actions.HEARD

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_double_clicks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests click faster than hands: what they press twice they mean twice."""
    monkeypatch.setattr(actions, "DOUBLE_CLICK", 0.0)
    monkeypatch.setattr(actions, "HEARD", 0.0)


@pytest.fixture
def double_clicks(no_double_clicks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for visitors."""
    monkeypatch.setattr(actions, "DOUBLE_CLICK", DOUBLE_CLICK)
    monkeypatch.setattr(actions, "HEARD", HEARD)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunManager]:
    """The server's run manager, over an empty store."""
    monkeypatch.setenv("FEDVIZ_HOME", str(tmp_path))
    monkeypatch.setattr(manager, "RunManager", Local)
    manager.run_manager.clear()  # one that an earlier test left would still write to its own folder
    made = manager.run_manager()
    yield made
    made.shutdown()
    manager.run_manager.clear()


TOKEN = "correct horse battery"


@pytest.fixture
def hosted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunManager]:
    """The run manager of a public server with an admin."""
    monkeypatch.setenv("FEDVIZ_HOME", str(tmp_path))
    monkeypatch.setenv("FEDVIZ_HOSTED", "1")
    monkeypatch.setenv("FEDVIZ_EXECUTOR", "thread")
    monkeypatch.setenv("FEDVIZ_ADMIN_TOKEN", TOKEN)
    manager.run_manager.clear()
    made = manager.run_manager()
    yield made
    made.shutdown()
    manager.run_manager.clear()


@pytest.fixture
def open_page(runs: RunManager) -> Callable[..., AppTest]:
    """Opens the page in a new session, with query parameters."""

    def open_page(**parameters: str) -> AppTest:
        page = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
        for name, value in parameters.items():
            page.query_params[name] = value
        return page.run()

    return open_page


def shown_run(page: AppTest, runs: RunManager) -> Run:
    """The run in the page's address."""
    run = runs.get(address(page))
    assert run is not None
    return run


def address(page: AppTest) -> str:
    """The id of the run in the page's address."""
    found = page.query_params["run"]
    return found if isinstance(found, str) else found[0]


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something that another thread does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def charts(page: AppTest) -> dict[str, Any]:
    """The plotly specification of each chart, by its key, as the browser gets it."""
    elements = [each.proto for each in page.get("bidi_component")]
    messages = [each.bytes for each in elements if not each.id.endswith("-feed")]
    for each in elements:  # a tick that came after, as the browser draws it
        messages += unpacked(each.bytes).values() if each.id.endswith("-feed") else []
    figures = (json.loads(zlib.decompress(message[2:])) for message in messages)
    return {figure["key"]: figure["spec"] for figure in figures}
