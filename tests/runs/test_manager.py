"""The life of runs: states, controls from many hands at once, failures, and what remains afterwards."""

import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fedviz.config import ConfigError, SimulationConfig
from fedviz.problems import ProblemError
from fedviz.runs import Limits, Refused, RunState, RunStore, admission
from fedviz.runs import manager as manager_module
from fedviz.simulation.errors import Diverged
from tests.runs.fakes import Held, Local, Scripted, config, own_threads, record, until

ROOT = Path(__file__).parents[2]


def ended(run) -> bool:
    return not run.live


def rounds_of(run) -> list[int]:
    return run.records.rounds.tolist()


# --- the ordinary life


def test_a_run_goes_through_its_states_and_keeps_every_record(start, path):
    steps = {"prepare": threading.Event(), "compute": threading.Event()}

    def script(config, round, progress):
        if round == 0:
            progress("Dealing the data to the clients")
            steps["prepare"].wait(5)
        if 0 < round < 5:
            time.sleep(0.04)
        if round == 5:
            steps["compute"].wait(5)

    manager = start(Scripted(script))
    run = manager.submit(config(rounds=12))
    until(lambda: run.message == "Dealing the data to the clients")
    assert (run.state, run.round, len(run.records), run.device) == (RunState.PREPARING, -1, 0, "a device")
    assert run.rounds_per_second is None
    steps["prepare"].set()
    until(lambda: run.round == 4)
    assert (run.state, run.message, run.live) == (RunState.RUNNING, "", True)
    assert run.rounds_per_second > 0
    assert run.seconds_left == pytest.approx(8 / run.rounds_per_second)
    steps["compute"].set()
    until(lambda: ended(run))
    assert (run.state, run.message) == (RunState.FINISHED, "All 12 rounds are done.")
    assert run.records.dicts() == [record(round) for round in range(13)]
    assert run.seconds_left is None
    assert manager.get(run.id) is run
    manager.shutdown()

    again = start()
    stored = again.get(run.id)
    assert stored is not run
    assert (stored.state, stored.message, stored.device) == (run.state, run.message, run.device)
    assert (stored.created, stored.config, stored.version) == (run.created, run.config, run.version)
    assert stored.records.dicts() == run.records.dicts()
    assert again.get(run.id) is stored  # parsed once
    assert not stored.live
    for control in (again.pause, again.resume, again.step, again.stop):  # make no sense, do nothing
        control(run.id)
    again.set_pace(run.id, 2)
    assert again.get(run.id).state is RunState.FINISHED


def test_a_reference_is_found_again_and_not_listed(start):
    manager = start()
    runs = [manager.submit(config("fedprox", rounds=3), reference=config(rounds=3)) for _ in range(2)]
    until(lambda: all(map(ended, runs)))
    assert manager.get(runs[0].reference.id) is runs[0].reference
    assert len({each.id for run in runs for each in (run, run.reference)}) == 4
    assert min(len(run.id) for run in runs) >= 22  # 128 bits
    manager.shutdown()

    again = start()
    assert [run.id for run in again.runs(limit=10)] == [runs[1].id, runs[0].id]
    assert [run.id for run in again.runs(limit=1)] == [runs[1].id]
    found = again.get(runs[0].id)
    assert found.config.algorithm.name == "fedprox"
    assert found.reference.config.algorithm.name == "fedavg"
    assert found.reference.records.dicts() == [record(round) for round in range(4)]
    assert again.get("nobody") is None
    with pytest.raises(KeyError, match="no run nobody"):
        again.pause("nobody")


def test_the_real_simulation_gives_the_same_records_through_the_manager(path, monkeypatch):
    import torch

    from fedviz.simulation.loop import simulate

    threads = []  # that torch was told to use, by the threads of runs
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    chosen = config("fedvarp", rounds=15)
    with Local(RunStore(path)) as manager:
        run = manager.submit(chosen, reference=config("fedavg", rounds=15))
        until(lambda: ended(run), 20)
        assert (run.state, run.device) == (RunState.FINISHED, "CPU with PyTorch")
        assert threads == [1, 1]
        expected = [each.to_dict() for each in simulate(chosen)]
        found = run.records.dicts()
        assert len(found) == 16
        for each in [*expected, *found]:
            each["costs"].pop("seconds")
        assert found == expected


# --- controls


