"""HyCal: cosines and Mahalanobis distances, mixed by the number of samples of a class."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import expit, ndtr

from taer.heads import exact
from taer.heads.card import Card
from taer.heads.closed_form.base import NORMALIZE, ClosedFormHead
from taer.heads.closed_form.linalg import squared_distances
from taer.heads.embedding import NORMALIZATIONS, unit_rows
from taer.heads.fitted import Fitted
from taer.heads.params import param
from taer.zoo.shared.low_rank import WHITENERS, with_whiteners

_ONE = 1e-3  # variance of a class of one sample, as in the authors' code
_SPREAD = 1e-6  # the least standard deviation by which scores are divided


class HyCal(
    ClosedFormHead,
    name="hycal",
    card=Card(
        "closed form",
        old_scores="move",
        keeps="statistics",
        forgets="yes",
        linear=False,
        sums=True,
        exports=False,
    ),
):
    """HyCal: cosine and Mahalanobis scores, each standardized over the classes, mixed by number of samples; scores move.

    Rows have unit length. The prototype ``μ_c`` of a class is its mean at unit length, and
    ``P_c = (Σ (x - μ_c)(x - μ_c)ᵀ / (n_c - 1) + shrinkage·I)⁻¹``. For a sample, the cosines with all prototypes are
    standardized (mean 0, standard deviation 1 over the classes) and mapped by the normal distribution function to
    ``s_c``; so are the negative distances ``-(x - μ_c)ᵀ P_c (x - μ_c)``, to ``m_c``. The score is
    ``(1 - w_c) s_c + w_c m_c`` with ``w_c = 1 / (1 + exp(-(n_c - least)/scale))`` for classes of at least ``least``
    samples, and ``s_c`` for others. The distance to the background, which the paper subtracts, is the same for all
    classes of a sample: standardizing removes it. Old scores move with the classes over which they are standardized.

    With ``normalize="none"`` only the cosines are of unit vectors; distances are from the mean of the class, and
    ``shrinkage`` is a fraction of the mean squared length of its rows.

    Departures: the features of images alone, where the paper adds those of the class name in CLIP (``fusion=None`` of the
    authors' code). A class that returns has the statistics of all its samples; in the authors' code the last ones
    replace them. Stores one scatter and one matrix per class.

    References
    ----------
    E. Lee et al., "HyCal: A Training-Free Prototype Calibration Method for Cross-Discipline Few-Shot Class-Incremental
    Learning", CVPR 2026.

    Examples
    --------
    >>> import numpy as np, taer
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(90, 4)) + np.repeat(np.eye(3, 4) * 6, 30, axis=0), np.repeat([0, 1, 2], 30)
    >>> head = taer.zoo.HyCal().partial_fit(X[:60], y[:60]).partial_fit(X[60:], y[60:])
    >>> head.score(X, y) > 0.95
    True
    """

    normalize: str = param("l2", NORMALIZE, options=(*NORMALIZATIONS, "auto"))
    shrinkage: float = param(1e-3, "added to the variances of a class", above=0)
    least: int = param(20, "samples from which on a class has a Mahalanobis distance", at_least=1)
    scale: float = param(5.0, "how slowly its weight grows with further samples", above=0)

    fitted: ClassVar[dict[str, Fitted]] = WHITENERS

    @property
    def per_class(self) -> bool:
        return True

    def _update(self, classes: np.ndarray) -> None:
        center = self.embedding_.center
        means = self.statistics_.means[classes] + center
        apart = (means if self.embedding_.how == "none" else unit_rows(means)) - center
        self._set(classes, apart, apart @ center)
        around = (self._shrunk(*each) for each in zip(classes.tolist(), apart, strict=True))
        self.whiteners_ = with_whiteners(self, classes, around)

    def _shrunk(self, number: int, prototype: np.ndarray) -> np.ndarray:
        shrinkage = self._square(number) * self.shrinkage
        return self._covariance(number, prototype) + shrinkage * np.eye(len(prototype))

    def _covariance(self, number: int, prototype: np.ndarray) -> np.ndarray:
        """The covariance of a class around its prototype, which is not its mean."""
        count, shift = self.statistics_.counts[number], self.statistics_.means[number] - prototype
        if count <= 1:
            return self._square(number) * _ONE * np.eye(len(shift))
        around: np.ndarray = self.statistics_.scatters[number] + count * np.outer(shift, shift)
        return around / (count - 1)

    def _square(self, number: int) -> float:
        """The mean squared length of a class's rows: 1, unless they are not scaled."""
        if self.embedding_.how != "none":
            return 1.0
        mean = self.statistics_.means[number] + self.embedding_.center
        spread = np.trace(self.statistics_.scatters[number]) / self.statistics_.counts[number]
        return float(mean @ mean + spread) or 1.0

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        rows, counts = self.embedding_(X), self.statistics_.counts
        scores = _standardized(self._cosines(rows))
        measured = np.flatnonzero(counts >= self.least)
        if len(measured):
            near = np.stack(
                [-squared_distances(rows, self.weights_[c], self.whiteners_[c]) for c in self._all()], 1
            )
            weights = expit((counts[measured] - self.least) / self.scale)
            scores[:, measured] = (1 - weights) * scores[:, measured] + weights * _standardized(near)[:, measured]
        return (scores if classes is None else scores[:, classes]).astype(self.dtype_)

    def _cosines(self, rows: np.ndarray) -> np.ndarray:
        if self.embedding_.how != "none":
            # x·(μ - center): less than the cosine by a number that is the same for all classes
            return exact.products(rows, self.weights_) + self.offsets_
        center = self.embedding_.center
        prototypes = unit_rows(self.weights_ + center)
        found: np.ndarray = exact.products(rows, prototypes) + prototypes @ center
        # of size one instead of divided by the length of the row, because scores are standardized
        return found / np.maximum(np.abs(found).max(axis=1, keepdims=True), np.finfo(float).tiny)

    def _all(self) -> range:
        return range(len(self.weights_))


def _standardized(scores: np.ndarray) -> np.ndarray:
    """Scores of each row with mean 0 and standard deviation 1, then mapped to their quantiles of a normal distribution."""
    apart = np.ascontiguousarray(scores - scores.mean(axis=1, keepdims=True))
    variances = np.square(apart).sum(axis=1, keepdims=True) / max(1, scores.shape[1] - 1)
    quantiles: np.ndarray = ndtr(apart / np.maximum(np.sqrt(variances), _SPREAD))
    return quantiles
