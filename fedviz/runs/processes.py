"""Runs in processes of their own: `python -m fedviz.worker`, one run at a time in each.

The server and a worker talk in lines of JSON over pipes; nothing is pickled.

    to a worker     {"work": ...}, {"go": the last round that may be computed}, as the gate lets the run in, {"stop": true}
    from it         {"ready": true} once; {"progress": text}, {"device": name}, {"note": text}, {"records": [...]};
                    {"prepared": true} when it waits for its first new round;
                    at the end {"done": whether it came to its end} or {"failed": [kind, ...]}

A worker that doesn't leave a stopped run within a moment is killed. The others take the next run. One always waits with
PyTorch imported, two where nothing computes: a run and its reference need two, and importing takes seconds. All end with
the server (see `fedviz/worker.py`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import fedviz
from fedviz.problems import ProblemError
from fedviz.runs.computation import Supervisor, Work
from fedviz.runs.executors import Died, Failed
from fedviz.simulation.errors import Diverged

AHEAD: Final = 0.1  # seconds' worth of rounds that a worker is let into at once
_LOOK_EVERY: Final = 0.1  # seconds between looks whether the run has been stopped
_MOMENT: Final = 0.15  # seconds that a worker has to leave its run before it is killed
_SPARE: Final = 1  # workers that wait at least
_PAIR: Final = 2  # ... or compute: a run and its reference need two. So many more wait at most
_AGAIN_AFTER: Final = 1.0  # seconds after which a worker is tried again that could not be started

_log = logging.getLogger(__name__)


class ProcessExecutor:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[Worker] = []
        self._wanted = 0  # by runs that wait for one
        self._working: dict[str, int] = {}
        self._error: OSError | RuntimeError | None = None
        self._closed = False
        # Workers are all started by this one thread: Linux ends them when the thread that started them ends.
        threading.Thread(target=self._keep_spare, name="fedviz-workers", daemon=True).start()

    def records(self, work: Work, supervisor: Supervisor) -> Generator[dict[str, Any], None, None]:
        supervisor.progress("Starting PyTorch.")
        worker, done = self._take(supervisor.between_steps), True
        self._working[work.run_id] = worker.process_id
        try:
            supervisor.begin()
            done = False
            worker.send({"work": work.to_json()})
            prepared, computed, granted = False, work.first - 1, work.first - 1
            span, since = 1, time.monotonic()
            while True:
                if prepared:
                    left = min(span, work.config.rounds - computed)
                    idle = computed == granted and left > 0
                    allowed = supervisor.let_in(computed, left, patience=_LOOK_EVERY if idle else 0)
                    if allowed is None:
                        return
                    if idle and allowed == granted and worker.alive:
                        continue  # the run is held: the worker has nothing to say
                    if allowed > granted:
                        granted = allowed
                        worker.send({"go": granted})
                kind, content = worker.receive(supervisor.between_steps)
                if kind == "records":
                    yield from content
                    fresh = content[-1]["round"] - computed
                    if fresh > 0:
                        computed, before, since = content[-1]["round"], since, time.monotonic()
                        rate = fresh / max(since - before, 1e-6)
                        span = max(1, min(int(AHEAD * rate), 2 * span))
                elif kind == "prepared":
                    prepared, since = True, time.monotonic()
                elif kind == "done":
                    done = True
                    return
                elif kind == "failed":
                    done = True
                    raise _error(*content)
                else:
                    {"progress": supervisor.progress, "device": supervisor.device, "note": supervisor.note}[kind](
                        content
                    )
        finally:
            whole = done or worker.stop()
            self._working.pop(work.run_id, None)
            self._take_back(worker, whole)

    @property
    def processes(self) -> dict[str, int]:
        """The process that computes each run, by the run's id."""
        return dict(self._working)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            for worker in self._waiting:
                worker.kill()
            self._waiting = []
            self._changed.notify_all()

    def _take(self, meanwhile: Callable[[], None]) -> Worker:
        """A worker that is ready, waited for. `meanwhile` is called often and may raise. Raises OSError, Died."""
        with self._changed:
            self._wanted += 1
            self._changed.notify_all()
            try:
                while not self._closed:
                    meanwhile()
                    for worker in [each for each in self._waiting if not each.alive]:
                        self._waiting.remove(worker)
                        if not worker.ready:  # the next would hardly do better
                            raise Died(worker.how_it_ended())
                    worker_or_none = next((worker for worker in self._waiting if worker.ready), None)
                    if worker_or_none is not None:
                        self._waiting.remove(worker_or_none)
                        return worker_or_none
                    if self._error is not None:
                        raise self._error
                    self._changed.wait(_LOOK_EVERY)
                raise Died("the server is shutting down")
            finally:
                self._wanted -= 1
                self._send_away()  # one that was started for a run that was stopped meanwhile
                self._changed.notify_all()

    def _take_back(self, worker: Worker, whole: bool) -> None:
        """Have a worker wait for its next run, if it has left its last one."""
        with self._changed:
            if whole and worker.alive and not self._closed:
                self._waiting.append(worker)
            else:
                worker.kill()
            self._send_away()
            self._changed.notify_all()

    def _send_away(self) -> None:
        too_many = max(0, len(self._waiting) - self._wanted - _PAIR - _SPARE)
        for worker in sorted(self._waiting, key=lambda each: each.ready)[:too_many]:  # those first that still import
            self._waiting.remove(worker)
            worker.kill()

    def _is_short(self) -> bool:
        """Whether a worker is to be started: first those that runs wait for, then the spare ones, one after the other."""
        if len(self._waiting) < self._wanted:
            return True
        least = max(_SPARE, _PAIR - len(self._working))
        return len(self._waiting) < least and all(each.ready for each in self._waiting)

    def _look_again(self) -> None:
        """A worker is ready, or has ended."""
        with self._changed:
            # One that ended while it imported is left for a run to tell of: the next would hardly do better.
            for worker in [each for each in self._waiting if each.ready and not each.alive]:
                self._waiting.remove(worker)
                worker.kill()
            self._changed.notify_all()

    def _keep_spare(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._is_short())
                if self._closed:
                    return
            try:
                worker, self._error = Worker(self._look_again), None
            except (OSError, RuntimeError) as error:  # no more processes or threads: for now
                _log.error("No worker can be started: %s", error)
                self._error = error
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, _AGAIN_AFTER)
                continue
            with self._changed:
                if not self._closed:
                    self._waiting.append(worker)
                    self._changed.notify_all()
                    continue
            worker.kill()


