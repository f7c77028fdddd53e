"""Memory aware synapses."""

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
from taer.rows import row_chunks
from taer.zoo.shared.consolidation import importance, pulled_back


class MAS(
    DescentHead, name="mas", card=Card("related", old_scores="move", keeps="nothing", forgets="no", boundaries=True)
):
    """MAS: a quadratic penalty on changes of the weights to which the outputs are sensitive.

    ``CE(D_t) + strength · Σ Ω (W - W*)²`` with ``W*`` the weights at the end of the last task. When a task ends, Ω
    grows by the mean over its samples of ``|∂‖scores‖² / ∂W|``, over all classes so far. For a linear head this is
    ``2/n · |scores|ᵀ |H|``: one matrix product, without labels.

    Departure: the step of the penalty is implicit, as in ``oewc``.

    References
    ----------
    R. Aljundi et al., "Memory Aware Synapses: Learning What (not) to Forget", ECCV 2018.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> taer.zoo.MAS(random_state=0).partial_fit(X, y).predict(np.eye(3))
    array([0, 1, 2])
    """

    lr: float = param(0.03, "learning rate", above=0)
    strength: float = param(1.0, "strength of the penalty", at_least=0)

    fitted: ClassVar[dict[str, Fitted]] = {
        "importance_": array("classes", "width", at_least=0, help="sensitivity of the outputs to each weight")
    }

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        self.importance_: np.ndarray = importance(self, "importance_", task)
        step = pulled_back(columns, self.strength * self.importance_)
        return Plan(Samples(task.X, {"target": task.y}), cross_entropy, step=step)

    def _finish(self, task: Task) -> None:
        total = np.zeros_like(self.importance_)
        for part in row_chunks(task.X, width=max(task.X.shape[1], task.n_classes)):
            rows = self.embedding_(task.X[part]).astype(np.float64)
            total += 2 * np.abs(rows @ self.weights_.T).T @ np.abs(rows)
        self.importance_ = self.importance_ + total / len(task.X)
