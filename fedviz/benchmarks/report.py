"""The results as text: stored numbers with their provenance, the page of them, and why which back end computes what.

`results.json` holds one section for each device and workload; saving a workload again replaces its section whole. RESULTS.md is made
anew from all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedviz.benchmarks.machine import ROOT, describe
from fedviz.benchmarks.tables import Cell, Result, Table, markdown, shown
from fedviz.benchmarks.workloads import WORKLOADS, Plan
from fedviz.papers.kept import write_whole
from fedviz.problems import PROBLEMS, Classification
from fedviz.problems.architectures import TITLES
from fedviz.problems.classifier import DTYPES

FOLDER = ROOT / "benchmarks"
DEVICES = {"cpu": "CPU", "cuda": "NVIDIA GPU", "mps": "Apple GPU"}

Sections = dict[str, dict[str, Any]]  # "device/workload" -> its tables, notes and provenance

WHY = {
    ("numba", "cpu"): (
        "A local step is two small products: calling a library costs more than they do. Compiled loops keep a client in a core's cache, "
        "and cores take whole clients."
    ),
    ("torch", "cpu"): "Nearly all of the work is in large products and convolutions, which PyTorch's libraries do.",
    (
        "torch",
        "cuda",
    ): "The only back end for a GPU: a cohort is one batch of operations, and the data lies on the device.",
    (
        "torch",
        "mps",
    ): "The only back end for a GPU: a cohort is one batch of operations, and the data lies on the device.",
}
ANALYTIC = "Formulas in float64 on vectors of a few numbers: on a GPU they would mostly wait."

OTHERS = Table(
    "Other simulators: rounds per second of W1, and the ratio to a plain PyTorch loop",
    ["what", "FedAvg", "SCAFFOLD", "times the plain loop"],
    [
        ["Flower 1.42 (Ray, 2 actors)", "4.8", "-", "0.39"],
        ["the Amplified SCAFFOLD paper's own code", "8.3", "7.2", "0.65"],
        ["pfl 0.6, best variant", "9.9", "9.7", "0.8 to 0.97"],
        ["BlazeFL 3.0 (with the interpreter's lock), best variant", "12.0", "-", "0.8 to 0.97"],
        ["FedLab 1.3, best variant", "12.2", "9.6", "0.8 to 0.97"],
        ["a plain PyTorch loop, 1 thread", "12.6", "11.2", "1"],
        ["FedJAX 0.0.17", "17", "-", "1.4"],
        ["hand-written pure JAX, vmap and scan", "76", "-", "6"],
    ],
)
OTHERS_W2 = Table(
    "The same of W2",
    ["what", "rounds per second"],
    [
        ["a plain PyTorch loop, 1 thread", "0.43"],
        ["a plain PyTorch loop, 2 threads", "0.61"],
        ["torch.func.vmap over clients", "0.46"],
        ["the Amplified SCAFFOLD paper's own code, pfl, FedLab", "0.64 to 0.70"],
        ["BlazeFL", "0.8"],
    ],
)


def section(result: Result, plan: Plan, command: str) -> dict[str, Any]:
    """A result with all that is needed to have it again, as plain JSON values."""
    return {
        **asdict(result),
        **describe(plan.device),
        "blocks": f"medians of {plan.blocks} blocks of about {shown(plan.seconds)} s",
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def tables_of(stored: Mapping[str, Any]) -> list[Table]:
    return [Table(**table) for table in stored["tables"]]


def read(folder: Path = FOLDER) -> Sections:
    """What is stored; nothing where there is no file. Raises ValueError where it cannot be used."""
    file = folder / "results.json"
    try:
        found: Sections = json.loads(file.read_text(encoding="utf-8"))
        for stored in found.values():
            tables_of(stored)
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{file} cannot be used ({error}): restore it from the repository, or delete it and measure anew."
        ) from error
    return found


def save(fresh: Sections, folder: Path = FOLDER) -> Path:
    """Put sections in the place of those of the same device and workload, and make the page anew. Returns the page's path."""
    sections = {**read(folder), **fresh}
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "results.json", as_json(sections))
    page = folder / "RESULTS.md"
    write_whole(page, text(sections))
    return page


