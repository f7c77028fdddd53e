"""Measured results beside the published numbers."""

from __future__ import annotations

from collections.abc import Iterable

from taer.experiment import Result, order_of
from taer.paper import Cell, Experiment, Trial, trial_key
from taer.paper.features import source_of
from taer.report.tables import Number


class Library:
    """Results indexed by what was run, so that a cell finds its results in any directory."""

    def __init__(self, results: Iterable[Result]) -> None:
        self._by_key: dict[str, dict[int, Result]] = {}
        for result in results:
            if result["rows"] is not None or order_of(result) == "torch":  # the rows determine the classes, too
                self._by_key.setdefault(result_key(result), {})[result["seed"]] = result

    def __getitem__(self, trial: Trial) -> list[Result]:
        """The runs of a trial in the order of their seeds; empty if there are none."""
        return [result for _, result in sorted(self._by_key.get(trial.key, {}).items())]

    def has(self, experiment: Experiment) -> bool:
        return any(self[trial] for trial in experiment.trials)


def number(cell: Cell, library: Library) -> Number:
    """The measured number of a table cell, if there is one, beside the published one."""
    results = library[cell.trial] if cell.trial else []
    return Number.of((_value(result, cell.metric) for result in results), cell.published, quoted=cell.trial is None)


def _value(result: Result, metric: str) -> float:
    if metric == "first":  # the accuracy after the first task
        return result["phase_accuracy"][0]
    return float(result[metric])  # type: ignore[literal-required]


def result_key(result: Result) -> str:
    sizes = [len(task) for task in result["tasks"]]
    first = sizes[0] if len(set(sizes)) > 1 else None
    protocol = result["rows"] or (len(sizes) - (first is not None), first)
    return trial_key(*source_of(result["meta"]), protocol, result["method"], result["params"])
