"""The page as Streamlit runs it, without a browser: the form, errors beside their controls, buttons, states, links."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace

import pytest
from streamlit.proto.LabelVisibility_pb2 import LabelVisibility
from streamlit.testing.v1 import AppTest

from fedviz.config import SimulationConfig
from fedviz.runs import admission, export
from fedviz.runs.run import RunState
from fedviz.runs.visitor import LOCAL
from fedviz.simulation.errors import Diverged
from fedviz.ui import controls, live, manager, preview, settings, words
from fedviz.ui.shown import Shown
from tests.ui.conftest import ROOT, address, shown_run, until

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


def labels(page: AppTest) -> set[str]:
    """Of all controls in the sidebar."""
    return {element.label for element in page.sidebar if getattr(element, "label", None)}


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
        ("w.rounds", 1.5, "Got 1.5, allowed a whole number from 1"),
        ("w.rounds", 99999999999999999999.0, "Got 1e+20, allowed a whole number from 1 to 1,000,000"),
        ("w.num_clients", 1e300, "Got 1e+300, allowed a whole number from 1 to 100,000"),
        ("w.seed", 2.0**53, "Got about 9.01e+15, allowed here is a whole number up to 9,007,199,254,740,991"),
        ("w.eval_every", 1e20, "Got 1e+20, allowed a whole number from 0 to 1,000,000"),
    ],
)
def test_a_bad_value_is_refused_beside_its_control_and_run_is_off_with_the_reason(open_page, key, value, message):
    page = open_page()
    page.number_input(key=key).set_value(value).run()
    assert not page.exception
    elements = list(page.sidebar)
    place = next(i for i, element in enumerate(elements) if getattr(element, "key", None) == key)
    complaints = [e.value for e in elements[place + 1 : place + 3] if e.type == "markdown"]  # not pale as a caption is
    assert any(message in complaint for complaint in complaints), complaints
    assert button(page, "run").disabled
    assert message[0].lower() + message[1:] in button(page, "run").help


def test_whole_numbers_up_to_what_a_browser_tells_apart_are_taken_as_they_are(open_page):
    page = open_page()
    page.number_input(key="w.seed").set_value(2.0**53 - 1).run()
    assert not button(page, "run").disabled
    seed = page.session_state["draft"]["seed"]
    assert (seed, type(seed)) == (9_007_199_254_740_991, int)


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
    assert "·τ = 0.3" in page.number_input(key="w.client_lr").help
    assert "3.17 MB" in page.selectbox(key="w.algorithm").help  # (100 + 1) · 7,850 numbers of 4 bytes
    page.number_input(key=FAR).set_value(20).run()
    assert "S/N = 20/100" in page.number_input(key=FAR).help


ALGORITHM_FORMS = {
    "fedavg": set(), "sgd": set(), "fedvarp": set(), "mifa": set(),
    "fedprox": {"Pull towards the server (μ)"},
    "scaffold": {"Control variates from (option)", "Warm start"},
    "cluster_fedvarp": {"Clusters (K)", "Clients are grouped by"},
    "amplified_fedavg": {"Amplification (γ)", "Window (P)", "Pull towards the server (μ)", "Measure windows"},
    "amplified_scaffold": {"Amplification (γ)", "Window (P)", "Measure windows"},
    "fedavgm": {"Momentum (β)"},
    "fedadam": {"Momentum (β1)", "Memory of sizes (β2)", "Floor (ε)"},
    "fedyogi": {"Momentum (β1)", "Memory of sizes (β2)", "Floor (ε)"},
}  # fmt: skip
TURNS = {"Clients per round (S)", "Groups (K̄)", "Rounds on duty (g)", "Groups by", "First turn"}
PATTERN_FORMS = {
    "full": set(),
    "uniform": {"Clients per round (S)"},
    "regularized": {"Clients per round (S)"},
    "cyclic": TURNS | {"Drawn"},
    "stochastic_cyclic": TURNS | {"Available on duty (a_on)", "Available off duty (a_off)"},
    "bernoulli": {"Chance to take part (a)", "Participants are"},
    "markov": {"Mean time on (T_on)", "Mean time off (T_off)"},
    "trace": {"Cohorts", "Start over at the end"},
}


@pytest.mark.parametrize(("key", "forms"), [("w.algorithm", ALGORITHM_FORMS), ("w.participation", PATTERN_FORMS)])
def test_every_algorithm_and_pattern_has_a_form(open_page, key, forms):
    page = open_page()
    assert len(page.selectbox(key=key).options) == len(forms)
    of_any = set().union(*forms.values())
    for choice, form in forms.items():
        page.selectbox(key=key).set_value(choice).run()
        assert not page.exception, choice
        assert labels(page) & of_any == form, choice


def test_the_form_has_the_data_the_model_and_the_measuring(open_page):
    page = open_page()
    assert len(page.selectbox(key="w.problem.classification.dataset").options) == 6
    assert len(page.selectbox(key="w.problem.classification.model").options) == 5
    assert {"Unequal amounts", "Unlike images", "Clients count (p_i)"} <= labels(page)
    assert {"Decomposition", "Repetitions (J)", "Clients probed (Q)", "Check every"} <= labels(page)
    assert "How unlike" not in labels(page)
    page.selectbox(key="w.problem.classification.feature_skew").set_value("rotation").run()
    assert "How unlike" in labels(page)
    page.number_input(key="w.probe.replicas").set_value(1).run()
    assert button(page, "run").disabled
    page.number_input(key="w.probe.replicas").set_value(3).run()
    assert not button(page, "run").disabled


def test_a_slider_reaches_to_a_value_beyond_what_it_usually_spans(open_page):
    page = open_page()
    page.number_input(key="w.num_clients").set_value(7).run()
    assert page.slider(key="w.num_clients.slider").value == 7
    page.number_input(key="w.client_lr").set_value(50.0).run()
    assert page.select_slider(key="w.client_lr.slider").value == 50
    page.number_input(key="w.client_lr").set_value(0.05).run()
    assert page.select_slider(key="w.client_lr.slider").options[-1] == "1"


def test_symbols_with_an_index_are_typeset(open_page):
    page = open_page()
    assert {r":small[Client rate ($\eta_{c}$)]", r":small[Server rate ($\eta_{s}$)]"} <= {
        e.value for e in page.sidebar.markdown
    }
    assert r"$\eta_{c}$·τ = 0.3" in page.number_input(key="w.client_lr").help


def test_the_reference_page_has_its_symbols_as_formulas(open_page):
    page = open_page().switch_page("pages/reference.py").run()
    assert not page.exception
    [symbols] = [e.value for e in page.markdown if "clients in a round" in e.value]
    assert r"- $\eta_{c}$, $\eta_{s}$: rates of the clients and the server" in symbols.splitlines()
    assert r"- $m$, $s$: δ and its square, gathered over past rounds" in symbols.splitlines()
    assert not [e.value for e in page.caption if "η_" in e.value]


def test_controls_have_names_that_can_be_read_out(open_page):
    page = open_page()
    page.selectbox(key="w.participation").set_value("markov").run()
    named = [element for element in page.sidebar if hasattr(element, "label") and element.label]
    assert not [element.label for element in named if set(element.label) & set("$\\{}")]
    visible = {
        e.label: e.proto.label_visibility.value
        for e in named
        if e.type in ("number_input", "select_slider", "selectbox")
    }
    # Seen once: above the control where the symbol is typeset, else as its label.
    assert visible["Mean time on (T_on)"] == visible["Client rate (η_c)"] == LabelVisibility.COLLAPSED
    assert visible["Evaluate every"] == visible["Participation"] == LabelVisibility.VISIBLE


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


def test_quadratics_can_be_run_as_they_are_or_written_out(open_page):
    """What they are drawn from is hidden once lists are given, for it no longer counts."""
    drawn = "w.problem.quadratics.gradient_dissimilarity"
    page = open_page()
    page.selectbox(key="w.problem").set_value("quadratics").run()
    page.number_input(key="w.num_clients").set_value(50).run()
    assert not page.exception
    assert not button(page, "run").disabled
    assert page.number_input(key=drawn).value == 1
    page.text_area(key="w.problem.quadratics.curvature").set_value("[[1], [2]]").run()
    assert "2 rows for 50 clients" in said(page)
    assert button(page, "run").disabled
    assert drawn not in {control.key for control in page.number_input}
    page.text_area(key="w.problem.quadratics.curvature").set_value(" ").run()
    assert not button(page, "run").disabled
    assert page.number_input(key=drawn).value == 1


def test_costs_and_theory_stand_beside_the_controls_before_a_run(open_page):
    page = open_page()
    assert (
        "In a round (the window P = 1) a client takes part with a chance of $p_{\\mathrm{sample}}$ = 5\u00a0%"
        in said(page)
    )
    assert "Remembers (N + 1)·d = 792,850 numbers (3.17 MB)" in said(page)
    page.number_input(key=FAR).set_value(20).run()
    assert "ρ² = 0.05" in said(page)
    page.selectbox(key="w.algorithm").set_value("fedavg").run()
    assert "Remembers nothing" in said(page)
    sidebar = [str(getattr(element, "value", "")) for element in page.sidebar]
    keys = [getattr(element, "key", None) for element in page.sidebar]
    costs, turns = (next(i for i, text in enumerate(sidebar) if words in text) for words in ("Remembers", "ρ²"))
    assert keys.index("w.algorithm") < costs < keys.index("w.compare_with") < keys.index("w.participation") < turns
    page.number_input(key=FAR).set_value(101).run()  # what cannot be run has no numbers
    assert "ρ²" not in said(page)


TRACE = "w.participation.trace.cohorts"


def with_trace(open_page, **changes: object) -> AppTest:
    """The page with three parabolas and the pattern Trace, whose example is replaced below."""
    problem = SMALL["problem"] | {"curvature": [[2.0]] * 3, "linear": [[1.0], [0.0], [-1.0]]}
    pattern = {"pattern": "trace", "cohorts": [[0]], "repeat": True}
    return open_with(open_page, small(problem=problem, num_clients=3, participation=pattern, **changes))


def upload(page: AppTest, name: str, content: bytes) -> AppTest:
    (uploader,) = page.file_uploader
    return uploader.set_value((name, content, "text/csv")).run()


def test_a_trace_comes_from_a_file(open_page, runs):
    page = with_trace(open_page)
    upload(page, "trace.csv", b"round,client\r\n1,2\r\n1,0\r\n3,1\r\n")
    assert not page.exception
    assert page.text_area(key=TRACE).value == "[[2, 0], [], [1]]"
    assert page.file_uploader[0].value is None  # ready for the next one
    assert "Found 3 rounds of 0 to 2 clients, 3 different clients in all; nobody in 1 round." in said(page)
    button(page, "run").click().run()
    finished(page, runs)
    run = shown_run(page, runs)
    assert run.config.participation.cohorts == [[2, 0], [], [1]]
    assert [run.records.cohort(i).tolist() for i in range(7)] == [[], [0, 2], [], [1], [0, 2], [], [1]]
    assert any("--set 'participation.cohorts=[[2,0],[],[1]]'" in code.value for code in page.code)
    other = open_page(run=run.id)  # its link
    assert other.text_area(key=TRACE).value == "[[2, 0], [], [1]]"


def test_choosing_trace_on_the_page_as_it_opens_starts_with_an_example_that_runs(open_page):
    """The default run has 200 rounds and 100 clients, so the example of 50 pairs must start over at its end."""
    page = open_page()
    page.selectbox(key="w.participation").set_value("trace").run()
    assert not page.exception
    assert not button(page, "run").disabled
    assert page.toggle(key="w.participation.trace.repeat").value is True
    assert "Found 50 rounds of 2 clients, 100 different clients in all." in said(page)


def test_what_was_written_in_a_trace_stays_when_the_pattern_is_chosen_again(open_page):
    page = with_trace(open_page)
    page.text_area(key=TRACE).set_value("[[1]]").run()
    page.selectbox(key="w.participation").set_value("uniform").run()
    page.selectbox(key="w.participation").set_value("trace").run()
    assert page.text_area(key=TRACE).value == "[[1]]"


def test_a_picture_of_former_settings_says_that_it_is_one(open_page):
    page = with_trace(open_page)
    assert preview.FORMER not in said(page)
    upload(page, "bad.csv", b"1,x\n")
    assert said(page).count(preview.FORMER) == 1  # of who takes part: three parabolas have no picture of labels
    upload(page, "good.csv", b"1,0\n")
    assert preview.FORMER not in said(page)


def test_a_trace_is_typed_as_lines_or_as_lists(open_page):
    page = with_trace(open_page)
    for text in ("1,0\n2,1\n", "[[0], [1]]", "round,client\n2,1\n1,0"):
        page.text_area(key=TRACE).set_value(text).run()
        assert not page.exception
        assert not button(page, "run").disabled
        assert "Found 2 rounds of 1 client, 2 different clients in all." in said(page)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"round,client\n1,0\n2,one\n",
            "In bad.csv: line 3, column 2 (client): got 'one', expected a whole number from 0",
        ),
        (b"1,0\n1,0\n", "In bad.csv: line 2, column 2 (client): round 1 has client 0 already, in line 1"),
        (b"\x89PNG\r\n\x1a\n\0\0", "In bad.csv: line 1: this is not plain text in UTF-8"),
        ("1,0\n".encode("utf-16"), "In bad.csv: line 1: this is not plain text in UTF-8"),
        (b"", "In bad.csv: line 1: there are no rows"),
        (b'1,"0\n', "In bad.csv: line 1, column 2: a quote is opened and not closed"),
        (b"1,0\n2,3\n", "Round 2 names client 3, allowed 0 to 2"),
    ],
    ids=["a word", "twice", "binary", "UTF-16", "empty", "open quote", "beyond N"],
)
def test_a_file_that_is_no_trace_is_refused_in_words_until_another_is_given(open_page, runs, content, message):
    page = with_trace(open_page)
    upload(page, "bad.csv", content)
    assert not page.exception
    assert message in said(page).replace("\\", "")
    assert button(page, "run").disabled
    assert message[0].lower() + message[1:] in button(page, "run").help
    upload(page, "good.csv", b"1,0\n")
    assert not button(page, "run").disabled
    assert "bad.csv" not in said(page)
    assert runs.runs(LOCAL) == []


def test_what_is_typed_wrong_is_refused_with_line_and_column_and_stays_to_be_mended(open_page):
    page = with_trace(open_page)
    page.text_area(key=TRACE).set_value("1,0\n2,x").run()
    assert not page.exception
    assert "Line 2, column 2 (client): got 'x'" in said(page)
    assert page.text_area(key=TRACE).value == "1,0\n2,x"
    assert button(page, "run").disabled


def test_a_long_trace_is_not_sent_to_the_browser_and_its_settings_are_a_file_to_keep(open_page, runs):
    page = with_trace(open_page)
    upload(page, "long.csv", b"".join(b"%d,%d\n" % (r, r % 3) for r in range(1, 5001)))
    assert not page.exception
    assert TRACE not in {area.key for area in page.text_area}
    assert "too long to show here" in said(page)
    assert "Found 5,000 rounds of 1 client, 3 different clients in all." in said(page)
    button(page, "run").click().run()
    finished(page, runs)
    run = shown_run(page, runs)
    assert "too long for a command line" in said(page)
    assert any(code.value.endswith(f"run --config fedviz-fedvarp-{run.id[:8]}.json") for code in page.code)
    assert max(len(code.value) for code in page.code) < 1000
    page = open_page(run=run.id)  # its link carries the run's name alone
    assert "Found 5,000 rounds" in said(page)
    button(page, f"{TRACE}.empty").click().run()
    assert page.text_area(key=TRACE).value == ""
    assert button(page, "run").disabled


def test_a_problem_for_two_clients_brings_them_along(open_page):
    page = open_page()
    page.selectbox(key="w.problem").set_value("lower_bound").run()
    assert not page.exception
    assert page.number_input(key="w.num_clients").value == 2
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


def test_a_run_can_have_nothing_to_compare_with(open_page, runs):
    page = open_with(open_page, small())
    page.selectbox(key="w.compare_with").set_value("none").run()
    button(page, "run").click().run()
    assert shown_run(page, runs).reference is None


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
    assert not button(page, "step").disabled
    before = run.round
    button(page, "step").click().run()
    until(lambda: run.state is RunState.PAUSED and run.round == before + 1)
    assert run.reference.round == before + 1
    button(page.run(), "pause").click().run()
    until(lambda: run.round > before + 2)
    assert button(page.run(), "step").disabled  # it would only pause
    button(page, "stop").click().run()
    finished(page, runs)
    assert run.state is RunState.STOPPED
    assert "stopped" in said(page)


def test_charts_stay_until_the_new_run_has_something_to_show(open_page, runs, monkeypatch):
    waiting = threading.Event()

    monkeypatch.setattr("fedviz.simulation.loop.Simulation.first", lambda simulation: waiting.wait(20))
    page = open_page()
    charts = len(page.get("bidi_component"))
    button(page, "run").click().run()
    assert shown_run(page, runs).live
    assert len(page.get("bidi_component")) == charts
    assert "the charts show a recorded run of the default settings" in said(page)
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
    assert len(runs.runs(LOCAL)) == 1


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
    assert page.session_state["session"].before == (address(page), run.id)
    until(lambda: not run.live)  # the visitor's own run makes place


def test_a_link_shows_the_run_and_sets_the_controls_to_it(open_page, runs):
    run = runs.submit(small(seed=7), small(seed=7, algorithm={"name": "scaffold"}), visitor=LOCAL)
    until(lambda: not run.live)
    page = open_page(run=run.id)
    assert not page.exception
    assert page.number_input(key="w.seed").value == 7
    assert page.selectbox(key="w.compare_with").value == "scaffold"
    assert "settings changed" not in said(page)
    assert "finished" in said(page)


def test_a_browser_that_loads_slowly_shows_the_same_settings(open_page):
    """What is put into a control is sent once; one that is not there yet when the page is drawn again takes its default."""
    settings = {
        "algorithm.name": "scaffold", "compare_with": "mifa", "num_clients": 40, "participation.clients_per_round": 7,
        "problem.partition.similarity": 0.3, "rounds": 50, "client_lr": 0.002, "batch_size": 64, "seed": 9, "probe.mode": "full",
        "problem.partition.protocol": "sorted_blocks",
    }  # fmt: skip
    page = open_page(config=json.dumps(settings))
    compared = 0
    for control in page.sidebar:
        proto = getattr(control, "proto", None)
        if not getattr(proto, "set_value", False) or (control.type == "number_input" and control.placeholder == "auto"):
            continue  # a number that may be empty has no default: it could not be emptied again
        default = proto.default if isinstance(proto.default, Iterable) else [proto.default]
        if control.type in ("selectbox", "button_group", "select_slider"):
            names = [getattr(option, "content", option) for option in proto.options]
            put = (
                proto.raw_value
                if control.type == "select_slider"
                else getattr(proto, "raw_values", None) or [proto.raw_value]
            )
            default = [names[int(index)] for index in default]
        else:
            put = proto.value if control.type == "slider" else [proto.value]
        assert list(default) == list(put), control.key
        compared += 1
    assert compared > 30


def test_a_link_survives_the_server(open_page, runs):
    run = runs.submit(small(), visitor=LOCAL)
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
    run = runs.submit(small(client_lr=900.0, rounds=600), visitor=LOCAL)
    until(lambda: not run.live)
    page = open_page(run=run.id)
    assert not page.exception
    assert run.state is RunState.DIVERGED
    last = run.records.rounds[-1]
    assert 0 < last < 600
    assert f"Diverged in round {last + 1}" in said(page)


def test_a_reference_that_diverges_is_reported_beside_a_run_that_does_not(open_page, runs, monkeypatch):
    from fedviz.simulation.loop import Simulation

    advance = Simulation.advance

    def fake(self, round):
        if round == 4 and self.config.algorithm.name == "fedavg":
            raise Diverged(4, "Its steps are too long.")
        return advance(self, round)

    monkeypatch.setattr(Simulation, "advance", fake)
    run = runs.submit(small(), small(algorithm={"name": "fedavg"}), visitor=LOCAL)
    until(lambda: not run.live)
    assert (run.state, run.reference.state) == (RunState.FINISHED, RunState.DIVERGED)
    page = open_page(run=run.id)
    assert "All 6 rounds are done. FedAvg diverged in round 4. Its steps are too long" in said(page)


def test_a_run_that_crashes_says_so_on_the_page(open_page, runs, monkeypatch):
    def strike(*_):
        raise RuntimeError("a cosmic ray")

    monkeypatch.setattr("fedviz.simulation.loop.Simulation.advance", strike)
    run = runs.submit(small(), visitor=LOCAL)
    until(lambda: not run.live)
    page = open_page(run=run.id)
    assert not page.exception
    assert run.state is RunState.FAILED
    assert "a cosmic ray" in said(page)


def test_the_scrubber_reads_an_earlier_round(open_page, runs):
    run = runs.submit(small(), visitor=LOCAL)
    until(lambda: not run.live)
    page = open_page(run=run.id)
    assert "At round 6:" in said(page)
    page.slider(key=f"cursor-{run.id}").set_value(3).run()
    assert "Last measured in round 2:" in said(page)


def test_a_run_that_moves_has_no_scrubber(open_page, runs):
    page = open_with(open_page, small(rounds=500))
    page.segmented_control(key="pace").set_value("10").run()
    button(page, "run").click().run()
    run = shown_run(page, runs)
    until(lambda: run.state is RunState.RUNNING and run.round > 1)
    assert "Look at round" not in {slider.label for slider in page.run().slider}
    runs.stop(run.id, LOCAL)
    finished(page, runs)
    assert "Look at round" in {slider.label for slider in page.slider}


def test_a_wrong_value_is_the_one_thing_said(open_page):
    page = open_page()
    page.number_input(key="w.local_steps").set_value(31).run()
    assert "settings changed" in said(page)
    page.number_input(key=FAR).set_value(101).run()
    assert "Run is off" in said(page)
    assert "settings changed" not in said(page)


def test_a_run_before_is_drawn_only_where_it_can_be_compared(open_page, runs):
    page = open_with(open_page, small(rounds=40))
    button(page, "run").click().run()
    finished(page, runs)
    page.number_input(key="w.rounds").set_value(10).run()
    button(page, "run").click().run()
    finished(page, runs)
    shown = Shown.of(runs.get(page.session_state["session"].before[1]))
    now = Shown.of(shown_run(page, runs))
    assert shown.before(now).records.rounds.tolist() == list(range(11))
    assert shown.before(now).name == shown.view.name
    assert replace(shown, title="My <b>run</b>").before(now).name == "My <b>run</b>"
    assert len(shown.before(now).records.column("evaluation.objective")) == 11
    other = Shown.of(runs.submit(small(problem=SMALL["problem"] | {"start": [2.0]}), visitor=LOCAL))
    assert shown.before(other) is None


def test_the_start_page_and_an_earlier_run_are_a_click_away(open_page, runs):
    run = runs.submit(small(seed=7), visitor=LOCAL)
    until(lambda: not run.live)
    page = open_page(run=run.id)
    button(page, "start_page").click().run()
    assert not page.exception
    assert "run" not in page.query_params
    assert "recorded" in said(page)
    assert page.number_input(key="w.seed").value == 0
    assert "settings changed" not in said(page)
    page.switch_page("pages/runs.py").run()
    assert f"run={run.id}" in [link.proto.query_string for link in page.get("page_link")]
    page = open_page(run=run.id)
    assert shown_run(page, runs) is run
    assert page.number_input(key="w.seed").value == 7


def test_back_and_forward_bring_the_controls_of_each_page_unless_they_were_changed(open_page, runs):
    run = runs.submit(small(seed=7), visitor=LOCAL)
    until(lambda: not run.live)
    page = open_page()

    def go(id: str | None) -> float | None:
        page.query_params.pop("run", None)
        if id:
            page.query_params["run"] = id
        return page.run().number_input(key="w.seed").value

    assert [go(run.id), go(None), go(run.id), go(None)] == [7, 0, 7, 0]
    assert "settings changed" not in said(page)
    page.number_input(key="w.seed").set_value(3).run()
    assert [go(run.id), go(None)] == [7, 3]
    go(run.id)
    page.number_input(key="w.seed").set_value(8).run()
    assert go(None) == 8
    assert "settings changed" in said(page)


def test_share_gives_the_commands_of_the_run_and_of_its_reference(open_page, runs):
    run = runs.submit(
        SimulationConfig.read({"rounds": 1}),
        SimulationConfig.read({"rounds": 1, "algorithm": {"name": "fedavg"}}),
        visitor=LOCAL,
    )
    runs.stop(run.id, LOCAL)
    until(lambda: not run.live)
    page = open_page(run=run.id)
    commands = [code.value for code in page.code]
    assert any(command.endswith("-m fedviz run --set rounds=1") for command in commands)
    assert any("--set algorithm.name=fedavg" in command for command in commands)


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


def test_a_refused_number_stretches_no_slider(open_page):
    page = open_page()
    key = "w.problem.classification.partition.similarity.similarity"
    page.number_input(key=key).set_value(7.0).run()
    assert (page.slider(key=f"{key}.slider").max, page.slider(key=f"{key}.slider").value) == (1.0, 1.0)
    page.number_input(key="w.num_clients").set_value(400).run()
    assert page.slider(key="w.num_clients.slider").max == 400


def test_what_a_file_says_of_a_runs_device_is_shown_as_it_is(open_page, runs):
    run = runs.submit(small(), visitor=LOCAL)
    until(lambda: not run.live)
    file = export.to_json(run) | {"device": "![p](http://x.y/track.svg)"}
    page = open_page(run=runs.import_run(json.dumps(file).encode(), LOCAL).id)
    assert not page.exception
    (progress,) = (bar.proto.text for bar in page.get("progress"))
    assert progress.endswith(" · !\\[p\\](http:\u2060//x.y/track.svg)")


def test_a_link_to_a_deleted_run_leads_nowhere_also_while_another_one_continues_it(open_page, runs):
    run = runs.submit(small(), visitor=LOCAL)
    until(lambda: not run.live)
    fork = runs.fork(run.id, 3, small(algorithm={"name": "scaffold"}), visitor=LOCAL)
    until(lambda: not fork.live)
    runs.delete(run.id, LOCAL)
    page = open_page(run=run.id)
    assert not page.exception
    assert "not kept here" in said(page)
    assert "not kept here" not in said(open_page(run=fork.id))


@pytest.mark.parametrize(
    ("found", "again"),
    [
        (SimpleNamespace(state=RunState.STOPPED, round=36), False),
        (SimpleNamespace(state=RunState.RUNNING, round=36), True),
        (SimpleNamespace(state=RunState.FINISHED, round=60), True),
        (SimpleNamespace(state=RunState.STOPPED, round=37), True),
        (None, True),
    ],
)
def test_the_page_of_a_stopped_run_is_drawn_again_when_it_is_no_longer_as_it_was(monkeypatch, found, again):
    drawn = []
    monkeypatch.setattr(live.actions, "run_or_none", lambda run_id: found)
    monkeypatch.setattr(live.st, "rerun", lambda: drawn.append("again"))
    live._long_tick("a-run", RunState.STOPPED, 36)
    assert bool(drawn) == again
