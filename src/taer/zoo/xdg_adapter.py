"""Context-dependent gating with synaptic stabilization."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from taer.heads.base import Task
from taer.heads.descent.loop import Samples
from taer.heads.descent.losses import cross_entropy
from taer.heads.fitted import Fitted, array
from taer.heads.params import param
from taer.zoo.shared.adapter_network import Network, NetworkPlan
from taer.zoo.shared.adapter_tasks import GUESSING, MASKS, TaskHead

DAMPING = 0.01  # ξ of synaptic intelligence


class XdGAdapter(TaskHead, name="xdg-adapter", card=GUESSING):
    """XdG: each task turns off a fixed random 80 % of the units, and synaptic intelligence protects the weights.

    ``CE over Y_t of weights_ @ (mask_t ∘ relu(hidden_ @ h)) + c · Σ Ω (A - A*)²``, with ``A`` the incoming weights and
    ``A*`` those at the end of the last task. Along the path ``ω += -g · ΔA`` with the gradient ``g`` of the
    cross-entropy; when the task ends, ``Ω += max(ω, 0) / ((A - A*)² + 0.01)``. Each task has its own outputs, so these
    need no penalty.

    Departures: one layer of units above frozen features; the task of a test sample is guessed by the lowest entropy; the
    step of the penalty is implicit, as in ``oewc``, which has the same minimum and is stable for any strength.

    References
    ----------
    N. Masse et al., "Alleviating catastrophic forgetting using context-dependent gating and synaptic stabilization",
    PNAS 2018; F. Zenke et al., "Continual Learning Through Synaptic Intelligence", ICML 2017.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(4), 20, axis=0), np.repeat([0, 1, 2, 3], 20)
    >>> head = taer.zoo.XdGAdapter(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.scores(np.eye(4)[2:], classes=[2, 3]).argmax(axis=1)  # the task given
    array([0, 1])
    """

    gated: float = param(0.8, "fraction of the units that are off in a task", at_least=0, at_most=0.99)
    c: float = param(0.1, "strength of the penalty", at_least=0)

    fitted: ClassVar[dict[str, Fitted]] = {
        **MASKS,
        "importance_": array("units", "width", at_least=0, help="importance of each incoming weight"),
    }

    def _open(self, task: Task) -> None:
        super()._open(task)
        if task.number == 1:
            self.importance_: np.ndarray = np.zeros_like(self.hidden_)

    def _gates(self, task: Task) -> np.ndarray:
        gates = super()._gates(task)
        if self._is_new(task):
            gates[self.rng_.permutation(len(gates))[: int(self.gated * len(gates))]] = 0
        return gates

    def _train(self, task: Task, network: Network) -> Network:
        start, path = network.hidden.copy(), np.zeros_like(network.hidden)
        strength = 2 * self.c * self.importance_

        def move(network: Network, gradients: Network, lr: float) -> None:
            pull = lr * strength
            change = (pull * (start - network.hidden) - lr * gradients.hidden) / (1 + pull)
            network.hidden[:] += change
            path[:] -= gradients.hidden * change
            network.columns[:] -= lr * gradients.columns

        plan = NetworkPlan(Samples(task.X, {"target": task.y}), cross_entropy, move=move)
        self._loop().train(network, plan)
        moved = np.square(network.hidden - start)
        self.importance_ = self.importance_ + np.maximum(path, 0) / (moved + DAMPING)
        return network
