"""What a server allows: read from the environment, said aloud, and held to, with the estimate and the limit in the refusal."""

import re
import threading

import pytest

from fedviz.config import ConfigError, SimulationConfig
from fedviz.runs import LOCAL, LimitError, Limits, Refused, Visitor, admission
from fedviz.runs.admission import stored_bytes
from tests.runs.fakes import Held, config, until
from tests.runs.test_imports import as_file, exported


def test_hosting_is_strict_by_default_and_each_limit_can_be_set_apart():
    local, hosted = Limits.from_environment({}), Limits.from_environment({"FEDVIZ_HOSTED": "1"})
    assert (local.hosted, local.executor, local.rounds, local.queued_per_visitor) == (False, "thread", None, 32)
    assert (hosted.hosted, hosted.executor, hosted.queued_per_visitor) == (True, "process", 3)
    assert None not in (hosted.rounds, hosted.memory_bytes, hosted.gradient_evaluations, hosted.stored_bytes)
    assert None not in (hosted.kept_runs, hosted.kept_bytes, hosted.put_away_after)
    assert local.begun_per_visitor == local.begun == 4 * local.concurrent
    assert (hosted.begun, hosted.begun_per_visitor) == (4 * hosted.concurrent, 2 * hosted.concurrent)
    assert (local.downloads, hosted.downloads) == (True, False)
    assert (local.kept_runs, local.kept_bytes, local.put_away_after) == (None, None, None)
    chosen = Limits.from_environment(
        {
            "FEDVIZ_HOSTED": "1", "FEDVIZ_EXECUTOR": "thread", "FEDVIZ_CONCURRENT": "7", "FEDVIZ_QUEUE": "5",
            "FEDVIZ_QUEUED_PER_VISITOR": "2", "FEDVIZ_RUN_MEMORY": "1e9", "FEDVIZ_RUN_GRADIENTS": "2e6",
            "FEDVIZ_RUN_ROUNDS": "0", "FEDVIZ_RUN_BYTES": "3000", "FEDVIZ_PAUSE_UNWATCHED": "90", "FEDVIZ_EXPIRE": "2",
            "FEDVIZ_ADMIN_TOKEN": "correct horse battery", "FEDVIZ_BEGUN": "9", "FEDVIZ_PUT_AWAY": "300",
            "FEDVIZ_DOWNLOAD": "1", "FEDVIZ_STORED_RUNS": "12", "FEDVIZ_STORED_BYTES": "5e8",
            "FEDVIZ_BEGUN_PER_VISITOR": "4",
        }
    )  # fmt: skip
    assert chosen == Limits(
        True, "thread", 7, 5, 2, 1_000_000_000, 2_000_000, None, 3000, 90.0, 172_800.0, "correct horse battery",
        begun=9, begun_per_visitor=4, put_away_after=300, kept_runs=12, kept_bytes=500_000_000,
    )  # fmt: skip
    lines = "\n".join(chosen.describe())
    assert "up to 9 have begun, those included that are paused or paced, 4 of one visitor" in lines
    assert "7 runs compute at a time" in lines
    assert "1 GB" in lines
    assert "after 2 days" in lines
    assert "horse" not in lines + repr(chosen)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("FEDVIZ_HOSTED", "yes", "1"),
        ("FEDVIZ_EXECUTOR", "ray", "thread or process"),
        ("FEDVIZ_CONCURRENT", "0", "from 1"),
        ("FEDVIZ_CONCURRENT", "1.5", "whole"),
        ("FEDVIZ_QUEUE", "many", "a number"),
        ("FEDVIZ_RUN_MEMORY", "inf", "a number"),
        ("FEDVIZ_RUN_ROUNDS", "-3", "from 0"),
        ("FEDVIZ_ADMIN_TOKEN", "short", "12 or more"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(name, value, allowed):
    with pytest.raises(LimitError, match=rf"{name}.*{re.escape(allowed)}"):
        Limits.from_environment({name: value})


def test_the_work_of_a_run_is_counted_as_by_hand():
    # 5 of 100 clients, 10 local steps of 16; every 8th of 200 rounds is measured with 2 passes of all 100 clients and
    # 10,000 full gradients, every 5th of these with 64 cohorts of 5.
    chosen = SimulationConfig.read({"local_steps": 10, "batch_size": 16, "rounds": 200, "probe_every": 8})
    training, probes = 200 * 5 * 10 * 16, 25 * (10_000 + 2 * 100 * 10 * 16)
    assert admission.gradient_evaluations(chosen) == training + probes + 5 * 64 * 5 * 10 * 16
    assert admission.gradient_evaluations(config(rounds=30, probe_every=0)) == 30 * 1 * 2  # one client, two steps


def test_estimates_of_work_and_bytes_are_not_far_from_what_a_run_takes():
    import json

    from fedviz.simulation.loop import simulate

    chosen = SimulationConfig.read({"rounds": 16, "probe_every": 8, "eval_every": 4, "algorithm": {"name": "scaffold"}})
    records = [record.to_dict() for record in simulate(chosen)]
    costs = records[-1]["costs"]
    taken = costs["gradient_evaluations"] + costs["probe_evaluations"]
    assert 0.6 < admission.gradient_evaluations(chosen) / taken < 1.7
    written = sum(len(json.dumps(record, separators=(",", ":"))) for record in records)
    state = 2 * 4 * 7850 * (100 + 1 + 1)  # two checkpoints of w, the clients' variates and the server's
    assert 0.6 < (admission.stored_bytes(chosen) - state) / written < 1.7


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"rounds": 19}, "20 rounds; this server allows 19"),
        ({"gradient_evaluations": 30}, "about 80 sample gradients with its measurements; this server allows 30"),
        ({"memory_bytes": 100}, "of memory; this server allows 100 B"),
        ({"stored_bytes": 100}, "on the disk; this server allows 100 B"),
    ],
)
def test_a_run_beyond_a_budget_is_refused_with_estimate_and_limit(start, limits, said):
    manager = start(limits=Limits(**limits))
    pair = config(probe_every=0), config("fedprox", probe_every=0)  # 2 runs of 20 rounds, one client, two steps
    with pytest.raises(Refused, match=re.escape(said)):
        manager.submit(*pair)
    start(limits=Limits(rounds=20, gradient_evaluations=80, memory_bytes=10**6, stored_bytes=10**6)).submit(*pair)


