"""``taer run`` and ``taer methods``."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taer.cli.app import app
from taer.cli.own import find_method
from taer.cli.parameters import sweep
from taer.cli.workers import AddressOption, Engine, EngineOption, JobsOption, where, workers_alive

if TYPE_CHECKING:
    from taer.experiment import Result, Run
    from taer.features import FeatureSet
    from taer.heads import Head
    from taer.stream import Stream


class Format(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"


@app.command()
def run(
    features: Annotated[
        str | None,
        typer.Argument(
            help="A feature file, a folder of shards, or the URL of one (s3://…). [default: the embedded sketches100]"
        ),
    ] = None,
    methods: Annotated[
        str,
        typer.Option(
            help="Names of heads, separated by commas, or 'all'; see 'taer methods'. module:Class for your own."
        ),
    ] = "bayes,taer,er,finetune,joint",
    tasks: Annotated[
        int | None, typer.Option(help="Number of tasks; with --first, the number after the first. [default: 10]")
    ] = None,
    first: Annotated[int | None, typer.Option(help="Number of classes in the first task.")] = None,
    shots: Annotated[
        int | None,
        typer.Option(
            help="Training samples per class after the first task, drawn at random. [default: all]", min=1
        ),
    ] = None,
    samples: Annotated[
        Path | None,
        typer.Option(
            help='JSON file with the training samples of each task: {"sessions": {"0": [rows of train.x], "1": …}}. '
            "Replaces --tasks, --first, --shots and --order."
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Number of passes over each task.")] = None,
    memory_size: Annotated[int | None, typer.Option(help="Number of samples of earlier tasks to store.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Batch size for samples of the current task.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Any parameter, for every head that has it (standardize=none) or for one "
            "(taer.init=mean). Several values (lr=0.01,0.1) are run one after the other, with every combination of "
            "those of other parameters. May be repeated.",
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            help="Class order: 'torch' (run s uses torch's permutation of seed s), 'natural' (by class number), "
            "'1993', 'icarl', or a file of class numbers. [default: torch]"
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of runs per head.", min=1)] = 3,
    jobs: JobsOption = None,
    engine: EngineOption = Engine.local,
    address: AddressOption = None,
    out: Annotated[Path, typer.Option(help="Folder of results.")] = Path("results"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore results on disk and run again.")] = False,
    format: Annotated[Format, typer.Option(help="Output format of the summary.")] = Format.table,
) -> None:
    """Compare heads on the same tasks.

    Each head learns the classes of the feature set, one task after the other.

    Options that are not given keep the default of each head. Finished runs are read from --out, so an interrupted
    command can be repeated.
    """
    from taer.experiment import Run, summarize
    from taer.features import load_features

    data = load_features(features)
    common = {"epochs": epochs, "memory_size": memory_size, "lr": lr, "batch_size": batch_size}
    chosen = sweep(_names(methods), common, set_ or [])
    streams = _streams(data, tasks, first, order, shots, samples, seeds)
    runs = [Run(streams[seed], name, params, seed) for name, params in chosen for seed in range(seeds)]
    with where(engine, address, jobs):
        results, from_disk = run_with_progress(runs, out, jobs, fresh)
    stream: dict[str, Any] = {"tasks": len(streams[0]), "first": first, "shots": shots, "seeds": seeds}
    stream |= {"order": order or "torch"} if samples is None else {"samples": str(samples)}
    source = f"{len(runs)} runs, {from_disk} of them from disk ({out})"
    _print_summary(format, data, stream, summarize(results), source)


def _names(methods: str) -> list[str]:
    from taer.heads import HEADS

    names = list(HEADS) if methods == "all" else [name.strip() for name in methods.split(",") if name.strip()]
    for name in names:
        find_method(name)
    if not names:
        raise ValueError("no method given")
    return list(dict.fromkeys(names))


def _streams(
    data: FeatureSet,
    tasks: int | None,
    first: int | None,
    order: str | None,
    shots: int | None,
    samples: Path | None,
    seeds: int,
) -> list[Stream]:
    """One stream per seed."""
    from taer.stream import NAMED_ORDERS, class_stream, read_sessions, sample_stream

    if samples is not None:
        given = {"--tasks": tasks, "--first": first, "--shots": shots, "--order": order}
        if others := [option for option, value in given.items() if value is not None]:
            raise ValueError(f"--samples gives the samples of every task; leave out {', '.join(others)}")
        try:
            return [sample_stream(data, read_sessions(samples))] * seeds
        except ValueError as error:
            raise ValueError(f"--samples {samples}: {str(error).removeprefix(f'{samples}: ')}") from None
    fixed: Any = None
    if order not in (None, "torch"):
        fixed = order if order in NAMED_ORDERS else _order_from_file(Path(order))
    return [
        class_stream(data, 10 if tasks is None else tasks, first, seed if fixed is None else fixed, shots, seed)
        for seed in range(seeds)
    ]


def _order_from_file(path: Path) -> list[int]:
    if not path.is_file():
        raise ValueError(
            f"--order {path}: neither a known order nor a file; expected torch, natural, 1993, icarl or a file"
        )
    try:
        return [int(word) for word in path.read_text().replace(",", " ").split()]
    except ValueError:
        raise ValueError(f"--order {path}: expected class numbers separated by spaces or commas") from None


def run_with_progress(runs: list[Run], out: Path, jobs: int | None, fresh: bool) -> tuple[list[Result], int]:
    """Results in the order of the runs, and how many came from disk. Shows a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from taer.experiment import run_grid
    from taer.threads import cores

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    results: dict[int, Result] = {}
    number = {id(run): i for i, run in enumerate(runs)}
    from_disk = 0
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(f"runs{workers_alive()}", total=len(runs))

        def on_task(run: Run, t: int, accuracy: float) -> None:
            progress.update(
                bar,
                description=f"{run.method}, run {run.seed + 1}: task {t + 1} of {len(run.stream)}, "
                f"{100 * accuracy:.1f} % on all classes so far",
            )

        for run, result, stored in run_grid(runs, out, jobs=jobs or cores(), fresh=fresh, on_task=on_task):
            results[number[id(run)]] = result
            from_disk += stored
            progress.advance(bar)
            if not stored:
                progress.update(
                    bar,
                    description=f"{run.method}, run {run.seed + 1}: {100 * result['last']:.1f} % on all classes"
                    f"{workers_alive()}",
                )
    return [results[i] for i in range(len(runs))], from_disk


