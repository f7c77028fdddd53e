"""The lower bound: train on each task and do nothing against forgetting."""

from __future__ import annotations

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.base import DescentHead
from taer.heads.descent.loop import Plan, Samples
from taer.heads.descent.losses import cross_entropy


class Finetune(DescentHead, name="finetune", card=Card("bound", old_scores="move", keeps="nothing", forgets="no")):
    """Plain training on the current task, with a softmax over all seen classes; all columns move.

    References
    ----------
    The lower bound of every comparison of class-incremental learning.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> taer.Finetune(random_state=0).partial_fit(X, y).predict(np.eye(3))
    array([0, 1, 2])
    """

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        return Plan(Samples(task.X, {"target": task.y}), cross_entropy)
