"""What the form holds, and its way to a `SimulationConfig` and back. Knows the parameter models, not Streamlit.

A draft is a flat dict with one value for every control, also for those of choices not made at the moment, so that switching from
one algorithm to another and back loses nothing. Where one of several models can stand (algorithm, participation, ...) the draft
holds the tag of the chosen one, and the fields of each candidate under that tag:

    draft["algorithm"] = "fedprox"            draft["algorithm.fedprox.mu"] = 0.1
    draft["participation"] = "uniform"        draft["participation.uniform.clients_per_round"] = 5

Values are what the widgets hold: numbers, booleans, ids, and text for lists: JSON, or CSV where `TABLES` names a reader for it. What is
in an uploaded file that cannot be read is held as the `Unreadable` that says why, so that it is refused like any other value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedviz.config import ConfigError, SimulationConfig
from fedviz.parameters import Parameters, shown
from fedviz.participation import PATTERNS
from fedviz.participation.trace import read_csv
from fedviz.problems import Quadratics

Draft = dict[str, Any]
LARGEST_TYPED = 2**53 - 1  # beyond it a browser's numbers are no longer told apart


@dataclass(frozen=True)
class Unreadable:
    """In place of the list that an uploaded file should have held: why it does not."""

    why: str


# Lists that may also be given as CSV, typed or as a file: path -> reader, which raises ValueError with line and column.
TABLES: dict[str, Callable[[str | bytes], Any]] = {"participation.cohorts": read_csv}


@dataclass(frozen=True)
class Setting:
    """One field of a parameter model, as the form sees it."""

    model: type[BaseModel]
    name: str
    key: str  # in the draft: with the tags of the choices above it
    path: str  # in a config, a link, an error: without them

    @property
    def about(self) -> dict[str, Any]:
        """label, symbol, help, choices, suggested, log, minimum, maximum, above: see `fedviz.parameters.shown`."""
        return _about(self.model, self.name)

    @property
    def field(self) -> FieldInfo:
        return self.model.model_fields[self.name]

    @property
    def optional(self) -> bool:
        """Whether the value may be left empty."""
        return type(None) in get_args(self.field.annotation)

    @property
    def kind(self) -> str:
        """Which control suits it: "group", "section", "choice", "switch", "whole", "number" or "text"."""
        kind = self.field.annotation
        types = set(get_args(kind)) if get_origin(kind) in (Union, UnionType) else {kind}
        if self.field.discriminator:
            return "group"
        if isinstance(kind, type) and issubclass(kind, Parameters):
            return "section"
        if self.about["choices"]:
            return "choice"
        if bool in types:
            return "switch"
        return "whole" if int in types else "number" if float in types else "text"

    @property
    def candidates(self) -> dict[str, type[Parameters]]:
        """tag -> model, for a group."""
        return {model.model_fields[self.tag].default: model for model in get_args(self.field.annotation)}

    @property
    def tag(self) -> str:
        """The field by which the candidates of a group are told apart."""
        return str(self.field.discriminator)

    def inside(self, choice: str) -> list[Setting]:
        """The settings of one candidate of a group; none where a browser sends what is no candidate, which the config then refuses."""
        model = self.candidates.get(choice) if isinstance(choice, str) else None
        if model is None:
            return []
        names = (name for name in model.model_fields if name != self.tag)
        return [Setting(model, name, f"{self.key}.{choice}.{name}", f"{self.path}.{name}") for name in names]

    @property
    def parts(self) -> list[Setting]:
        """The settings of a section, a model for which there is no other candidate."""
        model = self.field.annotation
        assert isinstance(model, type)
        assert issubclass(model, Parameters)
        return [Setting(model, name, f"{self.key}.{name}", f"{self.path}.{name}") for name in model.model_fields]


@cache
def _about(model: type[BaseModel], name: str) -> dict[str, Any]:
    return shown(model, name)


TOP = {name: Setting(SimulationConfig, name, name, name) for name in SimulationConfig.model_fields}


def default_draft() -> Draft:
    """Every control at its default; fields without one start empty."""
    draft: Draft = {}

    def fill(settings: Iterator[Setting] | list[Setting]) -> None:
        for setting in settings:
            if setting.kind == "section":
                fill(setting.parts)
                continue
            if setting.kind != "group":
                required = setting.field.is_required()
                draft[setting.key] = "" if required else _to_widget(setting, setting.field.default)
                continue
            draft[setting.key] = getattr(setting.field.default, setting.tag)
            for choice in setting.candidates:
                fill(setting.inside(choice))

    fill(list(TOP.values()))
    draft.update(to_draft(SimulationConfig()))
    return draft


def to_draft(config: SimulationConfig) -> Draft:
    """The draft's values that a config speaks of. Values that would follow by themselves are left empty again."""
    draft: Draft = {}

    def fill(settings: list[Setting], values: dict[str, Any]) -> None:
        for setting in settings:
            value = values[setting.name]
            if setting.kind == "group":
                choice = value[setting.tag]
                draft[setting.key] = choice
                fill(setting.inside(choice), value)
            elif setting.kind == "section":
                fill(setting.parts, value)
            elif (
                setting.optional
                and setting.path in TOP
                and SimulationConfig.read({**config.to_dict(), setting.name: None}) == config
            ):
                draft[setting.key] = None
            else:
                draft[setting.key] = _to_widget(setting, value)

    fill(list(TOP.values()), config.to_dict())
    return draft


