"""Stored runs: what others begin with is never deleted under them, what is deleted does not come back, one bad row hides nothing."""

import json
import sqlite3
import threading
from datetime import UTC, datetime, timedelta

import pytest

from fedviz.runs import LOCAL, Limits, Refused, RunState, RunStore, StoreError, admission, export, journal
from fedviz.runs.computation import Leg
from fedviz.runs.executors import ThreadExecutor
from fedviz.runs.store import Row
from tests.runs.fakes import config, record, until


def ended(manager, *configs, **options):
    run = manager.submit(*configs, **options)
    until(lambda: not run.live, 20)
    until(lambda: not manager._pairs.in_use(run.id))
    return run


def in_thread(act) -> tuple[threading.Thread, list]:
    """(a thread that does it, what came of it)."""
    outcome = []

    def go() -> None:
        try:
            outcome.append(act())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    return thread, outcome


# --- deleting, continuing and forking at the same time


def test_a_parent_that_is_deleted_right_after_a_fork_leaves_the_fork_whole(start, monkeypatch):
    monkeypatch.setattr(journal, "INTERVAL", 0.6)  # the disk is far behind
    manager = start()
    parent = ended(manager, config(rounds=8))
    fork = manager.fork(parent.id, 5, config("fedprox", rounds=8))
    manager.delete(parent.id, LOCAL)
    until(lambda: not fork.live)
    assert manager._journal.settle(fork.id)
    assert manager._store.records(fork.id).dicts() == [record(round) for round in range(9)]
    assert manager._store.load(parent.id).owner == ""


@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize("act", ["resume", "fork"])
def test_nobody_continues_what_is_being_deleted(start, monkeypatch, act, expired):
    manager = start()
    run = manager.submit(config(rounds=100_000))
    until(lambda: run.round > 3)
    manager.stop(run.id)
    until(lambda: not manager._pairs.in_use(run.id))
    assert manager._journal.settle(run.id)
    others = []

    def meanwhile(run_id):
        if not others:  # in the midst of it
            asked = (run_id,) if act == "resume" else (run_id, 2, config(rounds=50))
            others.append(in_thread(lambda: getattr(manager, act)(*asked)))
            others[0][0].join(0.2)
        return []

    monkeypatch.setattr(manager._store, "children", meanwhile)
    manager._delete_expired(-1) if expired else manager.delete(run.id, LOCAL)
    thread, outcome = others[0]
    thread.join(5)
    assert isinstance(outcome[0], Refused | KeyError | StoreError)
    assert (manager._store.load(run.id), len(manager._store.records(run.id))) == (None, 0)
    assert not manager._pairs.alive()
    assert manager._store.size()[0] == 0


def test_what_is_deleted_while_somebody_reads_it_does_not_come_back(start, monkeypatch):
    manager = start()
    run = ended(manager, config(rounds=3))
    assert manager._journal.settle(run.id)
    manager._library.forget(run.id)
    read = manager._store.records

    def slowly(run_id):
        records = read(run_id)
        manager.delete(run_id, LOCAL)
        return records

    monkeypatch.setattr(manager._store, "records", slowly)
    manager.get(run.id)
    assert manager.get(run.id) is None


def test_a_run_that_another_server_deleted_can_be_deleted_here_and_is_gone(start, path):
    manager = start()
    run = ended(manager, config(rounds=3))
    assert manager._journal.settle(run.id)
    other = RunStore(path)
    other.delete(run.id)
    other.close()
    assert manager.get(run.id) is run  # at hand
    manager.delete(run.id, LOCAL)
    assert manager.get(run.id) is None


def chain(store: RunStore, length: int) -> list[str]:
    """Rows that continue one another after each round, all but the last without an owner."""
    store._writer.execute("PRAGMA synchronous = OFF")
    ids = [f"r{number}" for number in range(length)]
    for number, id in enumerate(ids):
        parent, at = (ids[number - 1], number - 1) if number else (None, None)
        owner = "local" if number == length - 1 else ""
        row = Row(
            id, datetime.now(UTC), RunState.FINISHED, "", config().model_dump_json(), None, "0", None, owner=owner,
            parent_id=parent, forked_at=at,
        )  # fmt: skip
        store.save(row, [(id, number, json.dumps(record(number)))])
    return ids


def test_a_long_chain_of_forks_is_deleted_with_its_last(start):
    manager = start()
    ids = chain(manager._store, 1001)
    with pytest.raises(StoreError, match="continues more than 1000 others"):
        manager._store.records(ids[-1])  # and never a part of them
    assert len(manager._store.records(ids[-2])) == 1000
    manager._library.delete(manager._store.load(ids[-1]))
    assert manager._store.size()[0] == 0


