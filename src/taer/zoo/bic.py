"""Bias correction."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Batch, Plan, Samples
from taer.heads.descent.losses import TEMPERATURE, Blocks, cross_entropy_gradient
from taer.heads.descent.memory import MemoryHead
from taer.heads.numerics import log_sum_exp
from taer.heads.params import param
from taer.memory import POLICIES
from taer.rows import SelectedRows


class BiC(
    MemoryHead,
    name="bic",
    card=Card("related", old_scores="move", keeps="exemplars", forgets="no", boundaries=True),
):
    """BiC: distillation, then two numbers that correct the scores of the new classes.

    ``(1 - λ) · CE + λ · CE(softmax(before / T), softmax(now / T))``, the latter over the old classes, with T = 2
    and ``λ = old / all classes``, on ``D_t ∪ M`` without a held-out part. On the held-out part, ``α`` and ``β`` of
    ``α · score + β`` for the new classes are then fitted to minimize the cross-entropy. A fraction of the memory and
    as many samples of each new class are held out.

    Departure: the correction is folded into the columns and offsets of the classes, and later tasks start from these.

    References
    ----------
    Y. Wu et al., "Large Scale Incremental Learning", CVPR 2019.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.BiC(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    memory: str = param("herding", "which samples are stored; fixed by the first task", options=tuple(POLICIES))
    held_out: float = param(0.1, "fraction of the memory that is held out for the correction", above=0, below=1)

    def _learn(self, task: Task) -> None:
        self._open(task)
        everything = np.arange(task.n_classes)
        columns, union, held = self._start(task, everything), self._union(task), np.empty(0, np.int64)
        if len(task.old):
            held = self._hold_out(union.constants["target"], task)
        used = np.setdiff1d(np.arange(len(union)), held)
        current = Samples(SelectedRows(union.X, used), {"target": union.constants["target"][used]})
        offsets = self.offsets_.astype(columns.dtype)
        gradient = self._gradient(task, columns.copy(), offsets)
        self._loop().descend(columns, Plan(current, gradient, offsets=offsets))
        if len(held):
            scores = self.embedding_(union.X[held]).astype(np.float64) @ columns.T + self.offsets_
            alpha, beta = fit_correction(scores, union.constants["target"][held], task.current)
            columns[task.current] *= alpha
            self.offsets_[task.current] = alpha * self.offsets_[task.current] + beta  # a copy since _open
        self._store(everything, columns)
        self._remember(task)

    def _old_share(self, task: Task) -> float:
        """λ"""
        return len(task.old) / task.n_classes

    def _gradient(self, task: Task, before: np.ndarray, offsets: np.ndarray) -> Any:
        old, share = Blocks([task.old]), self._old_share(task)

        def gradient(scores: np.ndarray, batch: Batch) -> np.ndarray:
            distilled: Any = 0
            if share:
                teacher = batch.rows @ before.T + offsets
                distilled = old.distillation(scores, teacher) * (share / TEMPERATURE * batch.weight)[:, None]
            found = cross_entropy_gradient(scores, batch.constants["target"], (1 - share) * batch.weight)
            found[:, task.old] += distilled
            return found

        return gradient

    def _hold_out(self, classes: np.ndarray, task: Task) -> np.ndarray:
        """Numbers of the samples of ``D_t ∪ M`` that are held out for the correction, balanced over the classes.

        None if a class has a single sample, because a correction fitted without a class would suppress it.
        """
        replayed = np.flatnonzero(np.isin(classes, task.old))
        if not len(replayed) or np.bincount(classes)[task.current].min() < 2:
            return replayed[:0]
        n_old = max(1, round(self.held_out * len(replayed)))
        held = [self.rng_.choice(replayed, n_old, replace=False)]
        of_each = max(1, round(n_old / len(task.old)))
        for number in task.current:
            members = np.flatnonzero(classes == number)
            held.append(self.rng_.permutation(members)[: min(of_each, len(members) - 1)])
        return np.concatenate(held)


def fit_correction(scores: np.ndarray, target: np.ndarray, corrected: np.ndarray) -> tuple[float, float]:
    """``α, β`` that minimize the cross-entropy when ``α · score + β`` replaces the scores of some classes."""
    rows = np.arange(len(target))

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        moved = scores.copy()
        moved[:, corrected] = parameters[0] * scores[:, corrected] + parameters[1]
        residuals = softmax(moved, axis=1)
        residuals[rows, target] -= 1
        slope = residuals[:, corrected]
        by_parameters = np.array([(slope * scores[:, corrected]).sum(), slope.sum()])
        return float(np.mean(log_sum_exp(moved) - moved[rows, target])), by_parameters / len(target)

    alpha, beta = minimize(loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B").x
    return float(alpha), float(beta)
