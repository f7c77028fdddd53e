"""Measured results beside the published numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from taer.experiment import Result, Spread
from taer.paper import Cell, Experiment, Trial, trial_key
from taer.stream import class_order


class Library:
    """Results indexed by what was run, so that a cell finds its results in any directory."""

    def __init__(self, results: Iterable[Result]) -> None:
        self._by_key: dict[str, dict[int, Result]] = {}
        for result in results:
            if result["rows"] is not None or is_paper_order(result):  # the rows determine the classes, too
                self._by_key.setdefault(result_key(result), {})[result["seed"]] = result

    def __getitem__(self, trial: Trial) -> list[Result]:
        """The runs of a trial in the order of their seeds; empty if there are none."""
        return [result for _, result in sorted(self._by_key.get(trial.key, {}).items())]

    def has(self, experiment: Experiment) -> bool:
        return any(self[trial] for trial in experiment.trials)


@dataclass(frozen=True)
class Number:
    """Mean and standard deviation over runs, in percent, beside the published number."""

    spread: Spread
    published: float | None = None
    quoted: bool = False

    @classmethod
    def of(cls, fractions: Iterable[float], published: float | None = None, quoted: bool = False) -> Number:
        return cls(Spread.of(100 * value for value in fractions), published, quoted)

    @property
    def mean(self) -> float | None:
        return self.spread.mean

    def __str__(self) -> str:
        """The measured number alone."""
        if self.mean is not None:
            return str(self.spread)
        return "missing" if not self.quoted else "quoted" if self.published is not None else ""

    @property
    def difference(self) -> float | None:
        return None if self.mean is None or self.published is None else self.mean - self.published


def number(cell: Cell, library: Library) -> Number:
    """The measured number of a table cell, if there is one, beside the published one."""
    results = library[cell.trial] if cell.trial else []
    return Number.of((_value(result, cell.metric) for result in results), cell.published, quoted=cell.trial is None)


def _value(result: Result, metric: str) -> float:
    if metric == "first":  # the accuracy after the first task
        return result["phase_accuracy"][0]
    return float(result[metric])  # type: ignore[literal-required]


def is_paper_order(result: Result) -> bool:
    """Whether the class order is the one of the run's seed, as in the paper's protocol."""
    order = tuple(label for task in result["tasks"] for label in task)
    return order == _order(result["seed"], len(order))


@cache
def _order(seed: int, n_classes: int) -> tuple[int, ...]:
    return tuple(class_order(seed, n_classes))


def result_key(result: Result) -> str:
    sizes = [len(task) for task in result["tasks"]]
    first = sizes[0] if len(set(sizes)) > 1 else None
    protocol = result["rows"] or (len(sizes) - (first is not None), first)
    meta = result["meta"]
    return trial_key(
        meta.get("dataset", ""), meta.get("backbone", ""), protocol, result["method"], result["params"]
    )
