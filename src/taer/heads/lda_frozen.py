"""Linear discriminant analysis whose old columns never change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from taer.heads._fitted import Fitted, array, number
from taer.heads._params import check_params, param
from taer.heads._validation import check_features, row_chunks
from taer.heads.base import Task
from taer.heads.statistical import LinearStatisticsHead, discriminants, log_losses, shrunk, trial_samples
from taer.statistics import ClassStatistics

_SHRINKAGES = (0.03, 0.1, 0.2, 0.3, 0.5, 0.7)
_DEFAULT = 0.5
_FOLDS = 5


@dataclass(kw_only=True, eq=False, repr=False)
class LDAFrozen(LinearStatisticsHead):
    """LDA with the covariance of the first task: no exemplars, no training, and old columns never move.

    ``w_c = Σ₁⁻¹ μ_c``. The shrinkage of ``Σ₁`` is chosen in the first task by the cross-validated log loss; a first
    task with one class, or fewer than five samples of a class, takes 0.5. :meth:`fit_covariance` takes ``Σ₁`` from
    unlabelled samples instead.
    """

    normalize: str = param("auto", "as for every closed-form head", options=("none", "l2", "sqrt-l2", "auto"))
    shrinkage: Any = param(
        "auto", "share of the mean variance, or chosen in the first task", at_least=0, at_most=1, options=("auto",)
    )

    fitted: ClassVar[dict[str, Fitted]] = {
        "shrinkage_": number(at_least=0),
        "covariance_": array("width", "width"),
        "unlabelled_": array("width", "width", optional=True),
    }

    def fit_covariance(self, X: Any) -> Self:
        """Take the covariance from unlabelled samples; then learn with ``partial_fit``, as ``fit`` forgets everything.

        Without labels it is the covariance of everything, that between classes included.
        """
        if hasattr(self, "classes_"):
            raise ValueError("the covariance is frozen since the first task; fit_covariance must come before it")
        with self._unchanged_on_error():
            check_params(self)
            X = check_features(self, X, reset=True)
            super()._fix_embedding(X)
            statistics = ClassStatistics(X.shape[1])
            for rows in row_chunks(X):
                statistics.update(self._embed(X[rows]), np.zeros(len(X[rows]), np.int64))
            self.unlabelled_: np.ndarray = statistics.covariance()
        return self

    def _fix_embedding(self, X: Any) -> None:
        if not hasattr(self, "unlabelled_"):
            super()._fix_embedding(X)
        elif X.shape[1] != len(self.unlabelled_):
            raise ValueError(
                f"the covariance was taken from samples of {len(self.unlabelled_)} features, X has {X.shape[1]}"
            )

    def _choose(self, X: Any, task: Task) -> None:
        self.shrinkage_ = self._chosen(X, task) if isinstance(self.shrinkage, str) else float(self.shrinkage)

    def _solve(self, X: Any, task: Task) -> None:
        if self.n_tasks_ == 1:
            covariance = getattr(self, "unlabelled_", self.statistics_.covariance())
            self.covariance_ = shrunk(covariance, self.shrinkage_)
            self.coef_, self.intercept_ = np.zeros((0, len(self.covariance_))), np.zeros(0)
        means = self.statistics_.means[np.argsort(self._arrival)]
        columns, offsets = discriminants(means[task.current], self.covariance_)
        self.coef_, self.intercept_ = task.reseat(self.coef_), task.reseat(self.intercept_)
        self.coef_[task.current], self.intercept_[task.current] = columns, offsets

    def _chosen(self, X: Any, task: Task) -> float:
        samples, labels = trial_samples(X, task.y)
        rows, y = self._embed(samples), np.unique(labels, return_inverse=True)[1]
        folds = stratified_folds(y, _FOLDS)
        if folds is None:
            return _DEFAULT
        losses = dict.fromkeys(_SHRINKAGES, 0.0)
        for fold in range(_FOLDS):
            seen, held = folds != fold, folds == fold
            means, covariance = class_moments(rows[seen], y[seen])
            covariance = getattr(self, "unlabelled_", covariance)
            for shrinkage in _SHRINKAGES:
                columns, offsets = discriminants(means, shrunk(covariance, shrinkage))
                losses[shrinkage] += log_losses(rows[held] @ columns.T + offsets, y[held], 1.0).sum()
        return min(losses, key=lambda shrinkage: losses[shrinkage])


def stratified_folds(y: np.ndarray, n_folds: int) -> np.ndarray | None:
    """A fold for each sample, spread over each class; nothing if that is impossible or pointless."""
    counts = np.bincount(y)
    if len(counts) < 2 or counts.min() < n_folds:
        return None
    folds = np.zeros(len(y), np.int64)
    for label in range(len(counts)):
        members = np.flatnonzero(y == label)
        folds[np.random.default_rng(label).permutation(members)] = np.arange(len(members)) % n_folds
    return folds


def class_moments(rows: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means of classes 0 … k-1 and the pooled covariance within them."""
    statistics = ClassStatistics(rows.shape[1]).update(rows, y)
    return statistics.means, statistics.covariance()
