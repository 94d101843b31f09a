"""Reading a run that was exported (`export.to_json`), from a file that anybody may have made: everything is checked."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from fedviz.config import ConfigError, SimulationConfig
from fedviz.runs.admission import Refused
from fedviz.runs.columns import Record
from fedviz.runs.run import RunState

SCHEMA: Final = 1  # of an exported run
NO_RUN: Final = "The file is not a run as fedviz exports it"
TAKE_ANOTHER: Final = 'Import a file that "Export as JSON" in the list of runs has made, or "Whole run as JSON" under Share, just as it is.'
LARGEST: Final = 20_000_000  # bytes
LARGEST_CONFIG: Final = 500_000  # characters; lists of runs read them all
LONGEST_TITLE: Final = 80
_LONGEST_TEXT: Final = 500
_LARGEST_NUMBER: Final = 2**53  # beyond it whole numbers are not exact

# Bytes of an exported run for each list or group, and for each quotation mark: there are about 100 and 10. A file with many more of
# them takes a hundred times its size in memory when it is read.
_BYTES_A_GROUP: Final = 30
_BYTES_A_QUOTE: Final = 5
_FEW: Final = 10_000  # of which a small file may have more

MOST_NAMES: Final = 128  # of numbers in the records of a run; fedviz itself writes about 60
_READING = threading.Lock()  # one file at a time: a large one takes memory, and time that nobody else gets
_MOST_VALUES: Final = 40  # of a group in a record
_FREE: Final = ("evaluation", "decomposition", "window", "diagnostics")  # groups with any names
_COSTS: Final = {"gradient_evaluations", "probe_evaluations", "floats_up", "floats_down", "seconds"}


@dataclass(frozen=True)
class Imported:
    """A run as it is in a file."""

    config: SimulationConfig
    records: list[Record]
    state: RunState
    message: str
    version: str
    device: str | None
    title: str
    reference: Imported | None


def with_reference(run: Imported) -> list[Imported]:
    """The run, and its reference if it has one."""
    return [run] if run.reference is None else [run, run.reference]


def read(data: bytes) -> Imported:
    """The run in a file's content. Raises Refused with what is wrong with it."""
    if len(data) > LARGEST:
        raise Refused(
            f"The file has {len(data):,} bytes; allowed are {LARGEST:,}. A run with fewer rounds, or fewer clients a round, is smaller."
        )
    groups, quotes = data.count(b"[") + data.count(b"{"), data.count(b'"')
    if groups > _FEW + len(data) / _BYTES_A_GROUP or quotes > _FEW + len(data) / _BYTES_A_QUOTE:
        raise Refused(f"{NO_RUN}: it holds far too many lists or texts for its size. {TAKE_ANOTHER}")
    with _READING:
        try:
            values = json.loads(data.decode("utf-8-sig"), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise Refused(f"{NO_RUN}: {_unreadable(data, error)}. {TAKE_ANOTHER}") from None
        try:
            return _run(values, reference=False)
        except _Wrong as wrong:
            raise Refused(f"{NO_RUN}: {wrong}. {TAKE_ANOTHER}") from None


class _Wrong(ValueError):  # noqa: N818 - what is said of it, not an error of ours
    """Where, and what is wrong there."""


def _run(values: Any, *, reference: bool) -> Imported:
    who = "reference" if reference else "the run"
    if not reference and not isinstance(values, dict):
        raise _Wrong(f"it holds {_told(values)} and not a group of named values, as a run is")
    values = _group(values, who)
    schema = values.get("schema", 1 if reference else None)
    if "records" not in values:
        raise _Wrong(f"{who} has no records; {_instead(values)}")
    if schema is None:
        raise _Wrong(f"{who} does not say its schema, which for this fedviz must be {SCHEMA}")
    if type(schema) is int and schema > SCHEMA:
        raise _Wrong(
            f"{who} has schema {str(schema)[:40]}, which a newer fedviz wrote; this one reads {SCHEMA}: update it"
        )
    if type(schema) is not int or schema != SCHEMA:
        raise _Wrong(f"{who}: its schema is {_told(schema)}, this fedviz reads {SCHEMA}")
    if len(json.dumps(values.get("config"))) > LARGEST_CONFIG:
        raise _Wrong(f"{who}: its settings take more than {LARGEST_CONFIG:,} characters")
    try:
        config = SimulationConfig.read(_group(values.get("config"), f"{who}: config"))
    except ConfigError as error:
        raise _Wrong(f"{who}: its settings are not valid: {error.in_short()}") from None
    records = values.get("records")
    if not isinstance(records, list) or len(records) > config.rounds + 1:
        raise _Wrong(f"{who}: records must be a list of at most {config.rounds + 1:,}, got {_told(records)}")
    checked = [_record(record, round, config, f"{who}: record {round}") for round, record in enumerate(records)]
    names = {f"{group}.{name}" for record in checked for group in _FREE for name in record[group] or ()}
    if len(names) > MOST_NAMES:  # each becomes a column as long as the run
        raise _Wrong(f"{who}: its records have {len(names):,} kinds of numbers, allowed are {MOST_NAMES}")
    named = _text(values.get("state"), f"{who}: state")
    try:
        state = RunState(named)
    except ValueError:
        raise _Wrong(f"{who}: there is no state {_told(named)}, only {', '.join(RunState)}") from None
    message = _text(values.get("message", ""), f"{who}: message")
    if state.live:
        state, message = RunState.STOPPED, f"Exported after {len(records):,} records, while it was running."
    if state is RunState.FINISHED and len(records) != config.rounds + 1:
        raise _Wrong(f"{who}: it says it is finished, but has {len(records):,} of {config.rounds + 1:,} records")
    device = values.get("device")
    other = values.get("reference")
    if reference and other is not None:
        raise _Wrong("reference: a reference has none itself")
    run = Imported(
        config,
        checked,
        state,
        message,
        _text(values.get("fedviz"), f"{who}: fedviz"),
        None if device is None else _text(device, f"{who}: device"),
        " ".join(_text(values.get("title") or "", f"{who}: title", LONGEST_TITLE).split()),
        None,
    )
    return run if other is None else replace(run, reference=_fitting(_run(other, reference=True), run))


def _fitting(reference: Imported, run: Imported) -> Imported:
    """The reference, if it can be that of the run: drawn beside it, on the same objective and axis."""
    for name in ("num_clients", "seed", "rounds", "problem"):
        if getattr(reference.config, name) != getattr(run.config, name):
            raise _Wrong(f"reference: its {name} must be as in the run")
    return reference


def _record(values: Any, round: int, config: SimulationConfig, where: str) -> Record:
    record = _group(values, where)
    allowed = {"round", "cohort", "weights", "evaluation", "decomposition", "costs", "diagnostics", "window"}
    if record.keys() != allowed:
        raise _Wrong(f"{where} must have {', '.join(sorted(allowed))}, got {_listed(record)}")
    if record["round"] != round or isinstance(record["round"], bool | float):
        raise _Wrong(f"{where} says it is of round {_told(record['round'])}: records must follow one another from 0")
    cohort, weights = record["cohort"], record["weights"]
    if not isinstance(cohort, list) or not isinstance(weights, list) or len(cohort) != len(weights):
        raise _Wrong(
            f"{where}: cohort and weights must be lists of one length, got {_told(cohort)} and {_told(weights)}"
        )
    if strange := [client for client in cohort if type(client) is not int or not 0 <= client < config.num_clients]:
        raise _Wrong(f"{where}: cohort must hold clients from 0 to {config.num_clients - 1:,}, got {_told(strange[0])}")
    if len(set(cohort)) != len(cohort):
        raise _Wrong(f"{where}: cohort names a client twice")
    if strange := [weight for weight in weights if not _is_number(weight)]:
        raise _Wrong(f"{where}: weights must be numbers, got {_told(strange[0])}")
    for name in _FREE[:3]:
        if record[name] is not None:
            _numbers(record[name], f"{where}: {name}", none=True)
    _numbers(record["costs"], f"{where}: costs", none=False)
    if record["costs"].keys() != _COSTS:
        raise _Wrong(f"{where}: costs must have {', '.join(sorted(_COSTS))}, got {_listed(record['costs'])}")
    _numbers(record["diagnostics"], f"{where}: diagnostics", none=False)
    return dict(record)


def _numbers(values: Any, where: str, *, none: bool) -> None:
    group = _group(values, where)
    if len(group) > _MOST_VALUES:
        raise _Wrong(f"{where} has {len(group)} values, allowed are {_MOST_VALUES}")
    for name, value in group.items():
        if not name.isidentifier() or len(name) > 60:
            raise _Wrong(f"{where} has the name {name[:40]!r}; allowed are letters, digits and underscores, at most 60")
        if name == "mode" and value in ("cheap", "full"):
            continue
        if not (_is_number(value) or (none and value is None)):
            raise _Wrong(f"{where}.{name} must be a number, got {_told(value)}")


def _is_number(value: Any) -> bool:
    return (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) <= _LARGEST_NUMBER)