def to_values(draft: Draft) -> tuple[dict[str, Any], dict[str, str]]:
    """(the nested values that `SimulationConfig.read` takes, of the choices made in the draft; path -> why one cannot be read)."""
    unreadable: dict[str, str] = {}

    def collect(settings: list[Setting]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for setting in settings:
            if setting.kind == "section":
                values[setting.name] = collect(setting.parts)
                continue
            value = draft[setting.key]
            if setting.kind == "group":
                inside = (
                    setting.inside(value) if value in setting.candidates else []
                )  # else the config says what is allowed
                values[setting.name] = {setting.tag: value, **collect(inside)}
                continue
            try:
                values[setting.name] = _from_widget(setting, value)
            except ConfigError as error:
                unreadable.update(error.problems)
        return values

    return collect(list(TOP.values())), unreadable


def read(draft: Draft, **changes: Any) -> tuple[SimulationConfig | None, dict[str, str]]:
    """(the draft's config, {}) or (None, path -> what is wrong there)."""
    values, unreadable = to_values(draft)
    try:
        config = SimulationConfig.read(values | changes)
        return (None, unreadable) if unreadable else (config, {})
    except ConfigError as error:
        return None, dict(error.problems) | unreadable


def chosen(draft: Draft) -> Iterator[Setting]:
    """Every setting that counts under the choices made in the draft, groups included."""
    todo = list(TOP.values())
    while todo:
        setting = todo.pop(0)
        yield setting
        if setting.kind == "group":
            todo = setting.inside(draft[setting.key]) + todo
        elif setting.kind == "section":
            todo = setting.parts + todo


def described(config: SimulationConfig) -> dict[str, str]:
    """Path -> the setting in words, as in "client rate 0.01", for all that a config has chosen but lists."""
    found: dict[str, str] = {}

    def describe(settings: list[Setting], values: dict[str, Any]) -> None:
        for setting in settings:
            value, label = values[setting.name], setting.about["label"][0].lower() + setting.about["label"][1:]
            kind = setting.kind
            if kind == "section":
                describe(setting.parts, value)
            elif kind == "group":
                choice = value[setting.tag]
                found[setting.path] = f"{label} {setting.candidates[choice].title}"  # type: ignore[attr-defined]
                describe(setting.inside(choice), value)
            elif kind == "choice" and isinstance(value, str):
                found[setting.path] = f"{label} {dict(setting.about['choices']).get(value, value)}"
            elif kind == "switch":
                found[setting.path] = f"{label} {'on' if value else 'off'}"
            elif isinstance(value, int | float):
                found[setting.path] = f"{label} {value:,}" if isinstance(value, int) else f"{label} {value:g}"

    describe(list(TOP.values()), config.to_dict())
    return found


def label(path: str) -> str:
    """What the form calls the setting with a dotted path; the path itself where there is no such setting."""
    todo = list(TOP.values())
    while todo:
        setting = todo.pop()
        if path in (setting.path, setting.kind == "group" and f"{setting.path}.{setting.tag}"):
            return str(setting.about["label"])
        if setting.kind == "group":
            todo += [inner for choice in setting.candidates for inner in setting.inside(choice)]
        elif setting.kind == "section":
            todo += setting.parts
    return path


def counts(setting: Setting, draft: Draft) -> bool:
    """Whether a setting makes a difference under the other choices in the draft; the form hides it where not."""
    if setting.path == "problem.feature_strength":
        return bool(draft["problem.classification.feature_skew"] != "none")
    if setting.model is Quadratics and setting.name in Quadratics.DRAWN:  # not where lists are given
        return not any(draft[f"problem.quadratics.{lists}"].strip() for lists in ("curvature", "linear"))
    if setting.path == "probe.windows_every":
        return "window" in {s.name for s in TOP["algorithm"].inside(draft["algorithm"])}
    return True


def reference_for(config: SimulationConfig, algorithm: str | None) -> tuple[SimulationConfig | None, str]:
    """(the same run with another algorithm at its defaults, "") to compare with, or (None, why there is none)."""
    if not algorithm or algorithm == config.algorithm.name:
        return None, ""
    try:
        return SimulationConfig.read({**config.to_dict(), "algorithm": {"name": algorithm}}), ""
    except ConfigError as error:
        return None, f"cannot be run with these settings ({error.problems[0][1]}): choose another one, or none"


def _to_widget(setting: Setting, value: Any) -> Any:
    """Lists and other structures are shown as JSON text, numbers of `number` fields are floats."""
    if value is None and setting.kind == "text":
        return ""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if isinstance(value, list | dict):
        return json.dumps(value, separators=(", ", ": "))
    return float(value) if setting.kind == "number" and isinstance(value, int) else value


def _from_widget(setting: Setting, value: Any) -> Any:
    """Text is read as JSON where it is JSON; what cannot be read goes on as it is and is refused with its name.

    Raises ConfigError for what should be CSV and is not, and for a whole number that the browser may have rounded.
    """
    if isinstance(value, Unreadable):
        raise ConfigError([(setting.path, value.why)])
    if setting.kind == "whole" and isinstance(value, float) and LARGEST_TYPED < value <= setting.about["maximum"]:
        raise ConfigError(
            [(setting.path, f"got about {value:.3g}, allowed here is a whole number up to {LARGEST_TYPED:,}")]
        )
    if not isinstance(value, str) or (setting.kind == "choice" and value in setting.about["choices"]):
        return value
    if setting.optional and not value.strip():
        return None
    if setting.path in TABLES and value.strip() and not value.lstrip().startswith("["):
        try:
            return TABLES[setting.path](value)
        except ValueError as error:
            raise ConfigError([(setting.path, str(error))]) from None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):  # not JSON, or nested beyond all sense
        return value


