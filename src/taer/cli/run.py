"""``taer run`` and ``taer methods``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taer.cli.app import COMPARE, app
from taer.cli.own import find_method
from taer.cli.parameters import sweep
from taer.cli.summary import Format, print_summary
from taer.cli.workers import AddressOption, Engine, EngineOption, JobsOption, where, workers_alive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from taer.experiment import Result, Run
    from taer.features import FeatureSet
    from taer.heads import Head
    from taer.stream import Stream


_TASKS = "Tasks"
_PARAMETERS = "Parameters of the heads"


class Log(StrEnum):
    wandb = "wandb"
    tensorboard = "tensorboard"


FeaturesArgument = Annotated[
    str | None,
    typer.Argument(
        help="A feature file, a folder of shards, or the URL of one (s3://…). [default: the embedded sketches100]"
    ),
]
MethodsOption = Annotated[
    str,
    typer.Option(
        help="Names of heads, separated by commas, or 'all'; see 'taer methods'. module:Class for your own."
    ),
]
TasksOption = Annotated[
    int | None,
    typer.Option(
        help="Number of tasks; with --first, the number after the first. [default: 10]", rich_help_panel=_TASKS
    ),
]
StreamOption = Annotated[
    str | None,
    typer.Option(
        help="Another stream than tasks of disjoint classes: online, blurry, si-blurry, recurring, long-tailed or "
        "long-tailed-ordered. blurry-N-M: N percent of the classes stay in one session, M percent of the samples of the "
        "others do not. --tasks is then the number of sessions. Does not combine with --first, --shots and --samples.",
        rich_help_panel=_TASKS,
    ),
]
FirstOption = Annotated[
    int | None, typer.Option(help="Number of classes in the first task.", rich_help_panel=_TASKS)
]
ShotsOption = Annotated[
    int | None,
    typer.Option(
        help="Training samples per class after the first task, drawn at random. [default: all]",
        min=1,
        rich_help_panel=_TASKS,
    ),
]
SamplesOption = Annotated[
    Path | None,
    typer.Option(
        help='JSON file with the training samples of each task: {"sessions": {"0": [rows of train.x], "1": …}}. '
        "Replaces --tasks, --first, --shots and --order.",
        rich_help_panel=_TASKS,
    ),
]
OrderOption = Annotated[
    str | None,
    typer.Option(
        help="Class order: 'torch' (run s uses torch's permutation of seed s), 'natural' (by class number), "
        "'1993', 'icarl', or a file of class numbers. [default: torch]",
        rich_help_panel=_TASKS,
    ),
]
SeedsOption = Annotated[int, typer.Option(help="Number of runs per head.", min=1)]
OutOption = Annotated[Path, typer.Option(help="Folder of results.")]
FreshOption = Annotated[bool, typer.Option("--fresh", help="Ignore results on disk and run again.")]
FormatOption = Annotated[Format, typer.Option(help="Output format of the summary.")]


@app.command(rich_help_panel=COMPARE)
def run(
    features: FeaturesArgument = None,
    methods: MethodsOption = "bayes,taer,er,finetune,joint",
    tasks: TasksOption = None,
    stream: StreamOption = None,
    first: FirstOption = None,
    shots: ShotsOption = None,
    samples: SamplesOption = None,
    epochs: Annotated[
        int | None, typer.Option(help="Number of passes over each task.", rich_help_panel=_PARAMETERS)
    ] = None,
    memory_size: Annotated[
        int | None,
        typer.Option(help="Number of samples of earlier tasks to store.", rich_help_panel=_PARAMETERS),
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.", rich_help_panel=_PARAMETERS)] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Batch size for samples of the current task.", rich_help_panel=_PARAMETERS),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Any parameter, for every head that has it (standardize=none) or for one "
            "(taer.init=mean). Several values (lr=0.01,0.1) are run one after the other, with every combination of "
            "those of other parameters. May be repeated.",
            rich_help_panel=_PARAMETERS,
        ),
    ] = None,
    order: OrderOption = None,
    seeds: SeedsOption = 3,
    jobs: JobsOption = None,
    engine: EngineOption = Engine.local,
    address: AddressOption = None,
    log: Annotated[
        Log | None,
        typer.Option(
            help="Also log each epoch and task to Weights & Biases or to TensorBoard, in OUT/logs. Runs are then run "
            "one by one."
        ),
    ] = None,
    out: OutOption = Path("results"),
    fresh: FreshOption = False,
    format: FormatOption = Format.table,
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
    chosen = sweep(named_heads(methods), common, set_ or [])
    streams = streams_of(data, stream, tasks, first, order, shots, samples, seeds)
    unable = unable_heads(chosen, streams[0])
    able = [(name, params) for name, params in chosen if name not in unable]
    runs = [Run(streams[seed], name, params, seed) for name, params in able for seed in range(seeds)]
    if log is not None:
        jobs = _one_by_one(log, jobs, engine)
    with where(engine, address, jobs):
        results, from_disk = run_with_progress(runs, out, jobs, fresh, log)
    about = about_streams(streams, first, shots, order, samples)
    source = told_runs(len(runs), from_disk, out)
    print_summary(format, data, about, summarize(results), source, unable)


def told_runs(number: int, from_disk: int, out: Path) -> str:
    return f"{number} run{'' if number == 1 else 's'}, {from_disk} of them from disk ({out})"


def about_streams(
    streams: list[Stream], first: int | None, shots: int | None, order: str | None, samples: Path | None
) -> dict[str, Any]:
    """What the summary says about the streams."""
    about: dict[str, Any] = {"tasks": len(streams[0]), "first": first, "shots": shots, "seeds": len(streams)}
    about |= {"order": order or "torch"} if samples is None else {"samples": str(samples)}
    about |= {"kind": streams[0].kind, "returning": any(one.returning for one in streams)}
    about |= {"classes": len(streams[0].order)}
    training, test = zip(*(_used(one) for one in streams), strict=True)
    about |= {"training_samples": training, "test_samples": test}
    return about | ({"ratio": _ratio(streams[0])} if about["kind"].startswith("long-tailed") else {})


def _used(stream: Stream) -> tuple[int, int]:
    """The training and the test samples of a stream, which may leave out some of the feature set."""
    import numpy as np

    training = sum(len(stream.train_rows(t)) for t in range(len(stream)))
    return training, int(np.isin(stream.features.test_y, stream.order).sum())


def _ratio(stream: Stream) -> float:
    """Training samples of the most frequent class, for one of the least frequent."""
    import numpy as np

    rows = [stream.train_rows(t) for t in range(len(stream))]
    counts = np.unique(np.asarray(stream.features.train_y)[np.concatenate(rows)], return_counts=True)[1]
    return float(counts.max() / counts.min())


def _one_by_one(log: Log, jobs: int | None, engine: Engine) -> int:
    if jobs not in (None, 1) or engine is not Engine.local:
        raise ValueError(f"--log {log} follows runs one by one; leave out --jobs and --engine")
    return 1


def unable_heads(chosen: list[tuple[str, dict[str, Any]]], stream: Stream) -> list[str]:
    """The heads that cannot learn a stream whose tasks are not marked."""
    from taer.heads import find_head

    names = dict.fromkeys(name for name, _ in chosen)
    return [name for name in names if stream.batch is not None and find_head(name).card.needs_boundaries]


def named_heads(methods: str) -> list[str]:
    from taer.heads import HEADS

    names = list(HEADS) if methods == "all" else [name.strip() for name in methods.split(",") if name.strip()]
    for name in names:
        find_method(name)
    if not names:
        raise ValueError("no method given")
    return list(dict.fromkeys(names))


def streams_of(
    data: FeatureSet,
    stream: str | None,
    tasks: int | None,
    first: int | None,
    order: str | None,
    shots: int | None,
    samples: Path | None,
    seeds: int,
) -> list[Stream]:
    """One stream per seed, of the kind that the options describe."""
    if stream is None:
        return _streams(data, tasks, first, order, shots, samples, seeds)
    _check_alone(stream, {"--first": first, "--shots": shots, "--samples": samples})
    return _streams_of_kind(data, stream, tasks, order, seeds)


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
    from taer.stream import class_stream, read_sessions, sample_stream

    if samples is not None:
        given = {"--tasks": tasks, "--first": first, "--shots": shots, "--order": order}
        if others := [option for option, value in given.items() if value is not None]:
            raise ValueError(f"--samples gives the samples of every task; leave out {', '.join(others)}")
        try:
            return [sample_stream(data, read_sessions(samples))] * seeds
        except ValueError as error:
            raise ValueError(f"--samples {samples}: {str(error).removeprefix(f'{samples}: ')}") from None
    return [
        class_stream(data, 10 if tasks is None else tasks, first, one, shots, seed)
        for seed, one in enumerate(_orders(order, seeds))
    ]


def _check_alone(kind: str | None, others: dict[str, Any]) -> None:
    given = [option for option, value in others.items() if value is not None]
    if kind is not None and given:
        raise ValueError(f"--stream {kind} decides which samples come when; leave out {', '.join(given)}")


def _streams_of_kind(data: FeatureSet, kind: str, tasks: int | None, order: str | None, seeds: int) -> list[Stream]:
    """One stream per seed, of a kind of ``taer.make_stream``."""
    from taer.stream.kinds import make_stream

    sessions = 10 if tasks is None else tasks
    return [make_stream(data, kind, sessions, one, seed) for seed, one in enumerate(_orders(order, seeds))]


def _orders(order: str | None, seeds: int) -> list[Any]:
    """The class order of each seed."""
    from taer.stream import NAMED_ORDERS

    if order in (None, "torch"):
        return list(range(seeds))
    return [order if order in NAMED_ORDERS else _order_from_file(Path(order))] * seeds


def _order_from_file(path: Path) -> list[int]:
    if not path.is_file():
        raise ValueError(
            f"--order {path}: neither a known order nor a file; expected torch, natural, 1993, icarl or a file"
        )
    try:
        return [int(word) for word in path.read_text().replace(",", " ").split()]
    except ValueError:
        raise ValueError(f"--order {path}: expected class numbers separated by spaces or commas") from None


def run_with_progress(
    runs: list[Run], out: Path, jobs: int | None, fresh: bool, log: Log | None = None
) -> tuple[list[Result], int]:
    """Results in the order of the runs, and how many came from disk. Shows a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from taer.experiment import Callback, Callbacks, run_grid
    from taer.threads import cores

    loggers: list[Callback] = []
    if log is not None:
        from taer.experiment.loggers import LOGGERS

        loggers = [LOGGERS[log](out / "logs" / log)]
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    results: dict[int, Result] = {}
    number = {id(run): i for i, run in enumerate(runs)}
    from_disk = 0
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(f"runs{workers_alive()}", total=len(runs))

        class Shown(Callback):
            def on_task(self, run: Run, task: int, measured: Mapping[str, float]) -> None:
                progress.update(
                    bar,
                    description=f"{run.method}, run {run.seed + 1}: task {task + 1} of {len(run.stream)}, "
                    f"{100 * measured['accuracy']:.1f} % on all classes so far",
                )

        told = Callbacks(Shown(), *loggers)
        for run, result, stored in run_grid(runs, out, jobs=jobs or cores(), fresh=fresh, callback=told):
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


@app.command(rich_help_panel=COMPARE)
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
