"""Riemannian walk."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Plan
from taer.heads.descent.losses import cross_entropy
from taer.heads.descent.memory import MemoryHead
from taer.heads.fitted import Fitted, array
from taer.heads.params import param
from taer.memory import POLICIES
from taer.zoo.shared.consolidation import importance, pulled_back

EPSILON = 1e-3  # the authors' damping of a score where a weight hardly moved


class RWalk(
    MemoryHead,
    name="rwalk",
    card=Card("related", old_scores="move", keeps="exemplars", forgets="no", boundaries=True),
):
    """RWalk: a penalty on changes of weights that are important now or were along the path; with exemplars.

    ``CE(D_t ∪ M) + strength · Σ (F + s)(W - W*)²`` with ``W*`` the weights at the end of the last task. With ``g`` the
    gradient of a batch without the penalty and ``ΔW`` its step, each step of a task does
    ``F ← alpha·g² + (1 - alpha)·F`` and ``s_t ← s_t + max(0, -g·ΔW / (½F·ΔW² + ε))``; when the task ends,
    ``s ← (s + s_t) / 2``, or ``s_t`` after the first task. In the penalty both are scaled to 0 … 1, as in the authors'
    code.

    Departures: importance is updated at every step, not every tenth or fiftieth; the step of the penalty is implicit, as
    in ``oewc``.

    References
    ----------
    A. Chaudhry et al., "Riemannian Walk for Incremental Learning", ECCV 2018.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.RWalk(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    lr: float = param(0.03, "learning rate", above=0)
    memory: str = param("herding", "which samples are stored; fixed by the first task", options=tuple(POLICIES))
    strength: float = param(1.0, "strength of the penalty", at_least=0)
    alpha: float = param(0.9, "weight of the newest batch in the Fisher information", above=0, at_most=1)

    fitted: ClassVar[dict[str, Fitted]] = {
        "fisher_": array("classes", "width", at_least=0, help="running Fisher information"),
        "path_": array("classes", "width", at_least=0, help="importance of each weight along the path"),
    }

    def _learn(self, task: Task) -> None:
        self._open(task)
        everything = np.arange(task.n_classes)
        columns, found = self._start(task, everything), np.zeros((task.n_classes, task.X.shape[1]))
        fisher, known = (importance(self, name, task) for name in ("fisher_", "path_"))
        pull = pulled_back(columns, self.strength * (_scaled(fisher) + _scaled(known)))

        def step(columns: np.ndarray, gradient: np.ndarray, lr: float) -> None:
            before = columns.copy()
            pull(columns, gradient, lr)
            moved = columns - before
            fisher[:] = self.alpha * np.square(gradient) + (1 - self.alpha) * fisher
            found[:] += np.maximum(0, -gradient * moved / (fisher / 2 * np.square(moved) + EPSILON))

        self._loop().descend(columns, Plan(self._union(task), cross_entropy, step=step))
        self._store(everything, columns)
        self.fisher_, self.path_ = fisher, found if task.number == 1 else (known + found) / 2
        self._remember(task)


def _scaled(values: np.ndarray) -> np.ndarray:
    """Scaled to 0 … 1; zeros stay zero."""
    least = values.min()
    return (values - least) / max(values.max() - least, np.finfo(float).tiny)
