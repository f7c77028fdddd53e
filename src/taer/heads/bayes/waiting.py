"""The samples that ``bayes`` keeps while its prior waits for more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

import numpy as np

from taer.heads.task import Task


@dataclass(frozen=True)
class Waiting:
    """The samples so far, and how many of them the prior has."""

    kind: ClassVar[str] = "waiting-samples"

    X: np.ndarray
    y: np.ndarray  # numbers of the classes
    fitted: np.ndarray  # number of samples of which the prior was fitted

    @classmethod
    def of(cls, task: Task) -> Self:
        X = np.array(task.X[:])
        return cls(X, task.y.astype(np.int64), np.array(len(task.y)))

    def __len__(self) -> int:
        return len(self.y)

    def plus(self, task: Task) -> Self:
        X, y = np.concatenate([self.X, np.asarray(task.X[:])]), np.concatenate([self.y, task.y])
        return replace(self, X=X, y=y)

    def task(self, n_classes: int) -> Task:
        """All samples, as a first task."""
        return Task(self.X, self.y, 0, n_classes)

    def without(self, label: int) -> Self:
        left = self.y != label
        return replace(self, X=self.X[left], y=self.y[left] - (self.y[left] > label))

    def check(self, width: int, n_classes: int) -> None:
        """Raise ValueError unless these are samples of so many features and of all classes."""
        n = len(self.y)
        if self.X.shape != (n, width) or self.X.dtype.kind != "f" or not np.isfinite(self.X).all():
            raise ValueError(f"X: expected finite numbers of the shape ({n}, {width})")
        if self.y.dtype != np.int64 or self.y.ndim != 1 or np.unique(self.y).tolist() != list(range(n_classes)):
            raise ValueError(f"y: expected whole numbers, each of 0 … {n_classes - 1}")
        if self.fitted.dtype != np.int64 or self.fitted.shape != () or self.fitted < 1:
            raise ValueError("fitted: expected a whole number from 1 on")

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        return cls(**arrays)
