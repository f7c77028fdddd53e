"""Heads that keep a few samples of each task in an episodic memory."""

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
from taer.memory import POLICIES, Memory
from taer.rows import StackedRows
from taer.threads import one_blas_thread


class MemoryHead(DescentHead):
    """Keeps exemplars; the memory's labels are the numbers of the classes."""

    memory_size: int = param(200, "samples kept from all earlier tasks together; 0 for no replay", at_least=0)
    memory: str = param("greedy", "which samples are kept; fixed by the first task", options=tuple(POLICIES))

    fitted: ClassVar[dict[str, Fitted]] = {
        "memory_": value_of(
            *POLICIES.values(),
            width="width",
            help="exemplars: ``X``, and in ``y`` the place of their classes in order of arrival",
        ),
    }

    def _open(self, task: Task) -> None:
        super()._open(task)
        if task.number == 1:
            self.memory_: Memory = POLICIES[self.memory](self.memory_size)

    def _old_samples(self, task: Task) -> tuple[np.ndarray, np.ndarray]:
        """Rows and classes of the stored samples of old classes; those of a class that returns sit out."""
        old = np.flatnonzero(~np.isin(self.memory_.y, task.current))
        rows = self.memory_.X[old] if len(old) else np.empty((0, task.X.shape[1]), self.dtype_)
        return rows, self.memory_.y[old]

    def _union(self, task: Task) -> Samples:
        """``D_t ∪ M``: epochs run over both in one random order; a stored sample counts as much as any other."""
        old_X, old_y = self._old_samples(task)
        return Samples(StackedRows(task.X, old_X), {"target": np.concatenate([task.y, old_y])})

    def _replay(self, task: Task, constants: Callable[[Any, np.ndarray], dict[str, np.ndarray]]) -> Samples:
        """The stored samples of old classes, mapped, with the constants of their rows and classes."""
        X, y = self._old_samples(task)
        return Samples(self.embedding_(X), constants(X, y) if len(X) else {})

    def _remember(self, task: Task, **extra: Callable[[np.ndarray], np.ndarray]) -> None:
        """Offer the samples of the task to the memory."""
        memory = copy.copy(self.memory_)
        memory.capacity = self.memory_size
        memory.add(task.X, task.y, self.rng_, embed=self.embedding_, residuals=self._residuals, **extra)
        self.memory_ = memory

    def _finish(self, task: Task) -> None:
        self._remember(task)

    def _learn_online(self, task: Task, step: Callable[[np.ndarray, Batch, Memory], None]) -> None:
        """Learn a task by steps that move columns in place, each followed by offering its batch to the memory.

        So the memory is filled while a task is learned, and holds samples of the current task.
        """
        self._open(task)
        columns, embed = self._start(task, everything := np.arange(task.n_classes)), self.embedding_
        memory, loop = copy.copy(self.memory_), self._loop()
        memory.capacity = self.memory_size
        plan = Plan(Samples(task.X, {"target": task.y, "row": np.arange(len(task.X))}), cross_entropy)

        def residuals(X: np.ndarray, y: np.ndarray) -> np.ndarray:
            return _residuals(embed(X) @ columns.T, y)

        with one_blas_thread(), np.errstate(all="ignore"):
            for batch in (batch for _ in range(self.epochs) for batch in loop.batches(plan)):
                step(columns, batch, memory)
                offered, target = task.X[batch.constants["row"]], batch.constants["target"]
                memory.add(offered, target, self.rng_, embed=embed, residuals=residuals)
        check_finite(columns, self.lr)
        self._store(everything, columns)
        self.memory_ = memory

    def _trained_scores(self, X: np.ndarray) -> np.ndarray:
        """Scores of the columns that were trained, by which some head may not answer."""
        return self._scores(X)

    def _residuals(self, X: np.ndarray, classes: np.ndarray) -> np.ndarray:
        return _residuals(self._trained_scores(X), classes)


def _residuals(scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """``softmax(scores) - onehot``: what the gradient of a sample's cross-entropy is made of."""
    residuals: np.ndarray = softmax(scores, axis=1)
    residuals[np.arange(len(scores)), classes] -= 1
    return residuals


def replay_batch_size(default: int = 32) -> Any:
    """The parameter of heads that join each batch of the current task with one from the memory."""
    return param(default, "samples of the memory in a step", at_least=1)
