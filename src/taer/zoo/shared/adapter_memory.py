"""The base class of heads on an adapter that store exemplars."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from taer.heads.base import Task
from taer.heads.descent.loop import Samples
from taer.heads.descent.memory import EXEMPLARS, residuals_of, with_task
from taer.heads.fitted import Fitted
from taer.heads.params import param
from taer.memory import POLICIES, Memory
from taer.rows import StackedRows, select
from taer.zoo.shared.adapter import AdapterHead


class ExemplarHead(AdapterHead):
    """Stores exemplars; the labels in the memory are class numbers."""

    memory_size: int = param(200, "number of samples stored from all earlier tasks; 0 for none", at_least=0)
    memory: str = param("herding", "which samples are stored; fixed by the first task", options=tuple(POLICIES))

    fitted: ClassVar[dict[str, Fitted]] = EXEMPLARS

    def _open(self, task: Task) -> None:
        super()._open(task)
        if task.number == 1:
            self.memory_: Memory = POLICIES[self.memory](self.memory_size)

    def _union(self, task: Task) -> Samples:
        """``D_t ∪ M``: the samples of the task and the stored samples of old classes, with equal weights."""
        old = np.flatnonzero(~np.isin(self.memory_.y, task.current))
        if not len(old):
            return Samples(task.X, {"target": task.y})
        target = np.concatenate([task.y, self.memory_.y[old]])
        return Samples(StackedRows(task.X, self.memory_.X[old]), {"target": target})

    def _balanced(self, task: Task) -> Samples:
        """The stored samples of old classes, and equally many samples of each class of the task."""
        old = np.flatnonzero(np.isin(self.memory_.y, task.old))
        quota = max(1, len(old) // max(1, len(task.old)))
        new = np.concatenate([self.rng_.permutation(members)[:quota] for _, members in task.members()])
        rows, target = select(task.X, new), task.y[new]
        if not len(old):
            return Samples(rows, {"target": target})
        return Samples(StackedRows(rows, self.memory_.X[old]), {"target": np.append(target, self.memory_.y[old])})

    def _remember(self, task: Task) -> None:
        """Offer the samples of the task to the memory, which compares them by the activations of the units."""
        ways = {"embed": self._units, "residuals": self._residuals}
        self.memory_ = with_task(self.memory_, task, self.rng_, self.memory_size, **ways)

    def _residuals(self, X: np.ndarray, classes: np.ndarray) -> np.ndarray:
        return residuals_of(self._scores(X), classes)
