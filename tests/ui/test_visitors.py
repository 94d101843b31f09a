"""Whose run it is, and what others can do with it: watch it, be offered it, continue it as a run of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from fedviz.runs.run import RunState
from fedviz.runs.visitor import LOCAL, NotYours, Visitor
from fedviz.ui import cookie, origin, visitor
from tests.ui.conftest import ROOT, address, charts, shown_run, until
from tests.ui.test_page import button, open_with, said, small

ALICE, BOB = "A" * 43, "B" * 43
LONG = small(rounds=20_000, eval_every=1000, probe_every=0)


@pytest.fixture
def come(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """Opens the page as somebody, by their cookie (None: without one)."""

    def come(secret: str | None, path: str = "app.py", **parameters: str) -> AppTest:
        as_somebody(monkeypatch, secret)
        page = AppTest.from_file(str(ROOT / path), default_timeout=30)
        for name, value in parameters.items():
            page.query_params[name] = value
        page.run()
        assert not page.exception
        return page

    return come


def as_somebody(monkeypatch: pytest.MonkeyPatch, secret: str | None) -> None:
    monkeypatch.setattr(visitor, "_cookie", lambda: secret if cookie.is_secret(secret) else None)


def controls(page: AppTest) -> dict[str, bool]:
    """Which of the run's buttons are off."""
    return {key: button(page, key).disabled for key in ("pause", "step", "stop")}


def test_others_watch_a_run_and_cannot_control_it(come, hosted):
    run = hosted.submit(LONG, visitor=Visitor.of_secret(ALICE))
    until(lambda: run.state is RunState.RUNNING)
    page = come(BOB, run=run.id)
    assert controls(page) == {"pause": True, "step": True, "stop": True}
    assert button(page, "stop").help == visitor.NOT_YOURS
    assert page.segmented_control(key="pace").disabled
    page = come(ALICE, run=run.id)
    assert controls(page) == {"pause": False, "step": True, "stop": False}
    button(page, "stop").click().run()
    until(lambda: run.ended)


@pytest.mark.parametrize("secret", [None, BOB, "", "A" * 44, Visitor.of_secret(ALICE).id, "<script>"])
def test_without_the_secret_nothing_of_a_run_can_be_changed(come, hosted, monkeypatch, secret):
    """Also not by a click that the page did not offer: the manager refuses, and the page says so."""
    run = hosted.submit(LONG, visitor=Visitor.of_secret(ALICE))
    until(lambda: run.state is RunState.RUNNING)
    page = come(secret, run=run.id)
    monkeypatch.setattr("fedviz.ui.page.not_yours", lambda run: "")  # as if the buttons were on
    button(page.run(), "stop").click().run()
    assert not page.exception
    assert not run.ended
    assert "another visitor" in said(page).lower() or "your" in said(page).lower()
    someone = Visitor.of_secret(secret or BOB)
    for act in (
        lambda: hosted.pause(run.id, someone),
        lambda: hosted.rename(run.id, "mine", someone),
        lambda: hosted.publish(run.id, True, someone),
        lambda: hosted.delete(run.id, someone),
    ):
        with pytest.raises(NotYours):
            act()
    hosted.stop(run.id, Visitor.of_secret(ALICE))


def test_the_secret_is_nowhere_in_the_page_or_the_store(come, hosted, tmp_path: Path):
    page = come(ALICE)
    page = open_with(lambda: page, small())
    button(page, "run").click().run()
    run = shown_run(page, hosted)
    until(lambda: not run.live)
    page.run()
    assert ALICE not in str(page)
    assert Visitor.of_secret(ALICE).id not in str(page)
    hosted.shutdown()
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and ALICE.encode() in file.read_bytes()]


def test_without_a_cookie_the_page_says_that_a_run_is_ones_own_in_this_tab_only(come, hosted):
    page = come(None)
    assert "in this tab only" in said(page)
    page = open_with(lambda: page, LONG)
    button(page, "run").click().run()
    assert controls(page.run()) == {"pause": False, "step": True, "stop": False}
    run = shown_run(page, hosted)
    button(page, "stop").click().run()
    until(lambda: run.ended)
    assert "in this tab only" not in said(come(ALICE))


def test_on_ones_own_machine_everybody_is_the_owner(come, runs):
    page = come(None)
    assert "in this tab only" not in said(page)
    run = runs.submit(LONG, visitor=LOCAL)
    until(lambda: run.state is RunState.RUNNING)
    assert controls(come(BOB, run=run.id)) == {"pause": False, "step": True, "stop": False}
    runs.stop(run.id, LOCAL)


