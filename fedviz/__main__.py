"""The same jobs without a browser: `python -m fedviz --help`."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedviz import __version__
from fedviz.config import ConfigError, SimulationConfig, with_settings
from fedviz.papers.presets import PRESETS
from fedviz.participation.trace import LARGEST_FILE, read_csv
from fedviz.problems import ProblemError
from fedviz.runs import export
from fedviz.runs.admission import Refused, check
from fedviz.simulation.errors import Diverged
from fedviz.sweep import combinations, last_values, spread

if TYPE_CHECKING:
    from fedviz.benchmarks.tables import Table as Numbers
    from fedviz.papers.claims import Claim
    from fedviz.papers.reproduce import Result

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Federated optimisation, live. Start the dashboard with [bold]python3 bootstrap.py run[/bold]; or run without a browser:",
)
console, errors = Console(), Console(stderr=True)

MOST_SEEDS = 1_000


@app.callback()
def main() -> None:
    """Keeps `run` a named command."""


def _within(least: float, most: float = math.inf) -> Callable[[Any], Any]:
    """A check of an option that may be left out: says what was got and what is allowed, whichever release of typer shows it."""

    def check(value: float | None) -> float | None:
        if value is not None and not least <= value <= most:
            span = f"{least:g} or more" if most == math.inf else f"{least:g} to {most:,g}"
            raise typer.BadParameter(f"got {value:,}, allowed {span}.")
        return value

    return check


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
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Who takes part: lines of round,client (rounds from 1, clients from 0; the line 200, is a round without anybody).",
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            callback=_within(1, MOST_SEEDS),
            help="So many runs, with this seed and those that follow; what is shown is mean and range.",
        ),
    ] = 1,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=V1,V2,...",
            help="A run for each of these values, as in client_lr=0.01,0.1. Repeatable: all combinations.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--json", help="Write config and records to this file.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the records as a table, one row a round.")] = None,
) -> None:
    """Run one simulation, or several side by side, with a progress bar and a table of the results.

    Exit code 0: finished. 1: diverged, or the data cannot be had. 2: the settings are not valid. 130: interrupted.

    Example: python -m fedviz run --set algorithm.name=fedvarp --set rounds=60 --json out.json

    Example: python -m fedviz run --seeds 5 --vary algorithm.name=fedavg,scaffold --csv out.csv
    """
    given = [*(settings or []), *_trace_settings(trace)]
    variants = {
        ", ".join(changes): _with_seeds([*given, *changes], preset, config, seeds)
        for changes in _combinations(vary or [])
    }
    chosen = [each for several in variants.values() for each in several]
    try:
        check(*chosen, one_process=True)
    except (Refused, ConfigError) as refusal:
        _stop(str(refusal), 2)
    for option, file in (("--json", out), ("--csv", csv)):
        _see_that_it_can_be_written(option, file)
    records, failure = _simulate(chosen)
    if len(chosen) == 1:
        _print_table(chosen[0], records[0])
    else:
        _print_spread(variants, records)
    runs = list(zip(chosen, records, strict=True))
    if out is not None:
        contents = [{"config": each.to_dict(), "records": its} for each, its in runs]
        content = {"fedviz": __version__, **(contents[0] if len(runs) == 1 else {"runs": contents})}
        _write("--json", out, json.dumps(content, allow_nan=False, indent=1), sum(map(len, records)))
    if csv is not None:
        paths = [text.partition("=")[0].strip() for text in vary or []]
        _write("--csv", csv, export.table(runs, paths), sum(map(len, records)))
    if failure:
        _stop(*failure)


def _combinations(vary: list[str]) -> list[tuple[str, ...]]:
    try:
        return combinations(vary)
    except ConfigError as error:
        _stop(f"--vary: {error}.", 2)


def _with_seeds(settings: list[str], preset: str, file: Path | None, seeds: int) -> list[SimulationConfig]:
    """The config of these settings, with its seed and those that follow."""
    first = _read_config(settings, preset, file)
    return [first, *(_read_config([*settings, f"seed={first.seed + more}"], preset, file) for more in range(1, seeds))]


def _see_that_it_can_be_written(option: str, file: Path | None) -> None:
    """A path that cannot be written is better known before the runs than after them."""
    try:
        if file is not None:
            file.open("a").close()
    except OSError as error:
        _stop(f"{option}: cannot write {file} ({error.strerror}): name a file in a folder that exists and is yours.", 2)


def _write(option: str, file: Path, text: str, count: int) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        _stop(f"{option}: cannot write {file} ({error.strerror}): free some space, or name another file.", 1)
    console.print(f"Wrote {count:,} records to {file}.")


def _trace_settings(file: Path | None) -> list[str]:
    """The settings that replay a trace from a CSV file."""
    if file is None:
        return []
    try:
        with file.open("rb") as opened:
            cohorts = read_csv(opened.read(LARGEST_FILE + 1))  # one byte too many is refused
    except OSError as error:
        _stop(f"--trace: cannot read {file} ({error.strerror}).", 2)
    except ValueError as error:
        _stop(f"--trace: {file}: {error}.", 2)
    return ["participation.pattern=trace", f"participation.cohorts={json.dumps(cohorts)}"]


def _read_config(settings: list[str], preset: str, file: Path | None) -> SimulationConfig:
    if preset not in PRESETS:
        _stop(f"--preset: got {preset!r}, allowed {', '.join(PRESETS)}.", 2)
    try:
        base = PRESETS[preset].config if file is None else json.loads(file.read_text("utf-8-sig"))
        base = base.get("config", base) if isinstance(base, dict) else base
        if not isinstance(base, dict):
            _stop(f'--config: {file} holds no config: expected a JSON object, or one under "config".', 2)
        return with_settings(settings, base)
    except OSError as error:
        _stop(f"--config: cannot read {file} ({error.strerror}).", 2)
    except ConfigError as error:
        _stop(f"Not a valid run:\n{error}", 2)
    except (ValueError, RecursionError) as error:
        _stop(f"--config: {file} is not JSON that can be read ({error}).", 2)


def _simulate(configs: list[SimulationConfig]) -> tuple[list[list[dict]], tuple[str, int] | None]:
    """(the records of each, (message, exit code) if not all finished)."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    records: list[list[dict]] = [[] for _ in configs]
    ended: dict[int, Diverged] = {}
    title = configs[0].algorithm.title if len(configs) == 1 else f"{len(configs)} runs"
    with Progress(*columns, console=errors) as bar:
        task = bar.add_task("Preparing", total=max(config.rounds for config in configs))
        try:
            import torch  # here, for it takes a second or two, in which somebody may press Ctrl-C

            from fedviz.simulation.lockstep import simulate_many

            torch.set_num_threads(1)  # more only pays for larger models than these
            for which, record in simulate_many(configs, progress=lambda text: bar.update(task, description=text)):
                if isinstance(record, Diverged):
                    ended[which] = record
                else:
                    records[which].append(record.to_dict())
                    bar.update(task, description=title, completed=record.round)
        except ProblemError as error:
            return records, (str(error), 1)
        except KeyboardInterrupt:
            return records, ("Interrupted.", 130)
    if not ended:
        return records, None
    several = f"{len(ended)} of {len(configs)} runs diverged; the first: " if len(configs) > 1 else ""
    return records, (f"{several}{ended[min(ended)]}", 1)


