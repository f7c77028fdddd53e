"""TaER with replay in closed form."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize

from taer.heads._fitted import Fitted, count, value_of
from taer.heads._params import param
from taer.heads._validation import row_chunks
from taer.heads.base import Task, log_sum_exp
from taer.heads.linear import LinearHead
from taer.statistics import ClassStatistics

_KEPT = 1 << 24  # values of a task that are kept in memory


@dataclass(kw_only=True, eq=False, repr=False)
class TaERGauss(LinearHead):
    """TaER without exemplars: the loss on old classes is bounded in closed form; old columns never move.

    For an old class of mean ``μ_c`` and the pooled covariance ``Σ`` the expected cross-entropy is at most
    ``log Σ_i exp((w_i - w_c)·μ_c + ½ (w_i - w_c)ᵀ Σ (w_i - w_c))``. With λ = old / all classes, task t minimises over its
    own columns ``(1 - λ)·CE(D_t) + λ·(mean bound over old classes) + l2/2·|W_t|²``: convex and smooth, so L-BFGS finds the
    one minimum. Old classes enter both terms as one constant per sample and per class. A large task is read anew for
    every step of the optimiser.
    """

    l2: float = param(1e-3, "penalty on the new columns", above=0)
    max_iter: int = param(100, "steps of the optimiser", at_least=1)

    fitted: ClassVar[dict[str, Fitted]] = {
        "statistics_": value_of(ClassStatistics, width="width", more=1),  # and a one at the end of each row
        "n_iter_": count(),
    }

    def _learn(self, X: Any, task: Task) -> None:
        self._fix_map(X)
        self._reseat(task)
        numbers = np.argsort(self._arrival)[task.y]
        pieces = Pieces(X, self._map)
        statistics: Any = copy.copy(getattr(self, "statistics_", None)) or ClassStatistics(X.shape[1] + 1)
        for part, rows in pieces:
            statistics.update(rows, numbers[part])
        self.statistics_: ClassStatistics = statistics
        means = self.statistics_.means[np.argsort(self._arrival)]
        old_columns = self._with_offsets(task.old)
        bound = Bound(means[task.old], old_columns, self.statistics_.covariance())
        target, share = np.searchsorted(task.current, task.y), len(task.old) / task.n_classes
        resting = np.concatenate([log_sum_exp(rows @ old_columns.T) for _, rows in pieces])

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            W = flat.reshape(len(task.current), -1)
            loss, gradient = 0.0, np.zeros_like(W)
            for part, rows in pieces:
                scores, at_target = rows @ W.T, (np.arange(len(rows)), target[part])
                total = np.logaddexp(resting[part], log_sum_exp(scores))
                loss += (1 - share) / len(X) * np.sum(total - scores[at_target])
                residuals = np.exp(scores - total[:, None])
                residuals[at_target] -= 1
                gradient += (1 - share) / len(X) * residuals.T @ rows
            if share:
                bound_loss, bound_gradient = bound(W)
                loss, gradient = loss + share * bound_loss, gradient + share * bound_gradient
            loss += 0.5 * self.l2 * np.square(W).sum()
            return float(loss), (gradient + self.l2 * W).ravel()

        start = np.zeros((len(task.current), X.shape[1] + 1))
        known = np.isin(task.current, task.new, invert=True)
        start[known] = self._with_offsets(task.current[known])
        found = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": self.max_iter})
        self.n_iter_ = max(1, int(found.nit))
        columns = found.x.reshape(start.shape)
        self._fold(task.current, columns[:, :-1])
        self.intercept_[task.current] += columns[:, -1].astype(self.dtype_)

    def _forget_number(self, number: int) -> None:
        self.statistics_ = self.statistics_.without(number)

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


class Pieces:
    """Mapped rows with a one at their end, in pieces: made once if they are few, else whenever they are needed."""

    def __init__(self, X: Any, embed: Callable[[np.ndarray], np.ndarray]) -> None:
        self.X, self.embed = X, embed
        self.kept = list(self._made()) if X.shape[0] * X.shape[1] <= _KEPT else None

    def __iter__(self) -> Iterator[tuple[slice, np.ndarray]]:
        return self._made() if self.kept is None else iter(self.kept)

    def _made(self) -> Iterator[tuple[slice, np.ndarray]]:
        for part in row_chunks(self.X):
            rows = self.embed(self.X[part]).astype(np.float64)
            yield part, np.column_stack([rows, np.ones(len(rows))])
