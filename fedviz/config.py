"""`SimulationConfig`: all that a run depends on, validated, with limits; as JSON, as a link, as a command line.

The config is the run: the same config on the same kind of device gives the same records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, get_args

from pydantic import ValidationError, model_validator
from pydantic_core import PydanticCustomError

from fedviz.algorithms import ALGORITHMS, AnyAlgorithm, ClusterFedVARPParameters, ExplicitClusters
from fedviz.algorithms.fedvarp import FedVARPParameters
from fedviz.parameters import Parameters, in_words, parameter, shown
from fedviz.participation import PATTERNS, AnyParticipation, Uniform
from fedviz.problems import PROBLEMS, AnyProblem, Classification
from fedviz.problems.partitions import PARTITIONS


class ConfigError(ValueError):
    """A config that cannot be run. `problems` lists (field, message), the field as a dotted path."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        self.problems = problems
        super().__init__("\n".join(f"{field}: {message}" if field else message for field, message in problems))

    def in_short(self, called: Callable[[str], str] = str) -> str:
        """Three problems, each cut, and how many more there are, however many a link or a file has; called: field -> its name."""
        told = []
        for field, message in self.problems[:3]:
            text = f"{called(field)[:40]}: {message.rstrip('.')}" if field else message.rstrip(".")
            told.append(text if len(text) <= 300 else f"{text[:299]}…")
        further = len(self.problems) - len(told)
        return "; ".join(told) + (f"; and {further:,} more" if further else "")


class ProbeParameters(Parameters):
    """How the server's error is measured: dearer is more exact."""

    mode: Literal["cheap", "full"] = parameter(
        "cheap",
        label="Decomposition",
        help="cheap: drift includes the bias of noise; full: full-batch passes tell them apart.",
        choices={"cheap": "cheap", "full": "full"},
    )
    replicas: int = parameter(
        2,
        label="Repetitions",
        symbol="J",
        help="How often each probed client repeats its pass with fresh gradient noise.",
        ge=2,
        le=16,
    )
    clients: int = parameter(
        100,
        label="Clients probed",
        symbol="Q",
        help="At most so many clients are probed, drawn at random beyond.",
        ge=4,
        le=100_000,
        suggested=(10, 1000),
        log=True,
    )
    check_every: int = parameter(
        5,
        label="Check every",
        help="Every so many decompositions, random cohorts estimate the total independently; 0 is never.",
        ge=0,
        le=1_000_000,
        suggested=(0, 20),
    )
    windows_every: int | None = parameter(
        None,
        label="Measure windows",
        help="One window in so many of an amplified method; 0 is never, empty is about five of a run.",
        ge=0,
        le=1_000_000,
    )


