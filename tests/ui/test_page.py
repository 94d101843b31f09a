"""The page as Streamlit runs it, without a browser: the form, errors beside their controls, buttons, states, links."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from streamlit.testing.v1 import AppTest

from fedviz.config import SimulationConfig
from fedviz.runs import admission
from fedviz.runs.run import RunState
from fedviz.ui import controls, manager, settings, words
from tests.ui.conftest import ROOT, shown_run, until

SMALL = {  # the toy of the SCAFFOLD paper: two parabolas, no data, no noise
    "problem": {"kind": "quadratics", "curvature": [[2.0], [0.0]], "linear": [[1.0], [-1.0]], "start": [1.0]},
    "num_clients": 2,
    "participation": {"pattern": "uniform", "clients_per_round": 1},
    "local_steps": 2,
    "client_lr": 0.1,
    "rounds": 6,
    "eval_every": 1,
    "probe_every": 2,
}
FAR = "w.participation.uniform.clients_per_round"


def small(**changes: object) -> SimulationConfig:
    return SimulationConfig.read({**SMALL, **changes})


def said(page: AppTest) -> str:
    """All text of the page."""
    return "\n".join(
        str(element.value) for kind in ("markdown", "caption", "info", "error") for element in page.get(kind)
    )


def button(page: AppTest, key: str):
    return page.button(key=key)


def finished(page: AppTest, runs) -> None:
    run = shown_run(page, runs)
    until(lambda: not run.live)
    page.run()
    assert not page.exception


def test_the_page_opens_ready_to_run(open_page):
    page = open_page()
    assert not page.exception
    assert not button(page, "run").disabled
    assert [button(page, key).disabled for key in ("pause", "step", "stop")] == [True, True, True]
    assert "200 rounds" in said(page)


def test_controls_stand_in_the_order_in_which_one_thinks(open_page):
    page = open_page()
    labels = [element.label for element in page.sidebar if getattr(element, "label", None)]
    order = [
        "Algorithm",
        "Data heterogeneity",
        "Similarity (s)",
        "Participation",
        "Clients per round (S)",
        "Rounds (R)",
        "Seed",
    ]
    assert [label for label in labels if label in order] == sorted(
        [label for label in labels if label in order], key=order.index
    )
    assert set(order) <= set(labels)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (FAR, 101, "Got 101, allowed 1 to 100"),
        ("w.problem.classification.partition.similarity.similarity", 1.5, "Got 1.5, allowed a number from 0 to 1"),
        ("w.client_lr", -1.0, "Got -1.0, allowed a number above 0"),
        ("w.rounds", 0, "Got 0, allowed a whole number from 1"),
        ("w.num_clients", 0, "Got 0, allowed a whole number from 1"),
    ],
)
def test_a_bad_value_is_refused_beside_its_control_and_run_is_off_with_the_reason(open_page, key, value, message):
    page = open_page()
    page.number_input(key=key).set_value(value).run()
    assert not page.exception
    elements = list(page.sidebar)
    place = next(i for i, element in enumerate(elements) if getattr(element, "key", None) == key)
    captions = [e.value for e in elements[place + 1 : place + 3] if e.type == "caption"]
    assert any(message in caption for caption in captions), captions
    assert button(page, "run").disabled
    assert message[0].lower() + message[1:] in button(page, "run").help


def test_a_bad_value_made_good_again_turns_run_on(open_page):
    page = open_page()
    page.number_input(key=FAR).set_value(101).run()
    page.number_input(key=FAR).set_value(10).run()
    assert not button(page, "run").disabled
    assert page.slider(key=f"{FAR}.slider").value == 10


def test_a_slider_and_its_number_stand_for_the_same_value(open_page):
    page = open_page()
    page.select_slider(key="w.client_lr.slider").set_value(0.05).run()
    assert page.number_input(key="w.client_lr").value == 0.05
    page.number_input(key="w.client_lr").set_value(0.0123).run()
    assert page.select_slider(key="w.client_lr.slider").value == 0.0123


def test_tooltips_tell_what_the_present_values_come_to(open_page):
    page = open_page()
    assert "S/N = 5/100" in page.number_input(key=FAR).help
    assert "η_c·τ = 0.3" in page.number_input(key="w.client_lr").help
    assert "3.17 MB" in page.selectbox(key="w.algorithm").help  # (100 + 1) · 7,850 numbers of 4 bytes
    page.number_input(key=FAR).set_value(20).run()
    assert "S/N = 20/100" in page.number_input(key=FAR).help


def test_every_algorithm_and_pattern_has_a_form(open_page):
    page = open_page()
    for key in ("w.algorithm", "w.participation"):
        for choice in page.selectbox(key=key).options:
            index = page.selectbox(key=key).options.index(choice)
            page.selectbox(key=key).select_index(index).run()
            assert not page.exception, choice


def test_a_choice_that_a_browser_has_emptied_stays_as_it_was():
    def script() -> None:
        import streamlit as st

        from fedviz.ui import controls

        before = dict(controls.draft())
        st.session_state.emptied = None
        controls._switch("emptied", "algorithm")
        controls._pick("emptied", "compare_with")
        st.text("unchanged" if controls.draft() == before else "changed")

    page = AppTest.from_function(script).run()
    assert not page.exception
    assert page.text[0].value == "unchanged"


def test_clients_per_round_is_taken_along_to_another_pattern(open_page):
    page = open_page()
    page.number_input(key=FAR).set_value(17).run()
    page.selectbox(key="w.participation").set_value("cyclic").run()
    assert page.number_input(key="w.participation.cyclic.clients_per_round").value == 17


def test_quadratics_start_from_an_example_that_can_be_run(open_page):
    page = open_page()
    page.segmented_control(key="w.problem").set_value("quadratics").run()
    assert not page.exception
    assert not button(page, "run").disabled
    page.number_input(key="w.num_clients").set_value(50).run()
    assert "100 rows for 50 clients" in said(page)
    button(page, "example.problem").click().run()
    assert not button(page, "run").disabled


def test_clients_with_less_than_a_batch_are_named(open_page):
    page = open_page()
    page.number_input(key="w.batch_size").set_value(5000).run()
    assert "All 100 clients have fewer than 5,000 samples" in said(page)


def test_a_run_that_does_not_fit_into_memory_is_refused_with_both_numbers(open_page, monkeypatch):
    monkeypatch.setattr(admission, "free_bytes", lambda: 10_000_000)
    page = open_page()
    assert button(page, "run").disabled
    assert "needs about" in said(page)
    assert "8 MB" in said(page)


def test_a_reference_that_cannot_be_run_is_refused_beside_its_control(open_page):
    page = open_page()
    page.number_input(key="w.num_clients").set_value(6).run()
    page.selectbox(key="w.compare_with").set_value("cluster_fedvarp").run()
    assert button(page, "run").disabled
    assert "Cannot be run with these settings" in said(page)


def test_run_computes_and_shows_what_it_computed(open_page, runs):
    page = open_with(open_page, small())
    button(page, "run").click().run()
    assert not page.exception
    run = shown_run(page, runs)
    finished(page, runs)
    assert run.state == RunState.FINISHED
    assert run.config == small()
    assert run.reference is not None
    assert run.reference.config.algorithm.name == "fedavg"
    text = said(page)
    assert "finished" in text
    assert "At round 6:" in text
    assert len(page.get("bidi_component")) == 1 + 5  # the preview of who takes part, and the charts


def test_pause_step_and_stop_act_on_the_run(open_page, runs):
    page = open_with(open_page, small(rounds=500))
    page.segmented_control(key="pace").set_value("10").run()
    button(page, "run").click().run()
    run = shown_run(page, runs)
    assert run.pace == 10
    until(lambda: run.state is RunState.RUNNING and run.round > 1)
    button(page.run(), "pause").click().run()
    until(lambda: run.state is RunState.PAUSED)
    page.run()
    assert button(page, "pause").label == "Resume"
    before = run.round
    button(page, "step").click().run()
    until(lambda: run.state is RunState.PAUSED and run.round == before + 1)
    assert run.reference.round == before + 1
    button(page.run(), "pause").click().run()
    until(lambda: run.round > before + 2)
    button(page.run(), "stop").click().run()
    finished(page, runs)
    assert run.state is RunState.STOPPED
    assert "stopped" in said(page)


def test_charts_stay_until_the_new_run_has_something_to_show(open_page, runs, monkeypatch):
    waiting = threading.Event()

    def slow(*_, **__):
        waiting.wait(20)
        yield from ()

    monkeypatch.setattr("fedviz.simulation.loop.simulate", slow)
    page = open_page()
    charts = len(page.get("bidi_component"))
    button(page, "run").click().run()
    assert shown_run(page, runs).live
    assert len(page.get("bidi_component")) == charts
    assert "Still the charts from before" in said(page)
    waiting.set()


def test_pressing_run_twice_starts_one_run(runs):
    def script() -> None:
        import streamlit as st

        from fedviz.ui import actions

        actions.start()
        first = actions.run_id()
        actions.start()  # a second click that was already on its way
        st.text("one run" if first is not None and actions.run_id() == first else "two runs")

    page = AppTest.from_function(script)
    page.session_state["pace"] = "2"
    page.session_state["draft"] = draft_of(small(rounds=500))
    page.run()
    assert not page.exception
    assert page.text[0].value == "one run"
    runs.shutdown()  # writes what is left
    assert len(runs.recent(10)) == 1


def test_a_changed_control_leaves_the_run_alone_and_says_so(open_page, runs):
    page = open_with(open_page, small(rounds=500))
    page.segmented_control(key="pace").set_value("10").run()
    button(page, "run").click().run()
    run = shown_run(page, runs)
    assert "settings changed" not in said(page)
    page.number_input(key="w.local_steps").set_value(3).run()
    assert "settings changed" in said(page)
    assert run.live
    assert run.config.local_steps == 2
    button(page, "run").click().run()
    assert shown_run(page, runs).config.local_steps == 3
    assert page.session_state["previous"] == run.id
    until(lambda: not run.live)  # the visitor's own run makes place


def test_a_link_shows_the_run_and_sets_the_controls_to_it(open_page, runs):
    run = runs.submit(small(seed=7), small(seed=7, algorithm={"name": "scaffold"}))
    until(lambda: not run.live)
    page = open_page(run=run.id)
    assert not page.exception
    assert page.number_input(key="w.seed").value == 7
    assert page.selectbox(key="w.compare_with").value == "scaffold"
    assert "settings changed" not in said(page)
    assert "finished" in said(page)


def test_a_link_survives_the_server(open_page, runs):
    run = runs.submit(small())
    until(lambda: not run.live)
    runs.shutdown()
    manager.run_manager.clear()
    page = open_page(run=run.id)
    assert "round 6 of 6" in "\n".join(bar.proto.text for bar in page.get("progress"))
    manager.run_manager().shutdown()


def test_an_unknown_link_gets_a_friendly_word_and_the_normal_page(open_page):
    page = open_page(run="nothing-of-the-kind")
    assert not page.exception
    assert "not kept here" in said(page)
    assert not button(page, "run").disabled


def test_a_run_that_diverges_says_in_which_round_and_keeps_the_rest(open_page, runs):
    run = runs.submit(small(client_lr=900.0, rounds=600))
    until(lambda: not run.live)
    page = open_page(run=run.id)
    assert not page.exception
    assert run.state is RunState.DIVERGED
    assert "diverged" in said(page)
    assert "round" in said(page)


def test_a_run_that_crashes_says_so_on_the_page(open_page, runs, monkeypatch):
    monkeypatch.setattr(
        "fedviz.simulation.loop.simulate", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("a cosmic ray"))
    )
    run = runs.submit(small())
    until(lambda: not run.live)
    page = open_page(run=run.id)
    assert not page.exception
    assert run.state is RunState.FAILED
    assert "a cosmic ray" in said(page)


def test_the_scrubber_reads_an_earlier_round(open_page, runs):
    run = runs.submit(small())
    until(lambda: not run.live)
    page = open_page(run=run.id)
    assert "At round 6:" in said(page)
    page.slider(key=f"cursor-{run.id}").set_value(3).run()
    assert "At round 2:" in said(page)  # the last probe before


def test_every_state_of_a_run_has_a_badge():
    assert {str(state) for state in RunState} <= words.BADGES.keys()


def test_opening_the_page_does_not_import_torch(tmp_path):
    code = (
        "import sys; from streamlit.testing.v1 import AppTest; page = AppTest.from_file('app.py', default_timeout=60).run(); "
        "assert not page.exception; print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "FEDVIZ_HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout.split()[-1] == "False"


def draft_of(config: SimulationConfig) -> settings.Draft:
    return settings.default_draft() | settings.to_draft(config) | {controls.REFERENCE: "fedavg"}


def open_with(open_page, config: SimulationConfig) -> AppTest:
    """The page with its controls set to a config."""
    page = open_page()
    page.session_state["draft"] = draft_of(config)
    return page.run()