def test_a_fork_whose_parent_is_gone_says_so_and_is_not_shown_without_its_beginning(start):
    manager = start()
    ids = chain(manager._store, 3)
    manager._store.delete(ids[0])
    with pytest.raises(
        StoreError, match=f"run {ids[0]}, with which the records of run {ids[2]} begin, is no longer there"
    ):
        manager.get(ids[2])
    with pytest.raises(StoreError, match="no longer there"):
        manager._library.depth(manager._library.stored(manager._store.load(ids[2])))


# --- what was computed elsewhere


def exported(manager, run, **changes) -> bytes:
    values = json.loads(json.dumps(export.to_json(run)))
    for at, loss in changes.pop("losses", {}).items():
        values["records"][at]["evaluation"]["objective"] = loss
    return json.dumps({**values, **changes}).encode()


def test_imported_runs_are_marked_never_offered_and_compared_when_they_are_continued(start):
    manager = start(ThreadExecutor())
    chosen = config("scaffold", rounds=12, eval_every=1, probe_every=0)
    run = ended(manager, chosen)
    honest = manager.import_run(exported(manager, run), LOCAL)
    forged = manager.import_run(exported(manager, run, losses={4: 0.001}), LOCAL)
    assert (run.imported, honest.imported, forged.imported) == (False, True, True)
    manager._library.forget(honest.id)
    assert manager.get(honest.id).imported
    assert manager.same(chosen) is run
    manager.delete(run.id, LOCAL)
    assert manager.same(chosen) is None

    outcomes = {}
    for name, parent in (("honest", honest), ("forged", forged)):
        outcomes[name] = fork = manager.fork(parent.id, 8, config("fedprox", rounds=12, eval_every=1, probe_every=0))
        until(lambda fork=fork: not fork.live, 20)
    assert outcomes["honest"].state is RunState.FINISHED
    assert outcomes["forged"].state is RunState.FAILED
    assert "round 4, computed again, is not what was recorded" in outcomes["forged"].message
    early = manager.fork(forged.id, 3, config("fedprox", rounds=12, eval_every=1, probe_every=0))  # before the forgery
    until(lambda: not early.live, 20)
    assert early.state is RunState.FINISHED


def test_a_stopped_import_is_compared_when_it_is_resumed(start):
    manager = start(ThreadExecutor())
    run = ended(manager, config("scaffold", rounds=9, eval_every=1, probe_every=0))
    half = json.loads(exported(manager, run, losses={2: 0.5}, state="stopped"))
    half["records"] = half["records"][:6]
    found = manager.import_run(json.dumps(half).encode(), LOCAL)
    manager.resume(found.id)
    again = manager.get(found.id)
    until(lambda: not again.live, 20)
    assert again.state is RunState.FAILED
    assert "round 2, computed again" in again.message


@pytest.mark.parametrize("change", [{"rounds": 4}, {"seed": 5}, {"num_clients": 1}])
def test_an_imported_reference_must_fit_its_run(start, change):
    manager = start(ThreadExecutor())
    run = ended(manager, config(rounds=3), config("fedprox", rounds=3))
    values = json.loads(exported(manager, run))
    assert manager.import_run(json.dumps(values).encode(), LOCAL).reference is not None
    values["reference"]["config"] |= change
    if "num_clients" in change:
        values["reference"]["config"]["problem"] |= {"curvature": [[1.0]], "linear": [[0.0]], "start": [1.0]}
        values["reference"]["records"] = values["reference"]["records"][:1]
        values["reference"]["state"] = "stopped"
    elif "rounds" in change:
        values["reference"]["state"] = "stopped"
    with pytest.raises(Refused, match=f"reference: its {next(iter(change))}"):
        manager.import_run(json.dumps(values).encode(), LOCAL)


def test_the_work_to_compute_again_what_a_run_continues_counts():
    """20 rounds of one client with two steps before, 10 rounds of its own: 40 + 20 sample gradients."""
    limits = [Limits(gradient_evaluations=most) for most in (60, 59)]
    before = [Leg("parent", config(rounds=100, probe_every=0), 20)]
    admission.check(config(rounds=30, probe_every=0), limits=limits[0], before=before)
    with pytest.raises(Refused, match=r"about 60 sample gradients with its measurements \(40 of them to compute again"):
        admission.check(config(rounds=30, probe_every=0), limits=limits[1], before=before)


# --- what could not be written


