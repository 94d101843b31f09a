"""Every sentence that the page forms from a config or a run. Plain English first, the symbol second; no Streamlit here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fedviz.algorithms import AlgorithmParameters, ClusterFedVARPParameters
from fedviz.algorithms.amplified import AmplifiedParameters, AmplifiedScaffoldParameters
from fedviz.algorithms.fedavg import FedAvgParameters
from fedviz.algorithms.fedvarp import FedVARPParameters
from fedviz.algorithms.mifa import MIFAParameters
from fedviz.algorithms.scaffold import ScaffoldParameters
from fedviz.algorithms.sgd import SGDParameters
from fedviz.catalogue import costs
from fedviz.config import SimulationConfig
from fedviz.figures.style import PERCENT
from fedviz.figures.style import number as number  # the page asks here for all its words
from fedviz.figures.style import percent as percent
from fedviz.participation import Bernoulli, Cyclic, Full, Markov, Regularized, StochasticCyclic, Trace, Uniform
from fedviz.participation.cyclic import Turns
from fedviz.problems import Classification, LowerBound, Quadratics
from fedviz.problems.partitions import Iid, Similarity
from fedviz.runs.admission import in_words


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
        "The server ended during this run; what was computed is kept. Resume continues it.",
    ),
}


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 10 else f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def when(time: datetime, zone: str | None) -> str:
    """A moment by a visitor's clock, as in "30 Nov 2026, 11:56"; by UTC, and said so, where their time zone is not known."""
    try:
        return time.astimezone(ZoneInfo(zone or "")).strftime("%d %b %Y, %H:%M")
    except (ValueError, OSError, ZoneInfoNotFoundError):  # a browser may say anything
        return time.astimezone(UTC).strftime("%d %b %Y, %H:%M UTC")


def standing(state: str, message: str) -> str:
    """How far a run got that ended before its time, as in "Stopped after round 937"; "" for others."""
    early = state in ("stopped", "interrupted", "diverged", "failed")
    return re.split(r"[.:] ", message, maxsplit=1)[0].rstrip(".") if early else ""


def escape(text: str) -> str:
    """Text that may hold anything, safe inside a line of markdown: addresses in it are no links, and names no icons."""
    for mark in "\\`*_[]$<>~":
        text = text.replace(mark, "\\" + mark)
    return re.sub(
        r":(?=[/a-z_+-])|(?<!\d):(?=\d)|@|(?<=\bwww)(?=\.)",
        "\\g<0>\u2060",
        text.replace("\n", " "),
        flags=re.IGNORECASE,
    )


_INDEXED = re.compile(r"(?<!\w)(\w)_([a-z]+)(?:\^(\w))?(?!\w)")
_TEX = {"η": r"\eta", "Δ": r"\Delta", "ḡ": r"\bar g"}


def typeset(text: str) -> str:
    """The same with symbols that have an index as formulas: η_c."""
    done, written = 0, ""
    for found in _INDEXED.finditer(text):
        symbol, index, power = found.groups()
        below = index if len(index) == 1 else rf"\mathrm{{{index}}}"
        above = f"^{{{power}}}" if power else ""
        written += f"{escape(text[done : found.start()])}${_TEX.get(symbol, symbol)}_{{{below}}}{above}$"
        done = found.end()
    return written + escape(text[done:])


def reason(error: Exception) -> str:
    """What an error says; of a KeyError Python would show the quotation marks as well."""
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)


def plain(text: str) -> str:
    """Text that somebody else wrote (a name, a link), so that Markdown shows it as it is: no link, icon, formula or formatting.

    Addresses and icons are found even behind a backslash: a joiner without width takes them apart.
    """
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    apart = re.sub(r"([:@])", "\\1\u2060", line).replace(".", "\u2060.")
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", apart)


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
        return f"similarity {percent(values['similarity'], trim=True)}"
    numbers = [f"{name} {number(value, trim=True)}" for name, value in values.items() if isinstance(value, int | float)]
    return ", ".join([partition.title, *numbers])


