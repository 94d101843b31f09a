"""What buttons and links do where something is not as it should be."""

import ast
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.scriptrunner import RerunData, get_script_run_ctx
from streamlit.testing.v1 import AppTest

from fedviz.runs import RunState
from fedviz.runs.store import StoreError
from fedviz.runs.visitor import LOCAL, Visitor
from fedviz.ui import actions, controls, session, share
from tests.ui.conftest import ROOT, until
from tests.ui.test_page import draft_of, open_with, small


def test_a_run_that_cannot_be_read_is_as_good_as_none(monkeypatch):
    def get(run_id):
        raise StoreError("made by another version")

    monkeypatch.setattr(actions, "run_manager", lambda: SimpleNamespace(get=get))
    assert actions.run_or_none("a-run") is None
    assert actions.run_or_none(None) is None


@pytest.mark.parametrize(
    ("address", "link"),
    [
        ("http://localhost:8501/", "http://localhost:8501/?run=abc"),
        ("http://localhost:8501/?run=old", "http://localhost:8501/?run=abc"),
        ("http://localhost:8501/simulate", "http://localhost:8501/?run=abc"),  # where a tab stands after a restart
        ("https://lab.example/fedviz/simulate", "https://lab.example/fedviz/?run=abc"),
    ],
)
def test_a_link_leads_to_the_page_itself(monkeypatch, address, link):
    monkeypatch.setattr(share.st, "context", SimpleNamespace(url=address))
    assert share.link("run=abc") == link


@pytest.mark.parametrize("takes", [0.0, 0.4])
def test_the_second_click_of_a_double_one_does_not_undo_the_first(monkeypatch, double_clicks, takes):
    """The button under the pointer turns from Pause to Resume as soon as the run stands still; telling it may take long."""
    told, clock = [], [100.0]

    def tell(what: str, run_id: str) -> None:
        told.append(what)
        clock[0] += takes

    monkeypatch.setattr(actions.st, "session_state", {})
    monkeypatch.setattr(actions, "run_id", lambda: "a-run")
    monkeypatch.setattr(actions, "_tell", tell)
    monkeypatch.setattr(actions.time, "monotonic", lambda: clock[0])
    for button, seconds in ((actions.pause, 0.0), (actions.resume, 0.2), (actions.resume, 1.0), (actions.pause, 0.15)):
        clock[0] += seconds
        button()
    assert told == ["pause", "resume"]


@pytest.mark.parametrize("action", ["start", "run_again"])
def test_a_second_click_that_was_sent_before_the_browser_heard_of_the_run_changes_nothing(runs, double_clicks, action):
    """Whatever a browser sends carries the address that it knows: still the one without the run."""
    if action == "run_again":  # somebody has run the same already
        first = runs.submit(small(rounds=8), visitor=LOCAL)
        until(lambda: not first.live)

    def script(action: str) -> None:
        import streamlit as st

        from fedviz.ui import actions
        from fedviz.ui.session import session

        getattr(actions, action)()
        first = actions.run_id()
        st.query_params.clear()
        getattr(actions, action)()
        st.text("the run" if first and st.query_params == {"run": first} and not session().offered else "another")

    page = AppTest.from_function(script, kwargs={"action": action}, default_timeout=20)
    page.session_state["draft"] = draft_of(small(rounds=8)) | {controls.REFERENCE: None}
    page.run()
    assert not page.exception
    assert page.text[0].value == "the run"
    assert len(runs.runs(LOCAL)) == (2 if action == "run_again" else 1)


@pytest.mark.parametrize("action", ["start", "fork"])
def test_what_a_browser_sends_while_a_run_is_started_does_not_leave_that_half_done(
    runs, monkeypatch, open_page, double_clicks, action
):
    """Streamlit ends a callback at its next access to the session when another message is waiting."""
    parent = runs.submit(small(rounds=8), visitor=LOCAL)
    until(lambda: not parent.live)
    given = {"run": parent.id} if action == "fork" else {}
    page = open_page(**given)
    page.session_state["draft"] = draft_of(small(rounds=9))
    page.run()
    page.session_state["pace"] = "2"
    name = "submit" if action == "start" else "fork"
    how, started = getattr(runs, name), []

    def begin(*args, **keywords):
        started.append(how(*args, **keywords))
        get_script_run_ctx().script_requests.request_rerun(RerunData(query_string=urlencode(given)))
        return started[0]

    monkeypatch.setattr(runs, name, begin)
    page.button(key="run" if action == "start" else "fork").click().run()
    assert not page.exception
    assert page.query_params["run"] == started[0].id
    assert page.session_state["session"].started == [started[0].id]
    assert action == "fork" or started[0].pace == 2.0
    runs.stop(started[0].id, LOCAL)


