"""Vanilla experience replay."""

from __future__ import annotations

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Plan, Samples
from taer.heads.descent.losses import cross_entropy
from taer.heads.descent.memory import MemoryHead, replay_batch_size


class ER(MemoryHead, name="er", card=Card("ablation", old_scores="move", keeps="exemplars", forgets="no")):
    """Experience replay: trains on the new samples and on stored ones; all columns move.

    ``mean over D_t of CE + mean over the memory of CE``, the paper's form of experience replay. The memory is
    filled when a task ends.

    References
    ----------
    D. Rolnick et al., "Experience Replay for Continual Learning", NeurIPS 2019.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.ER(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    replay_batch_size: int = replay_batch_size()

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        return Plan(
            current=Samples(task.X, {"target": task.y}),
            replay=self._replay(task, lambda X, y: {"target": y}),
            replay_size=self.replay_batch_size,
            weights=(1.0, 1.0),
            gradient=cross_entropy,
        )
