"""One call of ``partial_fit``, as a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from taer.rows import SelectedRows


class Learned(NamedTuple):
    """A class and the task (counted from 1) in which it was first seen."""

    label: Any
    task: int


@dataclass(frozen=True)
class Task:
    """One call of ``partial_fit``. Classes are numbered in order of arrival; a number never changes."""

    X: Any
    y: np.ndarray  # the class of each sample
    n_known: int  # classes known before this task
    n_classes: int  # classes known after this task
    number: int = 1  # of the task, counted from 1
    weight: np.ndarray | None = None  # of each sample, above 0; None if all weights are equal

    @cached_property
    def current(self) -> np.ndarray:
        """Classes with samples in this task."""
        return np.flatnonzero(np.bincount(self.y))

    @cached_property
    def new(self) -> np.ndarray:
        """Classes that were never seen before; they have the highest numbers."""
        return np.arange(self.n_known, self.n_classes)

    @cached_property
    def old(self) -> np.ndarray:
        """All classes without a sample in this task."""
        return np.setdiff1d(np.arange(self.n_classes), self.current)

    def picked(self, rows: np.ndarray) -> Task:
        """The task with some of its samples, by number."""
        weight = None if self.weight is None else self.weight[rows]
        return replace(self, X=SelectedRows(self.X, rows), y=self.y[rows], weight=weight)

    def members(self) -> Iterator[tuple[int, np.ndarray]]:
        """Each class of this task, with the numbers of its samples."""
        order = np.argsort(self.y, kind="stable")
        ends = np.searchsorted(self.y[order], self.current, side="right")
        yield from zip(self.current.tolist(), np.split(order, ends[:-1]), strict=True)
