"""Tables of numbers: what a workload gives, and how a number is written."""

from __future__ import annotations

from dataclasses import dataclass

Cell = str | float | int | None  # None: there is no such number


@dataclass(frozen=True)
class Table:
    title: str
    columns: list[str]
    rows: list[list[Cell]]


@dataclass(frozen=True)
class Result:
    """What came out: tables, and what to know about them."""

    tables: list[Table]
    notes: list[str]


def shown(value: Cell) -> str:
    """Three digits of a measured number, all of a counted one."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value


def markdown(table: Table) -> list[str]:
    """Its lines. Words go left, numbers right."""
    words = [all(isinstance(row[place], str) for row in table.rows) for place in range(len(table.columns))]
    lines = [table.columns, ["---" if left else "---:" for left in words]]
    lines += [[shown(cell).replace("|", "\\|") for cell in row] for row in table.rows]
    return [f"**{table.title}**", "", *(f"| {' | '.join(line)} |" for line in lines)]