def test_pause_holds_both_after_the_same_round_and_a_step_is_one_round(start):
    executor = Held()
    manager = start(executor)
    run = manager.submit(config("fedprox"), reference=config())
    executor.let(6)
    until(lambda: executor.begun == {"fedprox": 7, "fedavg": 7})
    manager.pause(run.reference.id)  # either one's id will do
    manager.pause(run.id)
    assert (run.state, run.message) == (RunState.RUNNING, "Pausing after round 7.")
    executor.let(1000)
    until(lambda: run.state is RunState.PAUSED)
    assert run.reference.state is RunState.PAUSED
    assert run.message == "Paused after round 7."
    assert rounds_of(run) == rounds_of(run.reference) == list(range(8))
    assert run.rounds_per_second is None
    for step in (8, 9):
        manager.step(run.id)
        until(lambda: run.state is RunState.PAUSED)
        assert rounds_of(run) == rounds_of(run.reference) == list(range(step + 1))
    manager.resume(run.id)
    manager.resume(run.id)
    until(lambda: ended(run))
    assert rounds_of(run) == rounds_of(run.reference) == list(range(21))
    assert run.state is run.reference.state is RunState.FINISHED


def test_stepping_over_the_last_round_finishes_the_run(start):
    executor = Held()
    manager = start(executor)
    run = manager.submit(config(rounds=2))
    manager.pause(run.id)
    executor.let(1000)
    for _ in range(2):
        until(lambda: run.state is RunState.PAUSED)
        manager.step(run.id)
    until(lambda: ended(run))
    assert (run.state, rounds_of(run)) == (RunState.FINISHED, [0, 1, 2])


def test_many_hands_on_all_controls_leave_a_run_whole(start):
    """Two tabs and more, clicking wildly: nothing is lost, doubled or stuck."""
    manager = start(Scripted(lambda *_: time.sleep(0.0005)))
    run = manager.submit(config("fedprox", rounds=400), reference=config(rounds=400))
    over = threading.Event()
    controls = [manager.pause, manager.resume, manager.step, lambda id: manager.set_pace(id, 5000)]

    def click(offset: int) -> None:
        turn = offset
        while not over.is_set():
            controls[turn % len(controls)](run.id)
            turn += 1
            time.sleep(0.0005)

    hands = [threading.Thread(target=click, args=(offset,)) for offset in range(4)]
    for hand in hands:
        hand.start()
    time.sleep(0.3)
    over.set()
    for hand in hands:
        hand.join()
    manager.pause(run.id)
    until(lambda: run.state is RunState.PAUSED or ended(run))
    assert rounds_of(run) == rounds_of(run.reference)
    manager.set_pace(run.id, None)
    manager.resume(run.id)
    until(lambda: ended(run))
    assert run.records.dicts() == run.reference.records.dicts() == [record(round) for round in range(401)]


def test_pace_is_kept_and_shown(start):
    executor = Held()
    manager = start(executor)
    run = manager.submit(config(rounds=500))
    manager.set_pace(run.id, 100)
    executor.let(1000)
    began = run.round
    until(lambda: run.round >= began + 40)
    assert run.pace == 100
    assert run.rounds_per_second == pytest.approx(100, rel=0.3)
    with pytest.raises(ValueError, match="above 0"):
        manager.set_pace(run.id, 0)
    manager.set_pace(run.id, None)
    until(lambda: ended(run))


@pytest.mark.parametrize("paused", [False, True])
def test_stop_keeps_what_there_is_and_ends_both(start, paused):
    executor = Scripted()
    manager = start(executor)
    run = manager.submit(config("fedprox", rounds=10_000), reference=config(rounds=10_000))
    until(lambda: run.round >= 5)
    if paused:
        manager.pause(run.id)
        until(lambda: run.state is RunState.PAUSED)
    for _ in range(3):
        manager.stop(run.id)
    until(lambda: ended(run))
    assert run.state is run.reference.state is RunState.STOPPED
    assert run.message == f"Stopped after round {run.round}."
    assert rounds_of(run) == list(range(run.round + 1))
    until(lambda: executor.closed == 2)
    manager.shutdown()
    stored = start().get(run.id)
    assert (stored.state, stored.message, rounds_of(stored)) == (run.state, run.message, rounds_of(run))


