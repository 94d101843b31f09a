"""Every sentence that the page forms from a config or a run. Plain English first, the symbol second; no Streamlit here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fedviz.config import SimulationConfig
from fedviz.participation import Cyclic
from fedviz.participation.cyclic import Turns
from fedviz.problems import Classification
from fedviz.problems.partitions import Similarity


@dataclass(frozen=True)
class Badge:
    """How a state looks: a word, a colour, an icon, and one sentence about it."""

    word: str
    color: Literal["red", "orange", "blue", "green", "gray"]
    icon: str
    sentence: str


BADGES = {
    "recorded": Badge(
        "recorded",
        "gray",
        ":material/movie:",
        "A finished run of the default settings, recorded earlier. Press Run for a live one.",
    ),
    "ready": Badge("ready", "gray", ":material/check:", "Nothing has run yet."),
    "queued": Badge("queued", "blue", ":material/hourglass_empty:", "Waiting for another run to end."),
    "preparing": Badge("preparing", "blue", ":material/downloading:", "Getting ready."),
    "running": Badge(
        "running", "green", ":material/directions_run:", "Computing now; every curve is measured, none is smoothed."
    ),
    "paused": Badge("paused", "orange", ":material/pause:", "Standing still. Step on by one round, or resume."),
    "finished": Badge("finished", "blue", ":material/check_circle:", "All rounds are done."),
    "stopped": Badge(
        "stopped", "gray", ":material/stop_circle:", "Ended before the last round; what was computed is kept."
    ),
    "diverged": Badge("diverged", "red", ":material/trending_up:", "The model grew without bounds."),
    "failed": Badge("failed", "red", ":material/error:", "Something went wrong."),
    "interrupted": Badge(
        "interrupted",
        "orange",
        ":material/power_off:",
        "The server ended during this run; what was computed is kept. Press Run to repeat it.",
    ),
}


def number(value: float) -> str:
    """At most three significant digits, no exponent where people do not write one."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if 1e-4 <= abs(value) < 1e6:
        digits = max(0, 2 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.2e}"


def percent(share: float) -> str:
    return f"{number(100 * share)}\N{NO-BREAK SPACE}%"


def megabytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{number(count / size)} {unit}"
    return f"{count:.0f} bytes"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 10 else f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def escape(text: str) -> str:
    """Text that may hold anything, safe inside a line of markdown."""
    for mark in "\\`*_[]$<>~":
        text = text.replace(mark, "\\" + mark)
    return text.replace("\n", " ")


def clients(config: SimulationConfig) -> str:
    """As in "5 of 100 clients"."""
    return config.participation.phrase(config.num_clients)


def heterogeneity(config: SimulationConfig) -> str:
    """How the data is spread, in two words; the problem's name where it has no partition."""
    partition = getattr(config.problem, "partition", None)
    if partition is None:
        return config.problem.title.lower()
    values = partition.model_dump(exclude={"name"})
    if "similarity" in values:
        return f"similarity {percent(values['similarity'])}"
    numbers = [f"{name} {number(value)}" for name, value in values.items() if isinstance(value, int | float)]
    return ", ".join([partition.title, *numbers])


def title(config: SimulationConfig) -> str:
    """What is running, in one line."""
    turns = f" · {config.participation.groups} groups in turn" if isinstance(config.participation, Turns) else ""
    return f"{config.algorithm.title} · {clients(config)}{turns} · {heterogeneity(config)}"


def will_happen(config: SimulationConfig, reference: SimulationConfig | None) -> str:
    """What pressing Run does, in one sentence."""
    beside = f" beside {reference.algorithm.title} on the same data" if reference else ""
    who = clients(config)
    return (
        f"Run trains with {config.algorithm.title}{beside} for {config.rounds:,} rounds, {who} in each, and shows where the server's "
        "error comes from while it happens."
    )


def looking_at(config: SimulationConfig, reference: SimulationConfig | None) -> list[str]:
    """Three plain sentences: what is trained how, what the method does, what to watch."""
    N, S = config.num_clients, config.participation.mean_size(config.num_clients)
    steps = "one gradient step" if config.steps == 1 else f"{config.steps:,} gradient steps"
    data = " " + _data(config)
    turns = config.participation
    if S >= N:
        turn = (
            f"In every round all {N:,} clients take {steps} on their own data, and the server follows what they bring."
        )
    elif isinstance(turns, Turns):
        turn = (
            f"{turns.groups} groups of clients take turns, {turns.availability} rounds each; {S:,.0f} of the clients that are there take "
            f"{steps} on their own data."
        )
    else:
        turn = (
            f"In every round {clients(config)} take {steps} on their own data, and the server follows what they bring."
        )
    return [turn + data, config.algorithm.summary, _watch(config, reference, S / N)]


