"""What holds wherever a run computes, in a thread or in a process of its own, with the real simulation."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fedviz.config import SimulationConfig
from fedviz.runs import Limits, RunState, RunStore
from fedviz.runs.executors import ThreadExecutor
from fedviz.runs.processes import ProcessExecutor
from tests.runs.fakes import Local, config, until

ROOT = Path(__file__).parents[2]
LONG = 60.0  # seconds that a test waits for a run; far more than any needs


class Shared:
    """An executor that many managers use, one after the other: starting PyTorch once is enough."""

    def __init__(self, executor) -> None:
        self.records, self.close_it = executor.records, executor.close
        self._executor = executor

    @property
    def processes(self):
        return self._executor.processes

    def close(self) -> None:
        pass


@pytest.fixture(scope="module", params=["thread", "process"])
def executor(request):
    shared = Shared(ThreadExecutor() if request.param == "thread" else ProcessExecutor())
    yield shared
    shared.close_it()


@pytest.fixture
def manager(executor, path):
    with Local(RunStore(path), executor=executor) as made:
        yield made


def seldom_measured(algorithm: str, rounds: int, **settings) -> SimulationConfig:
    return config(algorithm, rounds, eval_every=7, probe_every=20, **settings)


def plain(records: list[dict]) -> list[dict]:
    """Records without the one thing that is not reproducible."""
    return [{**record, "costs": {**record["costs"], "seconds": None}} for record in records]


def expected(chosen: SimulationConfig) -> list[dict]:
    """What the simulation itself gives, without managers, gates and checkpoints."""
    from fedviz.simulation.loop import simulate

    return plain([record.to_dict() for record in simulate(chosen)])


def finished(run) -> bool:
    until(lambda: not run.live, LONG)
    assert run.state is RunState.FINISHED, run.message
    return True


def slow_round(**settings) -> SimulationConfig:
    """Each round takes seconds: measured by 16 repetitions of 10,000 local steps, one after the other."""
    problem = {"kind": "quadratics", "curvature": [[1.0]], "linear": [[0.0]], "start": [1.0]}
    return config(
        problem=problem, participation={"pattern": "full"}, num_clients=1, local_steps=10_000, client_lr=1e-9, rounds=200,
        probe_every=1, probe={"replicas": 16}, **settings,
    )  # fmt: skip


def test_the_records_are_those_of_the_simulation_itself(manager):
    chosen, other = seldom_measured("fedvarp", 60), seldom_measured("fedavg", 60)
    run = manager.submit(chosen, reference=other)
    assert finished(run)
    assert finished(run.reference)
    assert run.device == run.reference.device == "CPU with PyTorch"
    assert plain(run.records.dicts()) == expected(chosen)
    assert plain(run.reference.records.dicts()) == expected(other)


def test_pause_holds_both_after_one_round_and_a_step_is_exactly_one(manager):
    run = manager.submit(seldom_measured("fedvarp", 100_000), reference=seldom_measured("fedavg", 100_000))
    until(lambda: run.round > 20, LONG)
    manager.pause(run.id)
    until(lambda: run.state is run.reference.state is RunState.PAUSED, 2)
    for _ in range(3):
        at = run.round
        assert run.reference.round == at
        manager.step(run.id)
        until(lambda: run.state is run.reference.state is RunState.PAUSED, 2)
        assert (run.round, run.reference.round) == (at + 1, at + 1)
    time.sleep(0.1)
    assert run.round == at + 1
    assert run.records.rounds.tolist() == list(range(at + 2))


def test_pace_is_kept(manager):
    run = manager.submit(seldom_measured("fedavg", 100_000))
    until(lambda: run.round > 0, LONG)
    manager.set_pace(run.id, 40.0)
    time.sleep(0.3)  # what had been let in before
    at, began = run.round, time.monotonic()
    time.sleep(1)
    assert (run.round - at) / (time.monotonic() - began) == pytest.approx(40, rel=0.2)


def test_stop_takes_effect_at_once_in_the_midst_of_a_long_round_and_gives_the_place_to_others(executor, path):
    with Local(RunStore(path), executor=executor, limits=Limits(concurrent=1)) as manager:
        run = manager.submit(slow_round())
        after = manager.submit(config(rounds=3))
        until(lambda: run.state is RunState.RUNNING, LONG)
        began = time.monotonic()
        manager.stop(run.id)
        until(lambda: not run.live)
        assert time.monotonic() - began < 0.3
        assert (run.state, run.message) == (RunState.STOPPED, f"Stopped after round {run.round}.")
        records = len(run.records)
        assert finished(after)
        assert len(run.records) == records


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": {"name": "scaffold", "warm_start": True}},
        {"algorithm": {"name": "amplified_scaffold"}, "participation": {"pattern": "cyclic", "groups": 2, "clients_per_round": 1}},
    ],
    ids=["memories", "windows"],
)  # fmt: skip
def test_a_stopped_run_is_continued_to_the_bit_and_twice(manager, settings):
    chosen = SimulationConfig.read({**seldom_measured("fedavg", 400).to_dict(), **settings})
    run = manager.submit(chosen)
    for round in (40, 150):
        until(lambda run=run, round=round: run.round >= round, LONG)
        manager.stop(run.id)
        assert run.can_resume
        manager.resume(run.id)
        run = manager.get(run.id)
        assert run.state.live
    assert finished(run)
    assert plain(run.records.dicts()) == expected(chosen)
    stored = RunStore(manager._store.path)
    until(lambda: stored.load(run.id).state is RunState.FINISHED)
    assert stored.records(run.id).dicts() == run.records.dicts()
    stored.close()


def test_a_fork_with_the_same_settings_is_the_run_itself_and_one_of_it_too(manager):
    chosen = seldom_measured("scaffold", 120)
    parent = manager.submit(chosen)
    assert finished(parent)
    fork = manager.fork(parent.id, 50, chosen)
    assert finished(fork)
    again = manager.fork(fork.id, 80, chosen)
    early = manager.fork(fork.id, 30, chosen)  # before the fork itself: it continues the first
    for run, at in ((fork, 50), (again, 80), (early, 30)):
        assert finished(run)
        assert plain(run.records.dicts()) == expected(chosen)
        assert (run.forked_at, run.note) == (
            at,
            "Carried over: the model, client variates, server variate.",
        )
    assert (fork.parent_id, again.parent_id) == (parent.id, fork.id)


def test_a_fork_with_another_method_starts_from_the_models_of_its_parent(manager):
    """FedAvg has no state, so that its fork is gradient descent from the parent's model: one client, one step, by hand."""
    settings = {
        "problem": {"kind": "quadratics", "curvature": [[1.0]], "linear": [[0.0]], "start": [1.0]},
        "participation": {"pattern": "full"}, "num_clients": 1, "local_steps": 1, "probe_every": 0, "eval_every": 1,
    }  # fmt: skip
    parent = manager.submit(config("fedavg", 10, **settings))
    assert finished(parent)
    fork = manager.fork(parent.id, 6, config("fedprox", 10, **{**settings, "client_lr": 0.5}))
    assert finished(fork)
    # w <- (1 - rate) w, f = w^2 / 2: rate 0.1 for six rounds, then 0.5.
    losses = [0.5 * (0.9 ** min(r, 6) * 0.5 ** max(0, r - 6)) ** 2 for r in range(11)]
    assert fork.records.column("evaluation.objective").tolist() == pytest.approx(losses, rel=1e-5)
    assert fork.records.column("costs.gradient_evaluations").tolist() == list(range(11))