def automatic_intervals(rounds: int) -> dict[str, int]:
    """About 100 evaluations and 25 decompositions in a run of `rounds`."""
    return {"eval_every": max(1, rounds // 100), "probe_every": max(1, rounds // 25)}


class SimulationConfig(Parameters):
    """All a run depends on. Build it with `SimulationConfig.read`, which explains what is wrong in plain words."""

    summary: ClassVar = "All that a run depends on."

    problem: AnyProblem = parameter(Classification(), label="Problem", help="What is optimised.")
    algorithm: AnyAlgorithm = parameter(
        FedVARPParameters(), label="Algorithm", help="How the server and the clients work together."
    )
    participation: AnyParticipation = parameter(Uniform(), label="Participation", help="Who takes part in which round.")
    num_clients: int = parameter(
        100, label="Clients", symbol="N", help="How many clients there are.", ge=1, le=100_000, suggested=(10, 250)
    )
    local_steps: int = parameter(
        30,
        label="Local steps",
        symbol="τ",
        help="Gradient steps a client takes in a round.",
        ge=1,
        le=10_000,
        suggested=(1, 100),
        log=True,
    )
    batch_size: int = parameter(
        16,
        label="Batch size",
        symbol="B",
        help="Samples in one local step.",
        ge=1,
        le=100_000,
        suggested=(1, 256),
        log=True,
    )
    client_lr: float = parameter(
        0.01,
        label="Client rate",
        symbol="η_c",
        help="Step size of the clients.",
        gt=0,
        le=1000,
        suggested=(1e-4, 1),
        log=True,
    )
    server_lr: float = parameter(
        1.0,
        label="Server rate",
        symbol="η_s",
        help="How far the server follows its direction; 1 is plain averaging.",
        gt=0,
        le=1000,
        suggested=(0.01, 10),
        log=True,
    )
    rounds: int = parameter(
        200,
        label="Rounds",
        symbol="R",
        help="How many rounds to run.",
        ge=1,
        le=1_000_000,
        suggested=(10, 2000),
        log=True,
    )
    seed: int = parameter(0, label="Seed", help="Chance is replayed from it: same seed, same run.", ge=0, le=2**63 - 1)
    eval_every: int | None = parameter(
        None,
        label="Evaluate every",
        help="Rounds between evaluations; 0 is never. Empty: about 100 evaluations in a run.",
        ge=0,
        le=1_000_000,
    )
    probe_every: int | None = parameter(
        None,
        label="Decompose every",
        help="Rounds between measurements of the error; 0 is never. Empty: about 25 in a run.",
        ge=0,
        le=1_000_000,
    )
    probe: ProbeParameters = parameter(
        ProbeParameters(), label="Measuring", help="How the server's error is taken apart."
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = parameter(
        "auto",
        label="Device",
        help="Where to compute; automatic takes a GPU where there is one.",
        choices={"auto": "automatic", "cpu": "CPU", "cuda": "NVIDIA GPU", "mps": "Apple GPU"},
    )
    backend: Literal["auto", "torch", "numba"] = parameter(
        "auto",
        label="Computed with",
        help="Automatic takes the fastest for the model and the device; numba is softmax regression compiled for the CPU.",
        choices={"auto": "automatic", "torch": "PyTorch", "numba": "Numba"},
    )

    @model_validator(mode="after")
    def _fits_together(self) -> SimulationConfig:
        found = self.problem.problem_with(self.num_clients)
        if found:
            raise _refusal(found[0] if found[0] == "num_clients" else f"problem.{found[0]}", found[1])
        found = self.participation.problem_with(self.num_clients, self.rounds)
        if found:
            raise _refusal(f"participation.{found[0]}", found[1])
        if self.algorithm.server_rate_fixed and self.server_lr != 1:
            raise _refusal(
                "server_lr",
                f"got {self.server_lr:g}, allowed 1: {self.algorithm.title} is defined for plain averaging only",
            )
        if self.backend == "numba" and (self.device not in ("auto", "cpu") or self.problem.backend("cpu") != "numba"):
            raise _refusal("backend", "got numba, which computes softmax regression on the CPU only: use auto or torch")
        if self.device == "cpu" or self.backend == "numba":
            found = self.problem.problem_on("cpu")
            if found:
                raise _refusal(f"problem.{found[0]}", found[1])
        if self.problem.dtype == "mixed_bfloat16" and self.algorithm.local == "gradient":
            raise _refusal(
                "problem.dtype",
                f"got mixed_bfloat16, allowed float32 or float64: {self.algorithm.title} takes no minibatches, whose products it is about",
            )
        if self.algorithm.counts_alike and getattr(self.participation, "weighting", "average") != "average":
            raise _refusal(
                "participation.weighting",
                f"got inverse, allowed average: {self.algorithm.title} counts every client's last update alike, whoever came",
            )
        if isinstance(self.algorithm, ClusterFedVARPParameters):
            self._check_clusters(self.algorithm)
        # The automatic intervals become numbers, so that equal runs have equal configs.
        for field, interval in automatic_intervals(self.rounds).items():
            if getattr(self, field) is None:
                object.__setattr__(self, field, interval)
        return self

    def _check_clusters(self, algorithm: ClusterFedVARPParameters) -> None:
        if algorithm.clusters > self.num_clients:
            raise _refusal(
                "algorithm.clusters",
                f"got {algorithm.clusters:,}, allowed 1 to {self.num_clients:,} (the number of clients)",
            )
        if isinstance(algorithm.clustering, ExplicitClusters):
            labels = algorithm.clustering.labels
            if len(labels) != self.num_clients:
                raise _refusal(
                    "algorithm.clustering.labels",
                    f"got {len(labels):,} labels for {self.num_clients:,} clients: one a client",
                )
            if sorted(set(labels)) != list(range(algorithm.clusters)):
                raise _refusal(
                    "algorithm.clustering.labels",
                    f"must use every label 0 to {algorithm.clusters - 1} (clusters), got {sorted(set(labels))}",
                )
        elif algorithm.clustering != "random" and not isinstance(self.problem, Classification):
            raise _refusal(
                "algorithm.clustering",
                f'got "{algorithm.clustering}", but this problem has no labels: allowed "random" or {{"labels": [...]}}',
            )

    @classmethod
    def read(cls, values: Mapping[str, Any] | str | bytes) -> SimulationConfig:
        """A config from nested values or JSON text. Raises ConfigError, naming field, value got and values allowed."""
        try:
            if isinstance(values, str | bytes):
                return cls.model_validate_json(values)
            return cls.model_validate(values)
        except RecursionError:
            raise ConfigError([("", "nested too deeply to be a config")]) from None
        except ValidationError as error:
            explained = dict(
                map(_explain, reversed(error.errors(include_url=False)))
            )  # the first message of each field
            raise ConfigError(list(reversed(explained.items()))) from None

    @property
    def steps(self) -> int:
        """Local steps of a pass; 1 for an algorithm whose clients send one full-data gradient."""
        return 1 if self.algorithm.local == "gradient" else self.local_steps

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `read` takes them back."""
        return self.model_dump(mode="json")

    def differences(self) -> dict[str, Any]:
        """Dotted path -> value of all that differs from the default config, or from the defaults of what is chosen instead: what a
        link or a command line has to say.
        """
        usual = _DEFAULTS | _defaults_of(self, "")
        return {path: value for path, value in _flatten(self.to_dict()) if value != usual.get(path)}

    def to_command(self) -> str:
        """The command line that runs this config."""
        import shlex

        sets = (f"--set {shlex.quote(f'{path}={_as_text(value)}')}" for path, value in _settings(self))
        return " ".join(["python -m fedviz run", *sets])


def with_settings(assignments: Iterable[str], base: Mapping[str, Any] | None = None) -> SimulationConfig:
    """The default config (or `base`) with dotted `path=value` assignments; values are JSON, or text where they are not.

    Choosing another algorithm, pattern, problem or partition than the base's drops the parameters of the base's choice.
    Raises ConfigError.
    """
    try:
        values: dict[str, Any] = json.loads(json.dumps(base or {}))
    except RecursionError:
        raise ConfigError([("", "nested too deeply to be a config")]) from None
    chosen: list[tuple[str, Any]] = []
    for assignment in assignments:
        path, sign, text = assignment.partition("=")
        if not sign or not path:
            raise ConfigError([(assignment, 'expected path=value, as in "rounds=60" or "algorithm.name=scaffold"')])
        chosen.append((path.strip(), _from_text(text.strip())))
    # Choices come before the parameters of what is chosen, whatever the order they were given in.
    for path, value in sorted(chosen, key=lambda item: item[0] not in _TAG_PATHS):
        if path in _TAG_PATHS:
            group, tag = path.rsplit(".", 1)
            if _look_up(values, path) != value:
                assign(values, group, {tag: value})
        else:
            assign(values, path, value)
    return SimulationConfig.read(fill_in(values))


def assign(values: dict[str, Any], path: str, value: Any) -> None:
    """Set a dotted path in nested values, in place."""
    *parents, last = path.split(".")
    for depth, name in enumerate(parents, start=1):
        inner = values.setdefault(name, {})
        if not isinstance(inner, dict):
            group = ".".join(parents[:depth])
            if name in _GROUP_EXAMPLES:
                raise ConfigError([(group, _wants_group(name, inner))])
            raise ConfigError([(path, f"there is no such setting: {group} is a single value")])
        values = inner
    values[last] = value


def fill_in(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values with the choices (problem.kind, algorithm.name, ...) of the default config where they are left out."""
    filled: dict[str, Any] = json.loads(json.dumps(values))
    for path in _TAG_PATHS:
        group, tag = path.rsplit(".", 1)
        inner = _look_up(filled, group)
        if isinstance(inner, dict):
            inner.setdefault(tag, _DEFAULTS[path])
    return filled


def _look_up(values: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path; None where there is none."""
    found: Any = values
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


_MISSING = object()


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _defaults_of(chosen: Parameters, prefix: str) -> dict[str, Any]:
    """Dotted path -> default of the parameters of what is chosen where there is a choice; not of the choices themselves."""
    found: dict[str, Any] = {}
    for name, field in type(chosen).model_fields.items():
        inner, path = getattr(chosen, name), f"{prefix}{name}"
        if path in _GROUPS:
            found |= _defaults_of(inner, f"{path}.")
        elif prefix and path not in _TAG_PATHS and not field.is_required():
            found[path] = field.default
    return found


def _settings(config: SimulationConfig) -> list[tuple[str, Any]]:
    """The differences, without intervals that follow from the number of rounds."""
    automatic = automatic_intervals(config.rounds)
    return [(path, value) for path, value in config.differences().items() if automatic.get(path, _MISSING) != value]


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _from_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # not JSON, or nested beyond all sense
        return text


def _refusal(field: str, message: str) -> PydanticCustomError:
    return PydanticCustomError("fedviz", "{message}", {"field": field, "message": message})


# The settings that choose one of several models.
_TAG_PATHS = ("problem.kind", "problem.partition.name", "algorithm.name", "participation.pattern")

_GROUPS = {path.rsplit(".", 1)[0] for path in _TAG_PATHS}

# Where one of several models stands; an error's location repeats the tag after the field.
_UNIONS: dict[str, Mapping[str, type[Parameters]]] = {
    "problem": PROBLEMS,
    "algorithm": ALGORITHMS,
    "participation": PATTERNS,
    "partition": PARTITIONS,
}
# Each group of settings, with one that is in it.
_GROUP_EXAMPLES = {"probe": "probe.mode=cheap"} | {
    path.split(".")[-2]: f"{path}={next(iter(_UNIONS[path.split('.')[-2]]))}" for path in _TAG_PATHS
}


def _explain(detail: Any) -> tuple[str, str]:
    """(field, message) of one of pydantic's errors."""
    context, got = detail.get("ctx") or {}, detail.get("input")
    if detail["type"] == "fedviz":
        return context["field"], context["message"]
    path, model = _locate(detail["loc"])
    field = ".".join(path)
    if inside := [part for part in detail["loc"] if isinstance(part, int)]:  # of a list: rows and columns, from 0
        place = "entry " + ", ".join(map(str, inside))
        one, several = (
            ("a whole number from 0", "whole numbers from 0") if path[-1] in _WHOLE else ("a number", "numbers")
        )
        wanted = f"a list of {several}" if detail["type"] == "list_type" else one
        return field, f"{place}: got {_shorten(got)}, allowed {wanted}"
    if detail["type"] == "union_tag_invalid":
        return (
            f"{field}.{context['discriminator'].strip(chr(39))}",
            f"got {context['tag']!r}, allowed {context['expected_tags']}",
        )
    if detail["type"] == "extra_forbidden":
        return field, f"there is no such setting; allowed here: {', '.join(sorted(model.model_fields))}"
    allowed, about = _allowed(model, path[-1])
    if detail["type"] == "missing":
        return field, f"is needed: {allowed or about}"
    if detail["type"] == "json_invalid":
        return "", f"not valid JSON: {context.get('error', detail['msg'])}"
    if path[-1] in _GROUP_EXAMPLES:
        return field, _wants_group(path[-1], got)
    return (
        field,
        f"got {_shorten(got)}, allowed {allowed}" if allowed else f"got {_shorten(got)}: {about or detail['msg']}",
    )


def _wants_group(name: str, got: Any) -> str:
    return f"got {_shorten(got)}, expected a group of settings, as in {_GROUP_EXAMPLES[name]}"


def _shorten(got: Any) -> str:
    return json.dumps(got, default=str)[:80]


_WHOLE = ("cohorts", "labels")  # lists of whole numbers; all others are of numbers


def _locate(location: tuple[str | int, ...]) -> tuple[list[str], type[Parameters]]:
    """The dotted path that a user writes, and the innermost model on it."""
    path: list[str] = []
    model: type[Parameters] = SimulationConfig
    parts = [str(part) for part in location]
    while parts:
        name = parts.pop(0)
        if name.isdecimal():  # a place in a list
            break
        path.append(name)
        if name in _UNIONS and parts:
            model = _UNIONS[name].get(parts.pop(0), model)
        elif name == "probe":
            model = ProbeParameters
        elif name == "clustering":  # an id or explicit labels: one message for both
            break
    return path or [""], model


def _allowed(model: type[Parameters], name: str) -> tuple[str, str]:
    """(the allowed values of a field in words, or "" where they are not a choice or a range; its help)."""
    if name not in model.model_fields:
        return "", ""
    about, kind = shown(model, name), model.model_fields[name].annotation
    if about["choices"]:
        choices = [json.dumps(value) for value in about["choices"]]
        # What has no name of its own but can be given: the clusters, as labels.
        given = [kind for kind in get_args(kind) if isinstance(kind, type) and issubclass(kind, Parameters)]
        choices += [f'{{"{field}": [...]}}' for kind in given for field in kind.model_fields]
        return " or ".join(choices), about["help"]
    if kind is bool:
        return "true or false", about["help"]
    noun = (
        "a whole number" if kind is int or get_args(kind) == (int, type(None)) else "a number" if kind is float else ""
    )
    if not noun:
        return "", about["help"]
    low, high = about["minimum"], about["maximum"]
    if low is not None:
        noun += f" above {in_words(low)}" if about["above"] else f" from {in_words(low)}"
    if high is not None:
        noun += f" {'to below' if about['below'] else 'to'} {in_words(high)}"
    return noun, about["help"]


_DEFAULTS = dict(_flatten(SimulationConfig().to_dict()))
