"""The upper bound: keep everything and learn it all at once."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from taer.heads._fitted import Fitted, value_of
from taer.heads.base import Task
from taer.heads.softmax import SoftmaxHead
from taer.memory import Everything


@dataclass(kw_only=True, eq=False, repr=False)
class Joint(SoftmaxHead):
    """Joint training: keeps every sample of every task and trains anew on their union at each task.

    An upper bound, not an incremental method: memory and time grow with all data seen.
    """

    fitted: ClassVar[dict[str, Fitted]] = {"memory_": value_of(Everything, width="width")}

    def _learn(self, X: Any, task: Task) -> None:
        memory = copy.copy(self.memory_) if self.n_tasks_ > 1 else Everything()
        memory.add(X, np.argsort(self._arrival)[task.y], self._rng_)
        self.memory_: Everything = memory
        everything = np.arange(task.n_classes)
        anew = Task(self._arrival[memory.y], current=everything, new=everything, old=task.old[:0], known=task.known)
        super()._learn(memory.X, anew)

    def _forget_number(self, number: int) -> None:
        self.memory_ = self.memory_.without(number)
