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
EXPORTED: Final = (
    "a run as fedviz exports it (by Export as JSON on the page of all runs, or Whole run as JSON under Share)"
)
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
        raise Refused(f"The file is not {EXPORTED}: it holds far too many lists or texts for its size.")
    with _READING:
        try:
            values = json.loads(data.decode("utf-8-sig"), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise Refused(f"The file is not {EXPORTED}: it is no JSON that can be read ({error}).") from None
        try:
            return _run(values, reference=False)
        except _Wrong as wrong:
            raise Refused(f"The file is not {EXPORTED}: {wrong}.") from None


class _Wrong(ValueError):  # noqa: N818 - what is said of it, not an error of ours
    """Where, and what is wrong there."""


def _run(values: Any, *, reference: bool) -> Imported:
    who = "reference" if reference else "the run"
    values = _group(values, who)
    schema = values.get("schema", 1 if reference else None)
    if "records" not in values:
        raise _Wrong(f"{who} has no records; settings alone are opened by a link, or by the command line's --config")
    if type(schema) is int and schema > SCHEMA:
        raise _Wrong(
            f"{who} has schema {str(schema)[:40]}, which a newer fedviz wrote; this one reads {SCHEMA}: update it"
        )
    if type(schema) is not int or schema != SCHEMA:
        raise _Wrong(f"{who}: its schema is {str(schema)[:40]}, this fedviz reads {SCHEMA}")
    if len(json.dumps(values.get("config"))) > LARGEST_CONFIG:
        raise _Wrong(f"{who}: its settings take more than {LARGEST_CONFIG:,} characters")
    try:
        config = SimulationConfig.read(_group(values.get("config"), f"{who}: config"))
    except ConfigError as error:
        raise _Wrong(f"{who}: its settings are not valid: {error.in_short()}") from None
    records = values.get("records")
    if not isinstance(records, list) or len(records) > config.rounds + 1:
        raise _Wrong(f"{who}: records must be a list of at most {config.rounds + 1:,}")
    checked = [_record(record, round, config, f"{who}: record {round}") for round, record in enumerate(records)]
    names = {f"{group}.{name}" for record in checked for group in _FREE for name in record[group] or ()}
    if len(names) > MOST_NAMES:  # each becomes a column as long as the run
        raise _Wrong(f"{who}: its records have {len(names):,} kinds of numbers, allowed are {MOST_NAMES}")
    try:
        state = RunState(_text(values.get("state"), f"{who}: state"))
    except ValueError:
        raise _Wrong(f"{who}: there is no state {str(values.get('state'))[:40]!r}") from None
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
        raise _Wrong(f"{where} must have {', '.join(sorted(allowed))}")
    if record["round"] != round or isinstance(record["round"], bool | float):
        raise _Wrong(f"{where} says it is of round {str(record['round'])[:40]}: records must follow one another from 0")
    cohort, weights = record["cohort"], record["weights"]
    if not isinstance(cohort, list) or not isinstance(weights, list) or len(cohort) != len(weights):
        raise _Wrong(f"{where}: cohort and weights must be lists of one length")
    if not all(type(client) is int and 0 <= client < config.num_clients for client in cohort):
        raise _Wrong(f"{where}: cohort must hold clients from 0 to {config.num_clients - 1:,}")
    if len(set(cohort)) != len(cohort):
        raise _Wrong(f"{where}: cohort names a client twice")
    if not all(_is_number(weight) for weight in weights):
        raise _Wrong(f"{where}: weights must be numbers")
    for name in _FREE[:3]:
        if record[name] is not None:
            _numbers(record[name], f"{where}: {name}", none=True)
    _numbers(record["costs"], f"{where}: costs", none=False)
    if record["costs"].keys() != _COSTS:
        raise _Wrong(f"{where}: costs must have {', '.join(sorted(_COSTS))}")
    _numbers(record["diagnostics"], f"{where}: diagnostics", none=False)
    return dict(record)


def _numbers(values: Any, where: str, *, none: bool) -> None:
    group = _group(values, where)
    if len(group) > 40:
        raise _Wrong(f"{where} has {len(group)} values")
    for name, value in group.items():
        if not name.isidentifier() or len(name) > 60:
            raise _Wrong(f"{where} has the name {name[:40]!r}")
        if name == "mode" and value in ("cheap", "full"):
            continue
        if not (_is_number(value) or (none and value is None)):
            raise _Wrong(f"{where}.{name} must be a number, got {str(value)[:40]!r}")


def _is_number(value: Any) -> bool:
    return (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) <= _LARGEST_NUMBER)


def _group(values: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(values, dict):
        raise _Wrong(f"{where} must be a group of values, got {str(values)[:40]!r}")
    return values


def _text(value: Any, where: str, longest: int = _LONGEST_TEXT) -> str:
    if not isinstance(value, str) or len(value) > longest:
        raise _Wrong(f"{where} must be a text of at most {longest} characters")
    return "".join(character if character.isprintable() else " " for character in value)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")
