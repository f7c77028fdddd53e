"""Heads that mix each batch of the current task with one from an episodic memory."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from taer.heads._params import param
from taer.heads.base import Task
from taer.heads.sgd import Batch, Samples, SGDHead, cross_entropy_gradient
from taer.memory import GreedyBalanced


@dataclass(kw_only=True, eq=False, repr=False)
class ReplayHead(SGDHead):
    """Experience replay: a weighted sum of the mean loss on the current batch and on a replay batch.

    The two questions of the paper's ablation are class attributes. Columns that rest enter the softmax as one
    more column, "old", whose score for a sample is the constant ``log Σ exp`` of their scores: a step costs
    the same however many there are.
    """

    memory_size: int = param(200, "samples kept from all earlier tasks together; 0 for no replay", at_least=0)
    replay_batch_size: int = param(32, "samples of the memory in a step", at_least=1)

    balanced: ClassVar[bool]  # weigh the losses by the numbers of classes, or just add them
    detached: ClassVar[bool]  # only the columns of the current task move, or all

    def _moving(self, task: Task) -> np.ndarray:
        return task.current if self.detached else np.arange(task.n_classes)

    def _loss_weights(self, task: Task) -> tuple[float, float]:
        share_of_old = len(task.old) / task.n_classes
        return (1 - share_of_old, share_of_old) if self.balanced else (1.0, 1.0)

    def _samples(self, X: Any, task: Task) -> tuple[Samples, Samples | None]:
        moving = self._moving(task)
        resting = np.setdiff1d(np.arange(task.n_classes), moving)
        column = np.full(task.n_classes, len(moving))  # resting classes share the column after the moving ones
        column[moving] = np.arange(len(moving))

        def constants(X: Any, classes: np.ndarray) -> dict[str, np.ndarray]:
            found = {"target": column[classes]}
            if len(resting):
                found["old"] = self._log_partition(X, resting).astype(self.coef_.dtype)
            return found

        current = Samples(X, constants(X, task.y))
        if self.n_tasks_ == 1:
            self.memory_ = GreedyBalanced(self.memory_size)
        classes = self._arrival[self.memory_.y]
        self._replayed_ = np.flatnonzero(~np.isin(classes, task.current))  # a class that returns sits out
        if not len(self._replayed_):
            return current, None
        return current, Samples(self._map(self.memory_.X), constants(self.memory_.X, classes))

    def _draw(self, times: int) -> np.ndarray:
        return self.memory_.draw(self.replay_batch_size, times, self._rng_, among=self._replayed_)

    def _score_gradient(self, scores: np.ndarray, batch: Batch) -> np.ndarray:
        target, weight = batch.constants["target"], batch.weight
        if "old" not in batch.constants:
            return cross_entropy_gradient(scores, target, weight)
        scores = np.column_stack([scores, batch.constants["old"]])
        return cross_entropy_gradient(scores, target, weight)[:, :-1]

    def _remember(self, X: Any, task: Task) -> None:
        memory = copy.copy(self.memory_)
        memory.capacity = self.memory_size
        memory.add(X, np.argsort(self._arrival)[task.y], self._rng_)
        self.memory_ = memory