def _print_table(config: SimulationConfig, records: list[dict]) -> None:
    """The last value of every measure."""
    table = Table(
        "measure", "value", "round", title=f"{config.algorithm.title}, {records[-1]['round'] if records else 0} rounds"
    )
    for name, (value, round) in last_values(records, _MEASURES).items():
        table.add_row(_IN_WORDS[name], f"{value:.4g}", str(round))
    if records:
        costs = records[-1]["costs"]
        table.add_row("sample gradients, training", f"{costs['gradient_evaluations']:,}", "")
        table.add_row("sample gradients, measuring", f"{costs['probe_evaluations']:,}", "")
        table.add_row("seconds", f"{costs['seconds']:.3g}", "")
    console.print(table)


def _print_spread(variants: dict[str, list[SimulationConfig]], records: list[list[dict]]) -> None:
    """The last value of every measure over the seeds of each variant: mean and range."""
    waiting = iter(records)
    lasts = {name: [last_values(next(waiting), _MEASURES) for _ in several] for name, several in variants.items()}
    seeds = len(next(iter(variants.values())))
    title = f"{len(records)} runs" + (f", {seeds} seeds: mean (lowest to highest)" if seeds > 1 else "")
    table = Table("last value of", *(escape(name or "value") for name in variants), title=title)
    for measure, words in _IN_WORDS.items():
        cells = [spread([last[measure][0] for last in of_seeds if measure in last]) for of_seeds in lasts.values()]
        if any(cells):
            table.add_row(words, *cells)
    console.print(table)