def title(config: SimulationConfig) -> str:
    """What is running, in one line."""
    turns = f" · {config.participation.groups:,} groups in turn" if isinstance(config.participation, Turns) else ""
    return f"{config.algorithm.title} · {clients(config)}{turns} · {heterogeneity(config)}"


def will_happen(config: SimulationConfig, reference: SimulationConfig | None) -> str:
    """What pressing Run does, in one sentence."""
    beside = f" beside {reference.algorithm.title} on the same data" if reference else ""
    who, rounds = clients(config), count(config.rounds, "round")
    return (
        f"Run trains with {config.algorithm.title}{beside} for {rounds}, {who} in each, and shows where the server's "
        "error comes from while it happens."
    )


def looking_at(config: SimulationConfig, reference: SimulationConfig | None) -> list[str]:
    """Three plain sentences: what is trained how, what the method does, what to watch."""
    N, S = config.num_clients, config.participation.mean_size(config.num_clients)
    steps = "one gradient step" if config.steps == 1 else f"{config.steps:,} gradient steps"
    data = " " + _data(config)
    turns = config.participation
    if _everybody_takes_part(config):
        turn = (
            f"In every round all {N:,} clients take {steps} on their own data, and the server follows what they bring."
        )
    elif isinstance(turns, Turns):
        turn = (
            f"{turns.groups:,} groups of clients take turns, {turns.availability:,} rounds each; {S:,.0f} of the clients that are there "
            f"take {steps} on their own data."
        )
    else:
        turn = (
            f"In every round {clients(config)} take {steps} on their own data, and the server follows what they bring."
        )
    return [turn + data, config.algorithm.summary, watch(config, reference)]


def _data(config: SimulationConfig) -> str:
    """How the data is spread, in a sentence."""
    partition = getattr(config.problem, "partition", None)
    if isinstance(partition, Similarity) and partition.similarity < 1:
        share = percent(partition.similarity, trim=True)
        return f"{share} of the data is dealt at random; the rest goes by label, so that each client has mostly one."
    if isinstance(partition, Similarity):
        return "All data is dealt at random, so that all clients look alike."
    if isinstance(config.problem, Quadratics):
        if config.problem.curvature is not None:
            return "Each client has a small parabola, given in numbers."
        return "Each client has a small parabola, drawn so that they differ as much as is asked; the best point for all is known exactly."
    return config.problem.summary if partition is None else partition.summary


def watch(config: SimulationConfig, reference: SimulationConfig | None = None) -> str:
    """What to look for in the decomposition. Follows from the settings, never from the numbers of a run."""
    method, pattern = config.algorithm, config.participation
    if _everybody_takes_part(config):
        return _watch_everybody(config)
    if _clients_are_alike(config):
        beside = f", and {reference.algorithm.title} should do about as well" if reference else ""
        return f"All clients look alike, so it matters little who takes part: there is little for a memory to remove{beside}."
    if isinstance(pattern, Turns):
        return _watch_turns(method, loosely=not isinstance(pattern, Cyclic), window=pattern.window(config.num_clients))
    if isinstance(pattern, Markov | Trace):
        return (
            "Whoever is available takes part, so nobody is drawn and that part is zero: look at the part of who was available, "
            + (_FADES if _remembers(method, config.num_clients) else _STAYS)
        )
    if isinstance(pattern, Regularized):
        return (
            "Within a window fewer and fewer clients are left to draw from: the part of who took part shrinks to zero, and that of "
            "who was available grows instead, "
            + (_FADES if _remembers(method, config.num_clients) else "until the next shuffle.")
        )
    return _watch_chance(config)


_FADES = "which fades as memories stand in for those who are away."
_STAYS = "which stays as long as clients differ, for nothing is remembered."