def test_stop_takes_effect_at_once_and_nothing_is_recorded_afterwards(start):
    """Also in the midst of a round that takes long; its place is free when the round has really ended."""
    executor = Held()
    manager = start(executor, limits=Limits(concurrent=1))
    run, waiting = manager.submit(config()), manager.submit(config("fedprox"))
    executor.let(2)
    until(lambda: executor.begun == {"fedavg": 3})
    manager.stop(run.id)
    assert (run.state, run.message, run.live) == (RunState.STOPPED, "Stopped after round 2.", False)
    assert waiting.state is RunState.QUEUED
    executor.let(1000)
    until(lambda: ended(waiting))
    assert rounds_of(run) == [0, 1, 2]
    manager.shutdown()
    assert rounds_of(start().get(run.id)) == [0, 1, 2]


def test_stop_cuts_a_preparation_short(start):
    def download(config, round, progress):
        for part in range(10_000):
            progress(f"Downloading: {part / 100:.0f} %")
            time.sleep(0.001)

    manager = start(Scripted(download))
    run = manager.submit(config())
    until(lambda: run.message.startswith("Downloading"))
    manager.stop(run.id)
    until(lambda: ended(run))
    assert (run.state, run.message) == (RunState.STOPPED, "Stopped before its first record.")


# --- the queue


def test_runs_wait_their_turn_and_can_be_stopped_and_paused_while_waiting(start):
    executor = Held()
    manager = start(executor, limits=Limits(concurrent=1))
    runs = [manager.submit(config("fedprox", seed=seed), reference=config(seed=seed)) for seed in range(4)]
    first, second, third, fourth = runs
    assert [run.queue_position for run in runs] == [None, 1, 2, 3]
    assert [run.reference.queue_position for run in runs] == [None, 1, 2, 3]
    assert second.state is RunState.QUEUED
    manager.stop(third.id)
    manager.stop(third.id)
    assert (third.state, third.message) == (RunState.STOPPED, "Stopped before its first record.")
    assert third.reference.state is RunState.STOPPED
    assert fourth.queue_position == 2
    manager.pause(second.id)
    executor.let(1000)
    until(lambda: second.state is RunState.PAUSED)  # after the first, at its starting point
    assert first.state is RunState.FINISHED
    assert rounds_of(second) == rounds_of(second.reference) == [0]
    until(lambda: ended(fourth))  # a paused run gives up its place
    assert fourth.state is RunState.FINISHED
    manager.resume(second.id)
    until(lambda: ended(second))
    assert second.state is RunState.FINISHED


def test_the_queue_is_bounded(start):
    executor = Held()
    manager = start(executor, limits=Limits(concurrent=1))
    runs = [manager.submit(config()) for _ in range(1 + 32)]
    with pytest.raises(Refused, match="32 runs are waiting"):
        manager.submit(config())
    assert runs[-1].queue_position == 32
    manager.stop(runs[5].id)
    manager.submit(config())


def test_a_run_without_memory_is_refused_at_once_or_at_its_turn(start, monkeypatch):
    executor = Held()
    manager = start(executor, limits=Limits(concurrent=1))
    manager.submit(config())
    waiting = manager.submit(config(), config("fedprox"))
    monkeypatch.setattr(admission, "free_bytes", lambda: 1000)
    with pytest.raises(Refused, match="1 kB that are free"):
        manager.submit(config())
    executor.let(1000)
    until(lambda: not waiting.live)
    for each in (waiting, waiting.reference):
        assert each.state is RunState.FAILED
        assert "1 kB that are free" in each.message


# --- what goes wrong


@pytest.mark.parametrize(
    ("error", "state", "message"),
    [
        (Diverged(4, "Lower the client rate."), RunState.DIVERGED, "Diverged in round 4. Lower the client rate."),
        (ProblemError("The data is not here: get it."), RunState.FAILED, "The data is not here: get it."),
        (
            ZeroDivisionError("division by zero"),
            RunState.FAILED,
            "Failed after round 3: ZeroDivisionError: division by zero. The server's log says more.",
        ),
        (SystemExit(3), RunState.FAILED, "Failed after round 3: SystemExit: 3. The server's log says more."),
    ],
)
def test_a_failing_run_keeps_its_records_and_its_partner_goes_on(start, caplog, error, state, message):
    def script(config, round, progress):
        if config.algorithm.name == "fedprox" and round == 4:
            raise error

    manager = start(Scripted(script))
    run = manager.submit(config("fedprox"), reference=config())
    until(lambda: ended(run))
    assert (run.state, run.message) == (state, message)
    assert rounds_of(run) == [0, 1, 2, 3]
    assert (run.reference.state, run.reference.round) == (RunState.FINISHED, 20)
    assert ("Traceback" in caplog.text) == ("log says more" in message)
    manager.shutdown()
    stored = start().get(run.id)
    assert (stored.state, stored.message, rounds_of(stored)) == (state, message, [0, 1, 2, 3])


