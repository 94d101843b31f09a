"""Everything one can choose, as plain data: every algorithm, pattern, partition, problem, data set and model, read from the code itself.

The command `catalogue`, the page "Reference" and nothing else: what is registered appears here by itself, with its parameters, its
formula and what it costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_origin

from pydantic_core import PydanticUndefined

from fedviz.algorithms import ALGORITHMS, AlgorithmParameters
from fedviz.config import ProbeParameters, SimulationConfig
from fedviz.formulas import plain
from fedviz.parameters import Parameters, in_words, shown
from fedviz.participation import PATTERNS, ParticipationParameters
from fedviz.problems import PROBLEMS, ProblemParameters
from fedviz.problems.architectures import FORMULAS, TITLES, shapes
from fedviz.problems.datasets import DATASETS
from fedviz.problems.partitions import PARTITIONS

KINDS: dict[str, str] = {
    "algorithms": "Algorithms",
    "patterns": "Participation",
    "partitions": "Data heterogeneity",
    "problems": "Problems",
    "datasets": "Data sets",
    "models": "Models",
    "settings": "Settings of a run",
}

# The symbols that formulas have in common; further ones are those of an entry's own parameters, or said in its formula.
SYMBOLS: dict[str, str] = {
    "N": "clients",
    "S": "clients in a round, 𝒮",
    "d": "parameters of the model",
    "K": "clusters, of n_k clients each, c(i) being client i's",
    "τ": "local steps",
    "B": "batch size",
    "η_c, η_s": "rates of the clients and the server",
    "w": "the server's model",
    "u": "a client's model during its local steps",
    "f_i": "what client i minimises",
    "g_i": "its gradient in a local step, noisy as a rule; ḡ_i their mean over the round",
    "Δ_i": "what client i brings, its mean local step",
    "v": "the server's direction, w ← w − η_s η_c τ v unless said otherwise",
    "y_i, y_k": "what the server remembers of a client or of a cluster",
    "c_i, c": "control variates, the usual gradient of client i and of all",
    "G_i, G": "the same, fixed for a window of P rounds that began at w_start",
    "q_r^i": "client i's weight in round r",
    "δ": "the participants' mean move",
    "m, s": "δ and its square, gathered over past rounds",
}

Entry = dict[
    str, Any
]  # title, summary, formula (LaTeX), formula_text (plain), paper, choose, costs, parameters; all JSON values
_EXAMPLE_CLIENTS = 100  # for what depends on the number of clients
_TAGS = {"name", "pattern", "kind"}


def catalogue() -> dict[str, dict[str, Entry]]:
    """kind -> id -> entry."""
    return {
        "algorithms": {
            name: _entry(model, "algorithm.", f"algorithm.name={name}", costs=costs(model))
            for name, model in ALGORITHMS.items()
        },
        "patterns": {
            name: _entry(model, "participation.", f"participation.pattern={name}", costs=_facts(model))
            for name, model in PATTERNS.items()
        },
        "partitions": {
            name: _entry(model, "problem.partition.", f"problem.partition.name={name}")
            for name, model in PARTITIONS.items()
        },
        "problems": {
            name: _entry(model, "problem.", f"problem.kind={name}", costs=_size(model))
            for name, model in PROBLEMS.items()
        },
        "datasets": {name: _dataset(name) for name in DATASETS},
        "models": {name: _model(name) for name in TITLES},
        "settings": {
            "run": _entry(SimulationConfig, title="Training"),
            "probe": _entry(ProbeParameters, "probe.", title="Measuring the error"),
        },
    }


def _entry(
    model: type[Parameters],
    prefix: str = "",
    choose: str = "",
    *,
    title: str = "",
    costs: Mapping[str, str] | None = None,
) -> Entry:
    """prefix: what stands before a parameter's name in a config's dotted path. choose: the setting that chooses the model."""
    return {
        "title": title or getattr(model, "title", ""),
        "summary": getattr(model, "summary", "") or " ".join((model.__doc__ or "").split()),
        **_formula(getattr(model, "formula", "")),
        "paper": getattr(model, "paper", ""),
        "choose": choose,
        "costs": dict(costs or {}),
        "parameters": [
            described for name in model.model_fields if (described := _parameter(model, name, prefix)) is not None
        ],
    }


def _formula(latex: str) -> dict[str, str]:
    return {"formula": latex, "formula_text": plain(latex)}


def _parameter(model: type[Parameters], name: str, prefix: str) -> Entry | None:
    """A setting; None for the tag itself and for a group of settings that has an entry of its own."""
    field = model.model_fields[name]
    holds_a_model = isinstance(field.default, Parameters)
    if holds_a_model or (name in _TAGS and get_origin(field.annotation) is not None and not field.json_schema_extra):
        return None
    about = shown(model, name)
    default = None if field.default is PydanticUndefined else field.default
    return {
        "name": prefix + name,
        "label": about["label"],
        "symbol": about.get("symbol", ""),
        "help": about["help"],
        "type": _type_of(field.annotation),
        "required": field.is_required(),
        "default": default,
        "minimum": about["minimum"],
        "maximum": about["maximum"],
        "above_minimum": about["above"],
        "below_maximum": any(getattr(limit, "lt", None) is not None for limit in field.metadata),
        "choices": about.get("choices"),
        "suggested": about.get("suggested"),
        "logarithmic": bool(about.get("log")),
    }


def _type_of(annotation: Any) -> str:
    names = {bool: "true or false", int: "whole number", float: "number"}
    parts = () if get_origin(annotation) is list else get_args(annotation)
    kinds = [kind for kind in (parts or (annotation,)) if kind is not type(None)]
    if get_origin(kinds[0]) is list:
        return "list"
    return names.get(kinds[0], "choice") if len(kinds) == 1 else "choice"


def allowed(parameter: Entry) -> str:
    """The values that a parameter may take, in words."""
    if parameter["choices"]:
        return ", ".join(parameter["choices"])
    if parameter["type"] not in ("number", "whole number"):
        return parameter["type"]
    low, high = parameter["minimum"], parameter["maximum"]
    start = "" if low is None else f" {'above' if parameter['above_minimum'] else 'from'} {in_words(low)}"
    end = "" if high is None else f" {'to below' if parameter['below_maximum'] else 'to'} {in_words(high)}"
    return parameter["type"] + start + end


def default_of(parameter: Entry) -> str:
    """The value taken when none is given, in words."""
    if parameter["required"]:
        return "needed"
    value = parameter["default"]
    return "automatic" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


# --- costs and facts, read off the models -----------------------------------------------------------------------------


def costs(model: type[AlgorithmParameters]) -> dict[str, str]:
    """What an algorithm remembers, sends and computes: formulas in N clients, S of them in a round, d parameters, K clusters."""
    return {
        "memory": _linear(model),
        "sent to a participant in a round": _vectors(model.vectors_down),
        "sent by a participant in a round": _vectors(model.vectors_up),
        "work in a round": model.work,
        **({"server rate": "1 only"} if model.server_rate_fixed else {}),
    }


def _linear(model: type[AlgorithmParameters]) -> str:
    """The numbers that server and clients remember, as a formula: state_vectors is linear in N, and in K where there is one."""
    made = model.model_validate({})
    per_client = made.state_vectors(2) - made.state_vectors(1)
    terms, constant = [(per_client, "N")], made.state_vectors(1) - per_client
    if "clusters" in model.model_fields:
        one, two = (model.model_validate({"clusters": k}).state_vectors(1) for k in (1, 2))
        terms.append((two - one, "K"))
        constant = one - (two - one) - per_client
    written = [symbol if factor == 1 else f"{factor}{symbol}" for factor, symbol in terms if factor]
    written += [str(constant)] if constant else []
    if not written:
        return "none"
    return (
        f"{written[0] if written != ['1'] else ''}d numbers"
        if len(written) == 1
        else f"({' + '.join(written)})·d numbers"
    )


def _vectors(count: int) -> str:
    return "d numbers" if count == 1 else f"{count}d numbers"


def _size(model: type[ProblemParameters]) -> dict[str, str]:
    """What a problem takes with its defaults; nothing for one that has none."""
    if any(field.is_required() for field in model.model_fields.values()):
        return {}
    made = model.model_validate({})
    return {
        "d": f"{made.dimension():,} parameters of {8 * made.itemsize()} bits",
        "data": f"{made.data_bytes(_EXAMPLE_CLIENTS) / 1e6:,.3g} MB in memory",
    }


def _facts(model: type[ParticipationParameters]) -> dict[str, str]:
    """What theory asks of a pattern, with its defaults and 100 clients; nothing for one that has no defaults."""
    if any(field.is_required() for field in model.model_fields.values()):
        return {}
    made = model.model_validate({})
    facts = made.facts(_EXAMPLE_CLIENTS)
    known = {
        "takes part": made.phrase(_EXAMPLE_CLIENTS),
        "window P": f"{facts.window} round{'' if facts.window == 1 else 's'}",
        "ρ²": None if facts.rho_squared is None else f"{facts.rho_squared:.3g}",
        "seen in a window": None if facts.seen_in_window is None else f"{facts.seen_in_window:.3g}",
        "chance of an empty round": f"{facts.empty:.2g}",
    }
    return {what: value for what, value in known.items() if value is not None}


def _dataset(name: str) -> Entry:
    info = DATASETS[name]
    channels, height, width = info.image
    return {
        "title": info.title,
        "summary": f"{len(info.labels)} labels: {', '.join(info.labels)}.",
        **_formula(""),
        "paper": "",
        "choose": f"problem.dataset={name}",
        "costs": {
            "training images": f"{info.train:,}",
            "test images": f"{info.test:,}",
            "image": f"{height} x {width}, {'grey' if channels == 1 else 'colour'}",
            "normalised by mean, deviation": f"{_list(info.mean)}; {_list(info.deviation)}",
            "download": f"{info.megabytes} MB, once" if info.megabytes else "none",
        },
        "parameters": [],
    }


def _list(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _model(name: str) -> Entry:
    layers = shapes(name, DATASETS["fashion_mnist"].image, 10)[::2]
    return {
        "title": TITLES[name],
        "summary": "Layers on Fashion-MNIST (outputs x inputs): "
        + ", then ".join(" x ".join(map(str, s)) for s in layers)
        + ".",
        **_formula(FORMULAS[name]),
        "paper": "",
        "choose": f"problem.model={name}",
        "costs": {
            f"d on {info.title.split(',')[0]}": f"{_dimension(name, dataset):,} parameters"
            for dataset, info in DATASETS.items()
            if dataset in ("fashion_mnist", "emnist", "cifar10", "digits") and (name, dataset) not in _DOES_NOT_FIT
        },
        "parameters": [],
    }


def _dimension(model: str, dataset: str) -> int:
    return PROBLEMS["classification"].model_validate({"model": model, "dataset": dataset}).dimension()


_DOES_NOT_FIT = {
    (model, dataset)
    for model in TITLES
    for dataset in DATASETS
    if PROBLEMS["classification"].model_validate({"model": model, "dataset": dataset}).problem_with(1)
}