@app.command()
def catalogue(
    as_json: Annotated[
        bool, typer.Option("--json", help="As JSON, with ranges and formulas, these as LaTeX too.")
    ] = False,
) -> None:
    """List every algorithm, participation pattern, partition, problem, data set and model with its parameters.

    Example: python -m fedviz catalogue --json
    """
    from fedviz.catalogue import KINDS, SYMBOLS, allowed, default_of
    from fedviz.catalogue import catalogue as everything

    if as_json:
        print(json.dumps(everything(), indent=1, ensure_ascii=False, allow_nan=False))
        return
    for kind, entries in everything().items():
        table = Table("choose", "what it is, and its parameters", title=KINDS[kind], title_justify="left")
        for entry in entries.values():
            lines = [f"[bold]{escape(entry['title'])}[/bold]  {escape(entry['summary'])}"]
            lines += [f"    {escape(line)}" for line in entry["formula_text"].splitlines()]
            lines += [f"{what}: {escape(value)}" for what, value in entry["costs"].items()]
            lines += [
                escape(f"{p['name']} = {default_of(p)} ({allowed(p)}) {p['symbol']}: {p['help']}")
                for p in entry["parameters"]
            ]
            table.add_row(escape(entry["choose"]), "\n".join(lines))
        console.print(table)
    console.print("; ".join(f"{symbol}: {meaning}" for symbol, meaning in SYMBOLS.items()) + ".", markup=False)