def test_what_a_browser_sends_before_it_heard_of_another_run_is_about_that_run(runs, open_page, double_clicks):
    run = runs.submit(small(rounds=8), visitor=LOCAL)
    until(lambda: not run.live)
    page = open_page(run=run.id)
    page.button(key="start_page").click().run()
    assert not page.query_params
    page.query_params["run"] = run.id
    page.run()
    assert not page.query_params


@pytest.mark.parametrize("ended", [False, True])
def test_back_is_no_message_from_before(runs, open_page, double_clicks, monkeypatch, ended):
    page = open_with(open_page, small(rounds=8 if ended else 20_000))
    page.session_state["pace"] = "max" if ended else "2"
    page.button(key="run").click().run()
    started = page.query_params["run"]
    until(lambda: not (ended and runs.get(started).live))
    page.query_params.clear()
    page.run()
    assert page.query_params["run"] == started  # sent before the browser knew
    page.query_params.clear()
    monkeypatch.setattr(actions, "went_back", lambda: True)
    page.run()
    assert not page.query_params
    monkeypatch.setattr(actions, "went_back", lambda: False)
    page.run()
    assert not page.query_params
    runs.stop(started, LOCAL)


def test_several_messages_may_come_from_before(runs, open_page, double_clicks):
    page = open_with(open_page, small(rounds=20_000))
    page.session_state["pace"] = "2"
    started = []
    for rounds in (20_000, 19_999):
        page.query_params.clear()
        page.session_state["draft"] = draft_of(small(rounds=rounds))
        page.run()
        page.query_params.clear()
        page.button(key="run").click().run()
        started.append(page.query_params["run"])
    for old in ({}, {"run": started[0]}):
        page.query_params.clear()
        page.query_params.update(old)
        page.run()
        assert page.query_params["run"] == started[1] != started[0]
    runs.stop(started[1], LOCAL)


