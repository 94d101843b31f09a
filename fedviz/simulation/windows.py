"""Windows of the amplified methods: where the move of a whole window differs from the gradient at its start. Exact, on the path taken.

With V = (1/P) sum_r v_r the window's mean direction, and w_r the model before round r of the window:

    V - grad f(w_start) = (1/P) sum_r [v_r - vbar_r]            participation: who took part
                        + (1/P) sum_r [vbar_r - v_fb,r]         noise       (mode "full"; part of the drift in mode "cheap")
                        + (1/P) sum_r [v_fb,r - grad f(w_r)]    drift
                        + (1/P) sum_r [grad f(w_r) - grad f(w_start)]    movement of the model within the window

vbar_r: all clients with the minibatches they would have used in the round; v_fb,r: all clients with full-batch steps. A round without
participants has v_r = 0. It takes a pass of everybody in every round of the window, so only one window in several is measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from fedviz.simulation.decomposition import Probe, wide
from fedviz.simulation.local_pass import evaluations
from fedviz.simulation.records import WindowDecomposition

if TYPE_CHECKING:
    from fedviz.algorithms import Cohort, LocalResult
    from fedviz.config import SimulationConfig

Sums = dict[str, Tensor]  # name -> [d] sum over the rounds so far, and "start": grad f at the window's start


def is_measured(config: SimulationConfig, window: int, round: int) -> bool:
    """Whether `round` (1-based) lies in a window that is measured: one in `windows_every`, by default about five of a run."""
    if not config.probe_every or round > config.rounds // window * window:
        return False
    every = config.probe.windows_every
    if every is None:
        every = max(1, config.rounds // window // 5)
    return every > 0 and ((round - 1) // window + 1) % every == 0


def add_round(probe: Probe, cohort: Cohort, result: LocalResult | None, sums: Sums) -> tuple[Sums, int]:
    """(sums with this round, sample gradients taken). Start a window with empty sums."""
    problem, everybody = probe.problem, np.arange(probe.problem.num_clients)
    p = wide(problem.client_weights)
    gradient = probe.full_gradients().mean
    vbar = p @ wide(probe.passes(everybody))
    spent = problem.full_evaluations(everybody) + evaluations(probe.config, problem, everybody)
    v = gradient.new_zeros(gradient.shape)
    if result is not None:
        v = wide(probe.algorithm.direction(probe.state, cohort, result))
    terms = {"participation": v - vbar, "gradient": gradient}
    if probe.config.probe.mode == "full":
        v_fb = p @ wide(probe.passes(everybody, full_batch=True))
        spent += evaluations(probe.config, problem, everybody, full_batch=True)
        terms |= {"noise": vbar - v_fb, "drift": v_fb - gradient}
    else:
        terms["drift"] = vbar - gradient
    if not sums:
        return {**terms, "start": gradient.clone()}, spent
    return {"start": sums["start"], **{name: sums[name] + term for name, term in terms.items()}}, spent


def end(sums: Sums, rounds: int) -> WindowDecomposition:
    """The window's parts, from the sums over its `rounds`."""
    mean = {name: total / rounds for name, total in sums.items() if name != "start"}
    mean["movement"] = mean.pop("gradient") - sums["start"]
    whole = sum(mean.values(), start=sums["start"] * 0)
    squares = {name: float(term.square().sum()) for name, term in mean.items()}
    total = float(whole.square().sum())
    return WindowDecomposition(
        participation=squares["participation"],
        noise=squares.get("noise"),
        drift=squares["drift"],
        movement=squares["movement"],
        interaction=total - sum(squares.values()),
        total=total,
        rounds=rounds,
    )
