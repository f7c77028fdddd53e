"""Online elastic weight consolidation."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import softmax

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.base import DescentHead
from taer.heads.descent.loop import Plan, Samples
from taer.heads.descent.losses import cross_entropy
from taer.heads.fitted import Fitted, array
from taer.heads.params import param
from taer.rows import row_chunks
from taer.zoo.shared.consolidation import importance, pulled_back


class OnlineEWC(
    DescentHead,
    name="oewc",
    card=Card("baseline", old_scores="move", keeps="nothing", forgets="no", boundaries=True),
):
    """Online EWC: a quadratic penalty on changes of weights that were important for earlier tasks.

    ``CE(D_t) + e_lambda · Σ F (W - W*)²`` with ``W*`` the weights at the end of the last task and a running
    diagonal Fisher information ``F ← gamma · F + F_t``. As in the public code on which the paper's comparison is based,
    ``F_t`` is the mean over the task of ``p_y · (∂ log p_y / ∂W)²`` at the true label; for a linear head that is one
    matrix product.

    Departure: the step of the penalty is implicit, ``W ← (W - lr·g + c·W*) / (1 + c)`` with ``c = 2·lr·e_lambda·F``.
    It has the same minimum and is stable for any strength.

    References
    ----------
    J. Schwarz et al., "Progress & Compress", ICML 2018.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> taer.zoo.OnlineEWC(random_state=0).partial_fit(X, y).predict(np.eye(3))
    array([0, 1, 2])
    """

    lr: float = param(0.03, "learning rate", above=0)
    e_lambda: float = param(10.0, "strength of the penalty", at_least=0)
    gamma: float = param(1.0, "fraction of the Fisher information of earlier tasks that is kept", at_least=0)

    fitted: ClassVar[dict[str, Fitted]] = {
        "fisher_": array(
            "classes", "width", at_least=0, help="running Fisher information: the importance of each weight"
        )
    }

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        self.fisher_: np.ndarray = importance(self, "fisher_", task)
        step = pulled_back(columns, self.e_lambda * self.fisher_)
        return Plan(Samples(task.X, {"target": task.y}), cross_entropy, step=step)

    def _finish(self, task: Task) -> None:
        total = np.zeros_like(self.fisher_)
        for part in row_chunks(task.X, width=max(task.X.shape[1], task.n_classes)):
            rows = self.embedding_(task.X[part])
            total += fisher_sum(rows, softmax(rows @ self.weights_.T, axis=1), task.y[part])
        self.fisher_ = self.gamma * self.fisher_ + total / len(task.X)


def fisher_sum(rows: np.ndarray, probabilities: np.ndarray, target: np.ndarray) -> np.ndarray:
    """``Σ_x p_y(x) · (h ⊗ (p - onehot(y)))²``, squared elementwise, as one matrix product."""
    at_target = (np.arange(len(target)), target)
    weight, residuals = probabilities[at_target].copy(), probabilities.astype(np.float64)
    residuals[at_target] -= 1
    product: np.ndarray = (weight[:, None] * residuals**2).T @ np.square(rows, dtype=np.float64)
    return product
