"""Experience replay with TaER's weights: half of the paper's ablation."""

from __future__ import annotations

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Plan, Samples
from taer.heads.descent.losses import cross_entropy
from taer.heads.descent.memory import MemoryHead, replay_batch_size


class ERBalanced(
    MemoryHead, name="er-balanced", card=Card("ablation", old_scores="move", keeps="exemplars", forgets="no")
):
    """Experience replay with TaER's weights: ``(1 - λ) · CE(D_t) + λ · CE(memory)``, λ = old / all; all columns move.

    References
    ----------
    Z. Li, S. Jie, Z.-H. Deng, "Detachedly Learn a Classifier for Class-Incremental Learning", ablation.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.ERBalanced(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    replay_batch_size: int = replay_batch_size()

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        old_share = len(task.old) / task.n_classes  # λ
        return Plan(
            current=Samples(task.X, {"target": task.y}),
            replay=self._replay(task, lambda X, y: {"target": y}),
            replay_size=self.replay_batch_size,
            weights=(1 - old_share, old_share),
            gradient=cross_entropy,
        )
