"""`python -m fedviz`: the same runs without a browser."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedviz.__main__ import app
from fedviz.config import SimulationConfig
from fedviz.simulation.loop import simulate
from tests.problems import comparable

SMALL = ["--set", "rounds=4", "--set", "num_clients=20", "--set", "local_steps=3", "--set", "probe_every=2"]


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["run", *arguments])
    return done.exit_code, done.output


def test_a_run_writes_its_config_and_all_its_records(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    code, shown = run(*SMALL, "--set", "algorithm.name=scaffold", "--json", str(out))
    assert code == 0
    assert "test accuracy" in shown
    written = json.loads(out.read_text())
    config = SimulationConfig.read(written["config"])
    assert config.algorithm.name == "scaffold"
    for record in written["records"]:
        del record["costs"]["seconds"]
    assert written["records"] == [json.loads(json.dumps(comparable(record))) for record in simulate(config)]


def test_several_runs_are_those_that_each_is_alone_and_make_one_table(tmp_path: Path) -> None:
    """Two algorithms, two seeds: four runs in the order of the variants, seeds within."""
    written, table, alone = tmp_path / "out.json", tmp_path / "out.csv", tmp_path / "alone.json"
    several = ["--seeds", "2", "--vary", "algorithm.name=fedavg,scaffold", "--set", "seed=7"]
    code, shown = run(*SMALL, *several, "--json", str(written), "--csv", str(table))
    assert code == 0
    assert "4 runs, 2 seeds" in shown
    assert "algorithm.name=scaffold" in shown
    runs = json.loads(written.read_text())["runs"]
    assert [(each["config"]["algorithm"]["name"], each["config"]["seed"]) for each in runs] == [
        *(("fedavg", 7), ("fedavg", 8), ("scaffold", 7), ("scaffold", 8)),
    ]
    rows = list(csv.DictReader(table.open()))
    assert [(row["algorithm"], row["seed"], row["round"]) for row in rows] == [
        (name, seed, str(round)) for name in ("fedavg", "scaffold") for seed in "78" for round in range(5)
    ]
    assert run(*SMALL, "--set", "algorithm.name=scaffold", "--set", "seed=8", "--json", str(alone))[0] == 0
    expected = json.loads(alone.read_text())
    for record in (*expected["records"], *runs[3]["records"]):
        del record["costs"]["seconds"]
    assert runs[3] == {"config": expected["config"], "records": expected["records"]}
    assert rows[-1]["evaluation.train_loss"] == repr(expected["records"][-1]["evaluation"]["train_loss"])


def test_what_is_varied_has_a_column_and_all_combinations_are_made(tmp_path: Path) -> None:
    table = tmp_path / "out.csv"
    varied = ["--vary", "client_lr=0.1,0.2", "--vary", "participation.clients_per_round=[1, 2]"]
    assert run(*QUADRATICS, *varied, "--set", "rounds=1", "--csv", str(table))[0] == 0
    found = [(row["client_lr"], row["participation.clients_per_round"]) for row in csv.DictReader(table.open())]
    assert found == [(lr, size) for lr in ("0.1", "0.2") for size in "12" for _ in range(2)]


def test_where_one_of_several_diverges_the_others_finish(tmp_path: Path) -> None:
    """f_i = x^2 / 2 from 1: rate 1 is at once at 0; rate 1000 multiplies x by -999 in every step: 1e180 after 60, whose square is
    beyond float64."""
    out = tmp_path / "out.json"
    flat = ["--set", "problem.linear=[[0],[0],[0]]", "--set", "participation.pattern=full", "--set", "local_steps=60"]
    code, shown = run(*QUADRATICS, *flat, "--vary", "client_lr=1,1000", "--json", str(out))
    assert code == 1
    assert "1 of 2 runs diverged; the first: Diverged in round 1. The steps are too long" in " ".join(shown.split())
    assert [len(each["records"]) for each in json.loads(out.read_text())["runs"]] == [4, 1]


def test_a_written_config_can_be_run_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert run(*SMALL, "--json", str(first))[0] == 0
    assert run("--config", str(first), "--json", str(second))[0] == 0
    a, b = (json.loads(file.read_text()) for file in (first, second))
    assert a["config"] == b["config"]
    assert [r["evaluation"] for r in a["records"]] == [r["evaluation"] for r in b["records"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "num_clients=3"], "participation.clients_per_round: got 5, allowed 1 to 3"),
        (["--set", "client_lr=NaN"], "client_lr: got NaN, allowed a number above 0"),
        (["--set", "rounds"], 'expected path=value, as in "rounds=60"'),
        (["--preset", "nonsense"], "got 'nonsense', allowed default"),
        (["--config", "no/such/file.json"], "cannot read no/such/file.json"),
        (["--json", "no/such/folder/out.json", *SMALL], "cannot write no/such/folder/out.json"),
        (["--json", "/", *SMALL], "cannot write /"),
        (["--csv", "/", *SMALL], "--csv: cannot write /"),
        (["--vary", "client_lr="], 'client_lr=: expected path=value,value,..., as in "client_lr=0.01,0.1"'),
        (["--vary", "seed=1,2"], "seed: is not varied this way: --seeds does"),
        (["--vary", "rounds=2", "--vary", "rounds=3"], "rounds: is not varied this way: it is already"),
        (["--vary", "client_lr=0.1,-1"], "client_lr: got -1, allowed a number above 0"),
        (["--seeds", "1000000000"], "Invalid value for '--seeds': got 1,000,000,000, allowed 1 to 1,000."),
        (["--seeds", "0"], "Invalid value for '--seeds': got 0, allowed 1 to 1,000."),
        (["--set", "num_clients=10000"], "clients without a sample"),
        (["--nonsense"], "No such option"),
        (
            # 60,000 models of 159,010 numbers in float32, in half a dozen copies, are 230 GB.
            [
                *("--set", "problem.dataset=fashion_mnist", "--set", "num_clients=60000", "--set", "problem.model=mlp"),
                *("--set", "problem.partition.name=iid", "--set", "participation.pattern=full"),
            ],
            "memory",
        ),
    ],
    ids=lambda x: " ".join(x[:2]) if isinstance(x, list) else "",
)
def test_bad_input_ends_with_code_two_and_a_sentence(arguments: list[str], message: str) -> None:
    code, shown = run(*arguments)
    assert code == 2
    assert message in " ".join(shown.split())
    assert "Traceback" not in shown


QUADRATICS = [
    *("--set", "problem.kind=quadratics", "--set", "problem.curvature=[[1],[1],[1]]", "--set", "problem.start=[1]"),
    *("--set", "problem.linear=[[0],[1],[2]]", "--set", "num_clients=3", "--set", "rounds=3"),
]


def test_a_trace_from_a_file_is_replayed(tmp_path: Path) -> None:
    """Rounds 1 and 3 have clients; nobody takes part in round 2."""
    file, out = tmp_path / "trace.csv", tmp_path / "out.json"
    file.write_bytes(b"\xef\xbb\xbfround,client\r\n3,1\r\n1,2\r\n1,0\r\n")
    code, _ = run(*QUADRATICS, "--trace", str(file), "--json", str(out))
    assert code == 0
    written = json.loads(out.read_text())
    assert written["config"]["participation"] == {"pattern": "trace", "cohorts": [[2, 0], [], [1]], "repeat": False}
    assert [record["cohort"] for record in written["records"]] == [[], [0, 2], [], [1]]
    code, _ = run(
        *QUADRATICS, "--trace", str(file), "--set", "rounds=4", "--set", "participation.repeat=true", "--json", str(out)
    )
    assert code == 0
    assert json.loads(out.read_text())["records"][4]["cohort"] == [0, 2]


def test_a_config_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """As the editors of Windows write it; and a fault in the file is told as the file's."""
    file, out = tmp_path / "config.json", tmp_path / "out.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps({"seed": 5}).encode())
    code, _ = run(*QUADRATICS, "--set", "participation.pattern=full", "--config", str(file), "--json", str(out))
    assert code == 0
    assert json.loads(out.read_text())["config"]["seed"] == 5
    file.write_text('{"problem": "x"}')
    code, shown = run("--set", "problem.dataset=mnist", "--config", str(file))
    assert code == 2
    assert 'problem: got "x", expected a group of settings' in " ".join(shown.split())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"round,client\n1,0\n2,one\n", "trace.csv: line 3, column 2 (client): got 'one'"),
        (b"1,0\n1,0\n", "trace.csv: line 2, column 2 (client): round 1 has client 0 already, in line 1"),
        (b"\x7fELF\x02\x01\x01\0\0", "trace.csv: line 1: this is not plain text"),
        (b"", "trace.csv: line 1: there are no rows"),
        (b"1,0\n" * 1_250_001, "trace.csv: there are more than the 5,000,000 characters"),
        (b"1,0\n2,3\n3,0\n", "participation.cohorts: round 2 names client 3, allowed 0 to 2"),
        (b"1,0\n", "participation.cohorts: got cohorts for 1 of 3 rounds"),
        (None, "--trace: cannot read"),
    ],
    ids=["a word", "twice", "binary", "empty", "large", "beyond N", "short", "no file"],
)
def test_a_trace_that_cannot_be_replayed_ends_with_code_two_and_names_the_place(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "trace.csv"
    if content is not None:
        file.write_bytes(content)
    code, shown = run(*QUADRATICS, "--trace", str(file))
    assert code == 2
    # Rich breaks lines, inside the path as well, so spaces are no matter.
    assert "".join(message.split()) in "".join(shown.split())
    assert "Traceback" not in shown


def test_a_run_that_is_stopped_while_it_gets_ready_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def pressed(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "set_num_threads", pressed)
    code, shown = run(*QUADRATICS, "--set", "participation.pattern=full")
    assert code == 130
    assert "Interrupted." in shown


def test_divergence_ends_with_code_one_keeps_the_finite_rounds_and_says_what_to_change(tmp_path: Path) -> None:
    """f_i = x^2 / 2, client rate 3: x is multiplied by -2 in every step, past the largest float64 after 1024 doublings."""
    out = tmp_path / "out.json"
    code, shown = run(
        *("--set", "problem.kind=quadratics", "--set", "problem.curvature=[[1]]", "--set", "problem.linear=[[0]]"),
        *(
            "--set",
            "problem.start=[1]",
            "--set",
            "num_clients=1",
            "--set",
            "participation.pattern=full",
            "--set",
            "local_steps=1",
        ),
        *(
            "--set",
            "client_lr=3",
            "--set",
            "rounds=2000",
            "--set",
            "eval_every=0",
            "--set",
            "probe_every=0",
            "--json",
            str(out),
        ),
    )
    assert code == 1
    assert "Diverged in round 1,024." in shown
    assert "client rate times local steps is 3" in " ".join(shown.split())
    assert [record["round"] for record in json.loads(out.read_text())["records"]] == list(range(1024))


def test_help_explains_itself_and_needs_no_torch() -> None:
    code = "import sys; from fedviz.__main__ import app; app(['run', '--help'], standalone_mode=False); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words in ("--set", "--json", "--preset", "--config", "--trace", "--seeds", "--vary", "Example"):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [('{"config": 3}', "holds no config"), ("[1]", "holds no config"), ("[" * 200_000, "not JSON that can be read")],
    ids=["a number", "a list", "nested"],
)
def test_a_file_that_holds_no_config_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(content)
    code, shown = run("--config", str(file), "--set", "rounds=2")
    assert code == 2
    assert message in " ".join(shown.split())


def test_a_start_that_is_not_finite_is_told_as_such() -> None:
    code, shown = run(
        *("--set", "problem.kind=quadratics", "--set", "problem.curvature=[[1e308]]", "--set", "problem.linear=[[1]]"),
        *("--set", "problem.start=[1e308]", "--set", "num_clients=1", "--set", "participation.pattern=full"),
    )
    assert code == 1
    assert "Diverged in round 0. The starting point itself" in " ".join(shown.split())
