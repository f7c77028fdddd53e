"""Node-importance based adaptive group sparse regularization."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from taer.heads.base import Task
from taer.heads.descent.loop import Samples
from taer.heads.descent.losses import cross_entropy
from taer.heads.fitted import Fitted, array
from taer.heads.params import param
from taer.rows import row_chunks
from taer.zoo.shared.adapter_network import Network, NetworkPlan, descend, shrunk, units_of
from taer.zoo.shared.adapter_tasks import GUESSING, MASKS, TaskHead


class AGSCLAdapter(TaskHead, name="ags-cl-adapter", card=GUESSING):
    """AGS-CL: group norms keep important units close to their old weights and make the others sparse.

    With the importance ``Ω`` of each unit, its incoming weights ``A_u`` and those at the start of the task, ``A*_u``::

        CE over Y_t  +  mu · Σ over units with Ω = 0 of |A_u|  +  lam · Σ over units with Ω > 0 of Ω |A_u - A*_u|

    The norms are minimized by proximal steps, so weights become exactly zero or stay exactly unchanged. When a task ends,
    ``Ω ← eta · Ω + mean activation``. Units without importance are disconnected from the classes learned so far, and are
    initialized again with probability ``rho`` when the next task begins. Each task has its own outputs.

    Departures: one layer of units above frozen features; a proximal step after every batch, not after every epoch, so
    ``mu`` and ``lam`` are not those of the paper; the task of a test sample, which the paper assumes known, is guessed
    by the lowest entropy.

    References
    ----------
    S. Jung et al., "Continual Learning with Node-Importance based Adaptive Group Sparse Regularization", NeurIPS 2020.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(4), 20, axis=0), np.repeat([0, 1, 2, 3], 20)
    >>> head = taer.zoo.AGSCLAdapter(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.scores(np.eye(4)[2:], classes=[2, 3]).argmax(axis=1)  # the task given
    array([0, 1])
    """

    mu: float = param(0.03, "strength of the sparsity of units without importance", at_least=0)
    lam: float = param(1.0, "strength of the penalty on changes of important units", at_least=0)
    rho: float = param(
        0.3, "probability that a unit without importance is initialized again", at_least=0, at_most=1
    )
    eta: float = param(0.9, "fraction of the importance that is kept after a later task", at_least=0, at_most=1)

    fitted: ClassVar[dict[str, Fitted]] = {
        **MASKS,
        "importance_": array("units", at_least=0, help="importance of each unit"),
    }

    def _open(self, task: Task) -> None:
        super()._open(task)
        if task.number == 1:
            self.importance_: np.ndarray = np.zeros(len(self.hidden_), self.dtype_)

    def _train(self, task: Task, network: Network) -> Network:
        if self.n_tasks_ > 1:
            idle = (self.importance_ == 0) & (self.rng_.random(len(self.importance_)) < self.rho)
            network.hidden[idle] = self._new_units(idle.sum(), network.hidden.shape[1])
        start, matters = network.hidden.copy(), self.importance_ > 0
        anchor, strength = start * matters[:, None], np.where(matters, self.lam * self.importance_, self.mu)

        def move(network: Network, gradients: Network, lr: float) -> None:
            stepped = network.hidden - lr * gradients.hidden - anchor
            network.hidden[:] = anchor + shrunk(stepped, lr * strength)
            descend(network.columns, gradients.columns, lr)

        plan = NetworkPlan(Samples(task.X, {"target": task.y}), cross_entropy, move=move)
        self._loop().train(network, plan)
        active = sum(
            units_of(network.hidden, self.embedding_(task.X[rows])).sum(axis=0) for rows in row_chunks(task.X)
        )
        self.importance_ = (self.eta * self.importance_ + active / len(task.X)).astype(self.dtype_)
        network.gates[:] = self.importance_ > 0
        return network
