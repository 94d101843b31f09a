"""The database: what is in it survives, what does not fit is refused with a reason."""

import json
import os
import sqlite3
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedviz.runs import RunState, RunStore, StoreError
from fedviz.runs.store import Row, home
from tests.runs.fakes import config, record

NOON = datetime(2025, 1, 31, 12, 0, 0, 123456, UTC)


def row(id: str, *, minutes: int = 0, **changes) -> Row:
    values = {"state": RunState.FINISHED, "message": "", "reference_id": None, "device": "CPU", **changes}
    created = NOON + timedelta(minutes=minutes)
    return Row(id, created, config=config().model_dump_json(), version="0.1.0", **values)


def stored(id: str, rounds) -> list[tuple[str, int, str]]:
    return [(id, round, json.dumps(record(round))) for round in rounds]


def test_rows_and_records_survive_reopening(path):
    store = RunStore(path)
    written = row("a", message="Stopped after round 2 · “ende”", state=RunState.STOPPED)
    store.save(written, stored("a", range(3)))
    store.save(None, stored("a", range(3, 12)))
    store.close()

    again = RunStore(path)
    assert again.load("a") == written
    assert again.records("a").dicts() == [record(round) for round in range(12)]
    assert again.load("b") is None
    assert len(again.records("b")) == 0
    again.close()


def test_recent_lists_the_newest_first_and_leaves_references_out(path):
    store = RunStore(path)
    for number in range(4):
        store.save(row(f"run{number}", minutes=number, reference_id=f"reference{number}"), ())
        store.save(row(f"reference{number}", minutes=number, is_reference=True), ())
    assert [each.id for each in store.listed(None, 3)] == ["run3", "run2", "run1"]
    store.close()


def test_all_or_nothing(path):
    store = RunStore(path)
    store.save(row("a"), stored("a", range(2)))
    with pytest.raises(sqlite3.IntegrityError):
        store.save(row("a", message="new"), stored("a", [2, 3, 1]))
    assert store.load("a").message == ""
    assert len(store.records("a")) == 2
    store.save(None, stored("a", [2]))  # and it goes on
    store.close()


def test_readers_do_not_wait_for_a_writer(path):
    store = RunStore(path, patience=0)
    store.save(row("a"), stored("a", range(2)))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("DELETE FROM records")
    assert len(store.records("a")) == 2
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        store.save(None, stored("a", [2]))
    other.execute("ROLLBACK")
    store.save(None, stored("a", [2]))
    other.close()
    store.close()


def test_many_may_open_a_new_store_at_once(path):
    path.parent.mkdir()
    stores, barrier = [], threading.Barrier(8)

    def open_it() -> None:
        barrier.wait(5)
        stores.append(RunStore(path))

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 8
    for number, store in enumerate(stores):
        store.save(row(str(number)), stored(str(number), range(2)))
        store.close()


FIRST_SCHEMA = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY, created TEXT NOT NULL, state TEXT NOT NULL, message TEXT NOT NULL, config TEXT NOT NULL,
    reference_id TEXT, version TEXT NOT NULL, device TEXT, owner TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX runs_by_time ON runs (created);
