"""Parameter models: what a user may set, with symbol, range, default and one line of help.

Every algorithm, participation pattern, partition and problem declares its parameters once, as a `Parameters` model whose
fields are made by `parameter(...)`. The form on the page, the command line, the link and the validation all read them.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticUndefined


class Parameters(BaseModel):
    """A frozen, validated group of settings; unknown names, non-finite numbers and values of another type are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)


def parameter(
    default: Any = PydanticUndefined,
    *,
    label: str,
    help: str,
    symbol: str = "",
    log: bool = False,
    choices: dict[str, str] | None = None,
    suggested: tuple[float, float] | None = None,
    **limits: Any,
) -> Any:
    """A field of a parameter model.

    default: the value used when none is given; left out, the field is required.
    label: plain words, sentence case. symbol: the papers' symbol. help: one line.
    log: whether a control should move on a logarithmic scale. choices: value -> plain words, for fields with few values.
    suggested: the range a slider spans where the allowed range is much wider.
    limits: pydantic's own (`gt`, `ge`, `lt`, `le`, `min_length`, ...).
    """
    shown: Any = {"label": label, "symbol": symbol, "log": log, "choices": choices, "suggested": suggested}
    return Field(default, description=help, json_schema_extra={"shown": shown}, **limits)


def in_words(limit: float) -> str:
    """A limit as people write it: 1,000,000 or 0.05 or 1e-06."""
    return f"{int(limit):,}" if limit == int(limit) else f"{limit:g}"


def shown(model: type[BaseModel], name: str) -> dict[str, Any]:
    """How field `name` of `model` is presented: label, symbol, log, choices, suggested, help, minimum, maximum, above, below.

    minimum and maximum are the field's bounds, None where there is none; above, below: the minimum, the maximum itself is not allowed.
    """
    field = model.model_fields[name]
    extra = field.json_schema_extra
    described: dict[str, Any] = dict(extra["shown"]) if isinstance(extra, dict) and "shown" in extra else {}  # type: ignore[arg-type]
    described.setdefault("label", name)
    described["help"] = field.description or ""
    bounds = {key: getattr(m, key) for m in field.metadata for key in ("gt", "ge", "lt", "le") if hasattr(m, key)}
    described["minimum"] = bounds.get("ge", bounds.get("gt"))
    described["above"], described["below"] = "gt" in bounds, "lt" in bounds
    described["maximum"] = bounds.get("le", bounds.get("lt"))
    return described
