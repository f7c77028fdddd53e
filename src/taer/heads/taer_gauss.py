"""TaER with replay in closed form."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from taer.heads._params import param
from taer.heads._validation import row_chunks
from taer.heads.base import Task, log_sum_exp
from taer.heads.linear import LinearHead
from taer.statistics import ClassStatistics


@dataclass(kw_only=True, eq=False, repr=False)
class TaERGauss(LinearHead):
    """TaER without exemplars: the loss on old classes is bounded in closed form; old columns never move.

    For an old class of mean ``μ_c`` and the pooled covariance ``Σ`` the expected cross-entropy is at most
    ``log Σ_i exp((w_i - w_c)·μ_c + ½ (w_i - w_c)ᵀ Σ (w_i - w_c))``. With λ = old / all classes, task t minimises over its
    own columns ``(1 - λ)·CE(D_t) + λ·(mean bound over old classes) + l2/2·|W_t|²``: convex and smooth, so L-BFGS finds the
    one minimum. Old classes enter both terms as one constant per sample and per class. The whole task is in memory.
    """

    l2: float = param(1e-3, "penalty on the new columns", above=0)
    max_iter: int = param(100, "steps of the optimiser", at_least=1)

    def _learn(self, X: Any, task: Task) -> None:
        self._fix_map(X)
        self._reseat(task)
        rows = with_one(np.concatenate([self._map(X[part]) for part in row_chunks(X)]).astype(np.float64))
        statistics: Any = copy.copy(getattr(self, "statistics_", None)) or ClassStatistics(rows.shape[1])
        self.statistics_: ClassStatistics = statistics.update(rows, np.argsort(self._arrival)[task.y])
        means = self.statistics_.means[np.argsort(self._arrival)]
        old_columns = self._with_offsets(task.old)
        bound = Bound(means[task.old], old_columns, self.statistics_.covariance())
        target, share = np.searchsorted(task.current, task.y), len(task.old) / task.n_classes
        resting = log_sum_exp(rows @ old_columns.T)

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            W = flat.reshape(len(task.current), -1)
            scores = rows @ W.T
            total = np.logaddexp(resting, log_sum_exp(scores))
            residuals = np.exp(scores - total[:, None])
            residuals[np.arange(len(rows)), target] -= 1
            loss = (1 - share) * np.mean(total - scores[np.arange(len(rows)), target])
            gradient = (1 - share) / len(rows) * residuals.T @ rows
            if share:
                bound_loss, bound_gradient = bound(W)
                loss, gradient = loss + share * bound_loss, gradient + share * bound_gradient
            loss += 0.5 * self.l2 * np.square(W).sum()
            return float(loss), (gradient + self.l2 * W).ravel()

        start = np.zeros((len(task.current), rows.shape[1]))
        known = np.isin(task.current, task.new, invert=True)
        start[known] = self._with_offsets(task.current[known])
        found = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": self.max_iter})
        self.n_iter_ = max(1, int(found.nit))
        columns = found.x.reshape(start.shape)
        self._fold(task.current, columns[:, :-1])
        self.intercept_[task.current] += columns[:, -1].astype(self.dtype_)

    def _with_offsets(self, classes: np.ndarray) -> np.ndarray:
        """Columns of known classes in the mapped space, each with its offset at the end."""
        coef = self.coef_[classes].astype(np.float64)
        return np.column_stack([coef * self.scale_, self.intercept_[classes] + coef @ self.mean_])


class Bound:
    """The mean over old classes of the bound on their expected cross-entropy, as a function of new columns."""

    def __init__(self, means: np.ndarray, columns: np.ndarray, covariance: np.ndarray) -> None:
        self.means, self.columns, self.covariance = means, columns, covariance
        self.spread = columns @ covariance
        self.own_variance = (self.spread * columns).sum(axis=1)
        self.own_score = (means * columns).sum(axis=1)
        among = means @ columns.T - self.own_score[:, None]
        among += 0.5 * (self.own_variance + self.own_variance[:, None]) - columns @ self.spread.T
        self.resting = log_sum_exp(among)  # the sum over old classes: one constant each

    def __call__(self, W: np.ndarray) -> tuple[float, np.ndarray]:
        spread = W @ self.covariance
        exponents = self.means @ W.T - self.own_score[:, None] - self.columns @ spread.T
        exponents += 0.5 * ((spread * W).sum(axis=1) + self.own_variance[:, None])
        total = np.logaddexp(self.resting, log_sum_exp(exponents))
        weights = np.exp(exponents - total[:, None]) / len(total)
        gradient = weights.T @ self.means + weights.sum(axis=0)[:, None] * spread - weights.T @ self.spread
        return float(total.mean()), gradient


def with_one(rows: np.ndarray) -> np.ndarray:
    return np.column_stack([rows, np.ones(len(rows))])
