"""Experience replay with fixed old columns: the other half of the paper's ablation."""

from __future__ import annotations

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Plan, Samples
from taer.heads.descent.losses import cross_entropy
from taer.heads.descent.memory import MemoryHead, replay_batch_size
from taer.heads.descent.taer import detached_constants


class ERFixed(
    MemoryHead,
    name="er-fixed",
    card=Card("ablation", old_scores="never", keeps="exemplars", forgets="no", boundaries=True),
):
    """Experience replay with fixed old columns: ``CE(D_t) + CE(memory)``; only current columns move.

    References
    ----------
    Z. Li, S. Jie, Z.-H. Deng, "Detachedly Learn a Classifier for Class-Incremental Learning", ablation.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.ERFixed(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    replay_batch_size: int = replay_batch_size()

    def _moving(self, task: Task) -> np.ndarray:
        return task.current

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        constants = detached_constants(self, task)
        return Plan(
            current=Samples(task.X, constants(task.X, task.y)),
            replay=self._replay(task, constants),
            replay_size=self.replay_batch_size,
            weights=(1.0, 1.0),
            gradient=cross_entropy,
            resting="old" if len(task.old) else None,
        )
