"""The base class of linear heads trained by SGD."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csc_array

from taer.heads import exact
from taer.heads.base import Head, Task
from taer.heads.descent import loop
from taer.heads.descent.loop import Loop, Plan
from taer.heads.embedding import Standardize, in_type, unit_rows
from taer.heads.fitted import Fitted, array, value_of
from taer.heads.numerics import grown
from taer.heads.params import param
from taer.rows import row_chunks

_SMALLER = 16  # factor for smaller pieces, which stay in the cache


class DescentHead(Head):
    """Scores ``weights_ @ embedding_(x) + offsets_``, with one column (weight vector) per class.

    A method implements ``_plan``: which samples and which gradient of the scores. It may also choose which columns move
    (``_moving``, by default all) and do something when a task ends (``_finish``).
    """

    epochs: int = param(10, "number of passes over the samples of a task", at_least=1)
    lr: float = param(0.1, "learning rate", above=0)
    batch_size: int = param(32, "number of samples of the current task per step", at_least=1)
    last_batch: str = loop.last_batch()
    standardize: str = loop.standardize()
    entropy: float = loop.entropy()
    balance_classes: bool = loop.balance_classes()
    init: str = param(
        "normalized-mean",
        "initial value of a new column: zeros, uniform in ±1/√d, the mean of its class, or that mean at unit length",
        options=("zero", "uniform", "mean", "normalized-mean"),
    )
    init_tasks: str = param(
        "all", "whether init is for every task or only the first, with zeros after it", options=("first", "all")
    )

    fitted: ClassVar[dict[str, Fitted]] = {
        "embedding_": value_of(Standardize, width="width", help="map of the features, fixed by the first task"),
        "weights_": array(
            "classes", "width", help="weight vectors after that map, one per class in order of arrival"
        ),
        "offsets_": array("classes", help="intercepts of the scores, one per class in order of arrival"),
    }

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        """Which samples and which gradient; ``columns`` are the initial values of the moving columns."""
        raise NotImplementedError

    def _moving(self, task: Task) -> np.ndarray:
        """Classes whose columns may change in this task, in ascending order."""
        return np.arange(task.n_classes)

    def _finish(self, task: Task) -> None:
        """Called after the columns of a task have been learned."""

    def _learn(self, task: Task) -> None:
        self._open(task)
        moving = self._moving(task)
        columns = self._start(task, moving)
        self._loop().descend(columns, self._plan(task, columns))
        self._store(moving, columns)
        self._finish(task)

    def _open(self, task: Task) -> None:
        """Fit the embedding on the first task, and add columns for new classes."""
        if task.number == 1:
            self.embedding_ = Standardize.fit(task.X, self.standardize)
            self.weights_ = np.zeros((0, task.X.shape[1]), self.dtype_)
            self.offsets_ = np.zeros(0)
        self.weights_, self.offsets_ = grown(self.weights_, task.n_classes), grown(self.offsets_, task.n_classes)

    def _loop(self, epochs: int | None = None) -> Loop:
        return Loop.of(self, epochs)

    def _start(self, task: Task, moving: np.ndarray) -> np.ndarray:
        """Initial values of the moving columns: known ones as they are, new ones according to ``init``."""
        columns = self.weights_[moving]
        columns[np.searchsorted(moving, task.new)] = self._new_columns(task)
        return columns

    def _new_columns(self, task: Task) -> np.ndarray:
        shape = (len(task.new), task.X.shape[1])
        if self.init == "zero" or (self.init_tasks == "first" and task.number > 1):
            return np.zeros(shape)
        if self.init == "uniform":
            return self.rng_.uniform(-1, 1, shape) / np.sqrt(shape[1])
        means = self._means_of_new(task)
        return means if self.init == "mean" else unit_rows(means)

    def _means_of_new(self, task: Task) -> np.ndarray:
        """Means of the new classes after the embedding; zero for a class without samples."""
        sums, codes = np.zeros((len(task.new), task.X.shape[1])), task.y - task.n_known
        for rows in row_chunks(task.X):
            members = np.flatnonzero(codes[rows] >= 0)
            shape = len(task.new), len(members)
            onehot = csc_array((np.ones(len(members)), codes[rows][members], np.arange(len(members) + 1)), shape)
            sums += onehot @ task.X[rows][members].astype(np.float64)
        counts = np.bincount(codes[codes >= 0], minlength=len(task.new))[:, None]
        means = sums / np.maximum(counts, 1)
        return np.where(counts, (means - self.embedding_.mean) / self.embedding_.scale, 0)

    def _store(self, classes: np.ndarray, columns: np.ndarray) -> None:
        self.weights_ = self.weights_.copy()
        self.weights_[classes] = exact.rounded(columns, self.dtype_)

    def _log_partition(self, X: Any, classes: np.ndarray) -> np.ndarray:
        """``log Σ exp`` of the scores of some classes: a constant per sample while their columns do not move."""
        columns, offsets = self.weights_[classes].T.copy(), self.offsets_[classes].astype(self.weights_.dtype)
        found, ones = np.empty(len(X), columns.dtype), np.ones(len(classes), columns.dtype)
        mapped, scores = np.empty((0, X.shape[1]), columns.dtype), np.empty((0, len(classes)), columns.dtype)
        for rows in row_chunks(X, width=_SMALLER * max(X.shape[1], len(classes))):
            n = rows.stop - rows.start
            if n != len(mapped):
                mapped, scores = (np.empty((n, each.shape[1]), each.dtype) for each in (mapped, scores))
            mapped[:] = in_type(X[rows], self.embedding_.dtype)
            self.embedding_.apply(mapped)
            np.matmul(mapped, columns, out=scores)
            scores += offsets
            top = scores.max(axis=1)
            scores -= top[:, None]
            np.exp(scores, out=scores)
            found[rows] = top + np.log(scores @ ones)  # a sum as a product: faster
        return found
