"""The base class of heads that store samples of each task in an episodic memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from scipy.special import softmax

from taer.heads.base import Task
from taer.heads.descent.base import DescentHead
from taer.heads.descent.loop import Batch, Plan, Samples, check_finite
from taer.heads.descent.losses import cross_entropy
from taer.heads.fitted import Fitted, value_of
from taer.heads.params import param
from taer.memory import POLICIES, Everything, Memory
from taer.rows import StackedRows
from taer.threads import one_blas_thread

EXEMPLARS: dict[str, Fitted] = {
    "memory_": value_of(
        *POLICIES.values(),
        width="width",
        help="stored exemplars: ``X``, and ``y``, the numbers of their classes in order of arrival",
    ),
}
EVERYTHING: dict[str, Fitted] = {"memory_": value_of(Everything, width="width", help="every sample seen")}


def with_task(
    memory: Memory, task: Task, rng: np.random.Generator, capacity: int | None = None, **ways: Any
) -> Any:
    """A memory, of another capacity if given, to which a task was offered; the given memory stays as it is."""
    larger = copy.copy(memory)
    if capacity is not None:
        larger.capacity = capacity
    larger.add(task.X, task.y, rng, **ways)
    return larger


class MemoryHead(DescentHead):
    """Stores exemplars; the labels in the memory are class numbers."""

    memory_size: int = param(200, "number of samples stored from all earlier tasks; 0 for no replay", at_least=0)
    memory: str = param("greedy", "which samples are stored; fixed by the first task", options=tuple(POLICIES))

    fitted: ClassVar[dict[str, Fitted]] = EXEMPLARS

    def _open(self, task: Task) -> None:
        super()._open(task)
        if task.number == 1:
            self.memory_: Memory = POLICIES[self.memory](self.memory_size)

    def _old_samples(self, task: Task) -> tuple[np.ndarray, np.ndarray]:
        """Rows and classes of the stored samples of old classes, without those of classes in the current task."""
        old = np.flatnonzero(~np.isin(self.memory_.y, task.current))
        rows = self.memory_.X[old] if len(old) else np.empty((0, task.X.shape[1]), self.dtype_)
        return rows, self.memory_.y[old]

    def _union(self, task: Task) -> Samples:
        """``D_t ∪ M``: epochs run over both in one random order, with equal weights."""
        old_X, old_y = self._old_samples(task)
        return Samples(StackedRows(task.X, old_X), {"target": np.concatenate([task.y, old_y])})

    def _replay(self, task: Task, constants: Callable[[Any, np.ndarray], dict[str, np.ndarray]]) -> Samples:
        """The stored samples of old classes after the embedding, with constants computed from rows and classes."""
        X, y = self._old_samples(task)
        return Samples(self.embedding_(X), constants(X, y) if len(X) else {})

    def _remember(self, task: Task, **extra: Callable[[np.ndarray], np.ndarray]) -> None:
        """Offer the samples of the task to the memory."""
        ways = {"embed": self.embedding_, "residuals": self._residuals, **extra}
        self.memory_ = with_task(self.memory_, task, self.rng_, self.memory_size, **ways)

    def _finish(self, task: Task) -> None:
        self._remember(task)

    def _learn_online(self, task: Task, step: Callable[[np.ndarray, Batch, Memory], None]) -> None:
        """Learn a task by steps that change columns in place; each batch is then offered to the memory.

        The memory is therefore filled while a task is learned, and has samples of the current task.
        """
        self._open(task)
        columns, embed = self._start(task, everything := np.arange(task.n_classes)), self.embedding_
        memory, loop = copy.copy(self.memory_), self._loop()
        memory.capacity = self.memory_size
        plan = Plan(Samples(task.X, {"target": task.y, "row": np.arange(len(task.X))}), cross_entropy)

        def residuals(X: np.ndarray, y: np.ndarray) -> np.ndarray:
            return residuals_of(embed(X) @ columns.T, y)

        with one_blas_thread(), np.errstate(all="ignore"):
            for batch in (batch for _ in range(self.epochs) for batch in loop.batches(plan)):
                step(columns, batch, memory)
                offered, target = task.X[batch.constants["row"]], batch.constants["target"]
                memory.add(offered, target, self.rng_, embed=embed, residuals=residuals)
        check_finite(columns, self.lr)
        self._store(everything, columns)
        self.memory_ = memory

    def _trained_scores(self, X: np.ndarray) -> np.ndarray:
        """Scores of the trained columns; a head may predict in another way."""
        return self._scores(X)

    def _residuals(self, X: np.ndarray, classes: np.ndarray) -> np.ndarray:
        return residuals_of(self._trained_scores(X), classes)


def residuals_of(scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """``softmax(scores) - onehot``, the gradient of each sample's cross-entropy with respect to its scores."""
    residuals: np.ndarray = softmax(scores, axis=1)
    residuals[np.arange(len(scores)), classes] -= 1
    return residuals


def replay_batch_size(default: int = 32) -> Any:
    """The parameter of heads that combine each batch of the current task with one from the memory."""
    return param(default, "number of samples from the memory per step", at_least=1)