def test_every_callback_of_the_pages_is_uninterrupted():
    """Or it can be lost, see session.py. What Streamlit does itself ("ignore"), and a plain dict's update, need no more."""
    trees = [ast.parse(file.read_text()) for file in Path(session.__file__).parent.glob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    given = {name for each in functions for name in (arg.arg for arg in each.args.args + each.args.kwonlyargs)}
    marked = {
        each.name for each in functions if any(ast.unparse(mark) == "uninterrupted" for mark in each.decorator_list)
    }
    values = [
        keyword.value for node in nodes if isinstance(node, ast.Call) for keyword in node.keywords
        if keyword.arg in ("on_click", "on_change", "on_dismiss")
    ]  # fmt: skip
    values += [
        value for node in nodes if isinstance(node, ast.Dict) for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value in ("on_click", "on_change")
    ]  # fmt: skip
    assert len(values) > 20
    for value in values:
        for choice in [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]:
            name = choice.attr if isinstance(choice, ast.Attribute) else getattr(choice, "id", "")
            known = marked | {"update"} | (given & {"on_change"})
            assert isinstance(choice, ast.Constant) or name in known, ast.unparse(choice)


def test_a_click_that_waits_is_not_lost_to_a_third_message(runs, open_page, monkeypatch, double_clicks):
    page = open_with(open_page, small(rounds=20_000))
    page.session_state["pace"] = "2"
    page.button(key="run").click().run()
    (run,) = runs.runs(LOCAL)
    stop = WidgetStates(widgets=[WidgetState(id=page.button(key="stop").proto.id, trigger_value=True)])
    waiting, usual = [stop, None], actions.session

    def interrupt():
        if waiting:
            address = urlencode(dict(page.query_params))
            get_script_run_ctx().script_requests.request_rerun(
                RerunData(query_string=address, widget_states=waiting.pop(0))
            )
        return usual()

    monkeypatch.setattr(actions, "session", interrupt)
    page.button(key="pause").click().run()
    assert run.state is RunState.STOPPED


def test_start_page_pressed_before_the_browser_heard_of_the_run_leads_there(runs, open_page, double_clicks):
    page = open_with(open_page, small(rounds=20_000))
    page.session_state["pace"] = "2"
    started = []
    for rounds in (20_000, 19_999):
        page.session_state["draft"] = draft_of(small(rounds=rounds))
        page.run()
        page.button(key="run").click().run()
        started.append(page.query_params["run"])
    page.query_params["run"] = started[0]
    page.button(key="start_page").click().run()
    assert not page.query_params
    page.query_params["run"] = started[1]
    page.run()
    assert not page.query_params
    runs.stop(started[1], LOCAL)


def test_a_pace_chosen_at_an_ended_run_of_somebody_else_is_no_attempt_to_control_it(hosted):
    run = hosted.submit(small(rounds=8), visitor=Visitor("somebody"))
    until(lambda: not run.live)
    page = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    page.query_params["run"] = run.id
    page.run()
    page.segmented_control(key="pace").set_value("10").run()
    assert not page.session_state["session"].refused


@pytest.mark.parametrize(
    ("key", "value", "setting"), [("w.rounds", 77, "rounds"), ("w.algorithm", "scaffold", "algorithm")]
)
def test_a_control_counts_although_another_message_waits_already(runs, open_page, monkeypatch, key, value, setting):
    page = open_page()
    usual, interrupted = controls.draft, []

    def interrupt():
        if not interrupted:
            interrupted.append(True)
            get_script_run_ctx().script_requests.request_rerun(RerunData(query_string=""))
        return usual()

    monkeypatch.setattr(controls, "draft", interrupt)
    control = page.number_input(key=key) if setting == "rounds" else page.selectbox(key=key)
    control.set_value(value).run()
    assert interrupted
    assert page.session_state["draft"][setting] == value


@pytest.mark.parametrize("key", ["run", "pause", "stop", "start_page"])
def test_a_click_is_dealt_with_although_another_message_waits_already(runs, open_page, monkeypatch, double_clicks, key):
    page = open_with(open_page, small(rounds=20_000))
    page.session_state["pace"] = "2"
    if key != "run":
        page.button(key="run").click().run()
    before = dict(page.query_params)
    name = "run_manager" if key != "start_page" else "session"
    usual, interrupted = getattr(actions, name), []

    def interrupt(*args):
        if not interrupted:
            interrupted.append(True)
            get_script_run_ctx().script_requests.request_rerun(RerunData(query_string=urlencode(before)))
        return usual(*args)

    monkeypatch.setattr(actions, name, interrupt)
    page.button(key=key).click().run()
    assert interrupted
    assert not page.exception
    (run,) = runs.runs(LOCAL)
    assert page.query_params == ({} if key == "start_page" else {"run": run.id})
    if key == "pause":
        until(lambda: run.state is RunState.PAUSED)
    assert run.live == (key != "stop")
    runs.stop(run.id, LOCAL)


def test_steps_may_follow_one_another_as_fast_as_one_can_click(monkeypatch):
    told = []
    monkeypatch.setattr(actions, "run_id", lambda: "a-run")
    monkeypatch.setattr(actions, "_tell", lambda what, run_id: told.append(what))
    for _ in range(3):
        actions.step()
    assert told == ["step"] * 3


def test_a_double_click_on_continue_makes_one_run(runs, double_clicks):
    run = runs.submit(small(rounds=8), visitor=LOCAL)
    until(lambda: not run.live)

    def script() -> None:
        import streamlit as st

        from fedviz.ui import actions

        actions.fork(3)
        first = actions.run_id()
        actions.fork(3)
        st.text("one run" if actions.run_id() == first else "two runs")

    page = AppTest.from_function(script, default_timeout=20)
    page.query_params["run"] = run.id
    page.session_state["draft"] = draft_of(small(rounds=8, algorithm={"name": "scaffold"}))
    page.run()
    assert not page.exception
    assert page.text[0].value == "one run"
    assert {each.parent_id for each in runs.runs(LOCAL)} == {None, run.id}
