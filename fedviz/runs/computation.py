"""The work of a run as a value (`Work`), and doing it, in a thread or in a worker process: records one by one.

A run is a chain of legs: its own, and before it those of the runs that it continues. Its state at a round is rebuilt from
the newest checkpoint on that chain, else from the start, by computing again what follows, which gives the same bits: what is
computed again comes out as records, too, so that it can be compared with what was recorded.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from fedviz.config import SimulationConfig
from fedviz.simulation import checkpoints

if TYPE_CHECKING:
    from fedviz.simulation.loop import Simulation
    from fedviz.simulation.records import Checkpoint

EVERY: Final = 3.0  # seconds between checkpoints while rounds follow one another
_STANDING: Final = 0.25  # ... when the run is about to wait
_SHARE: Final = 20  # checkpoints take at most one part in so many of the time

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Leg:
    """The rounds of one run on the way to another: up to `until`, included."""

    run_id: str
    config: SimulationConfig
    until: int


@dataclass(frozen=True)
class Work:
    """What is to be computed: the records of the last leg's run, of which those before `first` are there already.

    folder: where checkpoints are kept and found; None for none.
    """

    legs: tuple[Leg, ...]
    first: int = 0
    folder: Path | None = None

    @property
    def config(self) -> SimulationConfig:
        return self.legs[-1].config

    @property
    def run_id(self) -> str:
        return self.legs[-1].run_id

    def to_json(self) -> str:
        legs = [[leg.run_id, leg.config.to_dict(), leg.until] for leg in self.legs]
        return json.dumps({"legs": legs, "first": self.first, "folder": self.folder and str(self.folder)})

    @classmethod
    def from_json(cls, text: str) -> Work:
        values = json.loads(text)
        legs = (Leg(run_id, SimulationConfig.read(config), until) for run_id, config, until in values["legs"])
        return cls(tuple(legs), values["first"], Path(values["folder"]) if values["folder"] else None)


class LetIn(Protocol):
    def __call__(self, done: int, span: int = 1, patience: float = math.inf) -> int | None:
        """As `Gate.let_in`, for one member."""
        ...


@dataclass(frozen=True)
class Supervisor:
    """Whom a computation tells what it does, and asks whether it may go on."""

    begin: Callable[[], None]  # waits until computing may begin; may raise
    progress: Callable[[str], None]  # what is being prepared, in words; may raise to end the preparation
    device: Callable[[str], None]  # where it computes
    note: Callable[[str], None]  # what a fork carried over
    between_steps: Callable[[], None]  # called within a round; may raise to leave it
    let_in: LetIn  # asked before each new round


class Computation:
    """Doing it: `prepare`, then `record` as often as there are rounds. Raises what `simulate` raises."""

    def __init__(self, work: Work, supervisor: Supervisor) -> None:
        self._work, self._told = work, supervisor
        self._place = 0  # of the leg that is being computed
        self._checkpoint: Callable[[], Checkpoint] | None = None  # of the last record
        self._begun_at = math.inf  # the clock when rounds began to follow one another
        self._saved = -math.inf  # ... when the last checkpoint was written, and the seconds that it took
        self._cost = 0.0

    def prepare(self) -> int:
        """The round of the first record that will come: at most `work.first`; those before it are there already, and serve
        to see that all is as it was.
        """
        self._told.progress("Starting PyTorch.")
        # Here and not above: a server whose visitors only look at runs never needs torch.
        from fedviz.simulation.device import describe

        # One thread for each run, as on the command line: models of this size gain nothing from more, and the same number
        # everywhere gives the same records everywhere. By name: only the simulation knows how torch is used.
        import_module("torch").set_num_threads(1)
        self._told.device(describe(self._work.config))
        checkpoint = self._newest_checkpoint()
        self._simulation = self._made()
        self._begun = checkpoint is not None
        if checkpoint is not None:
            self._simulation.restore(checkpoint)
            self._go_over_to_the_next_leg()
        self._begun_at = time.monotonic()
        return self._simulation.round + 1 if self._begun else 0

    def record(self) -> dict[str, Any]:
        """The next record, computed now."""
        if time.monotonic() >= max(self._begun_at, self._saved) + EVERY:
            self._keep()
        self._checkpoint = None  # no longer valid
        simulation, own = self._simulation, self._place == len(self._work.legs) - 1
        round = simulation.round + 1 if self._begun else 0
        if round < self._work.first and round % 10 == 0:
            self._told.progress(f"Computing again up to round {self._work.first - 1:,}: round {round:,}.")
        record = simulation.advance(round) if self._begun else simulation.first()
        self._begun = True
        self._checkpoint = record.checkpoint if round and own else None
        values = record.to_dict()
        self._go_over_to_the_next_leg()
        return values

    def before_waiting(self) -> None:
        """The last record may be the last for long: keep a checkpoint of it."""
        if time.monotonic() >= self._saved + _STANDING:
            self._keep()

    def _newest_checkpoint(self) -> Checkpoint | None:
        """Of the run, else of those that it continues; sets which leg it is of."""
        work = self._work
        for place in range(len(work.legs) - 1, -1, -1):
            self._place, leg = place, work.legs[place]
            at_most = work.first - 1 if place == len(work.legs) - 1 else leg.until
            if work.folder is not None:
                checkpoint, reasons = checkpoints.newest(work.folder, leg.run_id, leg.config, at_most)
                for reason in reasons:
                    _log.warning("Checkpoint of run %s: %s", leg.run_id, reason)
                    self._told.progress(f"A checkpoint cannot be used ({reason}): going back further.")
                if checkpoint is not None:
                    return checkpoint
        return None

    def _made(self) -> Simulation:
        from fedviz.simulation.loop import Simulation

        return Simulation(self._work.legs[self._place].config, self._told.progress, self._told.between_steps)

    def _go_over_to_the_next_leg(self) -> None:
        legs = self._work.legs
        while self._place < len(legs) - 1 and self._simulation.round >= legs[self._place].until:
            before = self._simulation
            self._place += 1
            self._simulation = self._made()
            self._told.note(self._simulation.take_over(before))

    def _keep(self) -> None:
        now = time.monotonic()
        if self._checkpoint is None or self._work.folder is None or now - self._saved < _SHARE * self._cost:
            return
        try:
            checkpoints.write(self._work.folder, self._work.run_id, self._checkpoint())
        except OSError as error:  # the run itself goes on: it can still be replayed
            _log.warning("No checkpoint of run %s: %s", self._work.run_id, error)
        self._saved, self._cost = time.monotonic(), time.monotonic() - now


def drive(work: Work, supervisor: Supervisor) -> Generator[dict[str, Any], None, None]:
    """The records, those to compare first, the new ones each computed only when `let_in` allows its round; ends where it says stop."""
    supervisor.begin()
    computation = Computation(work, supervisor)
    round = computation.prepare()
    while round <= work.config.rounds:
        if round >= work.first:
            allowed = supervisor.let_in(round - 1, patience=0)
            if allowed is not None and allowed < round:
                computation.before_waiting()
                allowed = supervisor.let_in(round - 1)
            if allowed is None:
                return
        yield computation.record()
        round += 1
