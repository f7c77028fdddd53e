"""Distillation with threshold moving."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from scipy.special import softmax

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Batch, Plan, Samples
from taer.heads.descent.losses import TEMPERATURE, cross_entropy
from taer.heads.descent.memory import MemoryHead
from taer.heads.fitted import Fitted, array
from taer.heads.numerics import grown
from taer.heads.params import param
from taer.memory import POLICIES
from taer.rows import row_chunks


class ThresholdMoving(
    MemoryHead,
    name="threshold-moving",
    card=Card("related", old_scores="move", keeps="exemplars", forgets="no", boundaries=True, few_shot=False),
):
    """Threshold moving: distillation, then probabilities divided by the sum of the targets of each class.

    ``CE + alpha · T² · KL(softmax(before / T) || softmax(now / T))`` on ``D_t ∪ M`` with T = 2. The old outputs are
    targets for all classes, with zeros for new classes, so the distillation favors old classes. The predicted class has
    the largest ``p_c / S_c``, with ``S_c`` the sum of the targets of class c in this task:
    ``Σ_x onehot_c + alpha · T² · softmax(before / T)_c``, at least 1. The division is an offset ``-log S_c`` of the
    scores, which is not used in training.

    Departure: in the authors' code the head has outputs for all classes from the start, so the old output for an unknown
    class is small instead of zero.

    References
    ----------
    K. Javed, F. Shafait, "Revisiting Distillation and Incremental Classifier Learning", ACCV 2018.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.ThresholdMoving(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    memory: str = param("herding", "which samples are stored; fixed by the first task", options=tuple(POLICIES))
    alpha: float = param(1.0, "weight of the distillation", at_least=0)

    fitted: ClassVar[dict[str, Fitted]] = {
        "counts_": array("classes", types=("int64",), at_least=1, help="number of samples learned per class")
    }

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        union, known = self._union(task), columns[: task.n_known].copy()
        self.offsets_ = -np.log(np.maximum(1, self._taught(task, union, known)))

        def gradient(scores: np.ndarray, batch: Batch) -> np.ndarray:
            soft = softmax(scores / TEMPERATURE, axis=1)
            soft[:, : task.n_known] -= softened(batch.rows, known)
            return cross_entropy(scores, batch) + self.alpha * TEMPERATURE * batch.weight[:, None] * soft

        plain = Plan(union, cross_entropy)
        return replace(plain, gradient=gradient) if task.n_known and self.alpha else plain

    def _finish(self, task: Task) -> None:
        super()._finish(task)
        known = grown(getattr(self, "counts_", np.zeros(0, np.int64)), task.n_classes)
        self.counts_ = known + np.bincount(task.y, minlength=task.n_classes)

    def _class_counts(self) -> np.ndarray:
        return self.counts_

    def _taught(self, task: Task, union: Samples, known: np.ndarray) -> np.ndarray:
        """The sum of the targets of each class, hard and soft."""
        total = np.bincount(union.constants["target"], minlength=task.n_classes).astype(np.float64)
        for part in row_chunks(union.X, width=max(task.X.shape[1], task.n_classes)) if task.n_known else ():
            soft = softened(self.embedding_(union.X[part]), known)
            total[: task.n_known] += self.alpha * TEMPERATURE**2 * soft.sum(axis=0)
        return total


def softened(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """``softmax(scores / T)``."""
    found: np.ndarray = softmax(rows @ columns.T / TEMPERATURE, axis=1)
    return found