@pytest.mark.parametrize(
    ("before", "after", "carried", "anew"),
    [
        ({"name": "fedvarp"}, {"name": "fedvarp"}, "the model, mean, memory", ""),
        ({"name": "fedvarp"}, {"name": "cluster_fedvarp", "clusters": 1, "clustering": "random"}, "the model", "mean, memory"),
        (
            {"name": "cluster_fedvarp", "clusters": 2, "clustering": {"labels": [0, 1]}},
            {"name": "cluster_fedvarp", "clusters": 2, "clustering": {"labels": [1, 0]}},
            "the model", "mean, memory",
        ),
        ({"name": "scaffold"}, {"name": "fedavg"}, "the model", ""),
        (
            {"name": "scaffold"}, {"name": "amplified_scaffold"},
            "the model, client variates, server variate", "gathered, presence, window start",
        ),
    ],
)  # fmt: skip
def test_a_state_is_carried_over_whole_or_not_at_all(before, after, carried, anew):
    """A mean without its memories would pull the model astray for good."""
    from fedviz.simulation.loop import Simulation

    def chosen(algorithm: dict) -> SimulationConfig:
        return SimulationConfig.read({**config().to_dict(), "algorithm": algorithm})

    old, new = (Simulation(chosen(algorithm)) for algorithm in (before, after))
    old.first()
    for round in range(1, 5):
        old.advance(round)
    note = new.take_over(old)
    assert note == f"Carried over: {carried}{f'; started anew: {anew}' if anew else ''}."
    assert new.w.equal(old.w)
    for name, tensor in new.state.items():
        kept = name.replace("_", " ") in carried
        assert tensor.equal(old.state[name]) if kept else (name == "window_start" or not tensor.any())


