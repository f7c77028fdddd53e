"""The loop that every iterative head runs.

On frozen features a method is: which samples, which gradient of the scores, which columns move. A subclass
answers these three (``_samples``, ``_score_gradient``, ``_moving``); the loop does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from taer.heads._params import param
from taer.heads.base import Task
from taer.heads.linear import LinearHead

_BLOCK = 1 << 19  # values gathered, converted and mapped in one go: a block of batches stays in the cache


@dataclass(frozen=True)
class Samples:
    """Rows to learn from and, per row, the constants that the objective needs (its target column, …)."""

    X: Any
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.X)


class Batch(NamedTuple):
    """One step: the mapped rows of the current task, then those of each replay draw."""

    rows: np.ndarray
    constants: Mapping[str, np.ndarray]
    weight: np.ndarray  # of each row in the loss


@dataclass(kw_only=True, eq=False, repr=False)
class SGDHead(LinearHead):
    """Plain stochastic gradient descent on the columns, without momentum or weight decay."""

    epochs: int = param(10, "passes over the samples of a task", at_least=1)
    lr: float = param(0.1, "learning rate", above=0)
    batch_size: int = param(32, "samples of the current task in a step", at_least=1)
    init: str = param(
        "normalised-mean",
        "start of a new column: zeros, uniform in ±1/√d, the mean of its class, or that mean at unit length",
        options=("zero", "uniform", "mean", "normalised-mean"),
    )
    init_tasks: str = param(
        "all",
        "whether init is for every task or only the first, with zeros after it",
        options=("first", "all"),
    )

    def _learn(self, X: Any, task: Task) -> None:
        self._fix_map(X)
        self._reseat(task)
        moving = self._moving(task)
        columns = self._unfold(moving)
        columns[np.searchsorted(moving, task.new)] = self._new_columns(X, task)
        current, replay = self._samples(X, task)
        self._descend(columns, current, replay, self._loss_weights(task))
        self._fold(moving, columns)
        self._remember(X, task)

    def _moving(self, task: Task) -> np.ndarray:
        """Positions of the columns that this task may change."""
        return np.arange(task.n_classes)

    def _samples(self, X: Any, task: Task) -> tuple[Samples, Samples | None]:
        """What the epochs run over, and what batches of replay are drawn from."""
        return Samples(X, {"target": task.y}), None

    def _loss_weights(self, task: Task) -> tuple[float, float]:
        """Weights of the mean loss on the current batch and on the replay batch."""
        return 1.0, 1.0

    def _score_gradient(self, scores: np.ndarray, batch: Batch) -> np.ndarray:
        """Gradient of the loss with respect to the scores of the moving columns; may overwrite ``scores``."""
        return cross_entropy_gradient(scores, batch.constants["target"], batch.weight)

    def _remember(self, X: Any, task: Task) -> None:
        """What is kept of the task when it ends."""

    def _new_columns(self, X: Any, task: Task) -> np.ndarray:
        """Columns at which new classes start, in the mapped space."""
        shape = (len(task.new), X.shape[1])
        if self.init == "zero" or (self.init_tasks == "first" and self.n_tasks_ > 1):
            return np.zeros(shape)
        if self.init == "uniform":
            return self._rng_.uniform(-1, 1, shape) / np.sqrt(shape[1])
        means = self._class_means(X, task.y, task.new)
        if self.init == "mean":
            return means
        norms = np.linalg.norm(means, axis=1, keepdims=True)
        return means / np.where(norms > 0, norms, 1)

    def _descend(
        self, columns: np.ndarray, current: Samples, replay: Samples | None, weights: tuple[float, float]
    ) -> None:
        """Move ``columns`` in place."""
        with one_blas_thread():
            for _ in range(self.epochs):
                for batch in self._batches(current, replay, weights):
                    gradient = self._score_gradient(batch.rows @ columns.T, batch)
                    columns -= self.lr * (gradient.T @ batch.rows)

    def _batches(self, current: Samples, replay: Samples | None, weights: tuple[float, float]) -> Iterator[Batch]:
        """One epoch in random order; the last, smaller batch is kept."""
        order = self._rng_.permutation(len(current))
        whole = len(order) - len(order) % self.batch_size
        steps = max(1, _BLOCK // (2 * self.batch_size * current.X.shape[1]))
        for start in range(0, whole, steps * self.batch_size):
            picks = order[start : min(start + steps * self.batch_size, whole)]
            yield from self._block(current, replay, weights, picks.reshape(-1, self.batch_size))
        if whole < len(order):
            yield from self._block(current, replay, weights, order[None, whole:])

    def _block(
        self, current: Samples, replay: Samples | None, weights: tuple[float, float], picks: np.ndarray
    ) -> Iterator[Batch]:
        """Several batches whose rows are gathered, converted and mapped together."""
        steps, size = picks.shape
        rows = self._map(current.X[picks.ravel()]).reshape(steps, size, -1)
        constants = {name: values[picks] for name, values in current.constants.items()}
        weight = np.full(size, weights[0] / size, rows.dtype)
        if replay is not None:
            draws = self._draw(steps)
            rows = np.concatenate([rows, replay.X[draws]], axis=1)
            for name, values in replay.constants.items():
                constants[name] = np.concatenate([constants[name], values[draws]], axis=1)
            n_drawn = draws.shape[1]
            weight = np.concatenate([weight, np.full(n_drawn, weights[1] / n_drawn, rows.dtype)])
        for step in range(steps):
            yield Batch(rows[step], {name: values[step] for name, values in constants.items()}, weight)

    def _draw(self, times: int) -> np.ndarray:
        """Row numbers of ``times`` replay batches."""
        raise NotImplementedError


def cross_entropy_gradient(scores: np.ndarray, target: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """``weight · (softmax(scores) - onehot(target))``, written over ``scores``."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores *= (weight / scores.sum(axis=1))[:, None]
    scores[np.arange(len(target)), target] -= weight
    return scores


@cache
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Matrix products of a few dozen rows are several times slower on two threads than on one."""
    limit: AbstractContextManager[Any] = _thread_pools().limit(limits=1, user_api="blas")
    return limit