def _watch_everybody(config: SimulationConfig) -> str:
    begin = "Everybody takes part, so who took part adds nothing to the error"
    method = config.algorithm
    exact = isinstance(method, SGDParameters) or not _gradients_are_noisy(config)
    if config.steps == 1:  # then a client's step is its gradient at the server's model
        if exact:
            return (
                f"{begin}, and one exact gradient a client has neither noise nor drift: this is plain gradient descent."
            )
        return f"{begin}, and a single step does not drift: all error is gradient noise."
    left = "drift alone" if exact else "gradient noise and drift"
    if isinstance(method, ScaffoldParameters | AmplifiedScaffoldParameters):
        return f"{begin}: look at drift, which the correction of every local step should make smaller than FedAvg's."
    return f"{begin}: what is left is {left}, which a memory at the server cannot lower."


def _watch_turns(method: AlgorithmParameters, *, loosely: bool, window: int) -> str:
    begin = "Look at the part of which group is on duty"
    if loosely:
        begin += " (those off duty who come too soften it)"
    if isinstance(method, AmplifiedScaffoldParameters):
        return (
            f"{begin}: it is large in every round, fades as control variates fill at the end of each window, and over a window of "
            f"{method.window or window:,} rounds it largely cancels."
        )
    if isinstance(method, AmplifiedParameters):
        return (
            f"{begin}: it stays large in every single round, but over a window in which all groups had their turn "
            f"({window:,} rounds) it largely cancels."
        )
    if isinstance(method, ClusterFedVARPParameters):
        return f"{begin}: it should fall once every cluster has been seen, as far as its members are alike."
    if isinstance(method, FedVARPParameters | ScaffoldParameters):
        return (
            f"{begin}: it should fade once all groups have had a turn, for memories stand in for the others; they grow old, though, "
            "while their group is away."
        )
    return f"{begin}: the model is pulled towards each group in turn, and as nothing is remembered this does not fade."


def _watch_chance(config: SimulationConfig) -> str:
    """For patterns in which chance decides who takes part, and all are equally likely."""
    method, N = config.algorithm, config.num_clients
    if isinstance(method, ClusterFedVARPParameters):
        if method.clusters == 1:
            return f"With one cluster this is FedAvg. {FedAvgParameters.watch}"
        if method.clusters < N and method.clustering == "random":
            return (
                "The clusters are drawn by chance, so a memory stands for clients that disagree: the part of the error that comes from "
                "who took part should not fall much below FedAvg's, and may be larger."
            )
        if method.clusters >= N:
            method = FedVARPParameters()
    sentence = method.watch or "Look at which of the parts is the largest, and how that changes."
    if not _remembers(method, N) or isinstance(method, ClusterFedVARPParameters):
        return sentence
    age = number(N / config.participation.mean_size(N), trim=True)
    if isinstance(method, MIFAParameters):
        return f"{sentence} A client is seen about every {age} rounds."
    floor = "noise keeps it above zero" if _gradients_are_noisy(config) else "with exact gradients, down to zero"
    return f"{sentence} A client is seen about every {age} rounds; {floor}."


def _remembers(method: AlgorithmParameters, num_clients: int) -> bool:
    """Whether something is remembered of clients, or of clusters that are more than one."""
    if isinstance(method, ClusterFedVARPParameters):
        return method.clusters > 1 and (method.clustering != "random" or method.clusters >= num_clients)
    return isinstance(method, FedVARPParameters | ScaffoldParameters | AmplifiedScaffoldParameters)


def _everybody_takes_part(config: SimulationConfig) -> bool:
    pattern, N = config.participation, config.num_clients
    if isinstance(pattern, StochasticCyclic):  # whose size is that of the cohort if enough are there
        always_there = pattern.on_duty == 1 and (pattern.groups == 1 or pattern.off_duty == 1)
        return always_there and pattern.clients_per_round >= N
    return pattern.mean_size(N) >= N


