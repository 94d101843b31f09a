"""What runs go on from: written whole or not at all, and not trusted."""

import json
import os
import struct
import threading
import time
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from fedviz.runs.computation import Leg, Supervisor, Work, drive
from fedviz.simulation import checkpoints
from fedviz.simulation.checkpoints import CheckpointError
from tests.runs.fakes import config

CHOSEN = config("scaffold", rounds=30, probe_every=0)


def simulated(chosen=CHOSEN) -> list:
    """(record, checkpoint) of each round from the first on, of the simulation alone."""
    from fedviz.simulation.loop import simulate

    return [(record.to_dict(), record.checkpoint()) for record in simulate(chosen)]


def computed(folder: Path, first: int, said: list | None = None, rounds: int | None = None) -> list[dict]:
    work = Work((Leg("run", CHOSEN, CHOSEN.rounds),), first, folder)
    nothing = [] if said is None else said
    allowed = CHOSEN.rounds if rounds is None else rounds

    def let_in(done: int, span: int = 1, patience: float = 0) -> int | None:
        return allowed if allowed > done else None

    return list(islice(drive(work, told(let_in, nothing.append)), 99))


def told(let_in, progress=lambda _: None) -> Supervisor:
    return Supervisor(lambda: None, progress, lambda _: None, lambda _: None, lambda: None, let_in)


def plain(record: dict) -> dict:
    return {**record, "costs": {**record["costs"], "seconds": None}}


def test_a_checkpoint_comes_back_as_it_was_and_the_one_before_it_stays(tmp_path):
    rounds = simulated()
    for _, checkpoint in rounds[5:8]:
        checkpoints.write(tmp_path, "run", checkpoint)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.before.safetensors", "run.safetensors"]
    for at_most, round in ((30, 7), (7, 7), (6, 6)):
        found, reasons = checkpoints.newest(tmp_path, "run", CHOSEN, at_most)
        assert (found.round, reasons) == (round, [])
    assert checkpoints.newest(tmp_path, "run", CHOSEN, 5) == (None, [])
    found, kept = checkpoints.newest(tmp_path, "run", CHOSEN, 30)[0], rounds[7][1]
    assert (found.config, found.costs) == (kept.config, kept.costs)
    assert found.w.equal(kept.w)
    assert found.state.keys() == kept.state.keys()
    assert all(found.state[name].equal(kept.state[name]) for name in kept.state)
    assert np.array_equal(found.renewed_in, kept.renewed_in)
    checkpoints.remove(tmp_path, "run")
    checkpoints.remove(tmp_path, "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("run_id", ["../run", "a/b", "", ".", "a.b", "x" * 65, "run\0"])
def test_no_id_leads_out_of_the_folder(tmp_path, run_id):
    with pytest.raises(ValueError, match="no run's id"):
        checkpoints.files(tmp_path, run_id)


def flip(content: bytes) -> bytes:
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


def with_header(content: bytes, **changes) -> bytes:
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    ours = json.loads(header["__metadata__"]["fedviz"]) | changes
    text = json.dumps({**header, "__metadata__": {"fedviz": json.dumps(ours)}}).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: b"", "damaged or not a checkpoint"),
        (lambda content: content[:-1], "damaged or not a checkpoint"),
        (lambda content: content[:9], "damaged or not a checkpoint"),
        (lambda content: b"\xff" * 400, "damaged or not a checkpoint"),
        (lambda content: b"\x80\x04cos\nsystem\n", "damaged or not a checkpoint"),
        (flip, "checksum is wrong"),
        (lambda content: with_header(content, format=2), "has format 2; this fedviz reads 1"),
        (lambda content: with_header(content, config={}), "a run with other settings"),
        (lambda content: with_header(content, costs={"bribe": 1}), "damaged or not a checkpoint"),
    ],
)
def test_a_damaged_or_foreign_checkpoint_is_refused_and_the_one_before_is_taken(tmp_path, damage, reason):
    rounds = simulated()
    checkpoints.write(tmp_path, "run", rounds[4][1])
    checkpoints.write(tmp_path, "run", rounds[9][1])
    file = checkpoints.files(tmp_path, "run")[0]
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(CheckpointError, match=reason):
        checkpoints.read(file, CHOSEN)
    said: list[str] = []
    records = computed(tmp_path, 12, said)
    assert any(reason in text for text in said)
    assert [record["round"] for record in records] == list(range(5, 31))
    assert [plain(record) for record in records] == [plain(record) for record, _ in rounds[5:]]


def test_a_checkpoint_that_is_ahead_of_the_records_is_not_gone_on_from(tmp_path):
    """Else records would be missing: a killed process may have written it before its records reached the disk."""
    rounds = simulated()
    checkpoints.write(tmp_path, "run", rounds[9][1])
    assert [record["round"] for record in computed(tmp_path, 9)] == list(range(31))
    assert [record["round"] for record in computed(tmp_path, 10)] == list(range(10, 31))


def test_a_run_that_is_about_to_wait_leaves_a_checkpoint(tmp_path):
    asked: list[tuple[int, float]] = []
    held = threading.Event()

    def let_in(done: int, span: int = 1, patience: float = 9.0) -> int | None:
        asked.append((done, patience))
        if done < 3:
            return done + 1
        if patience:  # the gate would hold it here
            held.set()
            return None
        return done

    work = Work((Leg("run", CHOSEN, CHOSEN.rounds),), 0, tmp_path)
    records = list(drive(work, told(let_in)))
    assert held.is_set()
    assert [record["round"] for record in records] == [0, 1, 2, 3]
    assert checkpoints.newest(tmp_path, "run", CHOSEN, 99)[0].round == 3


def test_what_is_too_large_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "LARGEST", 10)
    assert checkpoints.write(tmp_path, "run", simulated()[3][1]) == 0
    assert list(tmp_path.iterdir()) == []


def test_all_checkpoints_together_stay_below_their_cap_and_the_newest_stay(tmp_path, monkeypatch):
    for number, name in enumerate(("a.safetensors", "b.safetensors", "b.before.safetensors", "old.part", "new.part")):
        file = tmp_path / name
        file.write_bytes(b"x" * 100)
        now = time.time() - 10_000 * (name == "old.part")
        os.utime(file, (now + number, now + number))
    checkpoints.prune(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {
        "a.safetensors", "b.safetensors", "b.before.safetensors", "new.part"
    }  # fmt: skip
    monkeypatch.setattr(checkpoints, "IN_ALL", 250)
    checkpoints.prune(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"b.before.safetensors", "new.part"}
    checkpoints.prune(tmp_path / "nowhere")


def test_a_folder_that_cannot_be_written_hinders_no_run(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    assert len(computed(tmp_path / "file", 0)) == 31


def test_work_comes_back_from_json_as_it_was(tmp_path):
    work = Work((Leg("a", CHOSEN, 5), Leg("b", config("fedavg"), 20)), 6, tmp_path)
    assert Work.from_json(work.to_json()) == work
