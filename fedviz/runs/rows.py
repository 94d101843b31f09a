"""From a run to what the store keeps of it, and back."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fedviz import __version__
from fedviz.config import ConfigError, SimulationConfig
from fedviz.runs.run import Run
from fedviz.runs.store import Row, StoreError

if TYPE_CHECKING:
    from fedviz.runs.columns import Records


def config_key(config: SimulationConfig, reference: SimulationConfig | None) -> str:
    """Equal for pairs of runs that this version of fedviz gives equal records."""
    values = [__version__, config.to_dict(), None if reference is None else reference.to_dict()]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def new_run(config: SimulationConfig, *, reference: Run | None = None, **values: Any) -> Run:
    """A run that was asked for now, with further fields of `Run`."""
    run = Run(secrets.token_urlsafe(16), config, created=datetime.now(UTC), version=__version__, reference=reference)
    for name, value in values.items():
        setattr(run, name, value)
    return run


def row_of(run: Run) -> Row:
    """What the store keeps of a run besides its records."""
    return Row(
        id=run.id,
        created=run.created,
        state=run.state,
        message=run.message,
        config=run.config.model_dump_json(),
        reference_id=run.reference.id if run.reference is not None else None,
        version=run.version,
        device=run.device,
        owner=run.owner,
        title=run.title,
        published=run.published,
        parent_id=run.parent_id,
        forked_at=run.forked_at,
        note=run.note,
        config_key=run.config_key,
        is_reference=run.is_reference,
        imported=run.imported,
        ended=run.ended_at,
    )


def run_of(row: Row, reference: Run | None, load: Callable[[], Records]) -> Run:
    """A stored run; `load` gives its records. Raises StoreError where its settings do not fit this version of fedviz."""
    try:
        config = SimulationConfig.read(row.config)
    except ConfigError as error:
        raise StoreError(
            f"Run {row.id} was made by fedviz {row.version}; its settings do not fit this version, {__version__}: {error}"
        ) from error
    run = Run(
        row.id,
        config,
        created=row.created,
        version=row.version,
        state=row.state,
        message=row.message,
        device=row.device,
        reference=reference,
        load=load,
    )
    for name in (
        "owner",
        "title",
        "published",
        "parent_id",
        "forked_at",
        "note",
        "config_key",
        "is_reference",
        "imported",
    ):
        setattr(run, name, getattr(row, name))
    run.ended_at = row.ended
    return run
