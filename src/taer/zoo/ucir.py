"""Learning a unified classifier incrementally via rebalancing."""

from __future__ import annotations

from itertools import chain
from typing import Any, ClassVar

import numpy as np

from taer.heads import exact
from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import GEMM, Plan, Samples, check_finite
from taer.heads.descent.losses import cross_entropy, margin_violations, spread_cross_entropy
from taer.heads.descent.memory import MemoryHead
from taer.heads.embedding import unit_rows
from taer.heads.fitted import Fitted, number
from taer.heads.params import param
from taer.memory import POLICIES
from taer.rows import row_chunks


class UCIR(
    MemoryHead,
    name="ucir",
    card=Card(
        "baseline", old_scores="move", keeps="exemplars", forgets="no", boundaries=True, linear=False, exports=False
    ),
):
    """UCIR: a cosine classifier with a learned scale; old columns are frozen, new ones are imprinted.

    On ``D_t ∪ M``::

        CE of eta · cos(h, w_c)  +  mean over replayed x and its k nearest new classes of
                                    max(0, 1/2 - cos(h, w_y) + cos(h, w_new))

    New columns start at the mean of their class, scaled to the mean length of old columns; those of the first task are
    random. The paper's third term keeps the feature of each image unchanged: with a frozen backbone it is zero, so it
    is not computed. ``eta`` is trained in every task, so scores of old classes change by a common factor.

    References
    ----------
    S. Hou et al., "Learning a Unified Classifier Incrementally via Rebalancing", CVPR 2019.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.UCIR(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    memory: str = param("herding", "which samples are stored; fixed by the first task", options=tuple(POLICIES))
    momentum: float = param(0.9, "momentum of SGD", at_least=0)
    weight_decay: float = param(5e-4, "weight decay of new columns and of the scale", at_least=0)
    k: int | None = param(None, "new classes in the margin loss of a replayed sample; None for 2, or all if fewer")

    fitted: ClassVar[dict[str, Fitted]] = {"eta_": number(help="the learned scale of the cosines")}
    init: ClassVar[str] = "imprinted"  # type: ignore[misc]  # so neither is a parameter here
    init_tasks: ClassVar[str] = "all"  # type: ignore[misc]

    def _learn(self, task: Task) -> None:
        self._open(task)
        if self.k is not None and not 1 <= self.k <= len(task.current):
            raise ValueError(f"UCIR: k must be 1 … {len(task.current)}, the classes of the task, got {self.k}")
        rows = self._initial_rows(task)
        self.eta_: float = self._train(rows, self.eta_ if task.number > 1 else 1.0, task)
        self.weights_ = rows
        self._remember(task)

    def _initial_rows(self, task: Task) -> np.ndarray:
        width = task.X.shape[1]
        if task.number == 1:
            bound = 1 / np.sqrt(width)
            return self.rng_.uniform(-bound, bound, (task.n_classes, width)).astype(self.dtype_)
        rows = self.weights_.copy()
        if len(task.new):
            sums = np.zeros((len(task.new), width))
            for part in row_chunks(task.X):
                mapped = self.embedding_(task.X[part])
                onehot = (task.y[part] == task.new[:, None]).astype(self.dtype_)
                sums += (onehot * _shrinkages(mapped)) @ mapped
            rows[task.new] = unit_rows(sums) * np.linalg.norm(rows[: task.n_known], axis=1).mean()
        return rows

    def _train(self, rows: np.ndarray, eta: float, task: Task) -> float:
        """Train the current columns in place; returns the scale."""
        moving, union, loop = task.current, self._union(task), self._loop()
        # In here the moving columns come first, so that arrays of theirs are slices.
        order, n_moving = np.concatenate([moving, task.old]), len(moving)
        target = np.argsort(order)[union.constants["target"]]
        # Cosines are products times 1 / |h|, a constant of a sample.
        shrinkages = [_shrinkages(self.embedding_(union.X[part])) for part in row_chunks(union.X)]
        plan = Plan(Samples(union.X, {"target": target, "shrink": np.concatenate(shrinkages)}), cross_entropy)
        unit, own = unit_rows(rows[order]), rows[moving]
        directions, shrink_own = unit[:n_moving], _shrinkages(own)[:, None]
        speed, eta_speed, cosines = np.zeros_like(own), 0.0, np.empty((0, 0))
        gemm = GEMM[own.dtype.char]
        with np.errstate(all="ignore"):
            for batch in chain.from_iterable(loop.batches(plan) for _ in range(self.epochs)):
                target, shrink = batch.constants["target"], batch.constants["shrink"]
                if len(target) != cosines.shape[1]:
                    cosines = np.empty((len(unit), len(target)), unit.dtype)  # class by class
                gemm(1.0, batch.rows.T, unit.T, 0.0, cosines.T, 1, 0, 1)
                cosines *= shrink
                by_score = spread_cross_entropy((eta * cosines).T, target, batch.weight, self.entropy).T
                by_cosine = eta * by_score[:n_moving]
                if len(replayed := np.flatnonzero(target >= n_moving)):
                    of_replayed = cosines[:, replayed].T
                    of_own = of_replayed[np.arange(len(replayed)), target[replayed]]
                    nearest, violated = margin_violations(of_replayed[:, :n_moving], of_own, self.k or 2)
                    by_cosine[nearest, replayed[:, None]] += violated
                # The gradient has no part along a column, whose length does not change a cosine. Together with weight
                # decay, that part is a multiple of the column. BLAS adds the rest to the speed.
                along = np.einsum("ij,ij->i", by_cosine, cosines[:n_moving])[:, None] * np.square(shrink_own)
                by_cosine *= shrink
                by_cosine *= shrink_own
                gemm(batch.fraction, batch.rows.T, by_cosine.T, self.momentum, speed.T, 0, 0, 1)
                speed += batch.fraction * (self.weight_decay - along) * own
                by_eta = float(np.vdot(by_score, cosines)) + self.weight_decay * eta
                eta_speed = self.momentum * eta_speed + batch.fraction * by_eta
                own -= self.lr * speed
                eta -= self.lr * eta_speed
                shrink_own = _shrinkages(own)[:, None]
                np.multiply(own, shrink_own, out=directions)
        check_finite(own, self.lr)
        rows[moving] = own
        return eta

    def _class_state(self, label: Any) -> list[np.ndarray]:
        head = self._snapshot()
        return [*super(UCIR, head)._class_state(label), np.array(head.eta_)]

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        columns = self.weights_ if classes is None else self.weights_[classes]
        cosines = exact.products(unit_rows(self.embedding_(X)), exact.rounded(unit_rows(columns), self.dtype_))
        return (self.eta_ * cosines).astype(self.dtype_)


def _shrinkages(rows: np.ndarray) -> np.ndarray:
    """By which rows are multiplied to have unit length: 1 for a row of zeros."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return 1 / np.where(lengths > 0, lengths, 1)
