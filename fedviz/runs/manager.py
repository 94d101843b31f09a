"""Owns all runs of a process: who may do what with whose run, taking runs on, looking at them, controlling them.

What is live is in `pairs.py`, what has ended in `library.py`. On a hosted server only the visitor who started a run, and
admins, control it. Everybody may look at a run whose id they have.
"""

from __future__ import annotations

import atexit
import logging
import shutil
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from fedviz import __version__
from fedviz.config import ConfigError, SimulationConfig
from fedviz.runs import admission, imports
from fedviz.runs.admission import Refused, in_words
from fedviz.runs.executors import Executor, ThreadExecutor
from fedviz.runs.gate import Gate
from fedviz.runs.imports import LONGEST_TITLE
from fedviz.runs.journal import Journal
from fedviz.runs.library import Library
from fedviz.runs.limits import Limits
from fedviz.runs.overview import Overview, memory_used
from fedviz.runs.pairs import Pair, Pairs, as_text
from fedviz.runs.processes import ProcessExecutor
from fedviz.runs.rows import config_key, new_run, row_of
from fedviz.runs.run import RESUMABLE, Run, RunState
from fedviz.runs.store import RunStore, StoreError
from fedviz.runs.visitor import NotYours, Visitor

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_MOST_FORKS: Final = 50  # runs continued one from another
_PATIENCE: Final = 5.0  # seconds that a shutdown waits for rounds in flight
_HOUSEKEEPING: Final = 60.0  # seconds between looks for what has expired

_log = logging.getLogger(__name__)


