"""Workers that cannot be started: what the system refuses is told, leaves nothing behind, and is tried again."""

import subprocess
import threading

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

    def make():
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
