"""The paper's tables and figures as data, with the published numbers; and tables of other papers.

Each table and figure is a ``.toml`` file in this folder; ``settings.toml`` has the settings that they share. A cell is
a row and a column merged over the shared settings, so a new row needs one line. The experiments in ``ELSEWHERE`` use
the default parameters of each head.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from taer.experiment import Run
from taer.features import FeatureSet
from taer.heads import HEADS
from taer.stream import class_stream, read_sessions, rows_digest, sample_stream

_FOLDER = Path(__file__).parent
_NUMBERED = sorted((path.stem for path in _FOLDER.glob("*[0-9].toml")), key=lambda name: (name[0] != "t", name))
NAMES = (*_NUMBERED, "cited")  # of the paper, and the methods that it cites but does not run
ELSEWHERE = ("fscil-cub",)  # published in other papers


@dataclass(frozen=True)
class Trial:
    """A head with all its parameters on a stream, for any seed."""

    dataset: str
    backbone: str
    tasks: int
    first: int | None
    method: str
    params: Mapping[str, Any]
    samples: str | None = None  # a file in this folder with the training samples of each task, instead of the above

    @property
    def source(self) -> tuple[str, str]:
        """The data set and the backbone, as in the header of a feature file."""
        return self.dataset, self.backbone

    @cached_property
    def key(self) -> str:
        """Equal for trials with the same runs, in any table or figure."""
        protocol = (self.tasks, self.first) if self.samples is None else rows_digest(_sessions(self.samples))
        return trial_key(self.dataset, self.backbone, protocol, self.method, self.params)

    def runs(self, features: FeatureSet, seeds: int) -> list[Run]:
        if self.samples is None:
            streams = [class_stream(features, self.tasks, self.first, seed) for seed in range(seeds)]
        else:
            streams = [sample_stream(features, _sessions(self.samples))] * seeds
        return [Run(stream, self.method, self.params, seed) for seed, stream in enumerate(streams)]


def trial_key(
    dataset: str, backbone: str, protocol: tuple[int, int | None] | str, method: str, params: Mapping[str, Any]
) -> str:
    """``protocol``: the number of tasks and of classes in the first one, or the digest of the samples of each task."""
    own = {name: value for name, value in params.items() if name != "random_state"}
    return json.dumps([dataset, backbone, protocol, method, own], sort_keys=True)


@cache
def _sessions(name: str) -> list[list[int]]:
    return read_sessions(_FOLDER / name)


@dataclass(frozen=True)
class Cell:
    """One number of a table, or one curve or panel of a figure."""

    row: str
    column: str
    group: str  # heading over neighboring columns; may be empty
    metric: str
    published: float | None
    trial: Trial | None  # None for a number that is only quoted


@dataclass(frozen=True)
class Experiment:
    """A table or a figure."""

    name: str
    title: str
    kind: str
    metric: str  # of the cells; empty if each column has its own
    corner: str  # what the rows are
    axis: str  # what the columns are, in a figure of lines
    cells: tuple[tuple[Cell, ...], ...]  # rows of columns

    @property
    def label(self) -> str:
        """``Table 1``, or the name of an experiment without a number."""
        kind, number = self.name[:-1], self.name[-1]
        return f"{kind.capitalize()} {number}" if number.isdigit() else self.name

    @property
    def trials(self) -> list[Trial]:
        return [cell.trial for row in self.cells for cell in row if cell.trial]


def experiment(name: str, variant: str = "raw") -> Experiment:
    """A table or figure by its name, such as ``table1``.

    Examples
    --------
    >>> table = experiment("table3")
    >>> cell = table.cells[-1][0]
    >>> cell.row, cell.group, cell.column, cell.published
    ('TaER', 'ViT-S/16', 'CIFAR100', 71.37)
    >>> cell.trial.method, cell.trial.params["standardize"]
    ('taer', 'none')
    """
    if name not in (*NAMES, *ELSEWHERE):
        raise ValueError(
            f"unknown table or figure {name!r}; there are {', '.join(NAMES)}, all (of these) and {', '.join(ELSEWHERE)}"
        )
    data = _read(name)
    metric, shared = data.get("metric", ""), data.get("settings", {})
    return Experiment(
        name=name,
        title=data["title"],
        kind=data["kind"],
        metric=metric,
        corner=data["corner"],
        axis=data.get("axis", ""),
        cells=tuple(
            tuple(
                _cell(metric, shared, row, column, place, variant) for place, column in enumerate(data["columns"])
            )
            for row in data["rows"]
        ),
    )


def variants() -> dict[str, str]:
    """The variants in which the whole paper can be run, with a description of each."""
    return {name: entry["title"] for name, entry in _read("settings")["variants"].items()}


def _cell(
    metric: str, shared: dict[str, Any], row: dict[str, Any], column: dict[str, Any], place: int, variant: str
) -> Cell:
    published, given = row.get("published", []), {**shared, **row, **column}
    return Cell(
        row=row["name"],
        column=column["name"],
        group=column.get("group", ""),
        metric=column.get("measured", metric),  # a column's "metric" would be a parameter of heads
        published=published[place] if place < len(published) else None,  # columns of ours come last
        trial=None if given.get("quoted") else _trial(given, variant),
    )


def _trial(given: dict[str, Any], variant: str) -> Trial:
    """The settings of a cell, merged over those of its method, its data set and all cells."""
    merged = given if "samples" in given else _with_settings(given, variant)
    method = merged["method"]
    params = {name: merged.get(name, default) for name, default in HEADS[method]().get_params().items()}
    del params["random_state"]
    tasks, first, samples = merged["tasks"], merged.get("first"), merged.get("samples")
    return Trial(merged["dataset"], merged["backbone"], tasks, first, method, params, samples)


def _with_settings(given: dict[str, Any], variant: str) -> dict[str, Any]:
    settings = _read("settings")
    method, changed = given["method"], settings["variants"][variant]
    return {
        **settings["common"],
        **settings["datasets"][given["dataset"]],
        **settings["methods"].get(method, {}),
        **given,
        **changed,
        **changed.get("methods", {}).get(method, {}),
    }


@cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def distinct_runs(trials: Iterable[Trial], features: Mapping[tuple[str, str], FeatureSet], seeds: int) -> list[Run]:
    """The runs of trials whose features are available; tables and figures share runs."""
    distinct = {trial.key: trial for trial in trials if trial.source in features}
    return [run for trial in distinct.values() for run in trial.runs(features[trial.source], seeds)]
