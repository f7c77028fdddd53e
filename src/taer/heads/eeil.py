"""End-to-end incremental learning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from taer.heads._params import param
from taer.heads.base import Task
from taer.heads.distillation import TEMPERATURE, Blocks, old_task_blocks
from taer.heads.sgd import Batch, Plan, Samples
from taer.heads.softmax import SoftmaxHead, cross_entropy_gradient
from taer.heads.union import UnionHead
from taer.memory import POLICIES


@dataclass(kw_only=True, eq=False, repr=False)
class EEIL(UnionHead, SoftmaxHead):
    """EEIL: a cross-distilled loss on everything at hand, then fine-tuning on a balanced set.

    ``CE + Σ_u CE_u(softmax(before / T), softmax(now / T))`` on ``D_t ∪ M`` with T = 2 and one term per earlier
    task u; then the same loss on ``M ∪ τ(D_t)``, with the new classes distilled too and a tenth of the learning
    rate (Castro et al., ECCV 2018). The memory after the task is that balanced set. It is this second stage
    that TaER's weight λ replaces.
    """

    memory: str = param("herding", "which samples are kept; fixed by the first task", options=tuple(POLICIES))
    balanced_epochs: int = param(30, "passes over the balanced set", at_least=0)

    def _learn(self, X: Any, task: Task) -> None:
        columns = self._open_columns(X, task)
        before, old = columns.copy(), old_task_blocks(self, task)
        self._descend(columns, Plan(self._union(X, task), _cross_distilled(old, before)))
        self._fold(self._moving(task), columns)
        self._remember(X, task)
        if len(task.old) and len(self.memory_) and self.balanced_epochs:
            teacher = columns.copy()
            teacher[task.old] = before[task.old]
            blocks = Blocks([*np.split(old.columns, old.starts[1:]), task.current])
            balanced = Samples(self.memory_.X, {"target": self._arrival[self.memory_.y]})
            plan = Plan(balanced, _cross_distilled(blocks, teacher), lr=self.lr / 10)
            self._descend(columns, plan, self.balanced_epochs)
            self._fold(self._moving(task), columns)


def _cross_distilled(blocks: Blocks, teacher: np.ndarray) -> Callable[[np.ndarray, Batch], np.ndarray]:
    def gradient(scores: np.ndarray, batch: Batch) -> np.ndarray:
        distilled = blocks.columns
        if len(distilled):
            kept = blocks.distillation(scores, batch.rows @ teacher.T, TEMPERATURE) / TEMPERATURE
        found = cross_entropy_gradient(scores, batch.constants["target"], batch.weight)
        if len(distilled):
            found[:, distilled] += kept * batch.weight[:, None]
        return found

    return gradient
