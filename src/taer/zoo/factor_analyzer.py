"""One factor analyzer per class."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np

from taer.heads import exact
from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.closed_form.base import NORMALIZE, ClosedFormHead
from taer.heads.closed_form.linalg import factor_analysis, shrunk, whitener
from taer.heads.embedding import NORMALIZATIONS
from taer.heads.fitted import Fitted, array
from taer.heads.numerics import grown
from taer.heads.params import param
from taer.zoo.shared.shortlist import Shortlist


class FactorAnalyzer(
    ClosedFormHead,
    name="factor-analyzer",
    card=Card("frozen", "never", "statistics", forgets="yes", linear=False, exports=False, few_shot=False),
):
    """Factor analyzers: a generative classifier with a few directions and noise per feature for each class.

    The score of class c is ``log N(x; μ_c, L_c L_cᵀ + D_c)`` with ``factors`` columns in ``L_c`` and a diagonal ``D_c``,
    both fitted to the covariance of the class by ``iterations`` steps of EM. The published classifier has one variational
    autoencoder per class. With a linear decoder and Gaussian noise this is a factor analyzer, whose density needs no
    sampling. Each class is learned alone, so old scores never move. Stores one covariance per class.

    Departures: a linear model per class, whose covariance is first shrunk towards its mean variance.

    References
    ----------
    G. van de Ven, Z. Li, A. Tolias, "Class-Incremental Learning with Generative Classifiers", CVPR Workshops 2021.

    Examples
    --------
    >>> import numpy as np, taer
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(90, 4)) + np.repeat(np.eye(3, 4) * 6, 30, axis=0), np.repeat([0, 1, 2], 30)
    >>> head = taer.zoo.FactorAnalyzer(factors=2).partial_fit(X[:60], y[:60]).partial_fit(X[60:], y[60:])
    >>> head.score(X, y)
    1.0
    """

    normalize: str = param("auto", NORMALIZE, options=(*NORMALIZATIONS, "auto"))
    factors: int = param(8, "directions per class, at most the number of features", at_least=1)
    iterations: int = param(30, "number of EM steps", at_least=1)
    shrinkage: float = param(0.1, "fraction of the mean variance mixed into each covariance", at_least=0, at_most=1)

    fitted: ClassVar[dict[str, Fitted]] = {
        "precisions_": array("classes", "width", at_least=0, help="inverse noise variance of each feature"),
        "factors_": array(
            "classes", "factors", "width", help="directions of each class, scaled for its log-density"
        ),
        "along_": array("classes", "factors", help="mean of each class along its directions"),
    }

    @property
    def per_class(self) -> bool:
        return True

    def _solve(self, task: Task) -> None:
        statistics, width, solved = self.statistics_, len(self.embedding_.center), []
        if task.number == 1:
            rank = min(self.factors, width)
            self.precisions_, self.along_ = np.zeros((0, width), self.dtype_), np.zeros((0, rank))
            self.factors_ = np.zeros((0, rank, width), self.dtype_)
        for name in ("precisions_", "factors_", "along_"):
            setattr(self, name, grown(getattr(self, name), task.n_classes))
        for number in task.current.tolist():
            covariance = shrunk(statistics.scatters[number] / statistics.counts[number], self.shrinkage)
            loadings, noise = factor_analysis(covariance, self.along_.shape[1], self.iterations)
            scaled, mean = loadings.T / noise, statistics.means[number]
            inverse = whitener(np.eye(len(scaled)) + scaled @ loadings)
            if not np.finfo(self.dtype_).tiny < 1 / noise.max() <= 1 / noise.min() < np.finfo(self.dtype_).max:
                raise ValueError(
                    f"FactorAnalyzer: the inverse of a variance of {noise.mean():.3g} is no number of {self.dtype_}; scale "
                    "the features to about 1, or use float64"
                )
            self.precisions_[number] = exact.rounded(1 / noise[None], self.dtype_)[0]
            self.factors_[number] = exact.rounded(inverse @ scaled, self.dtype_)
            self.along_[number] = inverse @ scaled @ mean
            level = np.log(np.diag(inverse)).sum() - 0.5 * (np.log(noise) + np.square(mean) / noise).sum()
            solved.append((mean / noise, level))
        self._set(task.current, *map(np.array, zip(*solved, strict=True)))

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        wanted, rows = slice(None) if classes is None else classes, self.embedding_(X)
        factors, (linear, squares) = self.factors_[wanted], self._without_factors(rows, wanted)
        along = exact.products(rows, factors.reshape(-1, rows.shape[1])).reshape(len(rows), *factors.shape[:2])
        explained = np.square(along - self.along_[wanted]).sum(axis=2)
        return (linear - 0.5 * (squares - explained)).astype(self.dtype_)

    def _without_factors(self, rows: np.ndarray, classes: np.ndarray | slice) -> tuple[np.ndarray, np.ndarray]:
        linear = exact.products(rows, self.weights_[classes]) + self.offsets_[classes]
        return linear, exact.products(np.square(rows), self.precisions_[classes])

    def _best(self, X: np.ndarray) -> np.ndarray:
        linear, squares = self._without_factors(rows := self.embedding_(X), slice(None))
        weights = np.full(self.along_.shape, 0.5)
        make = partial(Shortlist, self.factors_, self.along_, weights)
        quick = self._derived.of(self.factors_, Shortlist, make)
        return self._best_among(X, quick(rows, linear - 0.5 * squares))
