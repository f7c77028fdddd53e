"""FeCAM: a Mahalanobis distance per class."""

from __future__ import annotations

import numpy as np

from taer.heads.card import Card
from taer.heads.closed_form.base import NORMALIZE
from taer.heads.embedding import NORMALIZATIONS, unit_rows
from taer.heads.fitted import FLOATS
from taer.heads.numerics import grown
from taer.heads.params import param
from taer.zoo.shared.low_rank import CovarianceHead, LowRank, low_rank_correlations, with_whiteners

# The smallest eigenvalue, relative to the mean variance, of the shrinkage target along the sum of all features. If that
# sum is constant, as for rows of unit length far from zero, the target would be singular, and noise would dominate.
_LEAST = 0.1
# Scores are sums of squares of features: with smaller variances they lose digits in the type of the head.
_LOST = {kind: float(np.finfo(kind).tiny / np.finfo(kind).eps) for kind in FLOATS}
_RIDGE = 1e-6  # a correlation matrix can be singular, for example if one feature is the negative of another


class FeCAM(
    CovarianceHead,
    name="fecam",
    card=Card(
        "frozen",
        old_scores="never",
        keeps="statistics",
        forgets="yes",
        linear=False,
        sums=True,
        exports=False,
        few_shot=False,
    ),
):
    """FeCAM: the nearest class by a Mahalanobis distance with the correlations within the class; old scores never move.

    Features without negative values are replaced by their square roots (Tukey), and rows are scaled to unit length. The
    covariance of each class is shrunk to ``Σ_c + gamma1·V1·I + gamma2·V2·(1 - I)``, with ``V1`` and ``V2`` its mean
    variance and mean covariance, and normalized to correlations ``R_c``. The score is
    ``-(x - μ_c)ᵀ R_c⁻¹ (x - μ_c) / 2`` with ``μ_c`` at unit length. The covariance is that of rows of unit length, shrunk
    once, as in the authors' code for transformers (their code for convolutional networks computes it before the scaling
    and shrinks twice). ``gamma2·V2`` is at least ``-0.9·gamma1·V1 / (width - 1)``, because below that the matrix is
    nearly singular, as for features with a large mean. With ``normalize="none"`` means are not scaled either. Stores one
    covariance per class.

    References
    ----------
    D. Goswami et al., "FeCAM: Exploiting the Heterogeneity of Class Distributions in Exemplar-Free Continual
    Learning", NeurIPS 2023.

    Examples
    --------
    >>> import numpy as np, taer
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(90, 4)) + np.repeat(np.eye(3, 4) * 6, 30, axis=0), np.repeat([0, 1, 2], 30)
    >>> head = taer.zoo.FeCAM().partial_fit(X[:60], y[:60]).partial_fit(X[60:], y[60:])
    >>> head.score(X, y)
    1.0
    """

    normalize: str = param("auto", NORMALIZE, options=(*NORMALIZATIONS, "auto"))
    gamma1: float = param(1.0, "weight of the mean variance", above=0)
    gamma2: float = param(1.0, "weight of the mean covariance; 0 in the paper for transformers", at_least=0)

    def _update(self, classes: np.ndarray) -> None:
        if self.gamma2 > self.gamma1:
            raise ValueError(f"FeCAM: gamma2 must be at most gamma1 = {self.gamma1:g}, got {self.gamma2:g}")
        self.weights_ = grown(self.weights_.astype(np.float64), len(self.classes_))  # means at unit length
        self.offsets_ = np.zeros(len(self.classes_))
        center = self.embedding_.center
        means = self.statistics_.means[classes] + center
        self.weights_[classes] = (means if self.embedding_.how == "none" else unit_rows(means)) - center
        found = (self._correlations(number) for number in classes.tolist())
        self.whiteners_ = with_whiteners(self, classes, (each + _RIDGE * np.eye(len(center)) for each in found))

    def _correlations(self, number: int) -> np.ndarray:
        covariance, count = self._covariance(number), self.statistics_.counts[number]
        spread = np.trace(self.statistics_.scatters[number])  # not of the covariance: weights may be tiny, too
        if 0 < spread / count / len(covariance) < _LOST[self.dtype_]:
            raise ValueError(
                "FeCAM cannot learn features of this size: their squares are lost; scale the features to about 1"
            )
        return correlations(covariance, self.gamma1, self.gamma2)

    def _centers(self) -> np.ndarray:
        return self.weights_

    def _low_rank(self) -> LowRank:
        own = (self._covariance(number) for number in range(len(self.weights_)))
        found = [low_rank_correlations(each, *_added(each, self.gamma1, self.gamma2), _RIDGE) for each in own]
        return LowRank(found, self.weights_, self.whiteners_, self.offsets_)

    def _covariance(self, number: int) -> np.ndarray:
        covariance: np.ndarray = self.statistics_.scatters[number] / max(1, self.statistics_.counts[number] - 1)
        return covariance


def correlations(covariance: np.ndarray, gamma1: float, gamma2: float) -> np.ndarray:
    """Correlations from the covariance, shrunk towards its mean variance and mean covariance."""
    variance, between = _added(covariance, gamma1, gamma2)
    if variance <= 0:
        return np.eye(len(covariance))
    shrunk = covariance + between + (variance - between) * np.eye(len(covariance))
    deviations = np.sqrt(np.diag(shrunk))
    return shrunk / np.outer(deviations, deviations)


def _added(covariance: np.ndarray, gamma1: float, gamma2: float) -> tuple[float, float]:
    """The numbers that are added to all variances and to all covariances."""
    width = len(covariance)
    variance = np.trace(covariance) / width * gamma1
    between = gamma2 * (covariance.sum() - np.trace(covariance)) / max(1, width * (width - 1))
    return variance, max(between, (_LEAST - 1) * variance / max(1, width - 1))
