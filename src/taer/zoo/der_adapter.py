"""Dynamically expandable representation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from taer.heads import exact
from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Batch, Plan, Samples
from taer.heads.descent.losses import cross_entropy_gradient
from taer.heads.embedding import Standardize
from taer.heads.params import param
from taer.zoo.shared.adapter_memory import ExemplarHead
from taer.zoo.shared.adapter_network import Network, NetworkPlan, descend


class DERAdapter(
    ExemplarHead,
    name="der-adapter",
    card=Card(
        "adapter", old_scores="move", keeps="exemplars", forgets="no", boundaries=True, linear=False, exports=False
    ),
):
    """DER: each task adds a layer of units of its own beside those of earlier tasks, which are frozen.

    With ``r = [relu(A_1 h), …, relu(A_t h)]``, on ``D_t ∪ M``::

        CE over all classes of weights_ @ r  +  aux_weight · CE over Y_t and "old" of an auxiliary layer on relu(A_t h)

    without the second term in the first task. ``A_t`` starts from ``A_{t-1}``. Then the columns start again from
    zero and are trained alone on the balanced memory, with scores divided by ``temperature``.

    Departures: one layer of units above frozen features; no channel masks: this is the authors' variant "w/o P",
    without pruning. A task without new classes adds units like any other.

    References
    ----------
    S. Yan, J. Xie, X. He, "DER: Dynamically Expandable Representation for Class Incremental Learning", CVPR 2021.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.DERAdapter(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    aux_weight: float = param(1.0, "strength of the auxiliary loss", at_least=0)
    balanced_epochs: int = param(30, "passes over the memory that train the columns alone; 0 for none", at_least=0)
    temperature: float = param(5.0, "divisor of the scores in these passes", above=0)

    def _open(self, task: Task) -> None:
        super()._open(task)
        if task.number > 1:
            newest = self.hidden_[-(len(self.hidden_) // (task.number - 1)) :]
            self.hidden_ = np.concatenate([self.hidden_, newest])
            self.weights_ = np.pad(self.weights_, [(0, 0), (0, len(newest))])

    def _learn(self, task: Task) -> None:
        self._open(task)
        resting = len(self.hidden_) - len(self.hidden_) // task.number
        auxiliary = np.zeros((len(task.current) + 1 if len(task.old) else 0, len(self.hidden_)), self.dtype_)
        network = self._network()
        network = replace(network, columns=np.concatenate([network.columns, auxiliary]))

        def move(network: Network, gradients: Network, lr: float) -> None:
            gradients.columns[task.n_classes :, :resting] = 0  # the auxiliary layer sees the new units alone
            descend(network.hidden[resting:], gradients.hidden, lr)
            descend(network.columns, gradients.columns, lr)

        answering = task.n_classes
        plan = NetworkPlan(
            self._union(task), self._gradient(task), answering=answering, resting_units=resting, move=move
        )
        self._loop().train(network, plan)
        self._store(replace(network, columns=network.columns[: task.n_classes]))
        self._remember(task)
        if len(task.old) and len(self.memory_) and self.balanced_epochs:
            self._balance()

    def _gradient(self, task: Task) -> Callable[[np.ndarray, Batch], np.ndarray]:
        # in the auxiliary layer all old classes are one class
        place = np.full(task.n_classes, len(task.current))
        place[task.current] = np.arange(len(task.current))

        def gradient(scores: np.ndarray, batch: Batch) -> np.ndarray:
            target, main = batch.constants["target"], slice(task.n_classes)
            found = np.zeros_like(scores)
            found[:, main] = cross_entropy_gradient(scores[:, main], target, batch.weight)
            if len(task.old):
                weight, auxiliary = self.aux_weight * batch.weight, slice(task.n_classes, None)
                found[:, auxiliary] = cross_entropy_gradient(scores[:, auxiliary], place[target], weight)
            return found

        return gradient

    def _balance(self) -> None:
        """Train the columns again from zero, on the activations of the units for the memory."""

        def gradient(scores: np.ndarray, batch: Batch) -> np.ndarray:
            weight = batch.weight / self.temperature
            return cross_entropy_gradient(scores / self.temperature, batch.constants["target"], weight)

        units, columns = np.ascontiguousarray(self._units(self.memory_.X)), np.zeros_like(self.weights_)
        as_they_are = Standardize(np.zeros(units.shape[1]), np.ones(units.shape[1]), self.dtype_)
        loop = replace(self._loop(self.balanced_epochs), embedding=as_they_are)
        loop.descend(columns, Plan(Samples(units, {"target": self.memory_.y}), gradient))
        self.weights_ = exact.rounded(columns, self.dtype_)