def _clients_are_alike(config: SimulationConfig) -> bool:
    problem = config.problem
    if isinstance(problem, Quadratics):
        return problem.clients_are_alike()
    if isinstance(problem, Classification):
        dealt = problem.partition
        alike = isinstance(dealt, Iid) or (isinstance(dealt, Similarity) and dealt.similarity == 1)
        return alike and problem.feature_skew == "none"
    return False


def _gradients_are_noisy(config: SimulationConfig) -> bool:
    """Whether a local step's gradient is a random one."""
    if isinstance(config.algorithm, SGDParameters):
        return False
    return not (isinstance(config.problem, Quadratics | LowerBound) and config.problem.noise == 0)


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
            f"Memory: {vectors:,} vectors of d = {c.problem.dimension():,}, {in_words(size)}"
            if vectors
            else "Memory: none"
        )
    if path.endswith(".clients_per_round"):
        if isinstance(c.participation, Cyclic):
            return f"S of one group: {S:,.10g}/{N // c.participation.groups:,}"
        return f"S/N = {S:,.10g}/{N:,}"
    if path in ("participation.groups", "participation.availability") and isinstance(c.participation, Turns):
        return f"P = g·K̄ = {c.participation.groups * c.participation.availability:,} rounds until all groups have had their turn"
    if path.endswith("partition.similarity"):
        share = c.problem.partition.similarity  # type: ignore[union-attr]
        return f"{percent(share, trim=True)} of the data is dealt at random, {percent(1 - share, trim=True)} by label"
    values = {
        "client_lr": f"η_c·τ = {number(step, trim=True)}",
        "local_steps": f"η_c·τ = {number(step, trim=True)}",
        "server_lr": f"η_s·η_c·τ = {number(c.server_lr * step, trim=True)}",
        "batch_size": f"τ·B = {c.steps * c.batch_size:,} samples a client and round",
        "rounds": f"R·S/N: a client takes part about {number(c.rounds * S / N, trim=True)} times",
        "algorithm.mu": f"η_c·μ·τ = {number(step * getattr(c.algorithm, 'mu', 0.0), trim=True)}",
        "eval_every": f"Every {c.eval_every:,} rounds" if c.eval_every else "Never",
        "probe_every": f"Every {c.probe_every:,} rounds" if c.probe_every else "Never",
    }
    return values.get(path, "")


def turns(config: SimulationConfig) -> str:
    """What theory asks of the participation pattern, before a run: P, p_sample, rho^2, and whether rounds may be empty."""
    facts = config.participation.facts(config.num_clients)
    window = f"In {facts.window:,} rounds (the window P)" if facts.window > 1 else "In a round (the window P = 1)"
    said = []
    if facts.seen_in_window is not None:
        said.append(f"{window} a client takes part with a chance of p_sample = {_chance(facts.seen_in_window)}.")
    elif isinstance(config.participation, Trace) and not config.participation.repeat:
        said.append(f"The {count(facts.window, 'round')} that are given do not start again.")
    elif facts.window > 1:
        said.append(f"The pattern starts again after {facts.window:,} rounds (the window P).")
    if facts.rho_squared is not None:
        said.append(
            f"Weights: ρ² = {number(facts.rho_squared, trim=True)}, where 1 is a single client that decides alone."
        )
    if facts.empty == 0:
        said.append("No round is empty.")
    elif isinstance(config.participation, Trace):
        given = config.participation.cohorts
        empty = sum(not cohort for cohort in given)
        said.append(f"Nobody takes part in {empty:,} of the {count(len(given), 'round')} that are given.")
    else:
        said.append(f"A round is empty with a chance of {_chance(facts.empty)}.")
    return " ".join(said)


def _chance(chance: float) -> str:
    """A chance in percent; one that is not certain is not rounded to 100 %."""
    return f"over 99.9{PERCENT}" if 0.9995 <= chance < 1 else percent(chance, trim=True)


