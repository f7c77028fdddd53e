"""Greedy sampler and dumb learner."""

from __future__ import annotations

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Plan, Samples
from taer.heads.descent.losses import cross_entropy
from taer.heads.descent.memory import MemoryHead
from taer.heads.params import param


class GDumb(
    MemoryHead,
    name="gdumb",
    card=Card("related", old_scores="move", keeps="exemplars", forgets="no", boundaries=True),
):
    """GDumb: trains from scratch on the memory alone, after each task has been added to it.

    It shows how much accuracy the memory gives by itself. Departure: plain SGD for ``epochs`` passes over the memory
    instead of a cosine schedule with image augmentation.

    References
    ----------
    A. Prabhu, P. Torr, P. Dokania, "GDumb", ECCV 2020.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.GDumb(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    epochs: int = param(50, "number of passes over the memory", at_least=1)
    memory_size: int = param(200, "number of samples stored from all earlier tasks", at_least=1)

    def _learn(self, task: Task) -> None:
        self._open(task)
        self._remember(task)
        stored = Task(self.memory_.X, self.memory_.y, n_known=0, n_classes=task.n_classes, number=task.number)
        columns = self._new_columns(stored).astype(self.dtype_)
        self._loop().descend(columns, self._plan(stored, columns))
        self._store(np.arange(task.n_classes), columns)

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        return Plan(Samples(task.X, {"target": task.y}), cross_entropy)
