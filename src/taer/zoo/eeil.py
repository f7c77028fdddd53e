"""End-to-end incremental learning."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Batch, Plan, Samples
from taer.heads.descent.losses import TEMPERATURE, Blocks, cross_entropy_gradient, old_task_blocks
from taer.heads.descent.memory import MemoryHead
from taer.heads.params import param
from taer.memory import POLICIES


class EEIL(
    MemoryHead,
    name="eeil",
    card=Card("related", old_scores="move", keeps="exemplars", forgets="no", boundaries=True),
):
    """EEIL: a cross-distilled loss on the task and the memory, then fine-tuning on a balanced set.

    ``CE + Σ_u CE_u(softmax(before / T), softmax(now / T))`` on ``D_t ∪ M`` with T = 2 and one term per earlier
    task u; then the same loss on ``M ∪ τ(D_t)``, with the new classes distilled too and a tenth of the learning
    rate. The memory after the task is that balanced set. TaER replaces this second stage by its weight λ.

    References
    ----------
    F. M. Castro et al., "End-to-End Incremental Learning", ECCV 2018.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.EEIL(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    memory: str = param("herding", "which samples are stored; fixed by the first task", options=tuple(POLICIES))
    balanced_epochs: int = param(30, "number of passes over the balanced set", at_least=0)

    def _learn(self, task: Task) -> None:
        self._open(task)
        everything = np.arange(task.n_classes)
        columns = self._start(task, everything)
        before, old_tasks = columns.copy(), old_task_blocks(task, self.learning_order_)
        self._loop().descend(columns, Plan(self._union(task), _cross_distilled(old_tasks, before)))
        self._store(everything, columns)
        self._remember(task)
        if len(task.old) and len(self.memory_) and self.balanced_epochs:
            teacher = columns.copy()
            teacher[task.old] = before[task.old]
            blocks = Blocks([*np.split(old_tasks.columns, old_tasks.starts[1:]), task.current])
            balanced = Samples(self.memory_.X, {"target": self.memory_.y})
            plan = Plan(balanced, _cross_distilled(blocks, teacher), lr=self.lr / 10)
            self._loop(self.balanced_epochs).descend(columns, plan)
            self._store(everything, columns)


def _cross_distilled(blocks: Blocks, teacher: np.ndarray) -> Callable[[np.ndarray, Batch], np.ndarray]:
    def gradient(scores: np.ndarray, batch: Batch) -> np.ndarray:
        distilled = blocks.columns
        if len(distilled):
            gradients = blocks.distillation(scores, batch.rows @ teacher.T) / TEMPERATURE
        found = cross_entropy_gradient(scores, batch.constants["target"], batch.weight)
        if len(distilled):
            found[:, distilled] += gradients * batch.weight[:, None]
        return found

    return gradient
