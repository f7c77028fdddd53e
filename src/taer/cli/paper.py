"""``taer paper``: the paper's tables and figures, each measured number beside the published one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taer.cli.app import COMPARE, app
from taer.cli.workers import AddressOption, Engine, EngineOption, JobsOption, where

if TYPE_CHECKING:
    from taer.experiment import Result, Run
    from taer.features import FeatureSet
    from taer.paper import Experiment
    from taer.paper.measured import Library
    from taer.report.tables import Number


@app.command(rich_help_panel=COMPARE)
def paper(
    experiments: Annotated[
        list[str] | None,
        typer.Argument(
            help="table1 … table4, figure2 … figure6, cited (methods that the paper cites but does not run), or "
            "all of these; fscil-cub: few-shot learning on CUB-200, beside results of other papers. [default: all]"
        ),
    ] = None,
    features: Annotated[
        Path,
        typer.Option(help="Folder of feature files, identified by the data set and backbone in their headers."),
    ] = Path("features"),
    out: Annotated[Path, typer.Option(help="Folder of results.")] = Path("results"),
    seeds: Annotated[int, typer.Option(help="Number of runs per head.", min=1)] = 3,
    jobs: JobsOption = None,
    engine: EngineOption = Engine.local,
    address: AddressOption = None,
    variant: Annotated[
        str, typer.Option(help="raw: the paper's form; standardized: features standardized by the first task.")
    ] = "raw",
    extract: Annotated[
        bool,
        typer.Option("--extract", help="First make the missing feature files; downloads data sets and backbones."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and run nothing.")] = False,
) -> None:
    """Run the paper's experiments beside the published numbers.

    Finished runs are read from --out, so an interrupted command can be repeated. 'taer report' turns the results
    into a page with all tables and figures.
    """
    from taer.paper import distinct_runs
    from taer.paper.features import find_features
    from taer.paper.measured import Library

    chosen = _chosen(experiments or ["all"], variant)
    trials = [trial for experiment in chosen for trial in experiment.trials]
    wanted = list(dict.fromkeys(trial.source for trial in trials))
    found = find_features(features, wanted)
    missing = [source for source in wanted if source not in found]
    if extract and not dry_run:
        found |= {source: _extracted(source, features) for source in missing}
        missing = []
    runs = distinct_runs(trials, found, seeds)
    if dry_run:
        for experiment in chosen:
            own = distinct_runs(experiment.trials, found, seeds)
            left_out = len({trial.key for trial in experiment.trials if trial.source not in found}) * seeds
            print(f"{experiment.name:<9}{len(own):>4} runs{_without(left_out)}: {experiment.title}")
        print(
            f"{len(runs)} runs in all, because tables and figures share some; {_finished(runs, out)} are in {out}"
        )
        _print_missing(missing)
        return
    results = _run(runs, out, jobs, engine, address)
    library = Library(results)
    for experiment in chosen:
        _print_experiment(experiment, library)
    _print_missing(missing)
    print(f"Figures and all tables on one page: taer report {out}")


def _extracted(source: tuple[str, str], folder: Path) -> FeatureSet:
    """The features that ``extract_command`` makes, in the folder of the others."""
    from taer.features.extraction import extract
    from taer.paper.features import extract_command

    print(extract_command(source), file=sys.stderr)
    dataset, backbone = source
    return extract(dataset, backbone, folder / f"{dataset}-{backbone}.safetensors")


def _chosen(names: list[str], variant: str) -> list[Experiment]:
    from taer.paper import NAMES, experiment, variants

    if variant not in variants():
        raise ValueError(f"unknown variant {variant!r}; there are {', '.join(variants())}")
    return [experiment(name, variant) for name in dict.fromkeys(NAMES if "all" in names else names)]


def _run(runs: list[Run], out: Path, jobs: int | None, engine: Engine, address: str | None) -> list[Result]:
    from taer.cli.run import run_with_progress

    try:
        with where(engine, address, jobs):
            results, from_disk = run_with_progress(runs, out, jobs, fresh=False)
    except KeyboardInterrupt:
        print(
            f"taer: stopped; {_finished(runs, out)} of {len(runs)} runs are finished and kept in {out}, "
            "and the same command goes on from there",
            file=sys.stderr,
        )
        raise typer.Exit(130) from None
    print(f"{len(runs)} runs, {from_disk} of them from disk ({out})\n")
    return results


def _finished(runs: list[Run], out: Path) -> int:
    return sum((out / run.file_name).is_file() for run in runs)


def _without(left_out: int) -> str:
    return f", {left_out} more need features that are missing" if left_out else ""


def _print_missing(missing: list[tuple[str, str]]) -> None:
    from taer.paper.features import extract_command

    if missing:
        print("Missing feature files, and what makes them:")
        for source in missing:
            print(f"  {extract_command(source)}")


def _print_experiment(experiment: Experiment, library: Library) -> None:
    if experiment.kind not in ("table", "lines"):
        print(f"{experiment.label}: {experiment.title}: drawn by 'taer report'\n")
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from taer.paper.measured import number

    of = f"{experiment.metric}, %" if experiment.metric else "%"
    table = Table(box=SIMPLE_HEAD, title_justify="left", caption_justify="left", show_lines=True)
    table.title = f"{experiment.label}: {experiment.title} ({of})"
    table.caption = (
        "Below each measured number: the published one, if there is one, and the difference. ± is the standard deviation "
        "over runs."
    )
    table.add_column(experiment.corner, no_wrap=True)
    for cell in experiment.cells[0]:
        table.add_column(f"{cell.group}\n{cell.column}" if cell.group else cell.column, justify="right")
    for row in experiment.cells:
        table.add_row(row[0].row, *(_text(number(cell, library)) for cell in row))
    Console(width=None if sys.stdout.isatty() else 160).print(table)  # a pipe has no terminal width


def _text(number: Number) -> str:
    """``54.80 ± 0.81`` over ``55.42 -0.62``."""
    if number.quoted:
        return "" if number.published is None else f"{number.published:.2f} quoted"
    if number.published is None:
        return str(number)
    difference = "" if number.difference is None else f" {number.difference:+.2f}"
    return f"{number}\n{number.published:.2f}{difference}"
