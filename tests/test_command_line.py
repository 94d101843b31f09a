"""`python -m fedviz`: the same runs without a browser."""

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
    assert "Diverged in round 1024." in shown
    assert "client rate times local steps is 3" in " ".join(shown.split())
    assert [record["round"] for record in json.loads(out.read_text())["records"]] == list(range(1024))


def test_help_explains_itself_and_needs_no_torch() -> None:
    code = "import sys; from fedviz.__main__ import app; app(['run', '--help'], standalone_mode=False); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words in ("--set", "--json", "--preset", "--config", "--trace", "Example"):
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
