"""Stored runs: what others begin with is never deleted under them, what is deleted does not come back, one bad row hides nothing."""

import json
import sqlite3
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fedviz.runs import LOCAL, Limits, Refused, RunState, RunStore, StoreError, admission, export, journal
from fedviz.runs import manager as manager_module
from fedviz.runs.columns import Columns
from fedviz.runs.computation import Leg
from fedviz.runs.executors import ThreadExecutor
from fedviz.runs.rows import new_run, row_of, run_of
from fedviz.runs.store import Row
from tests.runs.fakes import Held, Scripted, config, record, until


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


class Slow:
    """Reads records; what it has read it hands over when it may."""

    def __init__(self, read) -> None:
        self.read, self.has_read, self.go = read, threading.Event(), threading.Event()

    def __call__(self, run_id):
        records = self.read(run_id)
        self.has_read.set()
        assert self.go.wait(10)
        return records


def test_a_run_is_not_pushed_out_of_memory_before_it_is_written(start, monkeypatch):
    monkeypatch.setattr(journal, "INTERVAL", 0.5)  # so far the disk is behind
    monkeypatch.setattr("fedviz.runs.library._KEPT", 1)
    manager = start()
    runs = [ended(manager, config(rounds=rounds)) for rounds in (9, 1, 2)]
    assert manager._store.listed(None) == []
    assert manager.get(runs[0].id).records.dicts() == [record(round) for round in range(10)]
    assert len(manager.runs()) == 3
    assert all(manager._journal.settle(run.id) for run in runs)
    last = ended(manager, config(rounds=3))
    assert manager._library.all_at_hand() == [last]


def test_a_disk_that_fails_for_long_does_not_fill_the_memory_and_nothing_is_lost(start, monkeypatch, caplog):
    monkeypatch.setattr("fedviz.runs.library._KEPT_BYTES", 1)
    monkeypatch.setattr(journal, "_RETRY_AFTER", 0.1)
    manager = start()
    manager._store._writer.execute("PRAGMA query_only = 1")
    run, newer = (ended(manager, config(rounds=rounds)) for rounds in (9, 1))
    assert manager._library.all_at_hand() == [newer]
    assert len(manager.get(run.id).records) == 0  # nobody has the others at this moment
    manager._store._writer.execute("PRAGMA query_only = 0")
    until(lambda: manager.get(run.id).records.dicts() == [record(round) for round in range(10)])


def test_a_run_can_be_resumed_when_it_or_its_reference_can(start, caplog):
    def refuses(chosen, round, progress):
        if chosen.algorithm.name == "scaffold":
            raise RuntimeError("no")
        time.sleep(0.001)

    manager = start(Scripted(refuses))

    def stopped(rounds, others_rounds, other="fedprox"):
        run = manager.submit(config(rounds=rounds), config(other, rounds=others_rounds))
        until(lambda: all(each.ended or each.round > 9 for each in (run, run.reference)))
        manager.stop(run.id)
        return run

    both, main, other = stopped(100_000, 100_000), stopped(100_000, 5), stopped(5, 100_000)
    failed = stopped(5, 5, "scaffold")
    states = [(str(run.state), str(run.reference.state)) for run in (both, main, other, failed)]
    assert states == [("stopped", "stopped"), ("stopped", "finished"), ("finished", "stopped"), ("finished", "failed")]
    for run, can in ((both, True), (main, True), (other, True), (failed, False)):
        for each in (run, run_of(row_of(run), run_of(row_of(run.reference), None, Columns().view), Columns().view)):
            assert (each.can_resume, each.reference.can_resume) == (can, False)
        run.owner = ""
        assert not run.can_resume  # deleted, and there only for those that continue it


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


@pytest.mark.parametrize("until_its_end", [False, True])
def test_what_is_read_while_the_run_goes_on_is_not_kept(start, monkeypatch, until_its_end):
    manager = start(executor := Held())
    run = manager.submit(config(rounds=9))
    executor.let(4)
    until(lambda: run.round == 4)
    manager.stop(run.id)
    executor.let(5)  # which frees the thread
    until(lambda: not manager._pairs.in_use(run.id))
    executor.let(9 if until_its_end else 5)
    assert manager._journal.settle(run.id)
    manager._library.forget(run.id)
    read = manager._store.records
    monkeypatch.setattr(manager._store, "records", slowly := Slow(read))
    thread, outcome = in_thread(lambda: manager.get(run.id))
    assert slowly.has_read.wait(5)
    monkeypatch.setattr(manager._store, "records", read)
    manager.resume(run.id)
    if until_its_end:
        until(lambda: not manager._pairs.in_use(run.id))
    slowly.go.set()
    thread.join(5)
    assert outcome[0].round == 4  # as it was then
    kept = manager._library.at_hand(run.id)
    if until_its_end:
        assert (kept.state, kept.round) == (RunState.FINISHED, 9)
    else:
        assert (kept, manager._pairs.is_live(run.id)) == (None, True)
    assert manager._library._reading == {}


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


# --- nothing that computes is deleted


