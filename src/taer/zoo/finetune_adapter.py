"""The lower bound of heads on an adapter: train on each task and do nothing against forgetting."""

from __future__ import annotations

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Samples
from taer.heads.descent.losses import cross_entropy
from taer.zoo.shared.adapter import AdapterHead
from taer.zoo.shared.adapter_network import Network, NetworkPlan


class FinetuneAdapter(
    AdapterHead,
    name="finetune-adapter",
    card=Card(
        "adapter", old_scores="move", keeps="nothing", forgets="no", boundaries=True, linear=False, exports=False
    ),
):
    """Plain training of the adapter on the current task, with a softmax over all seen classes.

    ``scores = weights_ @ relu(hidden_ @ h)``, cross-entropy on ``D_t``. The lower bound of the heads on an adapter.

    References
    ----------
    The lower bound of every comparison of class-incremental learning.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> taer.zoo.FinetuneAdapter(random_state=0).partial_fit(X, y).predict(np.eye(3))
    array([0, 1, 2])
    """

    def _plan(self, task: Task, network: Network) -> NetworkPlan:
        return NetworkPlan(Samples(task.X, {"target": task.y}), cross_entropy)
