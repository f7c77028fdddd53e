"""Bias correction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize

from taer.heads._fitted import Fitted, array
from taer.heads._params import param
from taer.heads.base import Task, log_sum_exp, softmax
from taer.heads.distillation import TEMPERATURE, Blocks
from taer.heads.sgd import Batch, Plan, Samples
from taer.heads.softmax import SoftmaxHead, cross_entropy_gradient
from taer.heads.union import UnionHead
from taer.memory import POLICIES
from taer.rows import SelectedRows


@dataclass(kw_only=True, eq=False, repr=False)
class BiC(UnionHead, SoftmaxHead):
    """BiC: distillation, then two numbers that correct the scores of the new classes.

    ``(1 - λ) · CE + λ · CE(softmax(before / T), softmax(now / T))``, the latter over the old classes, with T = 2
    and ``λ = old / all classes``, on ``D_t ∪ M`` but for a held-out part; on that part, ``α`` and ``β`` of
    ``α · score + β`` for the new classes then minimise the cross-entropy. Held out are a share of the memory
    and as many samples of each new class (Wu et al., CVPR 2019).

    Departure: the correction is folded into the columns and offsets of the classes, which go on from there.
    """

    memory: str = param("herding", "which samples are kept; fixed by the first task", options=tuple(POLICIES))
    held_out: float = param(0.1, "share of the memory kept for the correction", above=0, below=1)

    class_arrays: ClassVar[tuple[str, ...]] = ("offsets_",)
    fitted: ClassVar[dict[str, Fitted]] = {"offsets_": array("classes")}

    def _learn(self, X: Any, task: Task) -> None:
        columns = self._open_columns(X, task)
        self.offsets_: np.ndarray = task.reseat(self.offsets_ if self.n_tasks_ > 1 else np.zeros(0))
        union, held = self._union(X, task), np.empty(0, np.int64)
        if len(task.old):
            held = self._hold_out(union.constants["target"], task)
        used = np.setdiff1d(np.arange(len(union)), held)
        current = Samples(SelectedRows(union.X, used), {"target": union.constants["target"][used]})
        self._descend(columns, Plan(current, self._gradient(task, columns.copy())))
        if len(held):
            scores = self._map(union.X[held]).astype(np.float64) @ columns.T + self.offsets_
            alpha, beta = fit_correction(scores, union.constants["target"][held], task.current)
            columns[task.current] *= alpha
            self.offsets_[task.current] = alpha * self.offsets_[task.current] + beta
        self._fold(self._moving(task), columns)
        self.intercept_ += self.offsets_.astype(self.dtype_)
        self._remember(X, task)

    def _gradient(self, task: Task, before: np.ndarray) -> Any:
        old, share = Blocks([task.old]), len(task.old) / task.n_classes
        offsets = self.offsets_.astype(before.dtype)

        def gradient(scores: np.ndarray, batch: Batch) -> np.ndarray:
            scores += offsets
            kept: Any = 0
            if share:
                teacher = batch.rows @ before.T + offsets
                kept = (
                    old.distillation(scores, teacher, TEMPERATURE) * (share / TEMPERATURE * batch.weight)[:, None]
                )
            found = cross_entropy_gradient(scores, batch.constants["target"], (1 - share) * batch.weight)
            found[:, task.old] += kept
            return found

        return gradient

    def _hold_out(self, classes: np.ndarray, task: Task) -> np.ndarray:
        """Numbers of samples of ``D_t ∪ M`` on which the correction is fitted: balanced between the classes.

        None if a class has a single sample: a correction that does not see a class would silence it.
        """
        replayed = np.flatnonzero(np.isin(classes, task.old))
        if not len(replayed) or np.bincount(classes)[task.current].min() < 2:
            return replayed[:0]
        n_old = max(1, round(self.held_out * len(replayed)))
        held = [self._rng_.choice(replayed, n_old, replace=False)]
        of_each = max(1, round(n_old / len(task.old)))
        for position in task.current:
            members = np.flatnonzero(classes == position)
            held.append(self._rng_.permutation(members)[: min(of_each, len(members) - 1)])
        return np.concatenate(held)


def fit_correction(scores: np.ndarray, target: np.ndarray, corrected: np.ndarray) -> tuple[float, float]:
    """``α, β`` that minimise the cross-entropy when ``α · score + β`` replaces the scores of some classes."""
    rows = np.arange(len(target))

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        moved = scores.copy()
        moved[:, corrected] = parameters[0] * scores[:, corrected] + parameters[1]
        residuals = softmax(moved)
        residuals[rows, target] -= 1
        slope = residuals[:, corrected]
        by_parameters = np.array([(slope * scores[:, corrected]).sum(), slope.sum()])
        return float(np.mean(log_sum_exp(moved) - moved[rows, target])), by_parameters / len(target)

    alpha, beta = minimize(loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B").x
    return float(alpha), float(beta)
