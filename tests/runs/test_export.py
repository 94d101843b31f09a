"""Exports: everything is there, and reads back the same."""

import csv
import io
import json
import math

from fedviz.config import SimulationConfig
from fedviz.runs import Columns
from fedviz.runs.export import to_csv, to_json, to_python
from tests.runs.fakes import Scripted, config, record, until


def test_a_table_has_one_row_a_round_and_loses_no_digit():
    records = Columns(record(round) for round in range(12)).view()
    rows = list(csv.DictReader(io.StringIO(to_csv(records, config(algorithm="fedprox", seed=3)))))
    assert len(rows) == 12
    assert list(rows[0])[:5] == ["algorithm", "seed", "round", "cohort", "weights"]
    assert {row["algorithm"] for row in rows} == {"fedprox"}
    assert {row["seed"] for row in rows} == {"3"}
    assert [row["round"] for row in rows] == [str(round) for round in range(12)]
    assert rows[4]["cohort"] == "0 3"
    assert rows[0]["cohort"] == ""
    assert [float(weight) for weight in rows[4]["weights"].split()] == [0.25, 1 / 3]
    assert float(rows[5]["evaluation.train_loss"]) == 2.0 / 6
    assert rows[4]["evaluation.train_loss"] == ""
    assert rows[1]["decomposition.mode"] == "cheap"
    assert rows[11]["costs.gradient_evaluations"] == "5280"


def test_json_holds_the_run_and_its_reference_and_is_strict(start):
    def script(config, round, progress):
        pass

    executor = Scripted(script)
    manager = start(executor)
    run = manager.submit(config(rounds=12), config("fedprox", rounds=12))
    until(lambda: not run.live)
    value = json.loads(json.dumps(to_json(run), allow_nan=False))
    assert value["config"] == config(rounds=12).to_dict()
    assert value["state"] == "finished"
    assert value["records"] == [record(round) for round in range(13)]
    assert value["reference"]["config"]["algorithm"]["name"] == "fedprox"
    assert len(value["reference"]["records"]) == 13
    assert value["reference"]["reference"] is None


def test_json_says_none_where_a_number_is_none(start, monkeypatch):
    monkeypatch.setattr(
        "tests.runs.fakes.record",
        lambda round: {"round": round, "diagnostics": {"odd": [math.nan, math.inf, 1.0][round]}},
    )
    run = start().submit(config(rounds=2))
    until(lambda: not run.live)
    text = json.dumps(to_json(run), allow_nan=False)
    assert [each["diagnostics"]["odd"] for each in json.loads(text)["records"]] == [None, None, 1.0]


def test_the_program_of_a_run_computes_its_records():
    settings = SimulationConfig.read(
        {
            "problem": {"kind": "quadratics", "curvature": [[2.0], [0.0]], "linear": [[1.0], [-1.0]], "start": [1.0]},
            "num_clients": 2,
            "participation": {"pattern": "uniform", "clients_per_round": 1},
            "rounds": 3,
            "algorithm": {"name": "scaffold", "option": "I"},
        }
    )
    found: dict = {"print": lambda _: None}
    exec(to_python(settings), found)
    assert found["config"] == settings
    assert [record["round"] for record in found["records"]] == [0, 1, 2, 3]
