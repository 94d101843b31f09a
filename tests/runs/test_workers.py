"""Workers that cannot be started: what the system refuses is told, leaves nothing behind, and is tried again."""

import signal
import subprocess
import threading
import time

import pytest

from fedviz.runs import processes
from tests.runs.fakes import until


class Ready:
    """As a worker that waits."""

    ready = alive = True

    def kill(self) -> None:
        pass


def test_a_worker_without_its_thread_is_ended_at_once(monkeypatch):
    done = []

    class Process:
        def __init__(self, *_, **__):
            self.stdin = self.stdout = None

        def kill(self):
            done.append("killed")

        def wait(self):
            done.append("waited for")

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(subprocess, "Popen", Process)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        processes.Worker()
    assert done == ["killed", "waited for"]


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), OSError("no more processes")])
def test_a_run_is_told_that_no_worker_can_be_started_and_the_next_gets_one(monkeypatch, error):
    refusing = threading.Event()
    refusing.set()

    def make(*_):
        if refusing.is_set():
            raise error
        return Ready()

    monkeypatch.setattr(processes, "Worker", make)
    monkeypatch.setattr(processes, "_AGAIN_AFTER", 0.02)
    executor = processes.ProcessExecutor()
    try:
        until(lambda: executor._error is not None)
        with pytest.raises(type(error), match=str(error)):
            executor._take(lambda: None)
        refusing.clear()
        until(lambda: executor._error is None)
        assert isinstance(executor._take(lambda: None), Ready)
    finally:
        executor.close()
    until(lambda: not any(thread.name == "fedviz-workers" for thread in threading.enumerate()))


class Importing(Ready):
    """As a worker that is ready when a test says so."""

    def __init__(self, when_changed) -> None:
        self.ready, self.when_changed = False, when_changed
        self.process_id = id(self)

    def is_ready(self) -> None:
        self.ready = True
        self.when_changed()

    def dies(self) -> None:
        self.alive = False
        self.when_changed()

    def kill(self) -> None:
        self.alive = False


@pytest.fixture
def pool(monkeypatch):
    """(an executor, the workers that it has made)."""
    made = []

    def make(when_changed):
        made.append(Importing(when_changed))
        return made[-1]

    monkeypatch.setattr(processes, "Worker", make)
    executor = processes.ProcessExecutor()
    yield executor, made
    executor.close()


def stays(condition) -> bool:
    """Also a moment later."""
    until(condition)
    time.sleep(0.05)
    return condition()


def test_two_workers_wait_where_nothing_computes_and_import_one_after_the_other(pool):
    executor, made = pool
    assert stays(lambda: len(made) == 1)
    made[0].is_ready()
    assert stays(lambda: len(made) == 2)
    made[1].is_ready()
    assert stays(lambda: len(made) == 2)
    # A run and its reference have one each, at once; then one is made for whoever comes next.
    for name in ("run", "reference"):
        executor._working[name] = executor._take(lambda: None).process_id
    assert sorted(executor._working.values()) == sorted(worker.process_id for worker in made[:2])
    assert stays(lambda: len(made) == 3)


def test_spare_workers_are_made_when_no_run_waits_for_one(pool):
    executor, made = pool
    until(lambda: made)
    taken = []
    threads = [threading.Thread(target=lambda: taken.append(executor._take(lambda: None))) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert stays(lambda: len(made) == 3)  # all at once, and no further one
    for worker in list(made):
        worker.is_ready()
    for thread in threads:
        thread.join()
    assert set(taken) == set(made[:3])
    assert stays(lambda: len(made) == 4)


def test_workers_that_are_ready_are_kept_before_one_that_still_imports(pool):
    executor, made = pool
    until(lambda: made)
    ready = [Importing(lambda: None) for _ in range(3)]
    for worker in ready:
        worker.is_ready()
        executor._take_back(worker, whole=True)
    assert executor._waiting == ready
    assert not made[0].alive
    fourth = Importing(lambda: None)
    executor._take_back(fourth, whole=False)
    assert (fourth.alive, executor._waiting) == (False, ready)


def test_a_worker_that_dies_while_it_waits_is_replaced(pool):
    executor, made = pool
    until(lambda: made)
    made[0].is_ready()
    until(lambda: len(made) == 2)
    made[1].is_ready()
    made[0].dies()
    until(lambda: len(made) == 3)
    assert made[0] not in executor._waiting


def test_the_end_of_a_worker_is_noticed_and_leaves_no_zombie():
    changes = []
    worker = processes.Worker(lambda: changes.append(worker._process.returncode))
    worker._process.send_signal(signal.SIGKILL)
    until(lambda: changes)
    assert changes == [-signal.SIGKILL]  # it has been waited for
    worker.kill()