def _print_summary(
    format: Format, data: FeatureSet, stream: dict[str, Any], rows: list[dict[str, Any]], source: str
) -> None:
    if format is Format.json:
        described = {
            "name": data.name,
            "fingerprint": data.fingerprint,
            "classes": len(data.classes),
            "width": data.n_features,
            **data.meta,
        }
        json.dump({"features": described, "stream": stream, "rows": rows}, sys.stdout, indent=2)
        print()
        return
    if format is Format.csv:
        import csv

        from taer.experiment import FEW_SHOT

        measured = {"A_T": "A_T", "AIA": "AIA", "ECE": "ECE", "novelty_AUROC": "novelty AUROC"}
        measured["task_given"] = "task given"
        measured |= {name: name.replace("_", " ") for name in FEW_SHOT}
        writer = csv.writer(sys.stdout, lineterminator="\n")
        names = [f"{name}{part}" for name in measured.values() for part in ("", " std")]
        writer.writerow(["method", *names, "seconds", "memory samples", "memory bytes"])
        for row in rows:
            numbers = [row[name][key] for name in measured for key in ("mean", "std")]
            writer.writerow([row["label"], *numbers, row["seconds"], row["memory_samples"], row["memory_bytes"]])
        return
    from taer.experiment import Spread
    from taer.heads import find_head

    runs = "1 run" if stream["seeds"] == 1 else f"{stream['seeds']} runs"
    heading = (
        f"{data.name}: {len(data.classes)} classes in {stream['tasks']} tasks, {data.n_features} features, "
        f"{len(data.train_y):,} training and {len(data.test_y):,} test samples, {runs}"
    )
    few_shot = stream["shots"] is not None or "samples" in stream
    metrics = ["last", "base", "new", "AIA"] if few_shot else ["A_T", "AIA"]
    guesses = any(find_head(row["method"]).card.guesses_task for row in rows)
    metrics += ["task_given"] * guesses
    header = [
        "method",
        *(f"{name.replace('_given', ' given')} (%)" for name in metrics),
        "seconds",
        "samples",
        "bytes",
    ]
    cells = [
        [
            row["label"],
            *(str(Spread(**row[name])) for name in metrics),
            f"{row['seconds']:.2f}",
            f"{row['memory_samples']:,.0f}",
            f"{row['memory_bytes']:,.0f}",
        ]
        for row in rows
    ]
    if format is Format.markdown:
        print(f"{heading}\n")
        for line in (header, ["---"] + ["---:"] * (len(header) - 1), *cells):
            print(f"| {' | '.join(line)} |")
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, title=heading, title_justify="left", caption_justify="left")
    after_last = (
        "last: accuracy on all test samples after the last task; base and new: on those of classes of the first and of "
        "later tasks."
        if few_shot
        else "A_T: mean over tasks of the accuracy after the last task."
    )
    table.caption = (
        f"{after_last} AIA: mean over phases of the accuracy on all classes so far. ±: standard deviation over runs. "
        f"{'Task given: accuracy after the last task if the task of each sample is known. ' * guesses}"
        "Samples, bytes: what a head keeps besides its weights (exemplars, statistics, penalties). "
        f"{source}."
    )
    console, fits = Console(), len(header)
    widths = [max(map(len, column)) + 3 for column in zip(header, *cells, strict=True)]
    while sum(widths[:fits]) >= console.width and fits > 1 + len(metrics):
        fits -= 1  # drop columns, which the other formats have, rather than cut the names of heads
    for i, name in enumerate(header[:fits]):
        table.add_column(name, justify="right" if i else "left", no_wrap=True)
    for line in cells:
        table.add_row(*line[:fits])
    console.print(table)