def test_a_fault_of_the_disk_that_lasts_leaves_the_run_interrupted_and_to_be_resumed(start, monkeypatch, caplog):
    monkeypatch.setattr(journal, "_RETRY_AFTER", 0.02)
    monkeypatch.setattr(journal, "_TRIES", 3)
    manager = start()
    run = manager.submit(config(rounds=900))
    until(lambda: len(manager._store.records(run.id)) > 10)
    save, tries = manager._store.save, []

    def full(row, records):
        tries.append(len(records))
        raise OSError("the disk is gone")

    monkeypatch.setattr(manager._store, "save", full)
    until(lambda: not run.live)
    until(lambda: tries[-3:] == [0, 0, 0])  # the records were given up, the row is tried on
    manager._library.forget(run.id)
    assert manager.get(run.id).state is RunState.INTERRUPTED  # also while it only waits to be written
    monkeypatch.setattr(manager._store, "save", save)
    until(
        lambda: manager._store.load(run.id).state is RunState.INTERRUPTED and manager._journal.pending(run.id) is None
    )
    manager.resume(run.id)
    again = manager.get(run.id)
    until(lambda: not again.live, 20)
    assert manager._journal.settle(run.id)
    assert manager._store.records(run.id).dicts() == [record(round) for round in range(901)]


def test_a_finished_run_whose_last_records_are_lost_is_not_stored_as_finished():
    entry = journal._Entry(
        Row("a", datetime.now(UTC), RunState.FINISHED, "All 20 rounds are done.", "{}", None, "0", None),
        [("a", 20, "{}")],
    )
    entry.give_up_records()
    assert (entry.row.state, entry.records) == (RunState.INTERRUPTED, [])
    assert "could not be saved" in entry.row.message


def test_a_run_of_this_very_server_that_is_not_live_is_interrupted(path):
    store = RunStore(path)
    chosen = config().model_dump_json()
    for id in ("live", "lost"):
        store.save(Row(id, datetime.now(UTC), RunState.RUNNING, "", chosen, None, "0", None), ())
    store.is_live = lambda run_id: run_id == "live"
    assert (store.load("live").state, store.load("lost").state) == (RunState.RUNNING, RunState.INTERRUPTED)
    store.close()


def test_a_finished_run_is_offered_also_before_it_is_written(start, monkeypatch):
    monkeypatch.setattr(journal, "INTERVAL", 5.0)
    manager = start()
    run = ended(manager, config(rounds=3))
    assert manager._store.load(run.id) is None
    assert manager.same(config(rounds=3)) is run
    assert manager.same(config(rounds=4)) is None


def test_a_run_whose_end_is_written_while_it_is_read_is_not_taken_for_interrupted(path):
    store = RunStore(path)
    values = ("a", datetime.now(UTC)), ("", config().model_dump_json(), None, "0", None)
    store.save(Row(*values[0], RunState.RUNNING, *values[1]), ())

    def written_meanwhile(run_id):
        store.save(Row(*values[0], RunState.FINISHED, *values[1]), ())
        return False

    store.is_live = written_meanwhile
    assert store.load("a").state is RunState.FINISHED
    store.close()


# --- one bad row


BAD = {"created": "yesterday", "state": "sleeping", "config": "{", "process": "nobody", "ended": "soon"}


@pytest.mark.parametrize("column", BAD)
def test_one_bad_row_hides_no_others_and_hinders_no_start(start, path, column, caplog):
    manager = start()
    bad, good = ended(manager, config(rounds=2)), ended(manager, config(rounds=2))
    manager.shutdown()
    with sqlite3.connect(path) as database:
        database.execute(f"UPDATE runs SET {column} = ? WHERE id = ?", (BAD[column], bad.id))
        if column == "process":
            database.execute("UPDATE runs SET state = 'running' WHERE id = ?", (bad.id,))
    again = start()
    assert good.id in [run.id for run in again.runs()]
    assert again.same(config(rounds=2)).id == good.id
    again._delete_expired(3600)
    if column != "process":
        with pytest.raises(StoreError, match=bad.id):
            again.get(bad.id)


def test_runs_expire_by_the_time_at_which_they_ended(start, path):
    manager = start()
    run, old = ended(manager, config(rounds=2)), ended(manager, config(rounds=3))
    assert manager._journal.settle(run.id)
    assert manager._journal.settle(old.id)
    long_ago = (datetime.now(UTC) - timedelta(days=9)).isoformat()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE runs SET created = ?", (long_ago,))
        database.execute("UPDATE runs SET ended = ? WHERE id = ?", (long_ago, old.id))
    manager._delete_expired(3600)
    assert [row.id for row in manager._store.listed(None)] == [run.id]
