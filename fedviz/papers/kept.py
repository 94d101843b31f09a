"""Numbers of finished runs, kept on disk as they finish, so that a long `reproduce` that was stopped can go on.

One small file a run, named by a digest of all that its numbers depend on: config, versions of fedviz and torch, and device. A file
is there whole or not at all, so that two commands may share a folder. Only numbers are kept, never records.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedviz import __version__
from fedviz.config import SimulationConfig
from fedviz.papers.reproduce import Job, Outcome
from fedviz.problems import ProblemError


class Kept:
    """The finished runs in `folder`. Nothing here stops a command: what cannot be read or written is told to `say`."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.folder, self._say = folder, say
        self._can_write = True

    def found(self, jobs: Mapping[str, Job]) -> dict[str, Outcome]:
        """Those of `jobs` (by key) that are finished: with every number that they ask for."""
        return {key: outcome for key, job in jobs.items() if (outcome := self._outcome(job)) is not None}

    def keep(self, job: Job, outcome: Outcome) -> None:
        """Write the numbers of a finished run. One that failed is not finished."""
        if outcome.failure or not self._can_write:
            return
        identity = _identity(job, outcome.device)
        # A run may be made again for another number; those known before still stand.
        earlier = self._read(identity) or {"values": {}}
        numbers = dict(zip(map(repr, job.statistics), outcome.values, strict=True))
        content = {**identity, "seconds": outcome.seconds, "values": {**earlier["values"], **numbers}}
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self._file(identity), json.dumps(content, indent=1))  # Infinity: never; NaN: no value
        except OSError as error:
            self._can_write = False
            self._say(f"Finished runs cannot be kept in {self.folder} ({error.strerror}): if stopped, all begins anew.")

    def forget(self, jobs: Iterable[Job]) -> None:
        """Start over with these."""
        for job in jobs:
            if (identity := _identity_here(job)) is not None:
                with suppress(OSError):
                    self._file(identity).unlink()

    def _outcome(self, job: Job) -> Outcome | None:
        identity = _identity_here(job)
        kept = None if identity is None else self._read(identity)
        if kept is None or not all(repr(statistic) in kept["values"] for statistic in job.statistics):
            return None
        values = tuple(kept["values"][repr(statistic)] for statistic in job.statistics)
        return Outcome(values, kept["seconds"], kept["device"])

    def _file(self, identity: Mapping[str, Any]) -> Path:
        text = json.dumps(identity, sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"

    def _read(self, identity: Mapping[str, Any]) -> dict[str, Any] | None:
        """What is kept of a run; None where there is nothing. A file that cannot be used is set aside."""
        file = self._file(identity)
        try:
            kept = json.loads(file.read_text(encoding="utf-8"))
            if {name: kept[name] for name in identity} != identity:
                raise ValueError("it is of another run")
            numbers = [kept["seconds"], *kept["values"].values()]
            if not all(isinstance(number, int | float) for number in numbers):
                raise ValueError("not all of its values are numbers")
        except OSError:  # none, most often
            return None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            aside = file.with_suffix(".damaged")
            self._say(f"{file} cannot be used ({error}): set aside as {aside.name}, and the run is made again.")
            with suppress(OSError):
                file.replace(aside)
            return None
        return kept


def write_whole(file: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all. Raises OSError."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _identity(job: Job, device: str) -> dict[str, Any]:
    """All that the numbers of a run depend on."""
    return {"config": job.config, "fedviz": __version__, "torch": version("torch"), "device": device}


def _identity_here(job: Job) -> dict[str, Any] | None:
    """The same on this machine; None where the run cannot be made here."""
    from fedviz.simulation.device import describe

    try:
        return _identity(job, describe(SimulationConfig.read(job.config)))
    except ProblemError:
        return None
