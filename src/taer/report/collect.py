"""Results of one or two directories, grouped by stream and by head and parameters."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taer.experiment import Result, grouped, order_of, params_of
from taer.heads import HEADS, Head


@dataclass(frozen=True)
class Group:
    """Runs of one head with the same parameters on the same stream, with different seeds and class orders."""

    method: str
    detail: str  # the parameters that differ from other groups of the same method
    directory: str
    params: dict[str, Any]
    results: list[Result]  # by seed

    @property
    def label(self) -> str:
        return f"{self.method} ({self.detail})" if self.detail else self.method


@dataclass(frozen=True)
class Setting:
    """A feature set, the sizes of its tasks, and the number of training samples used."""

    features: str
    sizes: tuple[int, ...]
    groups: list[Group]
    sampling: str = ""  # empty if a task has all samples of its classes

    @property
    def title(self) -> str:
        tasks, ending = len(self.sizes), f", {self.sampling}" if self.sampling else ""
        if len(set(self.sizes)) == 1:
            return f"{self.features}: {sum(self.sizes)} classes in {tasks} task{'s' * (tasks > 1)}{ending}"
        later = " or ".join(map(str, dict.fromkeys(self.sizes[1:])))
        return f"{self.features}: {self.sizes[0]} classes, then {tasks - 1} tasks of {later}{ending}"

    @property
    def name(self) -> str:
        """A name for files and anchors."""
        first = f"-first-{self.sizes[0]}" if len(set(self.sizes)) > 1 else ""
        return slug(f"{self.features}{first}-tasks-{len(self.sizes) - bool(first)} {self.sampling}")


def rank(method: str) -> int:
    """The position of a method among the heads; unknown methods come last."""
    names = list(HEADS)
    return names.index(method) if method in names else len(names)


def known_head(method: str) -> type[Head] | None:
    """The class of a head, unless it is the user's own and its module is not imported: results import nothing."""
    if ":" not in method:
        return HEADS.get(method)
    module, _, name = method.partition(":")
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) and issubclass(found, Head) else None


def slug(words: str) -> str:
    """The text in a form for file names and anchors."""
    return re.sub(r"[^\w.+-]+", "-", words).strip("-")


def sort_results(by_directory: dict[str, list[Result]]) -> list[Setting]:
    """Streams with their groups. The same head has the same label in both directories."""
    found: dict[tuple[str, tuple[int, ...], str], list[tuple[str, Result]]] = {}
    for directory, results in by_directory.items():
        for result in results:
            sizes = tuple(len(task) for task in result["tasks"])
            if result["stream"] != "tasks":  # how many classes are new in a session differs between seeds
                sizes = tuple(map(len, np.array_split(np.arange(sum(sizes)), len(sizes))))
            found.setdefault((result["features"], sizes, _sampling(result)), []).append((directory, result))
    prints: dict[str, set[str]] = {}
    for (fingerprint, *_), members in found.items():
        prints.setdefault(members[0][1]["name"], set()).add(fingerprint)
    settings = []
    for (fingerprint, sizes, sampling), members in sorted(
        found.items(), key=lambda item: (item[1][0][1]["name"], item[0][1:])
    ):
        groups = [
            group
            for directory in by_directory
            for group in _groups(directory, [result for home, result in members if home == directory])
        ]
        name = members[0][1]["name"]
        told = name if len(prints[name]) == 1 else f"{name} ({fingerprint[:8]})"
        settings.append(Setting(told, sizes, groups, sampling))
    return settings


def _groups(directory: str, results: Sequence[Result]) -> list[Group]:
    groups = [
        Group(
            alike.method,
            alike.detail,
            directory,
            alike.settings,
            sorted(alike.results, key=lambda run: run["seed"]),
        )
        for alike in grouped(results, _settings)
    ]
    return sorted(groups, key=lambda group: (rank(group.method), group.method, _natural(group.detail)))


def _natural(detail: str) -> list[tuple[float, str]]:
    """A key that sorts numbers in a text by their value: those of a sweep."""
    return [(_number(word), word) for word in detail.replace(",", " ").split()]


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return float("inf")


def _settings(result: Result) -> dict[str, Any]:
    """The parameters, and the kind of class order: by seed, natural, or given."""
    return params_of(result) | {"order": order_of(result)}


def _sampling(result: Result) -> str:
    """A description of the training samples of a task, if it does not use all of them."""
    if result["stream"] != "tasks":
        return f"{result['stream']} stream"
    if result["rows"] is None:
        return ""
    if result["shots"] is not None:
        return f"{result['shots']} samples per class after the first task"
    return f"given samples {result['rows'][:8]}"
