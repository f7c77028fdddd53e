"""Greedy sampler and dumb learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from taer.heads._params import param
from taer.heads.base import Task
from taer.heads.replay import Remembering
from taer.heads.softmax import SoftmaxHead
from taer.memory import POLICIES


@dataclass(kw_only=True, eq=False, repr=False)
class GDumb(Remembering, SoftmaxHead):
    """GDumb: train from scratch on the memory alone, whenever a task has been added to it.

    It shows what the memory by itself is worth (Prabhu et al., ECCV 2020). Departure: plain descent for
    ``epochs`` passes over the memory instead of a cosine schedule with image augmentation.
    """

    epochs: int = param(50, "passes over the memory", at_least=1)
    memory_size: int = param(200, "samples kept from all earlier tasks together", at_least=1)
    memory: str = param("greedy", "which samples are kept; fixed by the first task", options=tuple(POLICIES))

    def _learn(self, X: Any, task: Task) -> None:
        self._fix_map(X)
        self._reseat(task)
        self._old_memory(task)  # makes it in the first task
        self._remember(X, task)
        y = self._arrival[self.memory_.y]
        self.coef_, self.intercept_ = np.zeros_like(self.coef_), np.zeros_like(self.intercept_)
        everything, present = np.arange(task.n_classes), np.unique(y)
        from_scratch = Task(y, present, present, np.setdiff1d(everything, present), known=everything)
        super()._learn(self.memory_.X, from_scratch)