def stopped(manager, *configs):
    """A run that was stopped in its midst, all of it written."""
    run = manager.submit(*configs)
    until(lambda: run.round > 3 and (run.reference is None or run.reference.round > 3))
    manager.stop(run.id)
    until(lambda: not manager._pairs.in_use(run.id))
    for each in (run, run.reference):
        assert each is None or manager._journal.settle(each.id)
    return run


def test_a_reference_goes_on_with_its_run_only(start):
    manager = start()
    run = stopped(manager, config(rounds=100_000), config("fedprox", rounds=100_000))
    with pytest.raises(Refused, match="the run that another is compared with: resume that one"):
        manager.resume(run.reference.id)
    assert not manager._pairs.alive()
    manager.resume(run.id)
    assert manager._pairs.of(run.id) is manager._pairs.of(run.reference.id) is not None


def test_a_pair_of_which_only_a_part_is_live_is_refused(start):
    manager = start()
    run = stopped(manager, config(rounds=100_000), config("fedprox", rounds=100_000))
    members = manager._to_continue(run.id)
    manager._pairs.take_on(members[1:])
    with pytest.raises(Refused, match="A part of this run goes on already"):
        manager._pairs.take_on(members)
    assert not manager._pairs.is_live(run.id)


@pytest.mark.parametrize("expired", [False, True])
def test_a_run_whose_reference_computes_is_not_deleted(start, expired):
    manager = start()
    run = stopped(manager, config(rounds=100_000), config("fedprox", rounds=100_000))
    manager._pairs.take_on(manager._to_continue(run.id)[1:])
    if expired:
        manager._delete_expired(-1)
    else:
        with pytest.raises(Refused, match="its reference has not"):
            manager.delete(run.id, LOCAL)
    assert manager._store.load(run.id).owner == "local"
    manager.stop(run.reference.id)
    until(lambda: not manager._pairs.in_use(run.reference.id))
    manager.delete(run.id, LOCAL)
    assert manager._journal.settle(run.reference.id)
    assert manager._store.size()[0] == 0


def test_a_parent_that_was_deleted_is_not_resumed(start):
    manager = start()
    parent = stopped(manager, config(rounds=100_000))
    fork = manager.fork(parent.id, 2, config(rounds=5))
    until(lambda: not manager._pairs.in_use(fork.id))
    manager.delete(parent.id, LOCAL)
    with pytest.raises(Refused, match="was deleted, and is kept only for those that continue it"):
        manager.resume(parent.id)
    manager.delete(fork.id, LOCAL)
    assert manager._store.size()[0] == 0


def test_a_parent_that_computes_stays_when_its_last_fork_is_deleted(start):
    manager = start()
    parent = stopped(manager, config(rounds=100_000))
    fork = manager.fork(parent.id, 2, config(rounds=5))
    until(lambda: not manager._pairs.in_use(fork.id))
    members = manager._to_continue(parent.id)
    manager.delete(parent.id, LOCAL)
    manager._pairs.take_on(members)
    manager.delete(fork.id, LOCAL)
    assert (manager._store.load(fork.id), manager._store.load(parent.id).owner) == (None, "")
    assert manager._pairs.is_live(parent.id)


@pytest.mark.parametrize("name", ["reference_id", "parent_id"])
def test_what_names_a_bad_row_is_deleted_all_the_same(start, path, name):
    manager = start()
    bad, run = (stopped(manager, config(rounds=100_000)) for _ in range(2))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE runs SET created = 'yesterday' WHERE id = ?", (bad.id,))
        database.execute(f"UPDATE runs SET {name} = ?, forked_at = 1 WHERE id = ?", (bad.id, run.id))
    manager.delete(run.id, LOCAL)
    assert (manager._store.load(run.id), manager._store.size()[0]) == (None, 1)


# --- titles


def test_a_title_given_while_the_run_is_resumed_stays(start, monkeypatch):
    manager = start()
    run = stopped(manager, config(rounds=100_000))
    change = manager._pairs.change

    def and_then_resumed(run_id, **values):
        monkeypatch.setattr(manager._pairs, "change", change)
        changed = change(run_id, **values)
        manager.resume(run_id)
        return changed

    monkeypatch.setattr(manager._pairs, "change", and_then_resumed)
    manager.rename(run.id, "new", LOCAL)
    assert (manager.get(run.id).live, manager.get(run.id).title) == (True, "new")
    manager.stop(run.id)
    assert manager._journal.settle(run.id)
    assert (manager.get(run.id).title, manager._store.load(run.id).title) == ("new", "new")


def test_a_title_is_not_given_over_what_is_still_being_written(start, monkeypatch):
    manager = start()
    run = stopped(manager, config(rounds=100_000))
    monkeypatch.setattr(manager._journal, "settle", lambda *_: False)
    with pytest.raises(Refused, match="still being written"):
        manager.rename(run.id, "new", LOCAL)
    assert run.title == manager._store.load(run.id).title == ""


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


