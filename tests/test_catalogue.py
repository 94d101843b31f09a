"""The catalogue leaves nothing out: what is registered is in it, with every parameter, on the command line and on the page."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from fedviz.__main__ import app
from fedviz.algorithms import ALGORITHMS
from fedviz.catalogue import KINDS, SYMBOLS, allowed, catalogue, default_of
from fedviz.config import ProbeParameters, SimulationConfig, with_settings
from fedviz.participation import PATTERNS
from fedviz.problems import PROBLEMS, Classification
from fedviz.problems.datasets import DATASETS
from fedviz.problems.models import MODELS
from fedviz.problems.partitions import PARTITIONS

REGISTERED = {
    "algorithms": (ALGORITHMS, "algorithm.", "name"),
    "patterns": (PATTERNS, "participation.", "pattern"),
    "partitions": (PARTITIONS, "problem.partition.", "name"),
    "problems": (PROBLEMS, "problem.", "kind"),
}


def entry(kind: str, name: str) -> dict:
    return catalogue()[kind][name]


@pytest.mark.parametrize("kind", REGISTERED)
def test_everything_registered_appears_with_all_its_parameters(kind: str) -> None:
    models, prefix, tag = REGISTERED[kind]
    assert list(catalogue()[kind]) == list(models)
    for name, model in models.items():
        here = entry(kind, name)
        assert here["title"] == model.title
        assert here["summary"] == model.summary
        expected = set(model.model_fields) - {tag, "partition"}  # partitions have a kind of their own
        assert {p["name"].removeprefix(prefix) for p in here["parameters"]} == expected
        for p in here["parameters"]:
            assert p["label"], p["name"]
            assert p["help"], p["name"]


def test_every_data_set_and_model_appears() -> None:
    assert (
        set(catalogue()["datasets"]) == set(DATASETS) == set(Classification.model_fields["dataset"].annotation.__args__)
    )
    assert set(catalogue()["models"]) == set(MODELS) == set(Classification.model_fields["model"].annotation.__args__)


def test_the_readme_names_as_many_models_as_there_are() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    (row,) = (line for line in readme.splitlines() if line.startswith("| models |"))
    assert len(row.split("|")[2].split(", ")) == len(MODELS)
    assert "the CNN of the FedAvg paper" in row


def test_the_settings_of_a_run_appear() -> None:
    groups = {"problem", "algorithm", "participation", "probe"}
    settings = {p["name"] for p in entry("settings", "run")["parameters"]}
    assert settings == set(SimulationConfig.model_fields) - groups
    probe = {p["name"] for p in entry("settings", "probe")["parameters"]}
    assert probe == {f"probe.{name}" for name in ProbeParameters.model_fields}


def test_what_is_said_of_an_entry_is_for_users_and_not_for_programmers() -> None:
    entries = [entry for kind in catalogue().values() for entry in (kind.values() if isinstance(kind, dict) else kind)]
    assert len(entries) > 20
    assert [entry["summary"] for entry in entries if "`" in entry["summary"] or "  " in entry["summary"]] == []


def test_every_algorithm_has_formula_paper_and_costs() -> None:
    for name, here in catalogue()["algorithms"].items():
        assert here["formula"], name
        assert here["paper"], name
        assert here["costs"]["memory"], name


@pytest.mark.parametrize("kind", ["algorithms", "patterns", "partitions", "problems", "models"])
def test_everything_that_is_a_rule_has_a_formula(kind: str) -> None:
    for name, here in catalogue()[kind].items():
        assert here["formula"].strip(), name
        assert here["formula"].count("{") == here["formula"].count("}"), name


@pytest.mark.parametrize(
    ("name", "memory", "down", "up"),
    [  # what each method keeps and sends, as its paper has it
        ("sgd", "none", "d numbers", "d numbers"),
        ("fedavg", "none", "d numbers", "d numbers"),
        ("fedavgm", "d numbers", "d numbers", "d numbers"),
        ("fedadam", "2d numbers", "d numbers", "d numbers"),
        ("scaffold", "(N + 1)·d numbers", "2d numbers", "2d numbers"),
        ("fedvarp", "(N + 1)·d numbers", "d numbers", "d numbers"),
        ("cluster_fedvarp", "(K + 1)·d numbers", "d numbers", "d numbers"),
        ("amplified_fedavg", "d numbers", "d numbers", "d numbers"),
        ("amplified_scaffold", "(2N + 2)·d numbers", "2d numbers", "2d numbers"),
    ],
)
def test_costs_are_written_as_formulas(name: str, memory: str, down: str, up: str) -> None:
    costs = entry("algorithms", name)["costs"]
    assert costs["memory"] == memory
    assert costs["sent to a participant in a round"] == down
    assert costs["sent by a participant in a round"] == up


def test_ranges_and_defaults_in_words() -> None:
    run = {p["name"]: p for p in entry("settings", "run")["parameters"]}
    assert allowed(run["client_lr"]) == "number above 0 to 1,000"
    assert default_of(run["client_lr"]) == "0.01"
    assert allowed(run["rounds"]) == "whole number from 1 to 1,000,000"
    assert default_of(run["eval_every"]) == "automatic"
    (option, warm) = entry("algorithms", "scaffold")["parameters"]
    assert allowed(option) == "I, II"
    assert (allowed(warm), default_of(warm)) == ("true or false", "false")
    (beta,) = entry("algorithms", "fedavgm")["parameters"]
    assert allowed(beta) == "number from 0 to below 1"
    cohorts, _ = entry("patterns", "trace")["parameters"]
    assert (allowed(cohorts), default_of(cohorts)) == ("list", "needed")


def test_the_stated_ranges_are_those_that_are_enforced() -> None:
    """For every number with bounds: the bounds are accepted by its own model, what lies beyond is refused."""
    tried = 0
    for kind, (models, prefix, _tag) in REGISTERED.items():
        for name, model in models.items():
            if any(field.is_required() for field in model.model_fields.values()):
                continue
            for p in entry(kind, name)["parameters"]:
                if p["maximum"] is None or "number" not in p["type"]:
                    continue
                field, kind_of = p["name"].removeprefix(prefix), int if p["type"] == "whole number" else float
                edges = {p["minimum"]: not p["above_minimum"], p["maximum"]: not p["below_maximum"]}
                for value, inside in {**edges, p["minimum"] - 1: False, p["maximum"] + 1: False}.items():
                    if inside:
                        model.model_validate({field: kind_of(value)})
                    else:
                        with pytest.raises(ValidationError):
                            model.model_validate({field: kind_of(value)})
                tried += 1
    assert tried > 20


def test_the_names_can_be_used_on_the_command_line_as_they_stand() -> None:
    for kind in ("algorithms", "partitions", "datasets", "models"):
        for name, here in catalogue()[kind].items():
            config = with_settings([here["choose"]])
            path, _, value = here["choose"].partition("=")
            assert value == name
            assert config.differences().get(path, name) == name
    for here in catalogue()["algorithms"].values():
        for p in here["parameters"]:
            with_settings([here["choose"], f"{p['name']}={json.dumps(p['default'])}"])


def test_the_command_prints_the_same_as_json_and_as_a_table() -> None:
    done = CliRunner().invoke(app, ["catalogue", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.output) == json.loads(json.dumps(catalogue()))
    table = CliRunner(env={"COLUMNS": "400"}).invoke(app, ["catalogue"])
    assert table.exit_code == 0
    for kind, entries in catalogue().items():
        assert KINDS[kind] in table.output
        for here in entries.values():
            assert here["title"] in table.output
            for line in here["formula_text"].splitlines():
                assert line in table.output
            for p in here["parameters"]:
                assert p["name"] in table.output
    for symbol, meaning in SYMBOLS.items():
        assert f"{symbol}: {meaning}" in " ".join(table.output.split())


def test_it_opens_without_torch() -> None:
    code = "import sys; from fedviz.catalogue import catalogue; catalogue(); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_shows_every_entry_and_every_parameter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamlit.testing.v1 import AppTest

    monkeypatch.setenv("FEDVIZ_HOME", str(tmp_path))
    page = AppTest.from_file("../app.py", default_timeout=30).switch_page("pages/reference.py").run()
    assert not page.exception
    assert [tab.label for tab in page.tabs] == list(KINDS.values())
    legend = "\n".join(element.value for element in page.markdown)
    for latex, letters in ((r"\eta", "η"), (r"\Delta", "Δ"), (r"\bar g", "ḡ"), (r"\mathrm", "")):
        legend = legend.replace(latex, letters)
    legend = re.sub(r"[${}\\]", "", legend)
    for symbol, meaning in SYMBOLS.items():
        assert f"{symbol}: {meaning}" in legend
    for tab, entries in zip(page.tabs, catalogue().values(), strict=True):
        titles = [element.value for element in tab.subheader]
        assert [title.replace("\\", "") for title in titles] == [here["title"] for here in entries.values()]
        text = "\n".join(element.value for element in tab.markdown).replace("\\", "")
        for here in entries.values():
            for p in here["parameters"]:
                assert p["help"] in text
                assert allowed(p) in text
        assert [element.value.strip("$\n") for element in tab.latex] == [
            h["formula"] for h in entries.values() if h["formula"]
        ]