def test_a_class_that_presses_run_costs_one_run(come, hosted):
    first = hosted.submit(LONG, visitor=Visitor.of_secret(ALICE))
    until(lambda: first.state is RunState.RUNNING)
    page = come(BOB)
    page = open_with(lambda: page, LONG)
    page.selectbox(key="w.compare_with").set_value("none").run()
    button(page, "run").click().run()
    assert not page.exception
    assert button(page, "open_offered").label == "Watch it live"
    button(page, "open_offered").click().run()
    assert address(page) == first.id
    assert hosted.runs(Visitor.of_secret(BOB)) == []
    hosted.stop(first.id, Visitor.of_secret(ALICE))


def test_a_finished_run_is_offered_and_can_be_run_again(open_page, runs):
    first = runs.submit(small(), visitor=LOCAL)
    until(lambda: not first.live)
    page = open_with(open_page, small())
    page.selectbox(key="w.compare_with").set_value("none").run()
    button(page, "run").click().run()
    assert button(page, "open_offered").label == "Open the finished run"
    button(page, "run_again").click().run()
    assert not page.exception
    assert address(page) != first.id
    assert runs.get(address(page)).config == first.config


def test_run_on_a_run_itself_asks_nothing(open_page, runs):
    first = runs.submit(small(), visitor=LOCAL)
    until(lambda: not first.live)
    page = open_page(run=first.id)
    button(page, "run").click().run()
    assert address(page) != first.id


def test_a_run_is_continued_from_the_round_looked_at_with_the_settings_of_the_form(open_page, runs):
    parent = runs.submit(small(), visitor=LOCAL)
    until(lambda: not parent.live)
    page = open_page(run=parent.id)
    assert button(page, "fork").disabled
    assert "Change the method" in button(page, "fork").help
    page.selectbox(key="w.algorithm").set_value("scaffold").run()
    page.slider(key=f"cursor-{parent.id}").set_value(3).run()
    button(page, "fork").click().run()
    assert not page.exception
    run = shown_run(page, runs)
    until(lambda: not run.live)
    assert (run.parent_id, run.forked_at, run.config.algorithm.name) == (parent.id, 3, "scaffold")
    assert run.records.dicts()[:4] == parent.records.dicts()[:4]
    page.run()
    loss = charts(page)["loss"]
    assert [shape["x0"] for shape in loss["layout"]["shapes"] if shape.get("name") == "fork"] == [3]
    assert {trace["legendgroup"] for trace in loss["data"]} == {"current", "previous"}
    assert "Continues [another run]" in said(page)


@pytest.mark.parametrize(
    ("key", "value", "why"), [("w.seed", 9, "the seed"), ("w.rounds", 5, "end after round 5: set more rounds")]
)
def test_what_cannot_be_continued_says_why(open_page, runs, key, value, why):
    parent = runs.submit(small(), visitor=LOCAL)
    until(lambda: not parent.live)
    page = open_page(run=parent.id)
    page.number_input(key=key).set_value(value).run()
    assert button(page, "fork").disabled
    assert why in button(page, "fork").help


def test_a_stopped_run_resumes_as_the_same_run(open_page, runs):
    run = runs.submit(small(rounds=60), visitor=LOCAL)
    runs.set_pace(run.id, LOCAL, 50)
    until(lambda: run.round > 5)
    runs.stop(run.id, LOCAL)
    until(lambda: not run.live)
    page = open_page(run=run.id)
    assert button(page, "pause").label == "Resume"
    button(page, "pause").click().run()
    assert not page.exception
    assert address(page) == run.id
    until(lambda: runs.get(run.id).state is RunState.FINISHED)
    assert [record["round"] for record in runs.get(run.id).records.dicts()] == list(range(61))


def test_a_run_of_another_version_or_device_is_told_apart(runs):
    run = runs.submit(small(), visitor=LOCAL)
    until(lambda: not run.live)
    assert origin.warnings(run, gpu=False) == []
    run.version, run.device = "0.0.9", "NVIDIA H200 with PyTorch"
    version, device = origin.warnings(run, gpu=False)
    assert "0.0.9" in version
    assert "H200" in device
    assert len(origin.warnings(run, gpu=True)) == 1
    run.imported = True
    assert origin.warnings(run, gpu=True)[0].startswith("Imported: not computed here.")


def test_names_are_shown_as_they_are(come, runs):
    run = runs.submit(small(), visitor=LOCAL)
    until(lambda: not run.live)
    runs.rename(run.id, "<b>x</b> www.evil.com :smile: [l](http://x.y) $a$", LOCAL)
    shown = come(None, run=run.id).header[0].value
    assert not any(part in shown for part in ("<b>", "www.", ":smile", "](", "://", "$a$"))
    assert shown.replace("\\", "").replace("\u2060", "") == "<b>x</b> www.evil.com :smile: [l](http://x.y) $a$"