CREATE INDEX runs_by_reference ON runs (reference_id);
CREATE TABLE records (
    run_id TEXT NOT NULL, round INTEGER NOT NULL, json TEXT NOT NULL, PRIMARY KEY (run_id, round)
) WITHOUT ROWID;
PRAGMA user_version = 1;
"""


def test_a_database_of_the_first_version_is_brought_forward_with_all_that_is_in_it(path):
    path.parent.mkdir()
    process = json.dumps(["elsewhere", 1, 0.0])
    with sqlite3.connect(path) as database:
        database.executescript(FIRST_SCHEMA)
        for id, state, reference in (("a", "finished", "b"), ("b", "running", None)):
            values = (id, NOON.isoformat(), state, "", config().model_dump_json(), reference, "0.0.9", "CPU", process)
            database.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            database.executemany("INSERT INTO records VALUES (?, ?, ?)", stored(id, range(3)))
    for _ in range(2):
        store = RunStore(path)
        assert [each.id for each in store.listed("local")] == ["a"]
        run, reference = store.load("a"), store.load("b")
        assert (run.owner, run.title, run.published, run.parent_id, run.is_reference) == (
            "local",
            "",
            False,
            None,
            False,
        )
        assert run.ended == NOON
        assert (reference.is_reference, reference.state) == (True, RunState.INTERRUPTED)
        assert store.records("a").dicts() == [record(round) for round in range(3)]
        store.close()
    new = path.with_name("new.sqlite")
    RunStore(new).close()
    with sqlite3.connect(path) as old, sqlite3.connect(new) as fresh:
        columns = [
            sorted((name, kind, needed) for _, name, kind, needed, _, _ in database.execute("PRAGMA table_info(runs)"))
            for database in (old, fresh)
        ]
    assert columns[0] == columns[1]


def test_the_records_of_a_fork_begin_with_those_of_what_it_continues(path):
    store = RunStore(path)
    store.save(row("a"), stored("a", range(10)))
    store.save(row("b", parent_id="a", forked_at=5), stored("b", range(6, 9)))
    store.save(row("c", parent_id="b", forked_at=7), stored("c", range(8, 12)))
    store.save(row("d", parent_id="b", forked_at=2), stored("d", range(3, 4)))  # before what b itself has
    with store._transaction():  # whose a round is can be told from its text
        store._writer.execute("UPDATE records SET json = json_set(json, '$.costs.seconds', run_id)")

    def whose(id: str) -> str:
        return "".join(each["costs"]["seconds"] for each in store.records(id).dicts())

    assert [whose(id) for id in "abcd"] == ["a" * 10, "a" * 6 + "bbb", "a" * 6 + "bb" + "cccc", "aaa" + "d"]
    assert [each.id for each in store.children("b")] == ["c", "d"]
    store.close()


def test_a_newer_schema_is_refused_and_left_alone(path):
    RunStore(path).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 7")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"newer fedviz \(schema 7; this one reads up to 3\)\. Update fedviz, or"):
        RunStore(path)
    assert path.read_bytes() == before


def test_what_is_no_database_of_fedviz_is_refused_and_left_alone(path):
    path.parent.mkdir()
    path.write_text("my diary, which is longer than the header of a database would be, and not one\n" * 9)
    with pytest.raises(StoreError, match=r"runs\.sqlite: file is not a database.*FEDVIZ_HOME"):
        RunStore(path)
    assert path.read_text().startswith("my diary")
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE recipes (name)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="belongs to another program"):
        RunStore(path)
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file.*Check the folder's space and permissions"):
        RunStore(tmp_path / "file" / "runs.sqlite")


def test_live_runs_of_a_process_that_is_gone_are_interrupted_and_those_of_a_living_one_are_not(path):
    store = RunStore(path)
    store.save(row("alive", state=RunState.RUNNING), stored("alive", range(3)))
    for id, rounds in (("dead", range(3)), ("early", ())):
        store.save(row(id, state=RunState.RUNNING), stored(id, rounds))
    with sqlite3.connect(path) as database:
        (process,) = database.execute("SELECT process FROM runs WHERE id = 'dead'").fetchone()
        host, number, created, *_ = json.loads(process)
        # The same process id, as after a restart of a container, but started earlier.
        before = json.dumps([host, number, created - 60])
        database.execute("UPDATE runs SET process = ? WHERE id != 'alive'", (before,))
    assert store.load("dead").state is RunState.INTERRUPTED  # also when it dies while others look
    store.close()

    RunStore(path).close()
    with sqlite3.connect(path) as database:
        found = {id: (state, message) for id, state, message in database.execute("SELECT id, state, message FROM runs")}
    assert found["alive"][0] == "running"
    assert found["dead"] == (
        "interrupted",
        "Interrupted after round 2: the server ended. Resume continues it.",
    )
    assert found["early"][1].startswith("Interrupted before its first record")


def test_the_folder_is_FEDVIZ_HOME_and_only_for_its_user(tmp_path, monkeypatch):  # noqa: N802
    monkeypatch.setenv("FEDVIZ_HOME", str(tmp_path / "mine"))
    store = RunStore()
    assert store.path == tmp_path / "mine" / "runs.sqlite"
    if os.name == "posix":
        assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    store.close()
    monkeypatch.delenv("FEDVIZ_HOME")
    assert home().name == "fedviz"
    assert isinstance(home(), Path)
