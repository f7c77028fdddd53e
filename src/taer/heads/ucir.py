"""Learning a unified classifier incrementally via rebalancing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from taer.heads._fitted import Fitted, array, number
from taer.heads._params import param
from taer.heads._validation import row_chunks
from taer.heads.base import Task
from taer.heads.sgd import Plan, SGDHead, one_blas_thread
from taer.heads.softmax import cross_entropy, cross_entropy_gradient, unit_rows
from taer.heads.union import UnionHead
from taer.memory import POLICIES

MARGIN = 0.5


@dataclass(kw_only=True, eq=False, repr=False)
class UCIR(UnionHead, SGDHead):
    """UCIR: a cosine classifier with a learned scale; old rows rest, new ones are imprinted.

    On ``D_t ∪ M`` (Hou et al., CVPR 2019)::

        CE of eta · cos(h, w_c)  +  mean over replayed x and its k nearest new classes of
                                    max(0, 1/2 - cos(h, w_y) + cos(h, w_new))

    New rows start at the mean of their class, at the mean length of old rows; those of the first task are
    random. The paper's third term keeps the feature of each image where it was: with a frozen extractor it is
    zero, and so is not computed.
    """

    memory: str = param("herding", "which samples are kept; fixed by the first task", options=tuple(POLICIES))
    momentum: float = param(0.9, "momentum of the descent", at_least=0)
    weight_decay: float = param(5e-4, "decay of new rows and of the scale", at_least=0)
    k: int | None = param(None, "new classes that a replayed sample is kept away from; None for 2, or all if fewer")

    class_arrays: ClassVar[tuple[str, ...]] = ("rows_",)
    fitted: ClassVar[dict[str, Fitted]] = {"rows_": array("classes", "width"), "eta_": number()}

    def _check_fitted(self) -> None:
        super()._check_fitted()
        if self.k is not None and (type(self.k) is not int or self.k < 1):
            raise ValueError(f"k must be a whole number from 1 on, or None, got {self.k!r}")

    def _learn(self, X: Any, task: Task) -> None:
        self._fix_map(X)
        if self.k is not None and not 1 <= self.k <= len(task.current):
            raise ValueError(f"UCIR: k must be 1 … {len(task.current)}, the classes of the task, got {self.k}")
        rows = self._initial_rows(X, task)
        self.eta_: float = self._train(rows, self.eta_ if self.n_tasks_ > 1 else 1.0, X, task)
        self.rows_ = rows
        self._remember(X, task)

    def _initial_rows(self, X: Any, task: Task) -> np.ndarray:
        if self.n_tasks_ == 1:
            bound = 1 / np.sqrt(X.shape[1])
            return self._rng_.uniform(-bound, bound, (task.n_classes, X.shape[1])).astype(self.dtype_)
        rows = task.reseat(self.rows_)
        if len(task.new):
            sums = np.zeros((len(task.new), X.shape[1]))
            for part in row_chunks(X):
                sums += (task.y[part] == task.new[:, None]).astype(self.dtype_) @ unit_rows(self._map(X[part]))
            rows[task.new] = unit_rows(sums) * np.linalg.norm(self.rows_, axis=1).mean()
        return rows

    def _train(self, rows: np.ndarray, eta: float, X: Any, task: Task) -> float:
        """Move the current rows in place; returns the scale."""
        moving, plan = task.current, Plan(self._union(X, task), cross_entropy)
        is_old = np.isin(np.arange(task.n_classes), task.old)
        unit, own = unit_rows(rows), rows[moving]
        speed, eta_speed = np.zeros_like(own), 0.0
        with one_blas_thread(), np.errstate(all="ignore"):
            for _ in range(self.epochs):
                for batch in self._batches(plan):
                    target, h = batch.constants["target"], unit_rows(batch.rows)
                    cosines = h @ unit.T
                    by_score = cross_entropy_gradient(eta * cosines, target, batch.weight)
                    by_cosine = eta * by_score[:, moving]
                    by_cosine += self._margin_gradient(cosines, target, is_old[target], moving)
                    norms = np.linalg.norm(own, axis=1, keepdims=True)
                    norms[norms == 0] = 1
                    along = by_cosine.T @ h
                    along -= (along * unit[moving]).sum(axis=1, keepdims=True) * unit[moving]
                    speed = self.momentum * speed + along / norms + self.weight_decay * own
                    eta_speed = (
                        self.momentum * eta_speed + float((by_score * cosines).sum()) + self.weight_decay * eta
                    )
                    own -= self.lr * speed
                    eta -= self.lr * eta_speed
                    unit[moving] = unit_rows(own)
        self._check_finite(own)
        rows[moving] = own
        return eta

    def _margin_gradient(
        self, cosines: np.ndarray, target: np.ndarray, is_old: np.ndarray, moving: np.ndarray
    ) -> np.ndarray:
        """Of the margin ranking loss by the cosines of the current classes; those of old ones rest."""
        found, k = np.zeros((len(cosines), len(moving)), cosines.dtype), min(self.k or 2, len(moving))
        replayed = np.flatnonzero(is_old)
        if len(replayed):
            new = cosines[np.ix_(replayed, moving)]
            nearest = np.argpartition(-new, k - 1, axis=1)[:, :k]
            truth = cosines[replayed, target[replayed]][:, None]
            violated = MARGIN - truth + np.take_along_axis(new, nearest, axis=1) > 0
            found[replayed[:, None], nearest] = violated / (len(replayed) * k)
        return found

    def _scores(self, X: np.ndarray) -> np.ndarray:
        scores: np.ndarray = self.eta_ * (unit_rows(self._map(X)) @ unit_rows(self.rows_).T)
        return scores
