"""Online elastic weight consolidation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from taer.heads._fitted import Fitted, array
from taer.heads._params import param
from taer.heads._validation import row_chunks
from taer.heads.base import Task, softmax
from taer.heads.sgd import Plan
from taer.heads.softmax import SoftmaxHead


@dataclass(kw_only=True, eq=False, repr=False)
class OnlineEWC(SoftmaxHead):
    """Online EWC: weights that mattered to earlier tasks are pulled back to where they were.

    ``CE(D_t) + e_lambda · Σ F (W - W*)²`` with ``W*`` the weights at the end of the last task and a running
    diagonal Fisher information ``F ← gamma · F + F_t`` (Schwarz et al., ICML 2018). As in the public rerun that
    the paper's comparison rests on, ``F_t`` is the mean over the task of ``p_y · (∂ log p_y / ∂W)²`` at the
    true label; for a linear head that is one matrix product.

    Departure: the penalty is stepped implicitly, ``W ← (W - lr·g + c·W*) / (1 + c)`` with ``c = 2·lr·e_lambda·F``:
    the same minimum, and stable however large the penalty is.
    """

    lr: float = param(0.03, "learning rate", above=0)
    e_lambda: float = param(10.0, "strength of the penalty", at_least=0)
    gamma: float = param(1.0, "what is kept of the Fisher information of earlier tasks", at_least=0)

    class_arrays: ClassVar[tuple[str, ...]] = ("fisher_",)
    fitted: ClassVar[dict[str, Fitted]] = {"fisher_": array("classes", "width", at_least=0)}

    def _plan(self, X: Any, task: Task, columns: np.ndarray) -> Plan:
        fisher = self.fisher_ if self.n_tasks_ > 1 else np.zeros((0, X.shape[1]))
        self.fisher_: np.ndarray = task.reseat(fisher)
        anchor = columns.copy()
        pull = (2 * self.lr * self.e_lambda * self.fisher_).astype(columns.dtype)

        def step(columns: np.ndarray, gradient: np.ndarray) -> None:
            columns -= self.lr * gradient
            columns += pull * anchor
            columns /= 1 + pull

        return replace(super()._plan(X, task, columns), step=step)

    def _finish(self, X: Any, task: Task) -> None:
        columns, total = self._unfold(np.arange(task.n_classes)), np.zeros_like(self.fisher_)
        for rows in row_chunks(X, width=max(X.shape[1], task.n_classes)):
            mapped = self._map(X[rows])
            total += fisher_sum(mapped, softmax(mapped @ columns.T), task.y[rows])
        self.fisher_ = self.gamma * self.fisher_ + total / len(X)


def fisher_sum(rows: np.ndarray, probabilities: np.ndarray, target: np.ndarray) -> np.ndarray:
    """``Σ_x p_y(x) · (h ⊗ (p - onehot(y)))²``, squared entry by entry, as one product."""
    at_target = (np.arange(len(target)), target)
    weight, residuals = probabilities[at_target].copy(), probabilities.astype(np.float64)
    residuals[at_target] -= 1
    product: np.ndarray = (weight[:, None] * residuals**2).T @ np.square(rows, dtype=np.float64)
    return product
