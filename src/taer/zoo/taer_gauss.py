"""TaER with replay in closed form."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize

from taer.heads import exact
from taer.heads.base import Head, Task
from taer.heads.card import Card
from taer.heads.embedding import Standardize
from taer.heads.fitted import Fitted, array, count, value_of
from taer.heads.numerics import grown, log_sum_exp
from taer.heads.params import param
from taer.rows import row_chunks
from taer.statistics import ClassStatistics

_IN_MEMORY = 1 << 24  # values of a task that are held in memory


class TaERGauss(
    Head,
    name="taer-gauss",
    card=Card("frozen", old_scores="never", keeps="statistics", forgets="no", boundaries=True, few_shot=False),
):
    """TaER without exemplars: the loss on old classes is bounded in closed form; old columns never move.

    For an old class of mean ``μ_c`` and the pooled covariance ``Σ`` the expected cross-entropy is at most
    ``log Σ_i exp((w_i - w_c)·μ_c + ½ (w_i - w_c)ᵀ Σ (w_i - w_c))``. With λ = old / all classes, task t minimizes over its
    own columns ``(1 - λ)·CE(D_t) + λ·(mean bound over old classes) + l2/2·|W_t|²``: convex and smooth, so L-BFGS finds the
    one minimum. Old classes enter both terms as one constant per sample and per class. A large task is read again for
    every step of the optimizer.

    References
    ----------
    ``docs/evidence/beyond.md`` of this project.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.TaERGauss().partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    weighs: ClassVar[bool] = True
    standardize: str = param(
        "scale",
        "fixed map fitted on the first task: subtract the mean, or also divide by the (shrunk) standard deviation",
        options=("none", "center", "scale"),
    )
    l2: float = param(1e-3, "penalty on the new columns", above=0)
    max_iter: int = param(100, "maximum number of steps of the optimizer", at_least=1)

    fitted: ClassVar[dict[str, Fitted]] = {
        "embedding_": value_of(Standardize, width="width", help="map of the features, fixed by the first task"),
        "weights_": array(
            "classes", "width", help="weight vectors after that map, one per class in order of arrival"
        ),
        "offsets_": array("classes", help="intercepts of the scores, one per class in order of arrival"),
        "statistics_": value_of(
            ClassStatistics, width="width", more=1, help="counts, means and scatter of the classes after that map"
        ),
        "n_iter_": count(help="number of steps of the optimizer in the last task"),
    }

    def _learn(self, task: Task) -> None:
        width = task.X.shape[1]
        if task.number == 1:
            self.embedding_ = Standardize.fit(task.X, self.standardize)
            self.weights_, self.offsets_ = np.zeros((0, width), self.dtype_), np.zeros(0)
        known = np.column_stack([self.weights_, self.offsets_]).astype(np.float64)
        pieces = Pieces(task.X, self.embedding_)
        statistics = copy.copy(self.statistics_) if task.number > 1 else ClassStatistics(width + 1)
        for part, rows in pieces:
            statistics.update(rows, task.y[part], None if task.weight is None else task.weight[part])
        self.statistics_: ClassStatistics = statistics
        start = grown(known, task.n_classes)[task.current]
        found = minimize(
            self._objective(task, pieces, known),
            start.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": self.max_iter},
        )
        self.n_iter_ = max(1, int(found.nit))
        columns = found.x.reshape(start.shape)
        self.weights_, self.offsets_ = grown(self.weights_, task.n_classes), grown(self.offsets_, task.n_classes)
        self.weights_[task.current] = exact.rounded(columns[:, :-1], self.dtype_)
        self.offsets_[task.current] = columns[:, -1]

    def _objective(self, task: Task, pieces: Pieces, known: np.ndarray) -> Callable[..., tuple[float, np.ndarray]]:
        """The loss and its gradient as a function of the columns of the current classes, with offsets at their ends."""
        means, old_columns = self.statistics_.means[task.old], known[task.old]
        bound = Bound(means, old_columns, self.statistics_.covariance())
        target, share = np.searchsorted(task.current, task.y), len(task.old) / task.n_classes  # λ
        resting = np.concatenate([log_sum_exp(rows @ old_columns.T) for _, rows in pieces])
        weight = np.ones(len(task.X)) if task.weight is None else task.weight
        weight = (1 - share) * weight / weight.sum()

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            W = flat.reshape(len(task.current), -1)
            loss, gradient = 0.5 * self.l2 * np.square(W).sum(), self.l2 * W
            for part, rows in pieces:
                scores, at_target = rows @ W.T, (np.arange(len(rows)), target[part])
                total = np.logaddexp(resting[part], log_sum_exp(scores))
                loss += weight[part] @ (total - scores[at_target])
                residuals = np.exp(scores - total[:, None])
                residuals[at_target] -= 1
                gradient += (residuals * weight[part, None]).T @ rows
            if share:
                bound_loss, bound_gradient = bound(W)
                loss, gradient = loss + share * bound_loss, gradient + share * bound_gradient
            return float(loss), gradient.ravel()

        return objective


class Bound:
    """The mean over old classes of the bound on their expected cross-entropy, as a function of new columns."""

    def __init__(self, means: np.ndarray, columns: np.ndarray, covariance: np.ndarray) -> None:
        self.means, self.columns, self.covariance = means, columns, covariance
        self.spread = columns @ covariance
        self.own_variance = (self.spread * columns).sum(axis=1)
        self.own_score = (means * columns).sum(axis=1)
        among = means @ columns.T - self.own_score[:, None]
        among += 0.5 * (self.own_variance + self.own_variance[:, None]) - columns @ self.spread.T
        self.resting = log_sum_exp(among)  # the sum over old classes, one constant per class

    def __call__(self, W: np.ndarray) -> tuple[float, np.ndarray]:
        spread = W @ self.covariance
        exponents = self.means @ W.T - self.own_score[:, None] - self.columns @ spread.T
        exponents += 0.5 * ((spread * W).sum(axis=1) + self.own_variance[:, None])
        total = np.logaddexp(self.resting, log_sum_exp(exponents))
        weights = np.exp(exponents - total[:, None]) / len(total)
        gradient = weights.T @ self.means + weights.sum(axis=0)[:, None] * spread - weights.T @ self.spread
        return float(total.mean()), gradient


class Pieces:
    """Embedded rows with a one at the end, in pieces: computed once if they are few, else whenever they are needed."""

    def __init__(self, X: Any, embed: Callable[[np.ndarray], np.ndarray]) -> None:
        self.X, self.embed = X, embed
        self.in_memory = list(self._made()) if X.shape[0] * X.shape[1] <= _IN_MEMORY else None

    def __iter__(self) -> Iterator[tuple[slice, np.ndarray]]:
        return self._made() if self.in_memory is None else iter(self.in_memory)

    def _made(self) -> Iterator[tuple[slice, np.ndarray]]:
        for part in row_chunks(self.X):
            rows = self.embed(self.X[part]).astype(np.float64)
            yield part, np.column_stack([rows, np.ones(len(rows))])
