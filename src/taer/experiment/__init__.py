"""Runs of heads over streams, grids of runs, and their results on disk."""

from taer.experiment.grid import run_grid
from taer.experiment.results import (
    FEW_SHOT,
    Result,
    Spread,
    grouped,
    mean_auroc,
    params_of,
    read_result,
    read_results,
    summarize,
    task_given,
    write_result,
)
from taer.experiment.run import Run, execute, source_digest

__all__ = [
    "FEW_SHOT",
    "Result",
    "Run",
    "Spread",
    "execute",
    "grouped",
    "mean_auroc",
    "params_of",
    "read_result",
    "read_results",
    "run_grid",
    "source_digest",
    "summarize",
    "task_given",
    "write_result",
]
