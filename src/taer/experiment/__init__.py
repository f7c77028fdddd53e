"""Runs of heads over streams, grids of runs, and their results on disk."""

from taer.experiment.callback import Callback, Callbacks
from taer.experiment.digest import source_digest
from taer.experiment.grid import run_grid
from taer.experiment.results import (
    CONTINUAL,
    FEW_SHOT,
    Result,
    Spread,
    by_class,
    grouped,
    mean_auroc,
    order_of,
    params_of,
    read_result,
    read_results,
    summarize,
    task_given,
    write_result,
)
from taer.experiment.run import Run, execute
from taer.experiment.tuning import Trial, trial_stream

__all__ = [
    "CONTINUAL",
    "FEW_SHOT",
    "Callback",
    "Callbacks",
    "Result",
    "Run",
    "Spread",
    "Trial",
    "by_class",
    "execute",
    "grouped",
    "mean_auroc",
    "order_of",
    "params_of",
    "read_result",
    "read_results",
    "run_grid",
    "source_digest",
    "summarize",
    "task_given",
    "trial_stream",
    "write_result",
]
