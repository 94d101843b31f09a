"""A run as a table, as one JSON value, or as the program that computes it, to be taken elsewhere."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fedviz.config import SimulationConfig
    from fedviz.runs.columns import Records
    from fedviz.runs.run import Run


SCHEMA: Final = 1  # of the JSON; raised when older programs could misread it


def to_csv(records: Records, config: SimulationConfig) -> str:
    """The table of one run."""
    return table([(config, records.dicts())])


def table(runs: Iterable[tuple[SimulationConfig, Iterable[Mapping[str, Any]]]], settings: Sequence[str] = ()) -> str:
    """CSV, one row a round of every run: every value under its dotted path, after algorithm, seed and these `settings` (dotted paths).

    Lists (cohort, weights) are written with spaces between; what a round does not have is empty.
    """
    rows = []
    for config, records in runs:
        chosen = _flat(config.to_dict())
        about = {
            "algorithm": config.algorithm.name,
            "seed": config.seed,
            **{path: chosen.get(path) for path in settings},
        }
        rows += [{**about, **_flat(record)} for record in records]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")  # floats are written so that they read back the same
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_json(run: Run) -> dict[str, Any]:
    """All of a run and of its reference, as plain JSON values; of a run that continues another, the other's rounds as well."""
    return {
        "schema": SCHEMA,
        "fedviz": run.version,
        "title": run.title or None,
        "created": run.created.isoformat(),
        "device": run.device,
        "state": str(run.state),
        "message": run.message,
        "forked_at": run.forked_at,
        "config": run.config.to_dict(),
        "records": _strict(run.records.dicts()),
        "reference": to_json(run.reference) if run.reference is not None else None,
    }


def to_python(config: SimulationConfig) -> str:
    """A program that computes the run anew, in fedviz's folder."""
    settings = [
        f"{path}={value if isinstance(value, str) else json.dumps(value, separators=(',', ':'))}"
        for path, value in config.differences().items()
    ]
    lines = "".join(f"        {setting!r},\n" for setting in settings)
    return (
        "from fedviz.config import with_settings\n"
        "from fedviz.simulation.loop import simulate\n\n"
        f"config = with_settings(\n    [\n{lines}    ]\n)\n"
        "records = [record.to_dict() for record in simulate(config)]\n"
        "print(records[-1])\n"
    )


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            flat[prefix + name] = " ".join(map(repr, value))
        elif value is not None:
            flat[prefix + name] = value
    return flat


def _strict(value: Any) -> Any:
    """JSON has no NaN and no infinity: None instead."""
    if isinstance(value, dict):
        return {name: _strict(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_strict(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
