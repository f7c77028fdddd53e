"""The base class of heads with a full covariance for each class, and bounds of their scores.

The covariance of a class with few samples is diagonal, in a basis that all classes share, except along the directions of
its samples. By Woodbury's identity so is its inverse, and a distance needs those directions instead of a square matrix.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import lapack

from taer.heads import exact
from taer.heads.closed_form.base import ClosedFormHead
from taer.heads.closed_form.linalg import squared_distances, whitener
from taer.heads.fitted import Fitted, array
from taer.heads.numerics import grown
from taer.threads import spread
from taer.zoo.shared.shortlist import Shortlist

MOST = 64  # samples of a class; with more, reading their directions takes as long as reading the matrices
AFTER = 64  # answers, which take about as long as making the bounds
_NEGLIGIBLE = 1e-10  # of the largest variance: below it, what is left of a scatter is rounding
_SHORT, _LONG = (float(np.finfo(kind).eps) for kind in (np.float32, np.float64))


WHITENERS = {
    "whiteners_": array(
        "classes",
        "width",
        "width",
        triangular=True,
        help="inverse Cholesky factors of the matrix of each class",
    )
}


def with_whiteners(head: Any, classes: np.ndarray, matrices: Iterable[np.ndarray]) -> np.ndarray:
    """The whiteners of a head, with those of the matrices of some classes."""
    width = len(head.embedding_.center)
    before = head.whiteners_ if hasattr(head, "whiteners_") else np.zeros((0, width, width), np.float32)
    found = grown(before, len(head.classes_))
    for number, matrix in zip(classes.tolist(), matrices, strict=True):
        found[number] = exact.rounded(whitener(matrix), np.float32)
    return found


class Covariance(NamedTuple):
    """``diag(noise) + Σ_k signs_k loadings_k loadings_kᵀ``, in a basis given by the rows of ``basis``, if any."""

    noise: np.ndarray
    loadings: np.ndarray
    signs: np.ndarray
    basis: np.ndarray | None = None


class LowRank:
    """Bounds of the scores ``offset_c - |W_c (x - μ_c)|² / 2``, where ``W_c`` is near an inverse root of a covariance.

    How far the covariances are from the stored ``W_c`` is measured here, class by class, so the bounds hold for any
    covariances; they are useful if these are near.
    """

    def __init__(
        self, covariances: list[Covariance], means: np.ndarray, whiteners: np.ndarray, offsets: np.ndarray
    ) -> None:
        n_classes, width = means.shape
        self.basis, self.offsets = covariances[0].basis, offsets
        self.lengths = np.sqrt(np.square(means).sum(axis=1))
        means = means if self.basis is None else means @ self.basis.T
        rank = max(len(each.loadings) for each in covariances)
        directions = np.zeros((n_classes, rank, width), np.float32)
        weights, along = np.zeros((n_classes, rank)), np.zeros((n_classes, rank))
        self.precisions, self.apart, self.norms = (
            np.empty((n_classes, width)),
            np.empty(n_classes),
            np.empty(n_classes),
        )

        def invert(number: int) -> None:
            noise, loadings, signs, _ = covariances[number]
            if noise.min() <= 0:  # without shrinkage; any score is possible
                self.precisions[number], self.norms[number], self.apart[number] = 0, 0, np.inf
                return
            used, scaled = slice(len(loadings)), loadings / noise
            spectrum, vectors = np.linalg.eigh(np.diag(signs) + scaled @ loadings.T)
            directions[number, used] = (vectors / np.sqrt(np.abs(spectrum))).T @ scaled
            weights[number, used] = 0.5 * np.sign(spectrum)
            self.precisions[number] = 1 / noise
            own = directions[number, used].astype(np.float64)
            along[number, used] = own @ means[number]
            stored = whiteners[number].astype(np.float64)
            self.norms[number] = np.linalg.norm(stored)
            stored = stored if self.basis is None else stored @ self.basis.T
            difference = stored.T @ stored + (own.T * np.sign(spectrum)) @ own
            difference.flat[:: width + 1] -= self.precisions[number]
            self.apart[number] = np.linalg.norm(difference)

        spread(invert, range(n_classes))
        self.linear = self.precisions * means
        self.levels = (self.linear * means).sum(axis=1)
        self.quick = Shortlist(directions, along, weights)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Whether each class can have the highest score of each row."""
        width = rows.shape[1]
        lengths = np.sqrt(np.square(rows).sum(axis=1))[:, None] + self.lengths  # at least those of x - μ
        rows = rows if self.basis is None else rows @ self.basis.T
        squares = np.square(rows) @ self.precisions.T + self.levels
        distances = squares - 2 * (rows @ self.linear.T)
        with np.errstate(over="ignore", invalid="ignore"):
            # The measured difference; the rounding of W (x - μ) where scores are computed; and that of the sums here.
            wrong = self.apart * np.square(lengths) + 8 * width * _LONG * squares
            rounding = (width + 4) * _SHORT * self.norms * lengths
            wrong += 2 * rounding * np.sqrt(np.maximum(distances, 0) + wrong) + np.square(rounding)
            wrong += (width + 4) * _SHORT * np.maximum(distances, 0)
            return self.quick(rows, self.offsets - 0.5 * distances, 0.5 * wrong)