def from_file(setting: Setting, name: str, content: bytes) -> str | Unreadable:
    """The draft's value after a file of CSV was uploaded: its list, or what is wrong with it."""
    try:
        return str(_to_widget(setting, TABLES[setting.path](content)))
    except ValueError as error:
        return Unreadable(f"in {name}: {error}")


def _trace(draft: Draft) -> Draft:
    """Pairs of neighbours in turn, over and over."""
    clients = _count(draft["num_clients"])
    cohorts = [sorted({i, (i + 1) % clients}) for i in range(0, clients, 2)]
    return {"participation.trace.cohorts": json.dumps(cohorts), "participation.trace.repeat": True}


def _count(value: Any) -> int:
    return min(max(value, 1), 10_000) if isinstance(value, int) else 1


# Choices with lists to write start from an example that fits the number of clients: choice -> draft -> values for the draft.
EXAMPLES: dict[str, Callable[[Draft], Draft]] = {"participation.trace": _trace}

# Choices that are defined for two clients only bring them along: choice -> values for the draft.
_FEW = {"clients_per_round": 1, "groups": 2}
NEEDS: dict[str, Draft] = {
    "problem.lower_bound": {"num_clients": 2}
    | {
        f"participation.{pattern}.{name}": value
        for pattern, model in PATTERNS.items()
        for name, value in _FEW.items()
        if name in model.model_fields
    }
}