def test_failures_are_told_as_what_they_are(manager, caplog):
    run = manager.submit(config(rounds=4000, client_lr=900.0))
    until(lambda: not run.live, LONG)
    assert run.state is RunState.DIVERGED
    assert "Lower the client rate" in run.message
    assert not run.can_resume


# --- processes alone


@pytest.fixture
def processes(executor):
    if executor.records.__func__ is ThreadExecutor.records:
        pytest.skip("there is no process to end")
    return executor


def workers_of(process: int) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(process).children():
        try:
            if "fedviz.worker" in child.cmdline():
                found.append(child)
        except psutil.Error:
            continue
    return found


def test_a_worker_that_dies_interrupts_its_run_alone_and_the_run_can_be_continued(processes, path):
    with Local(RunStore(path), executor=processes, limits=Limits(concurrent=2)) as manager:
        chosen = seldom_measured("fedvarp", 500)
        run, other = manager.submit(chosen), manager.submit(config(rounds=100_000))
        until(lambda: run.round > 30 and other.round > 30, LONG)
        manager.pause(run.id)
        until(lambda: run.state is RunState.PAUSED)
        os.kill(processes.processes[run.id], signal.SIGKILL)
        until(lambda: run.ended, 3)
        assert run.state is RunState.INTERRUPTED
        assert run.message.startswith(f"Interrupted after round {run.round}: its process was killed")
        at = other.round
        until(lambda: other.round > at + 10)
        manager.stop(other.id)
        manager.resume(run.id)
        run = manager.get(run.id)
        assert finished(run)
        assert plain(run.records.dicts()) == expected(chosen)


SERVER = """
import sys, time
from pathlib import Path
from fedviz.runs import RunStore
from fedviz.runs.processes import ProcessExecutor
from tests.runs.fakes import Local, config

manager = Local(RunStore(Path(sys.argv[1])), executor=ProcessExecutor())
run = manager.submit(config("scaffold", 100_000, eval_every=7, probe_every=0))
while run.round < 200:
    time.sleep(0.01)
print(run.id, flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_workers_die_with_a_killed_server_and_its_run_is_continued_to_the_bit(processes, path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert server.stdout is not None
    run_id = server.stdout.readline().strip()
    workers = workers_of(server.pid)
    assert workers
    server.send_signal(signal.SIGKILL)
    server.wait(10)
    server.stdout.close()
    assert not psutil.wait_procs(workers, 3)[1]

    with Local(RunStore(path), executor=processes) as manager:
        run = manager.get(run_id)
        assert (run.state, run.can_resume) == (RunState.INTERRUPTED, True)
        at = run.round
        manager.resume(run_id)
        run = manager.get(run_id)
        until(lambda: run.round > at + 50, LONG)
        manager.stop(run_id)
        rounds = run.round
        assert plain(run.records.dicts()) == expected_until(run.config, rounds)


def expected_until(chosen: SimulationConfig, rounds: int) -> list[dict]:
    from itertools import islice

    from fedviz.simulation.loop import simulate

    return plain([record.to_dict() for record in islice(simulate(chosen), rounds + 1)])
