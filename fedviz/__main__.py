"""The same jobs without a browser: `python -m fedviz --help`."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedviz import __version__
from fedviz.config import ConfigError, SimulationConfig, with_settings
from fedviz.papers.presets import PRESETS
from fedviz.problems import ProblemError
from fedviz.runs.admission import Refused, check
from fedviz.simulation.errors import Diverged

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Federated optimisation, live. Start the dashboard with [bold]python3 bootstrap.py run[/bold]; or run without a browser:",
)
console, errors = Console(), Console(stderr=True)


@app.callback()
def main() -> None:
    """Keeps `run` a named command."""


@app.command()
def run(
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="PATH=VALUE", help="Change one setting, as in algorithm.name=scaffold. Repeatable."
        ),
    ] = None,
    preset: Annotated[str, typer.Option(help=f"What to start from: {', '.join(PRESETS)}.")] = "default",
    config: Annotated[Path | None, typer.Option(help="A JSON file with a config, instead of a preset.")] = None,
    out: Annotated[Path | None, typer.Option("--json", help="Write config and records to this file.")] = None,
) -> None:
    """Run one simulation, with a progress bar and a table of the results.

    Exit code 0: finished. 1: diverged, or the data cannot be had. 2: the settings are not valid. 130: interrupted.

    Example: python -m fedviz run --set algorithm.name=fedvarp --set rounds=60 --json out.json
    """
    chosen = _read_config(settings or [], preset, config)
    try:
        check(chosen)
        if out is not None:
            out.touch()  # a path that cannot be written is better known before the run than after it
    except Refused as refusal:
        _stop(str(refusal), 2)
    except OSError as error:
        _stop(f"--json: cannot write {out} ({error.strerror}): name a file in a folder that exists and is yours.", 2)
    records, failure = _simulate(chosen)
    _print_table(chosen, records)
    if out is not None:
        content = {"fedviz": __version__, "config": chosen.to_dict(), "records": records}
        out.write_text(json.dumps(content, allow_nan=False, indent=1))
        console.print(f"Wrote {len(records):,} records to {out}.")
    if failure:
        _stop(*failure)


def _read_config(settings: list[str], preset: str, file: Path | None) -> SimulationConfig:
    if preset not in PRESETS:
        _stop(f"--preset: got {preset!r}, allowed {', '.join(PRESETS)}.", 2)
    try:
        base = PRESETS[preset].config if file is None else json.loads(file.read_text())
        if not isinstance(base, dict):
            _stop(f"--config: {file} holds no JSON object.", 2)
        return with_settings(settings, base.get("config", base))
    except OSError as error:
        _stop(f"--config: cannot read {file} ({error.strerror}).", 2)
    except ConfigError as error:
        _stop(f"Not a valid run:\n{error}", 2)
    except ValueError as error:
        _stop(f"--config: {file} is not JSON ({error}).", 2)


def _simulate(config: SimulationConfig) -> tuple[list[dict], tuple[str, int] | None]:
    """(records, (message, exit code) if it did not finish)."""
    import torch

    from fedviz.simulation.loop import simulate

    torch.set_num_threads(1)  # more only pays for larger models than these
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    records: list[dict] = []
    with Progress(*columns, console=errors) as bar:
        task = bar.add_task("Preparing", total=config.rounds)
        try:
            for record in simulate(config, progress=lambda text: bar.update(task, description=text)):
                records.append(record.to_dict())
                bar.update(task, description=config.algorithm.title, completed=record.round)
        except (Diverged, ProblemError) as error:
            return records, (str(error), 1)
        except KeyboardInterrupt:
            return records, ("Interrupted.", 130)
    return records, None


def _print_table(config: SimulationConfig, records: list[dict]) -> None:
    """The last value of every measure."""
    table = Table(
        "measure", "value", "round", title=f"{config.algorithm.title}, {records[-1]['round'] if records else 0} rounds"
    )
    for group, names in (("evaluation", _EVALUATION), ("decomposition", _DECOMPOSITION)):
        last: dict = next((r for r in reversed(records) if r[group]), {group: {}})
        for name, words in names.items():
            if (value := last[group].get(name)) is not None:
                table.add_row(words, f"{value:.4g}", str(last["round"]))
    if records:
        costs = records[-1]["costs"]
        table.add_row("sample gradients, training", f"{costs['gradient_evaluations']:,}", "")
        table.add_row("sample gradients, measuring", f"{costs['probe_evaluations']:,}", "")
        table.add_row("seconds", f"{costs['seconds']:.3g}", "")
    console.print(table)


_EVALUATION = {
    "train_loss": "training loss",
    "test_loss": "test loss",
    "test_accuracy": "test accuracy",
    "gradient_norm_sq": "|grad f|²",
    "distance": "distance to the optimum",
}
_DECOMPOSITION = {
    "participation": "error: who took part",
    "noise": "error: minibatch noise",
    "bias": "error: who was available",
    "drift": "error: drift",
    "interaction": "error: interaction",
    "total": "error: total",
}


def _stop(message: str, code: int) -> NoReturn:
    errors.print(message, style="red", markup=False, highlight=False)
    raise typer.Exit(code)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    app()