def method_costs(config: SimulationConfig) -> str:
    """What the algorithm remembers and sends, as formulas and with this run's numbers."""
    method, d = config.algorithm, config.problem.dimension()
    formulas, vectors = costs(type(method)), method.state_vectors(config.num_clients)
    memory, down, up = (
        formulas[what].removesuffix(" numbers")
        for what in ("memory", "sent to a participant in a round", "sent by a participant in a round")
    )
    size = in_words(vectors * d * config.problem.itemsize())
    remembered = (
        f"Remembers {memory} = {vectors * d:,} numbers ({size})."
        if vectors
        else "Remembers nothing from round to round."
    )
    return f"{remembered} In a round each participant receives {down} and sends {up}; d = {d:,}."


def found(path: str, config: SimulationConfig) -> str:
    """What was found in a list that may come from a file. Empty where there is nothing to add."""
    if path != "participation.cohorts" or not isinstance(config.participation, Trace):
        return ""
    cohorts = config.participation.cohorts
    sizes = sorted({len(cohort) for cohort in cohorts})
    each = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    empty, known = sum(not cohort for cohort in cohorts), len(set().union(*cohorts))
    return (
        f"Found {count(len(cohorts), 'round')} of {each} client{'' if sizes == [1] else 's'}, "
        f"{count(known, 'different client')} in all" + (f"; nobody in {count(empty, 'round')}." if empty else ".")
    )


def count(number: int, noun: str) -> str:
    """As in "1 run", "2,000 runs"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# A term a line, to fit on a phone.
ERROR_FORMULA = (
    r"\begin{aligned}\mathbb E\lVert v-\nabla f\rVert^2=\;&"
    r"\underbrace{\mathbb E\lVert v-\bar v\rVert^2}_{\text{who took part}}\\[3pt]&"
    r"+\underbrace{\mathbb E\lVert\bar v-\mathbb E\bar v\rVert^2}_{\text{gradient noise}}\\[3pt]&"
    r"+\underbrace{\lVert\mathbb E\bar v-\nabla f\rVert^2}_{\text{drift}}\end{aligned}"
)
# Where what can be drawn in a round is not, on average, what all clients would bring: a fourth part, and a cross term.
ERROR_FORMULA_BIASED = (
    r"\begin{aligned}\mathbb E\lVert v-\nabla f\rVert^2=\;&"
    r"\underbrace{\mathbb E\lVert v-\bar v_A\rVert^2}_{\text{who took part}}\\[3pt]&"
    r"+\underbrace{\mathbb E\lVert\bar v_A-\mathbb E\bar v_A\rVert^2}_{\text{gradient noise}}\\[3pt]&"
    r"+\underbrace{\lVert\beta\rVert^2}_{\text{BIAS}}\quad\beta=\mathbb E\bar v_A-\mathbb E\bar v\\[3pt]&"
    r"+\underbrace{\lVert\mathbb E\bar v-\nabla f\rVert^2}_{\text{drift}}\\[3pt]&"
    r"+\underbrace{2\,\langle\beta,\;\mathbb E\bar v-\nabla f\rangle}_{\text{interaction}}\end{aligned}"
)


def error_formula(config: SimulationConfig) -> str:
    """LaTeX: the server's error and its parts, as this participation pattern and this method have them."""
    if _is_unbiased(config):
        return ERROR_FORMULA
    on_duty, own = isinstance(config.participation, Turns), isinstance(config.algorithm, MIFAParameters)
    bias = "which group was on duty" if on_duty else "who was available"
    if own:
        bias = "who was on duty and old memories" if on_duty else "old memories"
    return ERROR_FORMULA_BIASED.replace("BIAS", bias)


def error_caption(config: SimulationConfig) -> str:
    """What stands over the formula of the error."""
    shared = "" if _is_unbiased(config) else "; the interaction is what bias and drift share, and may be negative"
    return f"The error of that step, part by part{shared}."


