"""The draft behind the form: every config survives the way there and back, and errors land where their control is."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some

from fedviz.config import SimulationConfig
from fedviz.papers.presets import PRESETS
from fedviz.ui import settings
from fedviz.ui.settings import TOP

CONFIGS = {
    **{name: preset.build() for name, preset in PRESETS.items()},
    "explicit clusters": SimulationConfig.read(
        {
            "num_clients": 4,
            "algorithm": {"name": "cluster_fedvarp", "clusters": 2, "clustering": {"labels": [0, 1, 0, 1]}},
            "participation": {"pattern": "trace", "cohorts": [[0, 3], [], [1]], "repeat": True},
            "seed": 2**60 + 1,
            "eval_every": 0,
            "probe_every": 7,
        }
    ),
    "fedprox": SimulationConfig.read({"algorithm": {"name": "fedprox", "mu": 3}, "client_lr": 1e-5, "rounds": 7}),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_comes_back_from_the_draft_as_it_was(name):
    draft = settings.default_draft() | settings.to_draft(CONFIGS[name])
    assert settings.read(draft) == (CONFIGS[name], {})


def test_the_default_draft_is_the_default_config():
    assert settings.read(settings.default_draft()) == (SimulationConfig(), {})


def test_intervals_that_follow_from_the_rounds_stay_empty_so_that_they_go_on_following():
    draft = settings.default_draft() | settings.to_draft(SimulationConfig.read({"rounds": 1000}))
    assert draft["probe_every"] is None
    config, _ = settings.read(draft | {"rounds": 500})
    assert config is not None
    assert config.probe_every == 20  # 500 // 25


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"participation.uniform.clients_per_round": 101}, "participation.clients_per_round"),
        ({"participation.uniform.clients_per_round": None}, "participation.clients_per_round"),
        ({"problem.classification.partition.similarity.similarity": 1.5}, "problem.partition.similarity"),
        ({"client_lr": 0.0}, "client_lr"),
        ({"client_lr": float("nan")}, "client_lr"),
        ({"rounds": 2.5}, "rounds"),
        ({"participation": "cyclic", "participation.cyclic.groups": 101}, "participation.groups"),
        ({"algorithm": "cluster_fedvarp", "algorithm.cluster_fedvarp.clusters": 101}, "algorithm.clusters"),
        ({"problem": "quadratics", "problem.quadratics.curvature": "[[1"}, "problem.curvature"),
    ],
)
def test_an_error_names_the_path_of_a_setting_that_the_form_shows(change, path):
    draft = settings.default_draft() | change
    config, problems = settings.read(draft)
    assert config is None
    assert path in problems
    assert path in {setting.path for setting in settings.chosen(draft)}


def test_every_field_of_every_model_has_a_control():
    kinds = {setting.key: setting.kind for group in TOP.values() for setting in _all(group)}
    assert kinds["algorithm"] == kinds["problem.classification.partition"] == "group"
    assert kinds["algorithm.scaffold.option"] == kinds["device"] == "choice"
    assert kinds["algorithm.scaffold.warm_start"] == "switch"
    assert kinds["rounds"] == kinds["eval_every"] == "whole"
    assert kinds["client_lr"] == "number"
    assert kinds["participation.trace.cohorts"] == kinds["problem.quadratics.start"] == "text"


@pytest.mark.parametrize("clients", [1, 2, 7, 100])
@pytest.mark.parametrize("choice", settings.EXAMPLES)
def test_examples_can_be_run_with_any_number_of_clients(choice, clients):
    group, tag = choice.rsplit(".", 1)
    draft = settings.default_draft() | {
        "num_clients": clients,
        "participation.uniform.clients_per_round": 1,
        group: tag,
    }
    config, problems = settings.read(draft | settings.EXAMPLES[choice](draft))
    assert problems == {}
    assert config is not None


def test_a_reference_is_the_same_run_with_another_algorithm():
    config = SimulationConfig.read({"algorithm": {"name": "scaffold", "option": "I"}, "seed": 5, "rounds": 33})
    reference, why = settings.reference_for(config, "fedavg")
    assert why == ""
    assert reference is not None
    assert reference.to_dict() == config.to_dict() | {"algorithm": {"name": "fedavg"}}


def test_an_algorithm_is_not_compared_with_itself():
    config = SimulationConfig.read({"algorithm": {"name": "fedavg"}})
    assert settings.reference_for(config, "fedavg") == (None, "")


def test_a_reference_that_does_not_fit_says_why():
    config = SimulationConfig.read({"num_clients": 6})
    reference, why = settings.reference_for(config, "cluster_fedvarp")  # ten clusters by default
    assert reference is None
    assert "10" in why
    assert "6" in why


def _all(setting):
    yield setting
    if setting.kind == "group":
        for choice in setting.candidates:
            for inner in setting.inside(choice):
                yield from _all(inner)


def test_text_nested_beyond_all_sense_is_refused_at_its_control():
    """100,000 brackets are more than a parser can follow: the text itself is what is refused, by name."""
    draft = settings.default_draft() | {"participation": "trace", "participation.trace.cohorts": "[" * 100_000}
    config, problems = settings.read(draft)
    assert config is None
    assert "participation.cohorts" in problems


CHOICES = ["quadratics", "classification", "lower_bound", "cyclic", "trace", "uniform", "scaffold", "mifa", "none"]
WRITTEN = some.text(max_size=20) | some.sampled_from(
    ["[[1", "[[1, 2]]", "1e999", "9" * 400, "NaN", "{}", "0,1;2", "[x](http://y.z)"]
)
NUMBERS = some.integers() | some.floats() | some.sampled_from([0, -1, 2**63, 10**400, 1e308])


@hypothesis_settings(max_examples=200, deadline=None)
@given(some.data())
def test_whatever_stands_in_the_form_it_is_a_config_that_can_be_run_or_explained(data):
    """Values of a control come from a browser, which may send anything; the choices that decide which controls count, too."""
    draft = settings.default_draft()
    for key in data.draw(some.lists(some.sampled_from(sorted(draft)), max_size=4, unique=True)):
        offered = [*CHOICES, draft[key]]
        draft[key] = data.draw(
            some.sampled_from(offered) | NUMBERS | WRITTEN | some.none() | some.booleans(), label=key
        )
    config, problems = settings.read(draft)
    assert (config is None) == bool(problems)
    assert all(isinstance(why, str) and why for why in problems.values())
    if config is not None:
        assert SimulationConfig.read(config.to_dict()) == config