def _group(values: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(values, dict):
        raise _Wrong(f"{where} must be a group of named values, got {_told(values)}")
    return values


def _text(value: Any, where: str, longest: int = _LONGEST_TEXT) -> str:
    if not isinstance(value, str) or len(value) > longest:
        got = f"{len(value):,} characters" if isinstance(value, str) else _told(value)
        raise _Wrong(f"{where} must be a text of at most {longest} characters, got {got}")
    return "".join(character if character.isprintable() else " " for character in value)


def _no_constant(name: str) -> float:
    raise _Wrong(f"it holds {name}, which is not a number")


# --- what was got, in words


def _unreadable(data: bytes, error: Exception) -> str:
    """Why a file cannot be read as JSON."""
    if isinstance(error, _Wrong):
        return str(error)
    if not data.strip():
        return "it is empty"
    if isinstance(error, UnicodeDecodeError):
        return "it is not text (UTF-8), let alone JSON"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON, or only a part of it: it cannot be read from line {error.lineno:,}, column {error.colno:,} on"
    return "its values are nested too deeply, or its numbers too long"


def _instead(values: Mapping[str, Any]) -> str:
    """What a group that is no run may be."""
    if not values:
        return "it is an empty group"
    if values.keys() & ({"config"} | SimulationConfig.model_fields.keys()):
        return "settings alone are opened by a link, or by the command line's --config"
    return f"it has only {_listed(values)}"


def _listed(values: Mapping[str, Any]) -> str:
    """Names, three of them at most."""
    names = [name[:40] for name in list(values)[:3]]
    further = len(values) - len(names)
    return (", ".join(names) or "nothing") + (f" and {further:,} more" if further else "")


def _told(value: Any) -> str:
    """A value of a JSON file, in a few words."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, dict):
        return f"a group of {_values(len(value))}" if value else "an empty group"
    if isinstance(value, list):
        return f"a list of {_values(len(value))}" if value else "an empty list"
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else f"{value[:39]}…")
    return json.dumps(value)[:40]


def _values(count: int) -> str:
    return "one value" if count == 1 else f"{count:,} values"
