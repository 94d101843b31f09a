"""Links that open a configuration, ready to run: `?preset=clusters`, or `?config=` with what differs from the default settings.

The value of `config` is JSON, as it is or base64url-encoded so that chat programs leave it alone:

    {"rounds": 60, "algorithm.name": "scaffold", "compare_with": "fedavg"}

Settings have the dotted paths of the command line; nested objects are as good. A link starts nothing.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from fedviz.algorithms import ALGORITHMS
from fedviz.config import ConfigError, SimulationConfig, with_settings
from fedviz.papers.presets import PRESETS
from fedviz.ui import settings
from fedviz.ui.settings import reference_for

REFERENCE: Final = "compare_with"
LONGEST: Final = 100_000  # characters of a configuration; a browser's address bar ends much earlier
LONGEST_OFFERED: Final = 2_000  # of a link that any browser, proxy and chat program takes
Pair = tuple[SimulationConfig, SimulationConfig | None]


class LinkError(ValueError):
    """A link that opens nothing; the message says what it had, what is allowed and what to do."""


def to_parameter(config: SimulationConfig, reference: SimulationConfig | None) -> str:
    """The value of `config` in a link that opens these settings."""
    values = config.differences() | {REFERENCE: reference.algorithm.name if reference else None}
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_config(text: str) -> Pair:
    """The settings, and those to compare with, that a link's `config` stands for. Raises LinkError."""
    values = _values(text)
    wanted = values.pop(REFERENCE, "fedavg")
    if wanted is not None and (not isinstance(wanted, str) or wanted not in ALGORITHMS):
        raise LinkError(
            f"The link wants to compare with {_short(wanted)}; allowed are {_listed(ALGORITHMS)}, or null. "
            'Choose one at the left, under "Compare with".'
        )
    try:
        config = with_settings(f"{path}={json.dumps(value)}" for path, value in _flat(values))
    except RecursionError:
        raise LinkError("The link's settings are nested too deeply to be any.") from None
    except ConfigError as error:
        raise LinkError(
            f"The link's settings cannot be run: {error.in_short(settings.label)}. "
            "Ask for a link that is right, or choose the settings at the left."
        ) from None
    reference, why = reference_for(config, wanted)
    if why:
        raise LinkError(
            f'The link compares with {ALGORITHMS[str(wanted)].title}, which {why}, at the left under "Compare with".'
        )
    return config, reference


def read_preset(name: str) -> Pair:
    """The settings of a preset, and those to compare with. Raises LinkError."""
    if name not in PRESETS:
        raise LinkError(
            f"The link asks for a preset named {_short(name)}; there are {_listed(PRESETS)}. "
            'Choose one at the left, under "Start from".'
        )
    config = PRESETS[name].build()
    return config, reference_for(config, PRESETS[name].reference)[0]


def _values(text: str) -> dict[str, Any]:
    if len(text) > LONGEST:
        raise LinkError(
            f"The link holds {len(text):,} characters of settings; at most {LONGEST:,} are read. "
            "Ask for the settings as a file, or for the run itself, exported as JSON."
        )
    try:
        if not text.lstrip().startswith("{"):
            text = base64.b64decode(
                text.strip() + "=" * (-len(text.strip()) % 4), altchars=b"-_", validate=True
            ).decode()
        values = json.loads(text)
    except (ValueError, RecursionError):  # wrong base64, UTF-8 or JSON are all ValueErrors
        values = None
    if not isinstance(values, dict):
        raise LinkError(
            'The link\'s settings cannot be read: they are neither JSON, as in {"rounds": 60}, nor that in base64url. '
            "It may have been cut off: ask for it again."
        )
    return values


def _flat(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Dotted path and value of each setting."""
    found: list[tuple[str, Any]] = []
    todo: list[tuple[str, Mapping[str, Any]]] = [("", values)]
    while todo:  # not by calling itself: how deep it goes is up to who wrote the link
        prefix, inner = todo.pop()
        for name, value in inner.items():
            if isinstance(value, dict) and value:
                todo.append((f"{prefix}{name}.", value))
            else:
                found.append((f"{prefix}{name}", value))
    return found


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(names)
