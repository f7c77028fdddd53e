"""``taer tune``."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from taer.cli.app import COMPARE, app
from taer.cli.parameters import sweep
from taer.cli.run import (
    FeaturesArgument,
    FirstOption,
    FormatOption,
    FreshOption,
    MethodsOption,
    OrderOption,
    OutOption,
    SamplesOption,
    SeedsOption,
    ShotsOption,
    StreamOption,
    TasksOption,
    about_streams,
    named_heads,
    run_with_progress,
    streams_of,
    told_runs,
    unable_heads,
)
from taer.cli.summary import Format, print_summary
from taer.cli.workers import AddressOption, Engine, EngineOption, JobsOption, where


class On(StrEnum):
    held_out = "held-out"
    first_task = "first-task"


@app.command(rich_help_panel=COMPARE)
def tune(
    features: FeaturesArgument = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="The grid: values of a parameter (lr=0.01,0.1), for every head that has it or for one "
            "(taer.init=zero,mean). With several parameters, every combination is tried. May be repeated.",
        ),
    ] = None,
    methods: MethodsOption = "taer",
    on: Annotated[
        On,
        typer.Option(
            help="held-out: a fifth of the training samples of every class is asked. first-task: the same within the "
            "first task alone, so that nothing of a later task is used."
        ),
    ] = On.held_out,
    tasks: TasksOption = None,
    stream: StreamOption = None,
    first: FirstOption = None,
    shots: ShotsOption = None,
    samples: SamplesOption = None,
    order: OrderOption = None,
    seeds: SeedsOption = 3,
    jobs: JobsOption = None,
    engine: EngineOption = Engine.local,
    address: AddressOption = None,
    out: OutOption = Path("results"),
    fresh: FreshOption = False,
    format: FormatOption = Format.table,
) -> None:
    """Choose parameters on training samples, then run the heads.

    They are chosen for each run by itself, and no test sample takes part. The results have the chosen values and the
    accuracy of every candidate; the trials are in OUT/tuning.
    """
    from taer.experiment import Run, Trial, summarize
    from taer.features import load_features

    data = load_features(features)
    names = named_heads(methods)
    grid = sweep(names, {}, set_ or [])
    if len(grid) == len(names):
        raise ValueError("there is nothing to choose; give several values, such as --set lr=0.01,0.1")
    streams = streams_of(data, stream, tasks, first, order, shots, samples, seeds)
    unable = unable_heads(grid, streams[0])
    trials = [
        Trial(Run(one, name, {}, seed), tuple(params for method, params in grid if method == name), on)
        for name in names
        if name not in unable
        for seed, one in enumerate(streams)
    ]
    tried = [trial.runs() for trial in trials]
    with where(engine, address, jobs):
        found, _ = run_with_progress([run for runs in tried for run in runs], out / "tuning", jobs, fresh)
        left = iter(found)
        runs = [
            trial.chosen([next(left) for _ in candidates]) for trial, candidates in zip(trials, tried, strict=True)
        ]
        for run in runs:
            if run.tuned is not None:
                chosen = ", ".join(f"{name} {value}" for name, value in run.tuned["chosen"].items())
                print(f"{run.method}, run {run.seed + 1}: {chosen}", file=sys.stderr)
        results, from_disk = run_with_progress(runs, out, jobs, fresh)
    source = told_runs(len(runs), from_disk, out)
    print_summary(
        format, data, about_streams(streams, first, shots, order, samples), summarize(results), source, unable
    )