@app.command()
def methods(
    all_: Annotated[bool, typer.Option("--all", help="Also describe the heads of the zoo.")] = False,
    long: Annotated[bool, typer.Option("--long", help="Also the parameters of each head.")] = False,
) -> None:
    """List the heads with their properties.

    The core's heads come first. The zoo's are published methods and experiments, here to be compared with.
    """
    from taer.cli.methods import print_heads, print_parameters

    core, own, zoo = _shelves()
    unfolded = {"Heads to choose from": core, "Heads of your own": own, **(_by_group(zoo) if all_ else {})}
    for title, heads in unfolded.items():
        print_heads(title, heads, long=long)
    if not all_:
        more = f"The zoo ('taer methods --all'), {len(zoo)} more to compare with: {', '.join(zoo)}"
        print(fill(more, 100) + "\n")
    if long:
        print_parameters(head for heads in unfolded.values() for head in heads.values())
    else:
        print("'taer methods --long' also lists the parameters of each head.")


def _shelves() -> tuple[dict[str, type[Head]], dict[str, type[Head]], dict[str, type[Head]]]:
    """The heads of the core, the user's own, and those of the zoo."""
    from taer.heads import HEADS
    from taer.heads.registry import CORE

    core = {name: HEADS[name] for name in CORE}
    zoo = {name: head for name, head in HEADS.items() if head.__module__.startswith("taer.zoo.")}
    return core, {name: head for name, head in HEADS.items() if name not in core | zoo}, zoo


def _by_group(zoo: dict[str, type[Head]]) -> dict[str, dict[str, type[Head]]]:
    from taer.heads.card import GROUPS

    groups: dict[str, dict[str, type[Head]]] = {}
    for name, head in zoo.items():
        groups.setdefault(f"The zoo: {GROUPS[head.card.group]}", {})[name] = head
    return groups