def test_a_visitor_keeps_so_many_runs_and_no_more_until_some_are_deleted(start):
    anna, ben = Visitor("anna"), Visitor("ben")
    manager = start(limits=Limits(kept_runs=2, concurrent=4))
    runs = [manager.submit(config(rounds=3), config("fedprox", rounds=3), visitor=anna) for _ in range(2)]
    refused = re.escape("2 runs of yours are kept here; this server keeps 2 of each visitor. Delete some")
    for attempt in (
        lambda: manager.submit(config(rounds=3), visitor=anna),
        lambda: manager.fork(runs[0].id, 0, config(rounds=4), visitor=anna),
        lambda: manager.import_run(as_file(exported()), anna),
    ):
        until(lambda: not any(run.live for run in runs))
        with pytest.raises(Refused, match=refused):
            attempt()
    manager.submit(config(rounds=3), visitor=ben)
    until(lambda: not manager._pairs.in_use(runs[0].id))
    manager.delete(runs[0].id, anna)
    manager.submit(config(rounds=3), visitor=anna)


def test_all_runs_together_take_so_many_bytes_and_deleting_makes_room(start):
    limits = Limits(kept_bytes=600_000)
    manager = start(limits=limits)
    run = manager.submit(config(rounds=900))
    until(lambda: not run.live)
    until(lambda: not manager._pairs.in_use(run.id))
    assert manager._journal.settle(run.id)
    with pytest.raises(
        Refused,
        match=r"take \d+ kB, and with those that still compute this one would add about \d+ kB; this server keeps 600 kB in all",
    ):
        manager.submit(config(rounds=900))
    manager.delete(run.id, LOCAL)
    manager.submit(config(rounds=100))
    said = "\n".join(limits.describe())
    assert "stored bytes of all runs: up to 600 kB" in said
    assert "stored runs of one visitor: no limit" in said


def test_what_live_runs_will_take_counts_and_many_at_once_get_no_more_than_fits(start):
    one = stored_bytes(config(rounds=900))
    manager = start(Held(), limits=Limits(queue_length=50, queued_per_visitor=50, kept_runs=3))
    start_line, refused = threading.Barrier(12), []

    def submit() -> None:
        start_line.wait()
        try:
            manager.submit(config(rounds=900))
        except Refused as error:
            refused.append(str(error))

    threads = [threading.Thread(target=submit) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 9
    manager.limits = Limits(kept_bytes=int(3.5 * one) + 100_000)
    with pytest.raises(Refused, match="still compute"):
        manager.submit(config(rounds=900))


def test_what_a_resumed_run_will_add_counts_and_what_it_has_does_not_count_twice(start):
    one = stored_bytes(config(rounds=900))
    manager = start(executor := Held())
    run = manager.submit(config(rounds=900))
    executor.let(600)
    until(lambda: run.round == 600, 20)
    manager.stop(run.id)
    executor.let(10**9)
    until(lambda: not manager._pairs.in_use(run.id))
    assert manager._journal.settle(run.id)
    _, taken = manager._library.size()
    manager.limits = Limits(kept_bytes=taken + one // 4)
    with pytest.raises(Refused, match="this one would add about"):
        manager.resume(run.id, LOCAL)
    manager.limits = Limits(kept_bytes=taken + one // 2)
    manager.resume(run.id, LOCAL)
    again = manager.get(run.id)
    until(lambda: not again.live, 20)
    assert again.round == 900


def test_what_is_held_in_memory_of_ended_runs_is_bounded_by_its_bytes(start, monkeypatch):
    manager = start(limits=Limits(concurrent=4))
    runs = [manager.submit(config(rounds=300, seed=seed)) for seed in range(4)]
    until(lambda: not any(run.live for run in runs), 10)
    assert len(manager._library.all_at_hand()) == 4
    monkeypatch.setattr("fedviz.runs.library._KEPT_BYTES", 2 * runs[0].records.nbytes)
    manager._library.keep(runs[0])
    assert len(manager._library.all_at_hand()) == 2
    assert manager._library.at_hand(runs[0].id) is runs[0]


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_visitors_have_no_data_set_downloaded_unless_that_is_allowed(start, tmp_path, monkeypatch, name):
    monkeypatch.setenv("FEDVIZ_DATA", str(tmp_path))
    monkeypatch.setattr("fedviz.problems.datasets.cache_folder", lambda: tmp_path / "cache")
    chosen = SimulationConfig.read({"problem": {"kind": "classification", "dataset": name}})
    with pytest.raises(
        ConfigError, match=rf"problem.dataset: {name} is not on this server.*FEDVIZ_DATA.*FEDVIZ_DOWNLOAD=1"
    ):
        start(limits=Limits(downloads=False)).submit(chosen)
    admission.check(chosen, limits=Limits(downloads=True))
    if name == "mnist":
        folder = tmp_path / "mnist"
        folder.mkdir()
        for part in ("train", "t10k"):
            for file in (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"):
                (folder / file).write_bytes(b"")
    else:
        (tmp_path / "cifar-10-batches-py").mkdir()
    assert chosen.problem.to_download() == ""
    assert SimulationConfig().problem.to_download() == ""  # comes with fedviz