def error_symbols(config: SimulationConfig) -> str:
    """The symbols of both formulas in one line of plain text."""
    formula = config.algorithm.formula
    unbiased = _is_unbiased(config)
    return "; ".join(
        [
            "v: the server's step",
            "v̄: the same step if all clients took part",
            *([] if unbiased else ["v̄_A: the same on average over all who could have been drawn in this round"]),
            "∇f: the gradient of the mean objective",
            "E: averaged over chance",
            "Δ_i: what client i brings, its mean local step",
            *(["y: what the server remembers of it"] if "y_" in formula else []),
            *(["g_i(u): its gradient in a local step, at its model u"] if "g_i(u)" in formula else []),
            *(["ḡ_i: their mean over the round"] if r"\bar g" in formula else []),
            *(["c_i, c: the usual gradient of client i, and of all"] if "c-c_i" in formula else []),
            *(["G_i, G: the usual gradient of client i, and of all"] if "G-G_i" in formula else []),
            *(["q: a client's weight in round r of the window"] if "q_r" in formula else []),
            *(["δ: the participants' mean move"] if r"\delta" in formula else []),
            *(["m: δ gathered over past rounds"] if r"m\leftarrow" in formula else []),
            *(["s: its square gathered over past rounds"] if r"s\leftarrow" in formula else []),
            "S: how many clients take part",
            *(
                ["drift is that of full-batch steps here, and what noise adds to it stands in the interaction"]
                if config.probe.mode == "full"
                else []
            ),
        ]
    )


def _is_unbiased(config: SimulationConfig) -> bool:
    """Whether a random cohort brings, on average, what all clients would: all can be drawn, with equal chances."""
    pattern = config.participation
    drawn_from_all = isinstance(pattern, Full | Uniform) or (
        isinstance(pattern, Bernoulli) and pattern.weighting == "average"
    )
    return _everybody_takes_part(config) or (drawn_from_all and not isinstance(config.algorithm, MIFAParameters))


_LEGEND_HELP = (
    "The number beside a name is its latest value; point at a round to read all charts there, click a name to hide it."
)
_SCALE_HELP = (
    "Linear shows differences, log shows ratios: equal heights are equal factors, and values of zero or below are gaps."
)

CHART_HELP = {
    "loss": f"How well the model fits the data of all clients together, the lower the better. {_SCALE_HELP} {_LEGEND_HELP}",
    "accuracy": (
        "How many images that no client holds are named correctly; for problems without images, how far the model is from the best "
        "point."
    ),
    "decomposition": (
        "How far the server's step is from the true gradient, as a squared distance split into parts that add up to the total: who took "
        "part (chance drew these clients), which group was on duty or who was available (those who can be drawn differ from all), "
        "gradient noise (of minibatches, or as added where there is no data; left even if all took part), client drift (local steps "
        "lead away from the gradient), and an interaction of these where there is one. "
        "Log compares sizes, linear stacks the parts. Absolute shows squared distances, relative divides them by the squared length of "
        "the run's own mean step and leaves out that the step is too short, which a larger rate would undo. As measured counts the noise "
        "of the clients that were drawn as who took part, as in theory counts it as noise; the total is the same. "
        "The crosses check the total independently with random cohorts; their bars are one standard error."
    ),
    "participation": (
        "Each row is a client, each column a round: a mark where the client took part, a pale ground where it was its turn. Bands group "
        "the clients of a cluster."
    ),
    "heterogeneity": (
        "Above, how far the clients' gradients lie from their mean: over all clients, and within groups of similar ones; and how far what "
        "is remembered lies from the present gradient. Below, for methods with memories, how many rounds old these are on average; the "
        "dotted line, where it can be worked out, is the age that chance leads one to expect in the long run, over a whole window where "
        "clients take turns. A young run lies below it, for nothing is older than the run and memories not filled yet do not count; "
        "grey rounds are those in which some clients had not been seen yet."
    ),
    "windows": (
        "Amplified methods act once in a window of rounds: these are the parts of the whole window's error, among them how the gradient "
        "changed while the model moved within the window."
    ),
}