def test_a_run_is_imported_with_its_reference_or_not_at_all(start, monkeypatch):
    manager = start(ThreadExecutor())
    run = ended(manager, config(rounds=3), config("fedprox", rounds=3))
    data = exported(manager, run)
    manager.delete(run.id, LOCAL)
    as_row, rows = manager_module.row_of, []

    def second_fails(run):
        rows.append(as_row(run))
        return rows[0] if len(rows) == 1 else replace(rows[1], created=object())

    monkeypatch.setattr(manager_module, "row_of", second_fails)
    with pytest.raises(StoreError):
        manager.import_run(data, LOCAL)
    assert [row.is_reference for row in rows] == [True, False]
    assert (manager._store.size()[0], manager._library.all_at_hand()) == (0, [])


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


def test_a_run_that_only_waits_to_be_written_is_there_to_be_controlled(start, monkeypatch):
    monkeypatch.setattr(journal, "INTERVAL", 5.0)
    manager = start()
    run = ended(manager, config(rounds=3))
    manager._library.forget(run.id)
    assert manager._store.load(run.id) is None
    manager.stop(run.id)  # which is harmless, and no KeyError


def test_nothing_is_written_of_a_run_that_ended_right_after_its_first_record(start, monkeypatch):
    manager = start(executor := Held())
    tell, row, written = manager._pairs._tell, manager._journal.row, []

    def and_stop(pair, run, state, *rest, **options):
        tell(pair, run, state, *rest, **options)
        if state is RunState.RUNNING:
            manager.stop(run.id)

    def and_note(each):
        written.append(each.state)
        row(each)

    monkeypatch.setattr(manager._pairs, "_tell", and_stop)
    monkeypatch.setattr(manager._journal, "row", and_note)
    executor.let(9)
    run = manager.submit(config(rounds=9))
    until(lambda: run.ended and not manager._pairs.in_use(run.id))
    assert written == [RunState.QUEUED, RunState.RUNNING, RunState.STOPPED]


def test_what_comes_while_the_disk_fails_is_written_after_and_over_what_was_before(monkeypatch):
    monkeypatch.setattr(journal, "INTERVAL", 0.01)
    monkeypatch.setattr(journal, "_RETRY_AFTER", 0.01)
    running = row_of(new_run(config()))
    stopped = replace(running, state=RunState.STOPPED)
    saved = []

    class Failing:
        def save(self, row, records):
            if saved or made.reason(running.id):
                saved.append((row, records))
                return
            made.row(stopped)
            made.record(running.id, 1, "b")
            raise sqlite3.OperationalError("database or disk is full")

    made = journal.Journal(Failing(), lambda *_: None)
    made.row(running)
    made.record(running.id, 0, "a")
    until(lambda: saved)
    made.close(5)
    assert saved == [(stopped, [(running.id, 0, "a"), (running.id, 1, "b")])]


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


def test_what_is_published_a_moment_before_does_not_expire(start, monkeypatch):
    manager = start()
    runs = [ended(manager, config(rounds=rounds)) for rounds in (2, 3, 4)]
    listed = manager._library.ended_before

    def and_then(when):
        rows = listed(when)
        assert {row.id for row in rows} == {run.id for run in runs}
        manager.publish(runs[1].id, True, LOCAL)
        return rows

    assert all(manager._journal.settle(run.id) for run in runs)
    monkeypatch.setattr(manager._library, "ended_before", and_then)
    manager._delete_expired(-1)
    assert [row.id for row in manager._store.listed(None)] == [runs[1].id]


def test_checkpoints_count_among_what_is_kept(start, path):
    manager = start()
    _, before = manager._library.size()
    folder = path.parent / "checkpoints"
    folder.mkdir(exist_ok=True)
    (folder / "a-7.safetensors").write_bytes(bytes(12_345))
    assert manager._library.size() == (0, before + 12_345)


def test_a_deleted_run_leaves_no_checkpoint(start, path):
    manager = start()
    run, other = (ended(manager, config(rounds=rounds)) for rounds in (2, 3))
    assert all(manager._journal.settle(each.id) for each in (run, other))
    for name in (f"{run.id}.safetensors", f"{run.id}.before.safetensors", f"{other.id}.safetensors"):
        (path.parent / "checkpoints" / name).parent.mkdir(exist_ok=True)
        (path.parent / "checkpoints" / name).write_bytes(b"x")
    manager.delete(run.id, LOCAL)
    assert [file.name for file in (path.parent / "checkpoints").iterdir()] == [f"{other.id}.safetensors"]


def test_a_parent_that_somebody_owns_stays_when_its_last_fork_is_deleted(start):
    manager = start()
    parent = ended(manager, config(rounds=8))
    fork = manager.fork(parent.id, 5, config("fedprox", rounds=8))
    until(lambda: not fork.live)
    until(lambda: not manager._pairs.in_use(fork.id))
    manager.delete(fork.id, LOCAL)
    assert [row.id for row in manager._store.listed(None)] == [parent.id]
    assert manager.get(parent.id).records.dicts() == [record(round) for round in range(9)]
