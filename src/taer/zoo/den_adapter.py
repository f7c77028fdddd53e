"""Dynamically expandable networks."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from taer.heads.base import Task
from taer.heads.descent.loop import Samples
from taer.heads.descent.losses import cross_entropy
from taer.heads.fitted import Fitted
from taer.heads.numerics import log_sum_exp
from taer.heads.params import param
from taer.rows import row_chunks
from taer.zoo.shared.adapter_network import Network, NetworkPlan, descend, shrunk, units_of
from taer.zoo.shared.adapter_tasks import GUESSING, MASKS, TaskHead


class DENAdapter(TaskHead, name="den-adapter", card=GUESSING):
    """DEN: a new task retrains the units it needs, adds units if needed, and splits units that drifted.

    The first task minimizes ``CE + l1 · (Σ|A| + Σ|W|)`` over incoming weights ``A`` and columns ``W``. A later one, with a
    softmax over its own classes:

    1. learns its columns alone, with ``l1 · Σ|W|``; units with a column weight other than zero are selected;
    2. retrains these units and the columns;
    3. if the mean cross-entropy is above ``tau``, adds ``added`` units, trained with ``group · Σ_u |A_u|``, and drops those
       that become zero;
    4. splits each old unit whose weights moved by more than ``drift``: the old unit gets its old weights back, for the
       tasks so far, and a new unit gets the new weights.

    Each task uses the units that existed when it had been learned.

    Departures: one layer of units above frozen features; l1 and group norms are minimized by proximal steps; thresholds
    are ours; no retraining after a split, because the columns of the new task move to the copies; the task of a test
    sample is guessed by the lowest entropy.

    References
    ----------
    J. Yoon et al., "Lifelong Learning with Dynamically Expandable Networks", ICLR 2018.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(4), 20, axis=0), np.repeat([0, 1, 2, 3], 20)
    >>> head = taer.zoo.DENAdapter(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.scores(np.eye(4)[2:], classes=[2, 3]).argmax(axis=1)  # the task given
    array([0, 1])
    """

    l1: float = param(0.001, "strength of the sparsity of single weights", at_least=0)
    tau: float = param(0.2, "mean cross-entropy above which units are added", at_least=0)
    added: int = param(16, "number of units that are added at a time", at_least=1)
    group: float = param(0.01, "strength of the sparsity of added units", at_least=0)
    drift: float = param(0.2, "change of a unit's weights above which it is split", at_least=0)

    fitted: ClassVar[dict[str, Fitted]] = MASKS

    def _train(self, task: Task, network: Network) -> Network:
        if not self._is_new(task):  # more samples of known classes: their units are frozen
            self._fit(task, network)
            return network
        if self.n_tasks_ == 1:
            self._fit(task, network, np.ones(len(network.hidden), self.dtype_), l1=self.l1)
            return network
        before = network.hidden.copy()
        self._fit(task, network, l1=self.l1)
        self._fit(task, network, network.columns.any(axis=0).astype(self.dtype_))
        if self._loss(task, network) > self.tau:
            network = self._expanded(task, network)
        return split(network, before, self.drift)

    def _fit(self, task: Task, network: Network, moving: np.ndarray | None = None, l1: float = 0) -> None:
        """Train the columns and the incoming weights of some units, if any."""
        resting = len(network.hidden) if moving is None else 0

        def move(network: Network, gradients: Network, lr: float) -> None:
            if moving is not None:
                step(network.hidden, gradients.hidden * moving[:, None], lr, l1)
            step(network.columns, gradients.columns, lr, l1)

        plan = NetworkPlan(Samples(task.X, {"target": task.y}), cross_entropy, resting_units=resting, move=move)
        self._loop().train(network, plan)

    def _expanded(self, task: Task, network: Network) -> Network:
        """The network with new units, without those that the group norm made zero."""
        known = len(network.hidden)
        hidden = np.concatenate([network.hidden, self._new_units(self.added, network.hidden.shape[1])])
        columns = np.pad(network.columns, [(0, 0), (0, self.added)])
        larger = Network(hidden, columns, np.ones(len(hidden), self.dtype_))

        def move(network: Network, gradients: Network, lr: float) -> None:
            stepped = network.hidden[known:] - lr * gradients.hidden
            network.hidden[known:] = shrunk(stepped, np.full(self.added, lr * self.group))
            descend(network.columns, gradients.columns, lr)

        plan = NetworkPlan(Samples(task.X, {"target": task.y}), cross_entropy, resting_units=known, move=move)
        self._loop().train(larger, plan)
        used = np.append(np.ones(known, bool), larger.hidden[known:].any(axis=1))
        return Network(larger.hidden[used], larger.columns[:, used], larger.gates[used])

    def _loss(self, task: Task, network: Network) -> float:
        total = 0.0
        for rows in row_chunks(task.X):
            scores = units_of(network.hidden, self.embedding_(task.X[rows])) @ network.columns.T
            total += float((log_sum_exp(scores) - scores[np.arange(len(scores)), task.y[rows]]).sum())
        return total / len(task.X)


def step(weights: np.ndarray, gradient: np.ndarray, lr: float, l1: float) -> None:
    """One of descent, then the proximal map of the sparsity."""
    descend(weights, gradient, lr)
    if l1:
        weights[:] = thresholded(weights, lr * l1)


def thresholded(weights: np.ndarray, by: float) -> np.ndarray:
    """Soft thresholding, the proximal map of the absolute value."""
    return weights - np.clip(weights, -by, by)


def split(network: Network, before: np.ndarray, drift: float) -> Network:
    """Units that drifted get their old weights back; new units get the new weights, with their columns."""
    known = len(before)
    moved = np.flatnonzero(np.sqrt(np.square(network.hidden[:known] - before).sum(axis=1)) > drift)
    hidden = np.concatenate([network.hidden, network.hidden[moved]])
    columns = np.concatenate([network.columns, network.columns[:, moved]], axis=1)
    hidden[moved], columns[:, moved] = before[moved], 0
    return Network(hidden, columns, np.ones(len(hidden), hidden.dtype))
