"""Adaptive aggregation networks, on UCIR."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from taer.heads import exact
from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Batch, Plan, check_finite
from taer.heads.descent.losses import cross_entropy, margin_gradient, spread_cross_entropy
from taer.heads.embedding import unit_rows
from taer.heads.fitted import Fitted, array, number
from taer.heads.params import param
from taer.threads import one_blas_thread
from taer.zoo.shared.adapter_branches import Branches
from taer.zoo.shared.adapter_memory import ExemplarHead
from taer.zoo.shared.adapter_network import exact_units

NEAREST = 2  # new classes with a margin loss for each replayed sample


class AANetsAdapter(
    ExemplarHead,
    name="aanets-adapter",
    card=Card(
        "adapter", old_scores="move", keeps="exemplars", forgets="no", boundaries=True, linear=False, exports=False
    ),
):
    """AANets: a stable and a plastic layer of units, blended by a weight that is learned on a balanced set; on UCIR.

    With features ``f = α s ∘ relu(A_s h) + (1 - α) relu(A_p h)``, on ``D_t ∪ M``, as in UCIR::

        CE of eta · cos(f, w_c)  +  less_forget · √(|old| / |new|) · (1 - cos(f, f before the task))
        +  mean over replayed x and its 2 nearest new classes of max(0, 1/2 - cos(f, w_y) + cos(f, w_new))

    The first task learns one layer. Both branches start from it; after that, ``A_s`` is frozen and only its scales ``s``
    are learned, while ``A_p`` is trained. Old columns are frozen, new ones are imprinted. After each epoch of training,
    one epoch trains ``α`` alone, on the memory and as many samples of each new class. The paper's two weights are
    ``α`` and ``1 - α`` here, because a cosine does not depend on their common factor.

    Departures: one layer of units above frozen features instead of a residual block on each level; plain SGD, without
    momentum and weight decay.

    References
    ----------
    Y. Liu, B. Schiele, Q. Sun, "Adaptive Aggregation Networks for Class-Incremental Learning", CVPR 2021;
    S. Hou et al., "Learning a Unified Classifier Incrementally via Rebalancing", CVPR 2019.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.AANetsAdapter(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    lr: float = param(0.3, "learning rate", above=0)
    less_forget: float = param(5.0, "strength of the term that keeps features in place", at_least=0)

    fitted: ClassVar[dict[str, Fitted]] = {
        "plastic_": array(
            "units", "width", help="incoming weights of the plastic units (the stable ones are in ``hidden_``)"
        ),
        "scales_": array("units", help="scale of each stable unit"),
        "blend_": number(at_least=0, help="weight α of the stable branch, up to 1"),
        "eta_": number(help="the learned scale of the cosines"),
    }

    def _open(self, task: Task) -> None:
        super()._open(task)
        if task.number == 1:  # the plastic branch alone
            bound = 1 / np.sqrt(self.width)
            self.weights_ = self.rng_.uniform(-bound, bound, self.weights_.shape).astype(self.dtype_)
            self.plastic_, self.scales_ = self.hidden_, np.ones(self.width, self.dtype_)
            self.blend_, self.eta_ = 0.0, 1.0

    def _learn(self, task: Task) -> None:
        self._open(task)
        before, branches, loop = self._branches(), self._branches().copied(), self._loop()
        for label, members in task.members() if task.number > 1 else ():
            if label >= task.n_known:
                branches.imprint(label, self.embedding_(task.X[members]), self.weights_[: task.n_known])
        union, balanced = Plan(self._union(task), cross_entropy), Plan(self._balanced(task), cross_entropy)
        with one_blas_thread(), np.errstate(all="ignore"):
            for _ in range(self.epochs):
                for batch in loop.batches(union):
                    by = self._gradients(task, batch, branches, before)
                    branches.move(by, self.lr * batch.fraction, task.current)
                for batch in loop.batches(balanced) if task.number > 1 else ():
                    by = self._gradients(task, batch, branches, before)
                    branches.move_blend(by, self.lr * batch.fraction)
        check_finite(np.append(branches.plastic, branches.columns), self.lr)
        self.plastic_, self.scales_, self.weights_ = branches.plastic, branches.scales, branches.columns
        self.blend_, self.eta_ = branches.blend, branches.eta
        if task.number == 1:  # two branches from now on
            self.hidden_, self.blend_ = self.plastic_, 0.5
        self._remember(task)

    def _branches(self) -> Branches:
        return Branches(self.hidden_, self.plastic_, self.scales_, self.weights_, self.blend_, self.eta_)

    def _gradients(self, task: Task, batch: Batch, branches: Branches, before: Branches) -> Branches:
        answer, target = branches(batch.rows), batch.constants["target"]
        by_scores = spread_cross_entropy(branches.eta * answer.cosines, target, batch.weight, self.entropy)
        margin = margin_gradient(answer.cosines, target, np.isin(target, task.old), task.current, NEAREST)
        pull = self.less_forget * np.sqrt(len(task.old) / len(task.current))
        by_features = -pull * batch.weight[:, None] * before(batch.rows).features if pull else 0
        return branches.gradients(batch.rows, answer, by_scores, margin, by_features)

    def _units(self, X: np.ndarray) -> np.ndarray:
        branches, rows = replace(self._branches(), columns=self.weights_[:0]), self.embedding_(X)  # without cosines
        return branches.answer(exact_units(self.hidden_, rows), exact_units(self.plastic_, rows)).features

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        columns = unit_rows(self.weights_ if classes is None else self.weights_[classes])
        cosines = exact.products(self._units(X), exact.rounded(columns, self.dtype_))
        return (self.eta_ * cosines).astype(self.dtype_)
