"""The upper bound: keep all samples and train on all of them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.base import DescentHead
from taer.heads.descent.loop import Plan, Samples
from taer.heads.descent.losses import cross_entropy
from taer.heads.descent.memory import EVERYTHING, with_task
from taer.heads.fitted import Fitted
from taer.memory import Everything


class Joint(
    DescentHead,
    name="joint",
    card=Card("bound", old_scores="move", keeps="everything", forgets="no", boundaries=True, few_shot=False),
):
    """Joint training: keeps every sample and trains on all of them from scratch at each task.

    An upper bound, not an incremental method: memory and time grow with all data seen.

    References
    ----------
    The upper bound of every comparison of class-incremental learning.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.Joint(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    fitted: ClassVar[dict[str, Fitted]] = EVERYTHING

    def _learn(self, task: Task) -> None:
        before = self.memory_ if task.number > 1 else Everything()
        self.memory_: Everything = with_task(before, task, self.rng_)
        super()._learn(
            Task(self.memory_.X, self.memory_.y, n_known=0, n_classes=task.n_classes, number=task.number)
        )

    def _class_counts(self) -> np.ndarray:
        return np.bincount(self.memory_.y, minlength=len(self.classes_))

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        return Plan(Samples(task.X, {"target": task.y}), cross_entropy)
