"""Results of tried claims as data with their provenance, and the table that is made of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedviz import __version__
from fedviz.papers.claims import PAPERS, Claim
from fedviz.papers.expectations import median, number
from fedviz.papers.kept import write_whole
from fedviz.papers.reproduce import Result

FOLDER = Path(__file__).parents[2] / "benchmarks"


def spread(values: Sequence[float]) -> str:
    """Median and range over seeds: "1900 (1900 to 2000)"."""
    if not values:
        return "-"
    middle = number(median(list(values)))
    if len(values) == 1 or any(map(math.isnan, values)) or min(values) == max(values):
        return middle
    return f"{middle} ({number(min(values))} to {number(max(values))})"


def to_dict(result: Result, command: str) -> dict[str, Any]:
    """A result with all that is needed to have it again. null stands for "never" (null for a diverged run's missing number too)."""
    claim = result.claim
    assert claim.expectation is not None
    return {
        "claim": claim.id,
        "paper": claim.paper,
        "source": claim.source,
        "says": claim.says,
        "statistic": str(claim.statistic),
        "verdict": result.verdict,
        "why": result.why,
        "arms": {
            arm: {
                "paper": claim.expectation.expected_of(arm) if arm in claim.expectation.arms else "",
                "here": spread(values),
                "values": [value if math.isfinite(value) else None for value in values],
                "config": claim.config(arm, 0).to_dict(),  # the seeds are below
            }
            for arm, values in result.values.items()
        },
        "seeds": result.seeds,
        "seeds_wanted": result.seeds_wanted,
        "seconds": round(result.seconds, 1),
        "device": result.device,
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "fedviz": __version__,
        "torch": version("torch"),
    }


def save(results: Iterable[Result], command: str, claims: Sequence[Claim], folder: Path = FOLDER) -> Path:
    """Store each tried claim as a file of its own, and make the table anew from all that are stored. Returns the table's path."""
    (folder / "reproduced").mkdir(parents=True, exist_ok=True)
    for result in results:
        if result.values:
            content = json.dumps(to_dict(result, command), indent=1, ensure_ascii=False, allow_nan=False)
            write_whole(folder / "reproduced" / f"{result.claim.id}.json", content + "\n")
    table = folder / "REPRODUCED.md"
    write_whole(table, markdown(claims, folder))
    return table


def markdown(claims: Sequence[Claim], folder: Path = FOLDER) -> str:
    """The table of all claims: what is stored of each, and which have not been tried."""
    lines = [
        "# What the papers claim, and what comes out here",
        "",
        "Made by `python -m fedviz reproduce ... --save` from the files in `reproduced/`, which hold every number with its config, seeds,",
        "versions, device and time. Values are medians over seeds, with their range; times are those of all runs, one after the other.",
    ]
    for paper, title in PAPERS.items():
        lines += ["", f"## {title}", ""]
        for claim in claims:
            if claim.paper == paper:
                lines += _section(claim, folder / "reproduced" / f"{claim.id}.json")
    return "\n".join(lines) + "\n"


def _section(claim: Claim, stored: Path) -> list[str]:
    heading = [f"### {claim.id}", "", f"{claim.source}. {claim.says}", ""]
    if claim.incomparable:
        return [*heading, f"**Not comparable.** {claim.incomparable}", ""]
    if not stored.is_file():
        return [*heading, f"**Not tried yet** (cost: {claim.cost}).", ""]
    result = json.loads(stored.read_text(encoding="utf-8"))
    known = result["verdict"] == "not reproduced" and not claim.should_hold
    seeds = seeds_in_words(len(result["seeds"]), result.get("seeds_wanted", 0))
    expected = " This is known, and does not count as a failure." if known else ""
    return [
        *heading,
        f"**{result['verdict'].capitalize()}**: {result['why']}.{expected}",
        "",
        f"Number taken: {result['statistic']}." + (f" {claim.note}" if claim.note else ""),
        "",
        "| run | paper | here |",
        "|---|---|---|",
        *(f"| {arm} | {values['paper']} | {values['here']} |" for arm, values in result["arms"].items()),
        "",
        f"{seeds}, {result['seconds']:,.0f} s on {result['device']}, fedviz {result['fedviz']}, "
        f"torch {result['torch']}, {result['date'][:10]}: `{result['command']}`",
        "",
    ]


def seeds_in_words(complete: int, wanted: int) -> str:
    """1 seed; or 2 of 5 seeds, where the time was up before all of them were complete."""
    of = f" of {wanted}" if complete < wanted else ""
    return f"{complete}{of} seed{'' if max(complete, wanted) == 1 else 's'}"