class RunManager:
    """All methods may be called from any thread, and those that control a run any number of times.

    Those that control a run raise KeyError where there is none, and NotYours where the visitor may not.
    """

    def __init__(self, store: RunStore, *, limits: Limits | None = None, executor: Executor | None = None) -> None:
        """executor: where runs compute; by default what the limits name."""
        self._store = store
        self.limits = limits or Limits()
        self._executor: Executor = executor or (
            ProcessExecutor() if self.limits.executor == "process" else ThreadExecutor()
        )
        folder = store.path.parent / "checkpoints"
        self._journal = Journal(store, self._cannot_save)
        self._library = Library(
            store,
            self._journal,
            folder,
            is_live=lambda run_id: self._pairs.is_live(run_id),
            in_use=lambda run_id: self._pairs.in_use(run_id),
        )
        self._pairs = Pairs(
            self.limits, self._executor, self._journal, folder, legs=self._library.legs, keep=self._library.keep
        )
        store.is_live = lambda run_id: self._pairs.is_live(run_id) or self._journal.pending(run_id) is not None
        self._counting = threading.Lock()  # from the look whether there is room for a run until it counts itself
        self._closed = threading.Event()
        self._keeper = threading.Thread(target=self._keep_house, name="fedviz-keeper", daemon=True)
        if self.limits.pause_unwatched_after or self.limits.expire_after or self.limits.put_away_after:
            self._keeper.start()
        atexit.register(self.shutdown)

    # --- starting

    def submit(self, config: SimulationConfig, reference: SimulationConfig | None = None, *, visitor: Visitor) -> Run:
        """Take on a run, with a reference to compare it with. Raises Refused (budgets, memory, queue), ConfigError (data)."""
        admission.check(config, reference, limits=self.limits)
        key, owner = config_key(config, reference), visitor.id
        other = None if reference is None else new_run(reference, owner=owner, is_reference=True)
        run = new_run(config, owner=owner, reference=other, config_key=key)
        members = (run,) if other is None else (run, other)
        with self._counting:
            self._check_number(visitor)
            self._check_room(sum(map(_bytes_to_come, members)))
            self._pairs.take_on(members)
        return run

    def fork(self, run_id: str, round: int, config: SimulationConfig, *, visitor: Visitor) -> Run:
        """A new run that continues another, anybody's, after `round` with changed settings; up to there it has its records.

        Raises Refused, KeyError, ConfigError (not the same problem, clients and seed, or no rounds left), StoreError.
        """
        parent = self.get(run_id)
        if parent is None:
            raise KeyError(f"There is no run {run_id}.")
        if parent.version != __version__:
            raise Refused(_other_version(parent, "continued from"))
        if not 0 <= round <= parent.round:
            raise ConfigError([("round", f"got {round:,}, allowed 0 to {parent.round:,}: the rounds that the run has")])
        for name in ("problem", "num_clients", "seed"):
            if getattr(config, name) != getattr(parent.config, name):
                raise ConfigError([(name, "must be as in the run that is continued; start a new run instead")])
        if config.rounds <= round:
            raise ConfigError(
                [("rounds", f"got {config.rounds:,}, allowed more than {round:,}, after which it continues")]
            )
        self._library.written(parent.id)  # what the new run begins with
        if self._library.depth(parent) >= _MOST_FORKS:
            raise Refused(f"The run was continued {_MOST_FORKS} times, one run from another: start a new one instead.")
        run = new_run(config, owner=visitor.id, parent_id=parent.id, forked_at=round)
        admission.check(config, limits=self.limits, before=self._library.legs(run)[:-1])
        run.begin_with(parent.records.dicts()[: round + 1])
        with self._counting, self._library.changing:
            self._check_number(visitor)
            self._check_room(_bytes_to_come(run))
            if self._store.load(parent.id) is None:
                raise KeyError(f"There is no run {run_id} any more.")
            self._store.insert((row_of(run),), ())  # at once: from here on nobody deletes what it begins with
            try:
                self._pairs.take_on((run,))
            except Refused:
                self._store.delete(run.id)
                raise
        return run

    def import_run(self, data: bytes, visitor: Visitor) -> Run:
        """Keep an exported run, with its reference, as a visitor's. Raises Refused with what is wrong with it, StoreError."""
        imported = imports.read(data)
        if self.limits.hosted:  # who continues it has it computed here
            budgets = replace(self.limits, downloads=True)  # that is looked at then
            for each in imports.with_reference(imported):
                try:
                    admission.check(each.config, limits=budgets)
                except ConfigError as error:
                    raise Refused(str(error)) from error
        runs: list[Run] = []
        texts: list[tuple[str, int, str]] = []
        for each in reversed(imports.with_reference(imported)):  # the reference first: the other one names it
            reference = runs[0] if runs else None
            # Without a config key: nobody is offered what may have been made up.
            run = new_run(each.config, owner=visitor.id, reference=reference, is_reference=each is not imported)
            run.version, run.device, run.title, run.imported = each.version, each.device, each.title, True
            run.begin_with(each.records)
            run.enter(each.state, each.message)
            texts += [(run.id, record["round"], as_text(record)) for record in each.records]
            runs.append(run)
        with self._counting:
            self._check_number(visitor)
            self._check_room(len(data))
            self._store.insert([row_of(run) for run in runs], texts)  # together: nobody would find a reference alone
        for run in runs:
            self._library.keep(run)
        return runs[-1]

    # --- looking

    def get(self, run_id: str) -> Run | None:
        """The run, live or stored, with its records at hand; None if there is none. Raises StoreError."""
        return self._pairs.run(run_id) or self._library.get(run_id)

    def same(self, config: SimulationConfig, reference: SimulationConfig | None = None) -> Run | None:
        """The newest run, running or finished, that will have the very records that this one would; None if there is none.

        Raises StoreError.
        """
        key = config_key(config, reference)
        equal = [run for run in self._in_memory() if run.config_key == key and run.owner]
        for fits in (lambda run: not run.ended, lambda run: run.state is RunState.FINISHED):
            if found := [run for run in equal if fits(run)]:
                return max(found, key=lambda run: run.created)
        for row in self._store.same(key):
            try:
                run = self.get(row.id)
            except StoreError as error:  # one run that cannot be read hides no others
                _log.warning("%s", error)
                continue
            if run is not None and (run.state.live or run.state is RunState.FINISHED):
                return run
        return None

    def runs(self, visitor: Visitor, *, everyone: bool = False, limit: int | None = None) -> list[Run]:
        """A visitor's runs and those that are published, newest first; with `everyone`, which is for admins, all of them.

        Their records are read only when they are asked for. Raises StoreError, NotYours.
        """
        if everyone and self.limits.hosted and not visitor.admin:
            raise NotYours("Only admins see the runs of everybody.")
        rows = self._store.listed(None if everyone else visitor.id, limit)
        found = {  # those that are too new to be stored
            run.id: run
            for run in self._in_memory()
            if not run.is_reference and (everyone or run.published or run.owner == visitor.id)
        }
        for row in rows:
            try:
                found[row.id] = self._pairs.run(row.id) or self._library.at_hand(row.id) or self._library.stored(row)
            except StoreError as error:  # one run that cannot be read hides no others
                _log.warning("%s", error)
        return sorted(found.values(), key=lambda run: run.created, reverse=True)[:limit]

    def may_control(self, run: Run, visitor: Visitor) -> bool:
        """Whether the visitor may pause, stop, rename and so on."""
        return not self.limits.hosted or visitor.admin or run.owner == visitor.id

    def watch(self, run_id: str) -> None:
        """Somebody looks at the run right now. Harmless for any id."""
        pair = self._pairs.of(run_id)
        if pair is not None:
            pair.seen = time.monotonic()

    def overview(self) -> Overview:
        """What goes on, for admins. Raises StoreError."""
        runs, stored = self._library.size()
        return Overview(
            queued=self._pairs.queued(),
            computing=[pair.main for pair in self._pairs.alive() if pair.begun],
            memory_free=admission.free_bytes(),
            memory_used=memory_used(),
            disk_free=shutil.disk_usage(self._store.path.parent).free,
            stored_runs=runs,
            stored_bytes=stored,
            limits=self.limits,
        )

    # --- controlling

    def pause(self, run_id: str, visitor: Visitor) -> None:
        """Hold the run and its reference after the same round; if it still prepares, at its starting point."""
        self._control(run_id, visitor, Gate.pause)

    def resume(self, run_id: str, visitor: Visitor) -> None:
        """Go on with a paused run as soon as there is a place; also with one that was interrupted or stopped, as the same run and to
        the same bits.

        Raises Refused where that cannot be, StoreError.
        """
        if self._control(run_id, visitor, Gate.resume) is None:
            self._continue(run_id)

    def step(self, run_id: str, visitor: Visitor) -> None:
        """Exactly one round more of a paused run and its reference. A run that still moves is paused instead."""
        self._control(run_id, visitor, Gate.step)

    def set_pace(self, run_id: str, visitor: Visitor, rounds_per_second: float | None) -> None:
        """At most so many rounds per second from now on; None for as fast as it goes. Raises ValueError."""
        self._control(run_id, visitor, partial(Gate.set_pace, rounds_per_second=rounds_per_second))

    def stop(self, run_id: str, visitor: Visitor) -> None:
        """End the run and its reference, at once; what they have recorded stays."""
        pair = self._control(run_id, visitor, lambda _: None)
        if pair is not None:
            self._pairs.stop(pair, RunState.STOPPED, "Stopped {where}.")

    def rename(self, run_id: str, title: str, visitor: Visitor) -> None:
        """Give the run a title, of one line; an empty one takes it away. Raises Refused, StoreError."""
        title = " ".join(title.split())
        if len(title) > LONGEST_TITLE:
            raise Refused(
                f"The name has {len(title)} characters; allowed are up to {LONGEST_TITLE}. Choose a shorter one."
            )
        if not title.isprintable():
            hidden = ", ".join(sorted({f"U+{ord(sign):04X}" for sign in title if not sign.isprintable()}))
            raise Refused(
                f"The name holds characters that cannot be seen ({hidden}). Type it anew instead of pasting it."
            )
        self._change(run_id, visitor, title=title)

    def publish(self, run_id: str, yes: bool, visitor: Visitor) -> None:
        """List the run for everybody, or no longer. Raises Refused, StoreError."""
        self._change(run_id, visitor, published=yes)

    def delete(self, run_id: str, visitor: Visitor) -> None:
        """Delete an ended run and its reference. Raises Refused where it still runs, StoreError.

        As long as other runs continue it their records begin with its own, so it then loses its owner and its title, and is
        deleted with the last of them.
        """
        self._controlled(run_id, visitor)
        with self._library.changing:
            if self._pairs.in_use(run_id):
                raise Refused("The run has not ended: stop it, and delete it a moment later.")
            row = self._library.written(run_id)
            if row is None:  # deleted by another fedviz, or never written
                self._library.forget(run_id)
                return
            if row.state.live:
                raise Refused("The run goes on in another fedviz on this machine: stop it there.")
            self._library.delete(row)

    def shutdown(self) -> None:
        """End all runs as interrupted and write what is left. Harmless when repeated; called when the process exits."""
        if self._closed.is_set():
            return
        self._closed.set()
        atexit.unregister(self.shutdown)
        self._pairs.close(_PATIENCE)
        if self._keeper.is_alive():
            self._keeper.join(_PATIENCE)
        self._executor.close()
        self._journal.close(_PATIENCE)
        self._store.close()

    def __enter__(self) -> RunManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    # --- inside

    def _in_memory(self) -> list[Run]:
        """What is live, without references, and what has ended not long ago: all that is perhaps not written yet."""
        return [*(pair.main for pair in self._pairs.alive()), *self._library.all_at_hand()]

    def _check_number(self, visitor: Visitor) -> None:
        """Raise Refused where no further run of a visitor can be kept."""
        runs = self.limits.kept_runs
        if runs is None:
            return
        new = {run.id for run in self._in_memory() if run.owner == visitor.id and not run.is_reference}
        kept = len(new | self._store.ids_of(visitor.id))
        if kept >= runs:
            raise Refused(
                f"{kept:,} runs of yours are kept here; this server keeps {runs:,} of each visitor. Delete some on the page Runs."
            )

    def _check_room(self, added: int) -> None:
        """Raise Refused where about so many bytes more, beside what live runs will add, cannot be kept."""
        room = self.limits.kept_bytes
        if room is None:
            return
        _, taken = self._library.size()
        added += sum(_bytes_to_come(run) for pair in self._pairs.alive() for run in pair.runs)
        if taken + added > room:
            raise Refused(
                f"The runs that are kept here take {in_words(taken)}, and with those that still compute this one would add about "
                f"{in_words(added)}; this server keeps {in_words(room)} in all. Delete runs on the page Runs, or ask who runs "
                "this server."
            )

    def _controlled(self, run_id: str, visitor: Visitor) -> None:
        """Raise KeyError where there is no such run, NotYours where the visitor may not control it."""
        run = self._pairs.run(run_id) or self._library.at_hand(run_id)
        owner = run.owner if run is not None else None
        if owner is None:
            row = self._store.load(run_id) or self._journal.pending(run_id)
            if row is None:
                raise KeyError(f"There is no run {run_id}.")
            owner = row.owner
        if self.limits.hosted and not visitor.admin and owner != visitor.id:
            raise NotYours("This run was started by somebody else: you can watch it, and run its settings yourself.")

    def _control(self, run_id: str, visitor: Visitor, act: Callable[[Gate], None]) -> Pair | None:
        """The pair of a live run, acted upon; None for one that has ended."""
        self._controlled(run_id, visitor)
        return self._pairs.control(run_id, act)

    def _change(self, run_id: str, visitor: Visitor, **values: str | bool) -> None:
        self._controlled(run_id, visitor)
        if self._pairs.change(run_id, **values):
            return
        with self._library.changing:
            if self._pairs.change(run_id, **values):  # it was resumed meanwhile
                return
            self._library.written(run_id)
            self._store.change(run_id, **values)
            run = self._library.at_hand(run_id)
            if run is None:
                self._library.forget(run_id)  # also what somebody is just reading
                return
            for name, value in values.items():
                setattr(run, name, value)

    def _continue(self, run_id: str) -> None:
        """Take up a run that has ended before its time, and its reference where that has, too."""
        members = self._to_continue(run_id)
        if members:
            legs = self._library.legs(members[0])[:-1]
            admission.check(*(member.config for member in members if not member.ended), limits=self.limits, before=legs)
            with self._counting, self._library.changing:
                members = self._to_continue(run_id)  # as they are now
                if members:
                    self._check_room(sum(map(_bytes_to_come, members)))
                    before = self._library.at_hand(run_id)
                    self._pairs.take_on(members, before.pace if before is not None else None)

    def _to_continue(self, run_id: str) -> tuple[Run, ...]:
        """A run and its reference, of which one can be continued at least; nothing where there is nothing left to do."""
        row = self._library.written(run_id)
        if row is None:
            raise Refused("The run was never written to the disk, or was deleted: start it anew.")
        if not row.owner:  # it goes with the last of those
            raise Refused("The run was deleted, and is kept only for those that continue it: start it anew.")
        if row.is_reference:  # alone it would go on while its run can be deleted, and it with that
            raise Refused("This is the run that another is compared with: resume that one.")
        other = self._library.written(row.reference_id) if row.reference_id else None
        reference = None if other is None else self._taken_up(self._library.stored(other))
        run = self._taken_up(self._library.stored(row, reference))
        members = (run,) if reference is None else (run, reference)
        if any(member.foreign for member in members):
            return ()
        if all(member.ended for member in members):
            if any(member.state in RESUMABLE and member.version != __version__ for member in members):
                raise Refused(_other_version(run, "continued"))
            return ()  # as when Resume is pressed on a finished run
        return members

    def _taken_up(self, run: Run) -> Run:
        """A stored run, ready to be continued from its last stored record where that makes sense."""
        if run.can_resume_itself:
            run.take_up()
        return run

    def _cannot_save(self, run_id: str, reason: str) -> None:
        remark = f"The records cannot be saved ({reason}); they can be seen and downloaded until the server ends."
        pair, ended = self._pairs.of(run_id), self._library.at_hand(run_id)
        if pair is not None:
            self._pairs.stop(
                pair, RunState.INTERRUPTED, f"Interrupted {{where}}. {remark} Resume continues when that is mended."
            )
        elif ended is not None:
            ended.enter(ended.state, f"{ended.message} {remark}")

    # --- housekeeping, in a thread of its own

    def _keep_house(self) -> None:
        limits = self.limits
        soon = min(filter(None, (limits.pause_unwatched_after, limits.put_away_after)), default=_HOUSEKEEPING)
        while not self._closed.wait(min(_HOUSEKEEPING, soon / 4)):
            try:
                if limits.pause_unwatched_after:
                    self._pairs.pause_unwatched(limits.pause_unwatched_after)
                if limits.put_away_after:
                    self._pairs.put_away_paused(limits.put_away_after)
                if limits.expire_after:
                    self._delete_expired(limits.expire_after)
            except Exception:  # whatever it is, it is tried again
                _log.exception("Housekeeping failed")

    def _delete_expired(self, after: float) -> None:
        for row in self._library.ended_before(datetime.now(UTC) - timedelta(seconds=after)):
            with self._library.changing:
                if self._pairs.in_use(row.id):
                    continue
                try:
                    now = self._library.written(row.id)  # it may have been continued or published meanwhile
                    if now is not None and not now.state.live and not now.published:
                        self._library.delete(now)
                except Refused:  # not yet: its reference goes on, or it is still being written
                    continue


def _bytes_to_come(run: Run) -> int:
    """About what a run will still leave on the disk."""
    if run.ended:
        return 0
    rounds = run.config.rounds
    return admission.stored_bytes(run.config) * (rounds - max(0, run.round)) // rounds


def _other_version(run: Run, what: str) -> str:
    return f"This run was made by fedviz {run.version} and cannot be {what} exactly by this one, {__version__}. Start it anew."
