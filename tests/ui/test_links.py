"""Links that open settings: what they hold comes back, what they should not hold is refused in words, and nothing starts."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from fedviz.config import SimulationConfig
from fedviz.papers.presets import PRESETS
from fedviz.runs.visitor import LOCAL
from fedviz.ui import links
from fedviz.ui.links import LinkError
from tests.ui.test_page import button, said


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize("name", PRESETS)
def test_settings_come_back_from_their_link(name):
    pair = links.read_preset(name)
    assert links.read_config(links.to_parameter(*pair)) == pair


def test_nothing_to_compare_with_comes_back_as_nothing():
    config = SimulationConfig.read({"rounds": 7})
    assert links.read_config(links.to_parameter(config, None)) == (config, None)


@pytest.mark.parametrize("write", [str, encoded])
@pytest.mark.parametrize(
    "text",
    ['{"rounds": 60, "algorithm.name": "scaffold"}', '{"rounds": 60, "algorithm": {"name": "scaffold"}}'],
)
def test_json_as_it_is_or_encoded_with_dots_or_nested_says_the_same(write, text):
    config, reference = links.read_config(write(text))
    assert (config.rounds, config.algorithm.name, config.num_clients) == (60, "scaffold", 100)
    assert reference is not None
    assert reference.algorithm.name == "fedavg"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"rounds": -1}', "Rounds: got -1, allowed a whole number from 1"),
        ('{"rounds": 0, "client_lr": -1, "problem.partition.similarity": 7}', "Client rate: got -1"),
        ('{"rounds": 0, "client_lr": -1, "problem.partition.similarity": 7}', "Similarity: got 7"),
        ('{"rounds": 0, "client_lr": -1, "problem.partition.similarity": 7}', "Rounds: got 0"),
        ('{"algorithm.name": "fedx"}', "Algorithm: got 'fedx', allowed 'fedavg'"),
        ('{"rounds": 6', "neither JSON"),
        ("[]", "neither JSON"),
        ("§", "neither JSON"),
        ('{"wings": 2}', "there is no such setting"),
        ('{"compare_with": "nobody"}', "wants to compare with nobody; allowed are fedavg"),
        ('{"compare_with": 3}', "wants to compare with 3"),
        ('{"a": ' * 5000 + "1" + "}" * 5000, "neither JSON"),
        ("{" + " " * 200_000 + "}", "at most 100,000"),
    ],
)
def test_a_link_that_says_nothing_sensible_says_what_is_wrong(text, message):
    with pytest.raises(LinkError, match=message.replace("(", r"\(")):
        links.read_config(text)


json_values = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=20),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)
paths = some.sampled_from(
    [
        "rounds",
        "algorithm",
        "algorithm.name",
        "problem",
        "problem.partition",
        "participation.cohorts",
        "compare_with",
        "seed",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    some.text(max_size=60) | some.dictionaries(paths | some.text(max_size=12), json_values, max_size=4).map(json.dumps)
)
def test_whatever_a_link_holds_it_gives_settings_that_can_be_run_or_an_explanation(text):
    for written in (text, encoded(text) if text.isprintable() else text):
        config, why = settings_or_reason(written)
        assert (config is None) == bool(why)
        if config is not None:
            assert SimulationConfig.read(config.to_dict()) == config


def settings_or_reason(text: str) -> tuple[SimulationConfig | None, str]:
    try:
        return links.read_config(text)[0], ""
    except LinkError as error:
        return None, str(error)


def test_a_preset_opens_ready_and_starts_nothing(open_page, runs):
    page = open_page(preset="scaffold")
    assert not page.exception
    assert page.selectbox(key="w.algorithm").value == "scaffold"
    assert not button(page, "run").disabled
    assert runs.runs(LOCAL) == []


def test_a_configuration_opens_ready_and_starts_nothing(open_page, runs):
    page = open_page(config='{"rounds": 60, "seed": 5, "compare_with": null}')
    assert page.number_input(key="w.seed").value == 5
    assert page.number_input(key="w.rounds").value == 60
    assert page.selectbox(key="w.compare_with").value == "none"
    assert runs.runs(LOCAL) == []


def test_what_a_visitor_changes_after_opening_a_link_stays_changed(open_page):
    page = open_page(config='{"seed": 5}')
    page.number_input(key="w.seed").set_value(6).run()
    assert page.number_input(key="w.seed").value == 6


@pytest.mark.parametrize(
    "parameters",
    [{"config": "%%%"}, {"config": '{"rounds": 0}'}, {"preset": "nothing"}, {"preset": "../../etc/passwd"}],
)
def test_an_invalid_link_opens_the_normal_page_with_a_word(open_page, parameters):
    page = open_page(**parameters)
    assert not page.exception
    assert len(page.error) == 1
    assert page.number_input(key="w.rounds").value == 200


HOSTILE = [
    "",
    " ",
    "../../etc/passwd",
    "<script>alert(1)</script>",
    "' OR 1=1 --",
    "\x00",
    "a" * 10_000,
    "[x](http://x.y)",
    "∞",
    "-1",
    "{}",
]


@pytest.mark.parametrize("value", HOSTILE)
def test_no_value_in_the_address_brings_the_page_down(open_page, runs, value):
    names = (
        "run",
        "config",
        "preset",
        "embed",
        "draw_scale",
        "draw_size",
        "draw_split",
        "draw_loss_scale",
        "search",
        "admin",
    )
    page = open_page(**dict.fromkeys(names, value))
    assert not page.exception
    assert runs.runs(LOCAL) == []


def test_markup_in_a_link_is_shown_as_it_is(open_page):
    page = open_page(preset="[here](http://evil.example) www.evil.example")
    shown = page.error[0].value
    assert r"\[here\]\(" in shown
    assert "http://" not in shown
    assert "www.evil" not in shown
    assert "www" in said(page)


def test_a_link_with_thousands_of_problems_tells_three_and_how_many_more(monkeypatch):
    named = []
    monkeypatch.setattr(links.settings, "label", lambda path: named.append(path) or path)
    with pytest.raises(LinkError, match=r"; and 1,997 more\. "):
        links.read_config(json.dumps({f"k{number}": 1 for number in range(2_000)}))
    assert len(named) == 3  # naming one takes milliseconds


def test_a_link_with_an_endless_value_is_answered_in_short():
    with pytest.raises(LinkError) as refusal:
        links.read_config(json.dumps({"algorithm": {"name": "x" * 50_000}}))
    assert "x" * 20 in str(refusal.value)
    assert len(str(refusal.value)) < 600
