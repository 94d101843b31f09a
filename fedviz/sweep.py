"""Several runs from one set of settings: every combination of values that are to be varied, and what came of them over their seeds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from fedviz.config import ConfigError


def combinations(varied: Sequence[str]) -> list[tuple[str, ...]]:
    """Every combination of "path=value,value,..." (or a JSON list), as assignments "path=value"; one without any where nothing varies.

    Raises ConfigError.
    """
    choices: dict[str, list[str]] = {}
    for text in varied:
        path, values = (part.strip() for part in text.partition("=")[::2])
        listed = _listed(values)
        if not path or not listed:
            raise ConfigError([(text, 'expected path=value,value,..., as in "client_lr=0.01,0.1"')])
        if path == "seed" or path in choices:
            reason = "--seeds does" if path == "seed" else "it is already; name all its values at once"
            raise ConfigError([(path, f"is not varied this way: {reason}")])
        choices[path] = [f"{path}={value}" for value in listed]
    return list(product(*choices.values()))


def _listed(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # no JSON: values with commas between
        found = None
    if isinstance(found, list):
        return [value if isinstance(value, str) else json.dumps(value) for value in found]
    return [value.strip() for value in text.split(",") if value.strip()]


def last_values(
    records: Sequence[Mapping[str, Any]], groups: Mapping[str, Iterable[str]]
) -> dict[str, tuple[float, int]]:
    """Measure -> (its last value, its round). groups: the measures by the part of a record in which they stand."""
    found: dict[str, tuple[float, int]] = {}
    for group, names in groups.items():
        for record in reversed(records):
            if (measured := record[group]) is not None:
                found |= {name: (measured[name], record["round"]) for name in names if measured.get(name) is not None}
                break
    return found


def spread(values: Sequence[float]) -> str:
    """Their mean and range, in words: "0.81 (0.8 to 0.82)"."""
    if not values:
        return ""
    mean = f"{sum(values) / len(values):.4g}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.4g} to {max(values):.4g})"
