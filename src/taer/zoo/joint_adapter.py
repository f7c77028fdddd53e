"""The upper bound of heads on an adapter: keep all samples and train on all of them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Samples
from taer.heads.descent.losses import cross_entropy
from taer.heads.descent.memory import EVERYTHING, with_task
from taer.heads.fitted import Fitted
from taer.memory import Everything
from taer.zoo.shared.adapter import AdapterHead
from taer.zoo.shared.adapter_network import Network, NetworkPlan


class JointAdapter(
    AdapterHead,
    name="joint-adapter",
    card=Card(
        "adapter", old_scores="move", keeps="everything", forgets="no", boundaries=True, linear=False, exports=False
    ),
):
    """Joint training of the adapter: keeps every sample and trains on all of them from scratch at each task.

    ``scores = weights_ @ relu(hidden_ @ h)``, cross-entropy on ``D_1 ∪ … ∪ D_t``. The upper bound of the heads on an
    adapter, not an incremental method: memory and time grow with all data seen.

    References
    ----------
    The upper bound of every comparison of class-incremental learning.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.JointAdapter(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    fitted: ClassVar[dict[str, Fitted]] = EVERYTHING

    def _open(self, task: Task) -> None:
        before = self.memory_ if task.number > 1 else Everything()
        self.memory_: Everything = with_task(before, task, self.rng_)
        super()._open(task)
        self.hidden_ = self._new_units(*self.hidden_.shape)
        self.weights_ = np.zeros_like(self.weights_)

    def _plan(self, task: Task, network: Network) -> NetworkPlan:
        return NetworkPlan(Samples(self.memory_.X, {"target": self.memory_.y}), cross_entropy)