def thin_root(scatter: np.ndarray) -> np.ndarray:
    """Rows ``R``, as few as its rank, with ``Rᵀ R`` equal to a scatter up to rounding: Cholesky's factor with pivots."""
    factor, pivots, rank, _ = lapack.dpstrf(scatter, tol=_NEGLIGIBLE * float(scatter.diagonal().max()))
    root = np.zeros((rank, len(scatter)))
    root[:, pivots - 1] = np.triu(factor[:rank])
    return root


class _Asked:
    """The number of answers of a head, and its bounds once there were enough."""

    answers = 0
    bounds: LowRank | None = None


class CovarianceHead(ClosedFormHead):
    """A head with a full covariance for each class, which answers by bounds if no class has many samples."""

    fitted: ClassVar[dict[str, Fitted]] = WHITENERS

    @property
    def per_class(self) -> bool:
        return True

    def _centers(self) -> np.ndarray:
        """The points that distances to the classes are measured from."""
        raise NotImplementedError

    def _low_rank(self) -> LowRank:
        """Bounds of the scores, for classes of few samples."""
        raise NotImplementedError

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        wanted, centers = np.arange(len(self.classes_)) if classes is None else classes, self._centers()
        rows, scores = self.embedding_(X), np.empty((len(X), len(wanted)))
        for at, number in enumerate(wanted):
            distances = squared_distances(rows, centers[number], self.whiteners_[number])
            scores[:, at] = self.offsets_[number] - 0.5 * distances
        return scores.astype(self.dtype_)

    def _best(self, X: np.ndarray) -> np.ndarray:
        if self.statistics_.counts.max() > MOST:
            return super()._best(X)
        asked = self._derived.of(self.whiteners_, _Asked, _Asked)
        asked.answers += 1
        if asked.bounds is None and asked.answers > AFTER:
            asked.bounds = self._low_rank()
        return super()._best(X) if asked.bounds is None else self._best_among(X, asked.bounds(self.embedding_(X)))


def low_rank_correlations(scatter: np.ndarray, variance: float, between: float, ridge: float) -> Covariance:
    """The correlations of a covariance, to whose variances and covariances two numbers are added, plus a ridge."""
    root, width = thin_root(scatter), len(scatter)
    if variance <= 0:
        return Covariance(np.full(width, 1 + ridge), root, np.ones(len(root)))
    deviations = np.sqrt(np.diag(scatter) + variance)
    loadings = np.concatenate([root, np.full((1, width), np.sqrt(abs(between)))]) / deviations
    signs = np.append(np.ones(len(root)), 1 if between >= 0 else -1)
    return Covariance((variance - between) / np.square(deviations) + ridge, loadings, signs)
