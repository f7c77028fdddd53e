"""Synaptic intelligence."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.base import DescentHead
from taer.heads.descent.loop import Plan, Samples
from taer.heads.descent.losses import cross_entropy
from taer.heads.fitted import Fitted, array
from taer.heads.params import param
from taer.zoo.shared.consolidation import importance, pulled_back


class SI(
    DescentHead, name="si", card=Card("related", old_scores="move", keeps="nothing", forgets="no", boundaries=True)
):
    """SI: a quadratic penalty on changes of the weights that lowered the loss of earlier tasks.

    ``CE(D_t) + c · Σ Ω (W - W*)²`` with ``W*`` the weights at the end of the last task. Along the path of a task
    ``ω ← ω - g·ΔW``, with ``g`` the gradient without the penalty and ``ΔW`` the whole step; when the task ends,
    ``Ω ← max(0, Ω + ω / ((W - W*)² + xi))``. The maximum is taken from the authors' code. ``c`` and ``xi`` are those of
    the public benchmark code on CIFAR-10. New columns have no importance yet, and ``W*`` is their initial value.

    Departure: the step of the penalty is implicit, as in ``oewc``.

    References
    ----------
    F. Zenke, B. Poole, S. Ganguli, "Continual Learning Through Synaptic Intelligence", ICML 2017.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> taer.zoo.SI(random_state=0).partial_fit(X, y).predict(np.eye(3))
    array([0, 1, 2])
    """

    lr: float = param(0.03, "learning rate", above=0)
    c: float = param(0.5, "strength of the penalty", at_least=0)
    xi: float = param(1.0, "damping of the importance of a weight that hardly moved", above=0)

    fitted: ClassVar[dict[str, Fitted]] = {
        "importance_": array("classes", "width", at_least=0, help="importance of each weight")
    }

    def _learn(self, task: Task) -> None:
        self._open(task)
        everything = np.arange(task.n_classes)
        columns, known = self._start(task, everything), importance(self, "importance_", task)
        start, path, pull = columns.copy(), np.zeros(columns.shape), pulled_back(columns, self.c * known)

        def step(columns: np.ndarray, gradient: np.ndarray, lr: float) -> None:
            before = columns.copy()
            pull(columns, gradient, lr)
            path[:] -= gradient * (columns - before)

        self._loop().descend(columns, Plan(Samples(task.X, {"target": task.y}), cross_entropy, step=step))
        self._store(everything, columns)
        self.importance_ = np.maximum(0, known + path / (np.square(columns - start) + self.xi))