class Worker:
    """A process, and what it says. One thread at a time uses it."""

    def __init__(self, when_changed: Callable[[], None] = lambda: None) -> None:
        """Starts it; `when_changed` is called from another thread when it is ready, and when it has ended. Raises OSError, or
        RuntimeError where the system gives no thread.
        """
        package = str(Path(fedviz.__file__).parents[1])
        path = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
        # One thread each: several runs share the cores, and a run is the same wherever it computes.
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        environment.pop("FEDVIZ_ADMIN_TOKEN", None)  # nothing that a worker needs to know
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fedviz.worker", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self.ready = False  # to be given work: PyTorch is imported
        self._when_changed = when_changed
        self._said: queue.SimpleQueue[bytes] = queue.SimpleQueue()  # lines; empty at the end
        try:
            threading.Thread(target=self._listen, name="fedviz-worker-says", daemon=True).start()
        except RuntimeError:
            self._process.kill()
            self._process.wait()
            raise

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, message: dict[str, Any]) -> None:
        """Raises Died."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise Died(self.how_it_ended()) from None

    def receive(self, meanwhile: Callable[[], None]) -> tuple[str, Any]:
        """The next thing that it says, as (kind, content). `meanwhile` is called often and may raise. Raises Died."""
        while True:
            meanwhile()
            try:
                line = self._said.get(timeout=_LOOK_EVERY)
            except queue.Empty:
                continue
            if not line:
                raise Died(self.how_it_ended())
            ((kind, content),) = json.loads(line).items()
            return kind, content

    def stop(self) -> bool:
        """Have it leave its run between two local steps; whether it has done so within a moment, and waits for the next."""
        deadline = time.monotonic() + _MOMENT
        try:
            self.send({"stop": True})
            while (left := deadline - time.monotonic()) > 0:
                line = self._said.get(timeout=left)
                if not line:
                    return False
                if line.startswith((b'{"done"', b'{"failed"')):
                    return True
        except (Died, queue.Empty):
            pass
        return False

    def kill(self) -> None:
        """End it at once. Harmless when repeated."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # what it was not told before it ended
            self._process.stdin.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                if line.startswith(b'{"ready"'):
                    self.ready = True
                    self._when_changed()
                elif line.endswith(b"\n"):  # not one that was cut off
                    self._said.put(line)
        self._said.put(b"")
        self._process.wait()
        self._when_changed()

    def how_it_ended(self) -> str:
        """In words, of a process that has ended or is about to."""
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "its process no longer answers"
        if code == -getattr(signal, "SIGKILL", 9):
            return "its process was killed, perhaps because memory ran out"
        if code < 0:
            return f"its process ended with signal {-code}"
        return f"its process ended with exit code {code}"


def _error(kind: str, *details: Any) -> Exception:
    """What went wrong in a worker, as it would have been raised here."""
    if kind == "Diverged":
        return Diverged(*details)
    if kind == "ProblemError":
        return ProblemError(*details)
    return Failed(*details)
