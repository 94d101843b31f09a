"""A process that computes runs for a server, one at a time: `python -m fedviz.worker PID-OF-THE-SERVER`.

What it is told and says is in `fedviz/runs/processes.py`. Three threads: this one computes, one reads what the server
says, one writes in batches what there is to say. It ends with the server: Linux sees to that, and elsewhere its input ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import math
import os
import signal
import sys
import threading
from typing import Any, BinaryIO, Final

from fedviz.problems import ProblemError
from fedviz.runs.computation import Supervisor, Work, drive
from fedviz.simulation.errors import Diverged

BATCH: Final = 0.05  # seconds' worth of records that go together
_NICE: Final = 5  # pages come first
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG

_log = logging.getLogger("fedviz.worker")


class Ears:
    """What the server says, read in a thread. The end of it ends the process, whatever it is doing."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._changed = threading.Condition()
        self._work: str | None = None
        self._allowed = -1
        self.stopped = False
        threading.Thread(target=self._listen, name="fedviz-ears", daemon=True).start()

    def work(self) -> Work:
        """The next work, waited for."""
        with self._changed:
            self._changed.wait_for(lambda: self._work is not None)
            text, self._work = self._work, None
        assert text is not None
        return Work.from_json(text)

    def let_in(self, done: int, span: int = 1, patience: float = math.inf) -> int | None:
        """As far as the server lets the run in; None: stop."""
        with self._changed:
            if patience:
                self._changed.wait_for(lambda: self._allowed > done or self.stopped)
            return None if self.stopped else self._allowed

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            for line in self._source:
                message = json.loads(line)
                with self._changed:
                    if "work" in message:
                        self._work, self._allowed, self.stopped = message["work"], -1, False
                    elif "go" in message:
                        self._allowed = message["go"]
                    else:
                        self.stopped = True
                    self._changed.notify_all()
        os._exit(0)


class Mouth:
    """Says things in their order; records in batches, all else at once."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._changed = threading.Condition()
        self._waiting: list[tuple[str, Any]] = []
        self._urgent = False
        threading.Thread(target=self._speak, name="fedviz-mouth", daemon=True).start()

    def say(self, kind: str, content: Any, *, urgent: bool = True) -> None:
        with self._changed:
            if kind == "records" and self._waiting and self._waiting[-1][0] == kind:
                self._waiting[-1][1].extend(content)
            else:
                self._waiting.append((kind, content))
            self._urgent = self._urgent or urgent
            self._changed.notify_all()

    def hurry(self) -> None:
        """Say now what waits."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()

    def _speak(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                self._changed.wait_for(lambda: self._urgent, BATCH)
                batch, self._waiting, self._urgent = self._waiting, [], False
            try:
                for kind, content in batch:
                    self._target.write(json.dumps({kind: content}, separators=(",", ":")).encode() + b"\n")
                self._target.flush()
            except OSError:  # nobody listens any more
                os._exit(0)


class _Stopped(BaseException):
    """Leaves a run that nobody waits for any more."""


def main() -> None:
    _die_with(int(sys.argv[1]))
    with contextlib.suppress(OSError, AttributeError):
        os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends us
    # What libraries print must not get among what is said: it goes where errors go.
    said = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    mouth, ears = Mouth(said), Ears(sys.stdin.buffer)
    _warm_up()
    mouth.say("ready", True)
    while True:
        _compute(ears.work(), ears, mouth)


def _compute(work: Work, ears: Ears, mouth: Mouth) -> None:
    prepared = False

    def let_in(done: int, span: int = 1, patience: float = math.inf) -> int | None:
        nonlocal prepared
        if not prepared:
            prepared = True
            mouth.say("prepared", True)
        if patience:
            mouth.hurry()
        return ears.let_in(done, span, patience)

    def between_steps() -> None:
        if ears.stopped:
            raise _Stopped

    def progress(text: str) -> None:
        between_steps()
        mouth.say("progress", text)

    supervisor = Supervisor(
        begin=lambda: None,  # the server has waited for that
        progress=progress,
        device=lambda name: mouth.say("device", name),
        note=lambda text: mouth.say("note", text),
        between_steps=between_steps,
        let_in=let_in,
    )
    try:
        for record in drive(work, supervisor):
            mouth.say("records", [record], urgent=record["round"] == work.first)
        mouth.say("done", True)
    except _Stopped:
        mouth.say("done", False)
    except Diverged as error:
        mouth.say("failed", ["Diverged", error.round, error.hint])
    except ProblemError as error:
        mouth.say("failed", ["ProblemError", str(error)])
    except BaseException as error:
        _log.exception("Run %s failed", work.run_id)
        mouth.say("failed", [type(error).__name__, f"{type(error).__name__}: {error}"])


def _die_with(server: int) -> None:
    """Have the system end this process when the server ends."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != server:  # it has ended already
            os._exit(0)


def _warm_up() -> None:
    """What every run needs and takes seconds to import."""
    import fedviz.simulation.loop  # noqa: F401


if __name__ == "__main__":
    main()