def test_while_one_half_goes_on_the_controls_work(start):
    def script(config, round, progress):
        if config.algorithm.name == "fedprox" and round == 4:
            raise Diverged(4, "")

    manager = start(Scripted(script))
    run = manager.submit(config("fedprox", rounds=10_000), reference=config(rounds=10_000))
    until(lambda: run.state is RunState.DIVERGED and run.reference.round > 6)
    assert run.live
    manager.pause(run.id)
    until(lambda: run.reference.state is RunState.PAUSED)
    at = run.reference.round
    manager.step(run.id)
    until(lambda: run.reference.state is RunState.PAUSED)
    assert run.reference.round == at + 1
    manager.stop(run.id)
    until(lambda: ended(run))
    assert (run.state, run.reference.state) == (RunState.DIVERGED, RunState.STOPPED)


def test_a_simulation_that_ends_too_early_is_a_failure(start, monkeypatch):
    executor = Scripted()
    whole = executor.records
    monkeypatch.setattr(executor, "records", lambda *a, **k: (each for each in whole(*a, **k) if each["round"] < 3))
    run = start(executor).submit(config(rounds=9))
    until(lambda: ended(run))
    assert run.state is RunState.FAILED
    assert "ended before round 3 of 9" in run.message


def test_a_full_disk_fails_the_runs_says_why_and_keeps_them_readable(start, path, caplog):
    manager = start(Scripted(lambda *_: time.sleep(0.001)))
    store = manager._store
    run = manager.submit(config("fedprox", rounds=100_000), reference=config(rounds=100_000))
    until(lambda: len(store.records(run.id)) > 10)
    (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
    store._writer.execute(f"PRAGMA max_page_count = {pages + 1}")
    until(lambda: ended(run))
    assert run.state is run.reference.state is RunState.INTERRUPTED
    assert run.message.startswith(
        f"Interrupted after round {run.round}. The records cannot be saved (database or disk is full)"
    )
    assert rounds_of(run) == list(range(run.round + 1))
    assert rounds_of(manager.get(run.id)) == rounds_of(run)
    # When there is room again, nothing is missing.
    store._writer.execute("PRAGMA max_page_count = 1000000")
    until(lambda: store.load(run.id).state is RunState.INTERRUPTED)
    assert store.records(run.id).dicts() == run.records.dicts()


def test_a_locked_database_fails_the_run_and_others_live_on_when_it_is_free_again(path, caplog):
    with Local(RunStore(path, patience=0.05), executor=Scripted()) as manager:
        run = manager.submit(config(rounds=100_000))
        until(lambda: run.round > 3)
        thief = sqlite3.connect(path, isolation_level=None)
        thief.execute("BEGIN IMMEDIATE")
        until(lambda: ended(run))
        assert "database is locked" in run.message
        thief.execute("ROLLBACK")
        thief.close()
        later = manager.submit(config(rounds=5))
        until(lambda: ended(later))
        assert later.state is RunState.FINISHED


def test_a_database_that_has_become_read_only_interrupts_the_run_which_is_continued_when_it_is_mended(
    start, path, caplog
):
    manager = start()
    run = manager.submit(config(rounds=800))
    until(lambda: len(manager._store.records(run.id)) > 10)
    manager._store._writer.execute("PRAGMA query_only = 1")
    until(lambda: ended(run))
    assert (run.state, run.can_resume) == (RunState.INTERRUPTED, True)
    assert "attempt to write a readonly database" in run.message
    assert rounds_of(run) == list(range(run.round + 1))
    with pytest.raises(Refused, match=r"still being written, and could not be so far \(attempt to write a readonly"):
        manager.resume(run.id)
    manager._store._writer.execute("PRAGMA query_only = 0")
    manager.resume(run.id)
    run = manager.get(run.id)
    until(lambda: ended(run))
    assert manager._journal.settle(run.id)
    assert run.records.dicts() == manager._store.records(run.id).dicts() == [record(round) for round in range(801)]


def test_one_unreadable_run_hides_no_others(start, path, caplog):
    manager = start()
    runs = [manager.submit(config(rounds=2)) for _ in range(2)]
    until(lambda: all(map(ended, runs)))
    manager.shutdown()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE runs SET config = '{\"rounds\": -1}' WHERE id = ?", (runs[0].id,))
    again = start()
    assert [run.id for run in again.runs(limit=10)] == [runs[1].id]
    with pytest.raises(manager_module.StoreError, match=r"settings do not fit this version.*rounds"):
        again.get(runs[0].id)


# --- the end of the process


def test_shutdown_interrupts_what_runs_and_what_waits_and_leaves_no_thread(start):
    manager = start(limits=Limits(concurrent=1))
    run = manager.submit(config("fedprox", rounds=100_000), reference=config(rounds=100_000))
    waiting = manager.submit(config())
    until(lambda: run.round > 3)
    manager.shutdown()
    manager.shutdown()
    assert own_threads() == []
    assert run.state is run.reference.state is waiting.state is RunState.INTERRUPTED
    with pytest.raises(Refused, match="shutting down"):
        manager.submit(config())
    again = start()
    stored = again.get(run.id)
    assert stored.state is RunState.INTERRUPTED
    assert stored.message == f"Interrupted after round {run.round}: the server ended. Resume continues it."
    assert stored.records.dicts() == run.records.dicts()
    assert again.get(waiting.id).state is RunState.INTERRUPTED


def test_shutdown_does_not_wait_for_ever_for_a_long_round(start, monkeypatch):
    monkeypatch.setattr(manager_module, "_PATIENCE", 0.1)
    executor = Held()
    manager = start(executor)
    run = manager.submit(config())
    executor.let(1)
    until(lambda: run.round == 1)
    manager.shutdown()
    assert run.state is RunState.INTERRUPTED
    again = start()
    assert rounds_of(again.get(run.id)) == [0, 1]
    assert again.get(run.id).state is RunState.INTERRUPTED
    executor.let(1000)
    until(lambda: own_threads() == ["fedviz-journal"])  # of the second manager


SERVER = """
import sys, time
from pathlib import Path
from fedviz.runs import Limits, RunStore
from tests.runs.fakes import Local, Scripted, config

def script(config, round, progress):
    if config.algorithm.name == "fedprox" and round == 5:
        time.sleep(60)  # one slow round: what was before it must be safe all the same
    time.sleep(0.005)

manager = Local(RunStore(Path(sys.argv[1])), executor=Scripted(script), limits=Limits(concurrent=2))
slow, quick = manager.submit(config("fedprox")), manager.submit(config(rounds=10**6))
print(slow.id, quick.id, flush=True)
while True:
    print(slow.round, quick.round, time.time(), flush=True)
    time.sleep(0.01)
"""


def test_a_killed_server_loses_at_most_a_second_and_the_runs_are_interrupted(path, start):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert server.stdout is not None
    slow, quick = server.stdout.readline().split()
    seen = []
    while not seen or seen[-1][2] < seen[0][2] + 3:
        words = server.stdout.readline().split()
        seen.append((int(words[0]), int(words[1]), float(words[2])))
    server.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    server.wait(10)
    server.stdout.close()

    manager = start()
    found = manager.get(quick)
    assert found.state is RunState.INTERRUPTED
    assert found.message.startswith(f"Interrupted after round {found.round}: ")
    a_second_before = max(done for _, done, when in seen if when <= seen[-1][2] - 1)
    assert a_second_before > 20
    assert found.round >= a_second_before
    assert found.records.dicts() == [record(round) for round in range(found.round + 1)]
    assert manager.get(slow).state is RunState.INTERRUPTED
    assert rounds_of(manager.get(slow)) == [0, 1, 2, 3, 4]


def test_a_process_that_ends_in_order_stores_everything_and_needs_no_torch(path):
    program = """
import sys
from pathlib import Path
from fedviz.runs import Limits, RunStore
from tests.runs.fakes import Local, Scripted, config, until
manager = Local(RunStore(Path(sys.argv[1])), executor=Scripted())
run = manager.submit(config(rounds=100_000))
until(lambda: run.round > 20)
print([name for name in ("torch", "streamlit") if name in sys.modules], run.id)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stderr == ""
    loaded, run_id = done.stdout.rsplit(maxsplit=1)
    assert loaded == "[]"
    with sqlite3.connect(path) as database:
        (state,) = database.execute("SELECT state FROM runs WHERE id = ?", (run_id,)).fetchone()
        found = database.execute("SELECT json FROM records ORDER BY round").fetchall()
    assert state == "interrupted"
    assert len(found) > 20
    assert [json.loads(text) for (text,) in found] == [record(round) for round in range(len(found))]


@pytest.fixture(autouse=True)
def _log_at_warning(caplog):
    caplog.set_level(logging.WARNING)


def test_stop_leaves_a_round_that_takes_long_at_the_next_local_step(path):
    """A round whose measurement takes 16 repetitions of 10,000 local steps is stopped in the middle, with the real engine."""
    problem = {"kind": "quadratics", "curvature": [[1.0]], "linear": [[0.0]], "start": [1.0]}
    long = config(
        problem=problem, participation={"pattern": "full"}, num_clients=1, local_steps=10_000, client_lr=1e-9, rounds=200,
        probe_every=1, probe={"replicas": 16},
    )  # fmt: skip
    with Local(RunStore(path)) as manager:
        run = manager.submit(long)
        until(lambda: run.state is RunState.RUNNING, 30)
        manager.stop(run.id)
        until(lambda: ended(run))
        assert run.state is RunState.STOPPED
        assert run.message == f"Stopped after round {run.round}."


def test_a_run_that_is_paced_leaves_its_place_to_others(start):
    manager = start(limits=Limits(concurrent=1))
    slow = manager.submit(config(rounds=1000))
    manager.set_pace(slow.id, 2.0)
    quick = manager.submit(config(rounds=3))
    until(lambda: ended(quick))
    assert quick.state is RunState.FINISHED
    assert not ended(slow)


def test_a_database_that_is_deleted_under_a_run_fails_the_run_and_keeps_it_readable(start, path):
    manager = start()
    run = manager.submit(config(rounds=100_000))
    manager.set_pace(run.id, 50.0)
    until(lambda: run.round > 3)
    for file in path.parent.glob("runs.sqlite*"):
        file.unlink()
    until(lambda: ended(run))
    assert run.state is RunState.INTERRUPTED
    assert "was deleted or replaced" in run.message
    assert manager.get(run.id) is run
    assert len(run.records) > 3


def test_a_run_whose_data_cannot_be_dealt_is_refused_before_it_starts(start):
    """At similarity 1 every sample goes to a random one of 10,000 clients: about a third of them get none."""
    impossible = SimulationConfig.read(
        {
            "num_clients": 10_000,
            "problem": {"kind": "classification", "partition": {"name": "similarity", "similarity": 1.0}},
        }
    )
    with pytest.raises(
        ConfigError, match=r"num_clients: got 10,000\. This partition leaves 3,\d+ of 10,000 clients without a sample"
    ):
        start().submit(impossible)


def test_a_run_of_another_server_on_the_same_store_is_shown_as_such_and_read_anew_each_time(start):
    here, there = start(), start()
    run = there.submit(config(rounds=1000))
    there.set_pace(run.id, 50.0)
    until(lambda: run.round > 2)
    until(lambda: here.get(run.id) is not None and len(here.get(run.id).records) > 2)
    seen = here.get(run.id)
    assert (seen.foreign, seen.live, seen.state) == (True, False, RunState.RUNNING)
    assert "another fedviz" in seen.message
    for act in (here.pause, here.resume, here.step, here.stop):
        act(run.id)
    assert run.live
    until(lambda: here.get(run.id).round > seen.round)
    there.stop(run.id)
    until(lambda: here.get(run.id).state is RunState.STOPPED)
    assert not here.get(run.id).foreign


def test_the_speed_of_a_continued_run_does_not_count_its_preparation(start):
    def script(config, round, progress):
        time.sleep(0.4 if config.algorithm.name == "fedprox" and round == 6 else 0.005)

    manager = start(Scripted(script))
    parent = manager.submit(config(rounds=5))
    until(lambda: ended(parent))
    fork = manager.fork(parent.id, 5, config("fedprox", rounds=100_000))
    until(lambda: fork.rounds_per_second is not None)
    assert (
        fork.rounds_per_second > 10
    )  # less than 200 for what recording takes; with the preparation it would start at 2.5
