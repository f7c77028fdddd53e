"""Heads with an episodic memory, and those that mix each batch of the current task with one drawn from it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from taer.heads._fitted import Fitted, value_of
from taer.heads._params import param
from taer.heads.base import Task, softmax
from taer.heads.linear import MappedHead
from taer.heads.sgd import Plan, Samples
from taer.heads.softmax import SoftmaxHead, cross_entropy
from taer.memory import POLICIES, Memory


@dataclass(kw_only=True, eq=False, repr=False)
class Remembering(MappedHead):
    """Keeps a few samples of each task when it ends. The memory's labels are numbers in order of arrival.

    A subclass has a parameter that names the policy, ``memory`` unless its paper has another word for it.
    """

    memory_size: int = param(200, "samples kept from all earlier tasks together; 0 for no replay", at_least=0)

    policy_parameter: ClassVar[str] = "memory"
    fitted: ClassVar[dict[str, Fitted]] = {"memory_": value_of(*POLICIES.values(), width="width")}

    def _old_memory(self, task: Task) -> tuple[Any, np.ndarray]:
        """Rows and classes of the stored samples of old classes; those of a class that returns sit out."""
        if self.n_tasks_ == 1:
            self.memory_: Memory = POLICIES[getattr(self, self.policy_parameter)](self.memory_size)
        classes = self._arrival[self.memory_.y]
        old = np.flatnonzero(~np.isin(classes, task.current))
        rows = self.memory_.X[old] if len(old) else np.empty((0, self.n_features_in_), self.dtype_)
        return rows, classes[old]

    def _remember(self, X: Any, task: Task, **extra: Callable[[np.ndarray], np.ndarray]) -> None:
        """Offer the samples of the task to the memory."""
        memory = copy.copy(self.memory_)
        memory.capacity = self.memory_size
        numbers = np.argsort(self._arrival)
        memory.add(X, numbers[task.y], self._rng_, embed=self._map, residuals=self._residuals, **extra)
        self.memory_ = memory

    def _forget_number(self, number: int) -> None:
        self.memory_ = self.memory_.without(number)

    def _residuals(self, X: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """``softmax(scores) - onehot``: what the gradient of a sample's cross-entropy is made of."""
        residuals = softmax(self._scores(X))
        residuals[np.arange(len(X)), self._arrival[numbers]] -= 1
        return residuals


@dataclass(kw_only=True, eq=False, repr=False)
class ReplayHead(Remembering, SoftmaxHead):
    """Experience replay: a weighted sum of the mean loss on the current batch and on a replay batch.

    The two questions of the paper's ablation are class attributes. Columns that rest enter the softmax as one
    more column, "old", whose score for a sample is the constant ``log Σ exp`` of their scores: a step costs
    the same however many there are.
    """

    memory: str = param("greedy", "which samples are kept; fixed by the first task", options=tuple(POLICIES))
    replay_batch_size: int = param(32, "samples of the memory in a step", at_least=1)

    balanced: ClassVar[bool] = False  # weigh the losses by the numbers of classes, or just add them
    detached: ClassVar[bool] = False  # only the columns of the current task move, or all

    def _moving(self, task: Task) -> np.ndarray:
        return task.current if self.detached else np.arange(task.n_classes)

    def _plan(self, X: Any, task: Task, columns: np.ndarray) -> Plan:
        moving = self._moving(task)
        resting = np.setdiff1d(np.arange(task.n_classes), moving)
        column = np.full(task.n_classes, len(moving))  # resting classes share the column after the moving ones
        column[moving] = np.arange(len(moving))

        def constants(X: Any, classes: np.ndarray) -> dict[str, np.ndarray]:
            found = {"target": column[classes]}
            if len(resting):
                found["old"] = self._log_partition(X, resting).astype(self.dtype_)
            return found

        old_X, old_classes = self._old_memory(task)
        share_of_old = len(task.old) / task.n_classes
        return Plan(
            current=Samples(X, constants(X, task.y)),
            replay=Samples(self._map(old_X), constants(old_X, old_classes)) if len(old_X) else None,
            replay_size=self.replay_batch_size,
            weights=(1 - share_of_old, share_of_old) if self.balanced else (1.0, 1.0),
            gradient=cross_entropy,
            resting="old" if len(resting) else None,
        )

    def _finish(self, X: Any, task: Task) -> None:
        self._remember(X, task)