def as_json(sections: Sections) -> str:
    return json.dumps(sections, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def text(sections: Sections) -> str:
    """The page of all results."""
    lines = [
        "# How fast fedviz is",
        "",
        "Made by `python -m fedviz bench --save` from `results.json`. The plain loop is what one writes first in PyTorch "
        "(`fedviz/benchmarks/plain.py`).",
        "What is compared takes turns in one process; ratios are medians of the ratios within each turn. No test depends on these numbers.",
        "How live pages stream, to how many viewers and with how much memory: [LIVE.md](LIVE.md), [LIVE-MEMORY.md](LIVE-MEMORY.md).",
    ]
    for device in ("cpu", "cuda"):
        lines += ["", f"## {DEVICES[device]}", ""]
        there = {name: sections[f"{device}/{name}"] for name in WORKLOADS if f"{device}/{name}" in sections}
        if not there and device == "cuda":
            lines += [
                "**Not measured yet.** On a machine with one: `python benchmarks/gpu_check.py` checks and measures (not tried on "
                "one yet), `python -m fedviz bench --save` fills in this part.",
            ]
        elif not there:
            lines += ["**Not measured yet**: `python -m fedviz bench --save`."]
        for name, stored in there.items():
            lines += _section(WORKLOADS[name].title, stored)
    lines += [
        "",
        "## Other simulators",
        "",
        "Measured earlier, in one sitting on two cores of a CPU, not in the runs above; versions as named. Compare ratios, not rounds.",
        "",
        *markdown(OTHERS),
        "",
        *markdown(OTHERS_W2),
    ]
    return "\n".join(lines) + "\n"


def _section(title: str, stored: Mapping[str, Any]) -> list[str]:
    lines = [f"### {title}", ""]
    for table in tables_of(stored):
        if table.rows:
            lines += [*markdown(table), ""]
    lines += [line for note in stored["notes"] for line in (note, "")]
    provenance = f"{stored['machine']}. {stored['versions']}. {stored['date'][:10]}, {stored['blocks']}"
    return [*lines, f"{provenance}: `{stored['command']}`", ""]


def explain(sections: Sections) -> Table:
    """Which back end computes which model on which device by the rule of `ProblemParameters.backend`, why, and the figures behind it."""
    rows: list[list[Cell]] = []
    for model, title in TITLES.items():
        for device, where in DEVICES.items():
            chosen = Classification(model=model).backend(device)  # type: ignore[arg-type]  # one of the choices
            precisions = ", ".join(_precisions(device, model))
            rows.append([title, where, chosen, WHY[chosen, device], _figures(sections, device, model), precisions])
    rows += [
        [problem.title, "any", "torch, on the CPU", ANALYTIC, "-", "float64, float32"]
        for problem in PROBLEMS.values()
        if problem is not Classification
    ]
    return Table(
        "What computes",
        ["model", "device", "back end", "why", "measured, times the plain loop", "precision (dtype)"],
        rows,
    )


def _precisions(device: str, model: str) -> list[str]:
    """What `problem.dtype` may be for a model on a device, its default first."""
    offered = [Classification.model_validate({"model": model, "dtype": name}) for name in DTYPES]
    without_double = device == "mps"
    return [p.dtype for p in offered if p.problem_on(device) is None and not (without_double and p.itemsize() > 4)]


def _figures(sections: Sections, device: str, model: str) -> str:
    """The measured speeds of a model's back ends on a device, fastest first."""
    stored = sections.get(f"{device}/backends")
    if stored is None:
        return "not measured yet"
    table = tables_of(stored)[0]
    name, backend, ratio = (table.columns.index(column) for column in ("model", "back end", "times the plain loop"))
    rows = [row for row in table.rows if row[name] == model and row[backend] != "plain loop"]
    rows.sort(key=lambda row: -float(row[ratio] or 0))
    return ", ".join(f"{row[backend]} {shown(row[ratio])}" for row in rows) or "not measured yet"
