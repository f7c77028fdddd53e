"""Linear heads learned by descent on a loss of the scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from taer.heads._params import param
from taer.heads.base import Task
from taer.heads.linear import LinearHead
from taer.heads.sgd import Batch, Plan, Samples, SGDHead


@dataclass(kw_only=True, eq=False, repr=False)
class SoftmaxHead(SGDHead, LinearHead):
    """Plain training on the current task; methods replace the plan and say which columns move."""

    init: str = param(
        "normalised-mean",
        "start of a new column: zeros, uniform in ±1/√d, the mean of its class, or that mean at unit length",
        options=("zero", "uniform", "mean", "normalised-mean"),
    )
    init_tasks: str = param(
        "all", "whether init is for every task or only the first, with zeros after it", options=("first", "all")
    )

    def _learn(self, X: Any, task: Task) -> None:
        columns = self._open_columns(X, task)
        self._descend(columns, self._plan(X, task, columns))
        self._fold(self._moving(task), columns)
        self._finish(X, task)

    def _open_columns(self, X: Any, task: Task) -> np.ndarray:
        """The columns that this task may change, as they start, in the mapped space."""
        self._fix_map(X)
        self._reseat(task)
        moving = self._moving(task)
        columns = self._unfold(moving)
        columns[np.searchsorted(moving, task.new)] = self._new_columns(X, task)
        return columns

    def _moving(self, task: Task) -> np.ndarray:
        """Positions of the columns that this task may change, in ascending order."""
        return np.arange(task.n_classes)

    def _plan(self, X: Any, task: Task, columns: np.ndarray) -> Plan:
        """Which samples and which gradient; ``columns`` are the moving ones as they start."""
        return Plan(Samples(X, {"target": task.y}), cross_entropy)

    def _finish(self, X: Any, task: Task) -> None:
        """What else happens when the columns of a task are learned."""

    def _new_columns(self, X: Any, task: Task) -> np.ndarray:
        """Columns at which new classes start, in the mapped space."""
        shape = (len(task.new), X.shape[1])
        if self.init == "zero" or (self.init_tasks == "first" and self.n_tasks_ > 1):
            return np.zeros(shape)
        if self.init == "uniform":
            return self._rng_.uniform(-1, 1, shape) / np.sqrt(shape[1])
        means = self._class_means(X, task.y, task.new)
        return means if self.init == "mean" else unit_rows(means)


def cross_entropy(scores: np.ndarray, batch: Batch) -> np.ndarray:
    """The gradient of the weighted cross-entropy with the batch's targets."""
    return cross_entropy_gradient(scores, batch.constants["target"], batch.weight)


def cross_entropy_gradient(scores: np.ndarray, target: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """``weight · (softmax(scores) - onehot(target))``; the scores may be overwritten."""
    by_class = np.ascontiguousarray(scores.T)  # in the loop they are stored so, and nothing is copied
    by_class -= np.maximum.reduce(by_class, axis=0)
    np.exp(by_class, out=by_class)
    by_class *= weight / np.add.reduce(by_class, axis=0)
    by_class.reshape(-1)[target * len(target) + np.arange(len(target))] -= weight
    return by_class.T


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Rows at unit length; a row of zeros stays."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return rows / np.where(norms > 0, norms, 1)