@app.command()
def reproduce(
    paper: Annotated[str, typer.Argument(help="scaffold, fedvarp, amplified, or all.")],
    claim: Annotated[
        list[str] | None, typer.Option("--claim", metavar="ID", help="Only this claim. Repeatable.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(callback=_within(1, MOST_SEEDS), help="So many seeds instead of a claim's own number.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(callback=_within(0), help="Begin no run after so many minutes.")
    ] = None,
    cost: Annotated[str, typer.Option(help="Try claims up to this cost: seconds, minutes or hours.")] = "minutes",
    must_run: Annotated[bool, typer.Option("--must-run", help="Only the must-run list: a few minutes in all.")] = False,
    jobs: Annotated[
        int | None, typer.Option(callback=_within(1), help="Runs side by side; by default one for each processor.")
    ] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Store the results under benchmarks/ and renew the table.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over: also make runs again that are finished.")] = False,
) -> None:
    """Try what the papers claim: the paper's value, the value here with its spread over seeds, and a verdict.

    Numbers of finished runs are kept: a command that was stopped, or whose time was up, goes on when it is given again.

    Exit code 0: all that should hold does. 1: something that should hold does not, or that had to run did not. 2: not a valid request.
    130: interrupted; nothing is stored.

    Example: python -m fedviz reproduce scaffold --claim scaffold-toy-speed
    """
    with _stoppable("The same command goes on with the runs that are not finished yet."):
        from fedviz.papers import reproduce as engine
        from fedviz.papers.claims import COSTS, PAPERS
        from fedviz.papers.library import CLAIMS

        if paper not in (*PAPERS, "all"):
            _stop(f"got {paper!r}, allowed {', '.join(PAPERS)} or all.", 2)
        if cost not in COSTS:
            _stop(f"--cost: got {cost!r}, allowed {', '.join(COSTS)}.", 2)
        try:
            wanted = engine.chosen(CLAIMS, paper=paper, ids=claim or [], cost=cost, must_run=must_run)
        except ValueError as error:
            _stop(f"--claim: {error}.", 2)
        results = _try(wanted, seeds, must_run, budget, jobs or os.cpu_count() or 1, fresh)
        _print_results(results)
        if save:
            from fedviz.papers import report

            command = " ".join(["python -m fedviz", *sys.argv[1:]])
            console.print(f"Wrote {report.save(results, command, CLAIMS)}.")
        found = engine.shortcomings(results, named=bool(claim))
        if found:
            _stop("\n".join(found), 1)


def _try(
    claims: list[Claim], seeds: int | None, must_run: bool, budget: float | None, workers: int, fresh: bool
) -> list[Result]:
    """Make the runs that the claims need and that are not finished yet, with a progress bar, and judge the claims."""
    from fedviz.papers import reproduce as engine
    from fedviz.papers.kept import Kept
    from fedviz.runs.store import home

    numbers = {claim.id: engine.seeds_of(claim, seeds, must_run) for claim in claims}
    jobs = engine.jobs_for(claims, numbers)
    kept = Kept(home() / "reproduce", lambda message: errors.print(message, style="yellow", markup=False))
    if fresh:
        kept.forget(jobs.values())
    outcomes = kept.found(jobs)
    if outcomes:
        console.print(
            f"{len(outcomes)} of {len(jobs)} runs were finished before and are taken up; --fresh starts over."
        )
    missing = {key: job for key, job in jobs.items() if key not in outcomes}
    deadline = math.inf if budget is None else time.time() + 60 * budget
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    made = engine.make(missing, workers=min(workers, max(1, len(missing))), deadline=deadline)
    with Progress(*columns, console=errors) as bar, closing(made):
        task = bar.add_task("Runs", total=len(jobs), completed=len(outcomes))
        try:
            for key, outcome in made:
                kept.keep(jobs[key], outcome)
                outcomes[key] = outcome
                bar.advance(task)
        except KeyboardInterrupt:
            finished = sum(not outcome.failure for outcome in outcomes.values())
            _stop(
                f"Interrupted with {finished} of {len(jobs)} runs finished. The same command goes on from there.", 130
            )
    late = sum(key not in outcomes or outcomes[key].failure == engine.TIME_UP for key in jobs)
    if late:
        console.print(f"The time was up for {late} of {len(jobs)} runs; the same command makes these.")
    return [engine.conclude(claim, numbers[claim.id], jobs, outcomes) for claim in claims]


@contextmanager
def _stoppable(how_to_go_on: str) -> Iterator[None]:
    """Within it, being told to end (kill, a shutdown) is as Ctrl-C; either is answered with how to go on."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        _stop(f"Interrupted. {how_to_go_on}", 130)
    finally:
        signal.signal(signal.SIGTERM, before)


def _print_results(results: list[Result]) -> None:
    from fedviz.papers.report import seeds_in_words
    from fedviz.papers.report import spread as over_seeds

    table = Table("claim", "run", "paper", "here", "verdict")
    for result in results:
        expectation = result.claim.expectation
        verdict = f"{result.verdict}: {result.why}"
        if result.verdict == "not reproduced" and not result.claim.should_hold:
            verdict += " (known)"
        count = f"{seeds_in_words(len(result.seeds), result.seeds_wanted)}, {result.seconds:.0f} s"
        about = f"{result.claim.id}\n{result.claim.statistic} ({count})" if result.values else result.claim.id
        rows = [
            (arm, expectation.expected_of(arm) if expectation and arm in expectation.arms else "", over_seeds(values))
            for arm, values in result.values.items()
        ] or [("", "", "")]
        for place, row in enumerate(rows):  # what is said of the whole claim stands beside its first run
            table.add_row(escape(about) if place == 0 else "", *row, escape(verdict) if place == 0 else "")
        table.add_section()
    console.print(table)


@app.command()
def bench(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(
            help="w1, w2, default, decomposition, evaluation, lockstep, scaling, start, backends. Without: all, about six minutes."
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Measure nothing: which back end computes which model where, and why.")
    ] = False,
    save: Annotated[
        bool, typer.Option("--save", help="Store the results under benchmarks/ and renew the page RESULTS.md.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--json", help="Write the results to this file.")] = None,
    seconds: Annotated[
        float, typer.Option(callback=_within(0.001), help="How long a block lasts; medians are of three.")
    ] = 1.0,
    device: Annotated[
        str, typer.Option(help="auto, cpu or cuda; auto takes an NVIDIA GPU where there is one.")
    ] = "auto",
    tiny: Annotated[
        bool, typer.Option("--tiny", help="On very little data, to see that it works; the numbers mean nothing.")
    ] = False,
) -> None:
    """Measure how fast fedviz is on this machine: against a plain PyTorch loop, and against what the hardware can do.

    Exit code 0: measured. 1: something could not be measured. 2: not a valid request. 130: interrupted; nothing is stored.

    Example: python -m fedviz bench w1 w2 --save
    """
    from fedviz.benchmarks import report
    from fedviz.benchmarks.workloads import WORKLOADS, Plan, device_for

    unknown = [name for name in workloads or [] if name not in WORKLOADS]
    if unknown:
        _stop(f"got {', '.join(unknown)}, allowed {', '.join(WORKLOADS)}.", 2)
    if tiny and save:
        _stop("--save: the numbers of --tiny mean nothing; leave out one of the two.", 2)
    try:
        stored = report.read()
        plan = Plan(device_for(device), seconds, tiny=tiny)
        if out is not None:
            out.open("a").close()
    except ValueError as error:
        _stop(str(error), 2)
    except OSError as error:
        _stop(f"--json: cannot write {out} ({error.strerror}): name a file in a folder that exists and is yours.", 2)
    if explain:
        _print_plain(report.explain(stored))
        return
    command, sections = " ".join(["python -m fedviz", *sys.argv[1:]]), {}
    try:
        for name in workloads or WORKLOADS:
            with console.status(WORKLOADS[name].title):
                result = WORKLOADS[name].measure(plan)
            sections[f"{plan.device}/{name}"] = report.section(result, plan, command)
            console.print(WORKLOADS[name].title, style="bold", markup=False)
            for table in result.tables:
                _print_plain(table)
            for note in result.notes:
                console.print(note, markup=False, highlight=False)
    except (ProblemError, ConfigError, Diverged) as error:
        _stop(f"{name} could not be measured: {error}", 1)
    except KeyboardInterrupt:
        _stop("Interrupted.", 130)
    if out is not None:
        out.write_text(report.as_json(sections), encoding="utf-8")
    if save:
        console.print(f"Wrote {report.save(sections)}.")


def _print_plain(table: Numbers) -> None:
    from fedviz.benchmarks.tables import shown

    found = Table(*map(escape, table.columns), title=escape(table.title), title_justify="left")
    for row in table.rows:
        found.add_row(*(escape(shown(cell)) for cell in row))
    console.print(found)


_EVALUATION = {
    "train_loss": "training loss",
    "test_loss": "test loss",
    "test_accuracy": "test accuracy",
    "objective": "objective",
    "mean_objective": "mean of the clients' objectives",
    "gradient_norm_sq": "|grad f|²",
    "distance": "distance to the optimum",
}
_DECOMPOSITION = {
    "participation": "error: who took part",
    "noise": "error: gradient noise",
    "bias": "error: who was available",
    "drift": "error: drift",
    "interaction": "error: interaction",
    "total": "error: total",
}
_MEASURES = {"evaluation": _EVALUATION, "decomposition": _DECOMPOSITION}
_IN_WORDS = {**_EVALUATION, **_DECOMPOSITION}


def _stop(message: str, code: int) -> NoReturn:
    errors.print(message, style="red", markup=False, highlight=False)
    raise typer.Exit(code)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    app()
