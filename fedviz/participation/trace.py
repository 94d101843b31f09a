"""Cohorts as given, round by round: recorded traces, and hand-made examples."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedviz.parameters import parameter
from fedviz.participation.base import Facts, Ids, Law, Participation, ParticipationParameters

Cohorts = list[list[Annotated[int, Field(ge=0)]]]


class Trace(ParticipationParameters):
    title: ClassVar = "Trace"
    summary: ClassVar = "Exactly the cohorts that are given; an empty one is a round in which nobody took part."
    formula: ClassVar = r"\mathcal S_r=A_{1+(r-1)\bmod P}\ \text{ of given }A_1,\dots,A_P"
    pattern: Literal["trace"] = "trace"
    cohorts: Cohorts = parameter(
        label="Cohorts",
        help=(
            "Who takes part: CSV lines of round,client (rounds from 1, clients from 0; the line 200, is round 200 without anybody), or a "
            "list for each round, as [[0, 3], [1], ...]."
        ),
        min_length=1,
        max_length=1_000_000,
    )
    repeat: bool = parameter(
        False, label="Start over at the end", help="Begin the trace again when the rounds outlast it."
    )

    def cohort_size(self, num_clients: int) -> int:
        return max(len(cohort) for cohort in self.cohorts)

    def mean_size(self, num_clients: int) -> float:
        return sum(map(len, self.cohorts)) / len(self.cohorts)

    def window(self, num_clients: int) -> int:
        return len(self.cohorts)

    def problem_with(self, num_clients: int, rounds: int) -> tuple[str, str] | None:
        for number, cohort in enumerate(self.cohorts, start=1):
            if len(set(cohort)) < len(cohort):
                return "cohorts", f"round {number:,} names a client twice: name each client once"
            if cohort and max(cohort) >= num_clients:
                return "cohorts", f"round {number:,} names client {max(cohort):,}, allowed 0 to {num_clients - 1:,}"
        if rounds > len(self.cohorts) and not self.repeat:
            return (
                "cohorts",
                f"got cohorts for {len(self.cohorts):,} of {rounds:,} rounds: give more (a CSV line '{rounds},' makes "
                "the last ones empty), run fewer, or start over at the end (repeat)",
            )
        return None

    def facts(self, num_clients: int) -> Facts:
        empty = sum(not cohort for cohort in self.cohorts) / len(self.cohorts)
        return Facts(len(self.cohorts), None, None, empty)

    def build(self, num_clients: int, seed: int, labels: Ids | None = None) -> Participation:
        return TraceParticipation(self, num_clients, seed)


class TraceParticipation(Participation):
    def law(self, round: int) -> Law:
        cohort = self.parameters.cohorts[(round - 1) % len(self.parameters.cohorts)]
        return Law.fixed(np.array(sorted(cohort), dtype=np.int64), len(cohort))


LARGEST_FILE = 5_000_000  # bytes: some 500,000 visits
MOST = 1_000_000


def read_csv(content: str | bytes) -> list[list[int]]:
    """Cohorts from CSV lines of round,client (rounds from 1, clients from 0; a header is allowed).

    A line without a client, as in 200, names a round in which nobody may take part, the last one say; rounds not named are empty.

    Bytes are UTF-8, with or without a byte order mark. Raises ValueError with the line and the column that are wrong.
    """
    if len(content) > LARGEST_FILE:
        raise ValueError(f"there are more than the {LARGEST_FILE:,} characters that are allowed: give fewer rounds")
    # What is no UTF-8 becomes a mark that is refused with its line below; so is the zero that binary files and UTF-16 are full of.
    text = (
        content.decode("utf-8-sig", errors="replace") if isinstance(content, bytes) else content.removeprefix("\ufeff")
    )
    rows = csv.reader(_lines(text))
    cohorts: dict[int, dict[int, int]] = {}  # round -> client -> the line that names it
    try:
        for row in rows:
            _add(cohorts, row, rows.line_num)
    except csv.Error as error:
        raise ValueError(f"line {rows.line_num}: cannot be read as CSV ({error}): expected round,client") from None
    if not cohorts:
        raise ValueError("line 1: there are no rows, expected lines of round,client, as in 1,0")
    return [list(cohorts.get(round, ())) for round in range(1, max(cohorts) + 1)]


def _lines(text: str) -> Iterator[str]:
    """The lines, each of which closes the quotes that it opens, for no cell goes on in the next line."""
    for number, line in enumerate(io.StringIO(text, newline=""), start=1):
        if line.count('"') % 2 and not _is_binary(line):
            column = line[: line.rindex('"')].count(",") + 1
            raise ValueError(
                f"line {number}, column {column}: a quote is opened and not closed: remove it, or close it in the same line"
            )
        yield line


def _is_binary(text: str) -> bool:
    return "\ufffd" in text or "\0" in text


def _add(cohorts: dict[int, dict[int, int]], row: list[str], line: int) -> None:
    """Take up one row of round,client."""
    cells = [cell.strip() for cell in row]
    if not any(cells) or (not cohorts and [cell.lower() for cell in cells] == ["round", "client"]):
        return
    if any(map(_is_binary, cells)):
        raise ValueError(
            f"line {line}: this is not plain text in UTF-8: save the file as CSV (UTF-8), with lines of round,client"
        )
    if len(cells) != 2:
        columns = f"{len(cells)} column{'' if len(cells) == 1 else 's'}"
        raise ValueError(f"line {line} has {columns}, expected 2 with a comma between: round,client")
    round = _whole(cells[0], 1, f"line {line}, column 1 (round)")
    visits = cohorts.setdefault(round, {})
    if not cells[1]:  # the round is there, and that is all
        return
    client = _whole(cells[1], 0, f"line {line}, column 2 (client)")
    before = visits.setdefault(client, line)
    if before != line:
        raise ValueError(
            f"line {line}, column 2 (client): round {round:,} has client {client:,} already, in line {before}: name each once"
        )


def _whole(cell: str, least: int, where: str) -> int:
    """The whole number in a cell; so long a number that it cannot be one is refused unread."""
    if not cell.isdecimal() or len(cell) > 20 or not least <= int(cell) <= MOST:
        got = cell if len(cell) <= 20 else f"{cell[:20]}…"
        raise ValueError(f"{where}: got {got!r}, expected a whole number from {least} to {MOST:,}")
    return int(cell)