def _data(config: SimulationConfig) -> str:
    """How the data is spread, in a sentence."""
    partition = getattr(config.problem, "partition", None)
    if isinstance(partition, Similarity) and partition.similarity < 1:
        share = percent(partition.similarity)
        return f"{share} of the data is dealt at random; the rest goes by label, so that each client has mostly one."
    if isinstance(partition, Similarity):
        return "All data is dealt at random, so that all clients look alike."
    return config.problem.summary if partition is None else partition.summary


def _watch(config: SimulationConfig, reference: SimulationConfig | None, share: float) -> str:
    """What to look for in the decomposition; follows from the method's kind, never from the numbers of a run."""
    name, other = config.algorithm.name, reference.algorithm.title if reference else "FedAvg"
    if share >= 1:
        return "Everybody takes part, so who took part adds nothing to the error: what is left is noise and drift."
    age = number(1 / share)
    if name in ("fedvarp", "mifa"):
        return (
            f"Look at the part of the error that comes from who took part: a client is seen about every {age} rounds, and once all have "
            f"been, memory should push that part far below {other}'s, down to what noise in old memories leaves."
        )
    if name == "cluster_fedvarp":
        return (
            "Look at the part of the error that comes from who took part: it should fall sooner than with a memory for each client, "
            "but only to the level of the differences inside the clusters."
        )
    if "scaffold" in name:
        return (
            f"Look at two parts of the error: who took part should fall as control variates fill (a client is seen about every {age} "
            "rounds), and drift should become smaller too, which memory at the server alone cannot do."
        )
    return (
        "Look at the part of the error that comes from who took part: nothing is remembered, so it stays as large as clients differ, "
        "however long it runs."
    )


def measured_on(config: SimulationConfig) -> str:
    """What the curves of loss and accuracy are measured on."""
    if isinstance(config.problem, Classification):
        info = config.problem.info
        return f"Loss on all {info.train:,} training images of all clients, accuracy on {info.test:,} images that no client holds."
    return "Measured exactly, on the mean of all clients' objectives."


def probe_share(algorithm: float | None, probes: float | None) -> str:
    """What measuring the parts has cost, from sums of sample gradients."""
    if not probes or algorithm is None:
        return ""
    return f"Measuring the parts took {percent(probes / (probes + algorithm))} of all gradients; the run itself is the same without."


def live_value(path: str, config: SimulationConfig) -> str:
    """What a control's present value comes to: "S/N = 5/100". Empty where there is nothing to add."""
    c, N, S = config, config.num_clients, config.participation.mean_size(config.num_clients)
    step = c.client_lr * c.steps
    if path in ("algorithm", "algorithm.clusters"):
        vectors = c.algorithm.state_vectors(N)
        size = vectors * c.problem.dimension() * c.problem.itemsize()
        return (
            f"Memory: {vectors:,} vectors of d = {c.problem.dimension():,}, {megabytes(size)}"
            if vectors
            else "Memory: none"
        )
    if path.endswith(".clients_per_round"):
        if isinstance(c.participation, Cyclic):
            return f"S of one group: {S:g}/{N // c.participation.groups}"
        return f"S/N = {S:g}/{N}"
    if path in ("participation.groups", "participation.availability") and isinstance(c.participation, Turns):
        return f"P = g·K̄ = {c.participation.groups * c.participation.availability} rounds until all groups have had their turn"
    if path.endswith("partition.similarity"):
        share = c.problem.partition.similarity  # type: ignore[union-attr]
        return f"{percent(share)} of the data is dealt at random, {percent(1 - share)} by label"
    values = {
        "client_lr": f"η_c·τ = {number(step)}",
        "local_steps": f"η_c·τ = {number(step)}",
        "server_lr": f"η_s·η_c·τ = {number(c.server_lr * step)}",
        "batch_size": f"τ·B = {c.steps * c.batch_size:,} samples a client and round",
        "rounds": f"R·S/N: a client takes part about {number(c.rounds * S / N)} times",
        "algorithm.mu": f"η_c·μ·τ = {number(step * getattr(c.algorithm, 'mu', 0.0))}",
        "eval_every": f"Every {c.eval_every} rounds" if c.eval_every else "Never",
        "probe_every": f"Every {c.probe_every} rounds" if c.probe_every else "Never",
    }
    return values.get(path, "")


ERROR_FORMULA = (  # a term a line, to fit on a phone
    r"\begin{aligned}\mathbb E\lVert v-\nabla f\rVert^2=\;&"
    r"\underbrace{\mathbb E\lVert v-\bar v\rVert^2}_{\text{who took part}}\\[3pt]&"
    r"+\underbrace{\mathbb E\lVert\bar v-\mathbb E\bar v\rVert^2}_{\text{minibatch noise}}\\[3pt]&"
    r"+\underbrace{\lVert\mathbb E\bar v-\nabla f\rVert^2}_{\text{drift}}\end{aligned}"
)
