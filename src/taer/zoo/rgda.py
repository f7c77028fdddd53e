"""Regularized Gaussian discriminant analysis."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from taer.heads import exact
from taer.heads.card import Card
from taer.heads.closed_form.base import NORMALIZE
from taer.heads.closed_form.linalg import shrunk, whitener
from taer.heads.embedding import NORMALIZATIONS
from taer.heads.fitted import Fitted, array
from taer.heads.params import param
from taer.threads import spread
from taer.zoo.shared.low_rank import Covariance, CovarianceHead, LowRank, thin_root


class RGDA(
    CovarianceHead,
    name="rgda",
    card=Card(
        "closed form",
        old_scores="move",
        keeps="statistics",
        forgets="yes",
        linear=False,
        sums=True,
        exports=False,
        few_shot=False,
    ),
):
    """RGDA: per-class Gaussians shrunk towards the covariance of all data so far; old scores move.

    ``S_c = (1 - a)·B + a·S̃_c`` with ``B`` the pooled covariance and ``S̃_c`` that of the class, both shrunk towards a
    multiple of the identity. This is between SLDA (a = 0) and separate Gaussians (a = 1). Stores one covariance per
    class.

    References
    ----------
    J. H. Friedman, "Regularized Discriminant Analysis", JASA 1989.

    Examples
    --------
    >>> import numpy as np, taer
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(90, 4)) + np.repeat(np.eye(3, 4) * 6, 30, axis=0), np.repeat([0, 1, 2], 30)
    >>> head = taer.zoo.RGDA().partial_fit(X[:60], y[:60]).partial_fit(X[60:], y[60:])
    >>> head.score(X, y)
    1.0
    """

    normalize: str = param("auto", NORMALIZE, options=(*NORMALIZATIONS, "auto"))
    own: float = param(0.1, "weight of the covariance of the class itself", at_least=0, at_most=1)
    shrinkage: float = param(0.1, "fraction of the mean variance mixed into each covariance", at_least=0, at_most=1)

    fitted: ClassVar[dict[str, Fitted]] = {
        "weights_": array("classes", 0, help="empty: the scores are not linear"),
        "offsets_": array("classes", help="half the log-determinant of each inverse covariance"),
        "means_": array("classes", "width", help="means of the classes, in order of arrival"),
    }

    def _update(self, classes: np.ndarray) -> None:
        statistics = self.statistics_
        base = shrunk(statistics.covariance(), self.shrinkage)
        self.means_, self.offsets_ = statistics.means.copy(), np.empty(len(statistics.labels))
        self.whiteners_ = np.empty((len(self.means_), *base.shape), self.dtype_)
        self.weights_ = np.zeros((len(self.means_), 0), self.dtype_)
        for number, count in enumerate(statistics.counts):
            own = shrunk(statistics.scatters[number] / count, self.shrinkage) if self._varies(number) else base
            inverse = whitener((1 - self.own) * base + self.own * own)
            self.whiteners_[number] = exact.rounded(inverse, self.dtype_)
            self.offsets_[number] = np.log(np.diag(inverse)).sum()

    def _varies(self, number: int) -> bool:
        """Whether a class has a covariance of its own: at least two samples, and not all equal."""
        return bool(self.statistics_.counts[number] >= 2 and self.statistics_.scatters[number].any())

    def _centers(self) -> np.ndarray:
        return self.means_

    def _low_rank(self) -> LowRank:
        statistics = self.statistics_
        base, vectors = np.linalg.eigh(shrunk(statistics.covariance(), self.shrinkage))

        def covariance(number: int) -> Covariance:
            own = statistics.scatters[number] / max(1, statistics.counts[number])
            weight = self.own if self._varies(number) else 0
            loadings = np.sqrt(weight * (1 - self.shrinkage)) * thin_root(own) @ vectors
            noise = (1 - weight) * base + weight * self.shrinkage * np.trace(own) / len(own)
            return Covariance(noise, loadings, np.ones(len(loadings)), vectors.T)

        covariances = spread(covariance, range(len(self.means_)))
        return LowRank(covariances, self.means_, self.whiteners_, self.offsets_)
