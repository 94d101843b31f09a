"""Several runs, round by round together: other algorithms, seeds, rates, cohorts.

Each run's records are those it has alone. On a CPU runs of classification share the cores, a run to a core, and the records are the
same to the bit; analytic ones, all interpreter and tiny tensors, take turns.
On a GPU, where a cohort is too small to fill the device, the local passes of all runs that train the same model on the same images are one
batch; sums of a larger batch may round differently, within 1e-5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from fedviz.problems.workers import in_parallel
from fedviz.simulation.errors import Diverged
from fedviz.simulation.local_pass import Pass
from fedviz.simulation.loop import Simulation

if TYPE_CHECKING:
    from collections.abc import Hashable

    from fedviz.algorithms import LocalResult
    from fedviz.config import SimulationConfig
    from fedviz.problems import Progress
    from fedviz.simulation.records import RoundRecord


def simulate_many(
    configs: Sequence[SimulationConfig],
    *,
    progress: Progress = lambda _: None,
    between_steps: Callable[[], None] = lambda: None,
    one_batch: bool | None = None,
    enough: Callable[[int, RoundRecord], bool] = lambda *_: False,
) -> Iterator[tuple[int, RoundRecord | Diverged]]:
    """(which run, its record) of all runs, round by round; a run that diverges ends with its `Diverged` and holds nobody up.

    A record's w and checkpoint are valid until the next round. one_batch: whether local passes that fit together are one batch;
    None: on a GPU. enough: whether a run may end with this record. Raises ProblemError where the data of a run cannot be had.
    """
    runs = dict(enumerate(Simulation(config, progress, between_steps) for config in configs))
    for round in range(max((config.rounds for config in configs), default=-1) + 1):
        present = {which: run for which, run in runs.items() if run.config.rounds >= round}
        batched = {
            which: run
            for which, run in present.items()
            if round and (run.w.device.type != "cpu" if one_batch is None else one_batch)
        }
        single = {which: run for which, run in present.items() if which not in batched}
        shared = {which: run for which, run in single.items() if run.problem.computes_without_lock}
        records = dict(zip(batched, _as_one_batch(list(batched.values()), round), strict=True))
        records |= zip(shared, in_parallel(partial(_record, round), list(shared.values())), strict=True)
        records |= {which: _record(round, run) for which, run in single.items() if which not in shared}
        for which, record in sorted(records.items()):
            if isinstance(record, Diverged) or enough(which, record):
                del runs[which]
            yield which, record
        if not runs:
            return


def _record(round: int, run: Simulation) -> RoundRecord | Diverged:
    try:
        return run.advance(round) if round else run.first()
    except Diverged as end:
        return end


def _as_one_batch(runs: Sequence[Simulation], round: int) -> list[RoundRecord | Diverged]:
    """Begin the round of every run, make all passes, end the round of every run."""
    begun = [run.begin_round(round) for run in runs]
    passes = [pending.work for pending in begun]
    groups: dict[Hashable, list[int]] = {}
    for which, work in enumerate(passes):
        if work is not None:
            groups.setdefault(work.fits_with(), []).append(which)
    done: dict[int, LocalResult] = {}
    for members in groups.values():
        together = [work for which in members if (work := passes[which]) is not None]
        done.update(zip(members, Pass.make_together(together), strict=True))

    def end(which: int) -> RoundRecord | Diverged:
        try:
            return runs[which].end_round(begun[which], done.get(which))
        except Diverged as failure:
            return failure

    return [end(which) for which in range(len(runs))]
