"""The distribution of a class: what its samples say, and the Student's t that follows from it and the prior.

In the space of rows ``z`` the covariance within classes is the identity. Class means have the variance ``psi[j]`` along
the direction ``directions[j]`` of a :class:`Spread`, and ``rest`` along all directions that are orthogonal to these.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taer.heads.bayes.constants import DEVIATIONS, TEMPER
from taer.heads.bayes.spectra import leading_rows


class Spread(NamedTuple):
    """The covariance of class means in ``width`` dimensions."""

    directions: np.ndarray  # orthonormal rows
    psi: np.ndarray  # variances along them
    rest: float  # variance along all other directions
    width: int  # features; the rows may be coordinates of a subspace of fewer dimensions


class Space(NamedTuple):
    """Rows in the space of the prior."""

    rows: np.ndarray
    squares: np.ndarray  # squared lengths
    along: np.ndarray  # along the directions of class means

    def at(self, which: np.ndarray | slice) -> Space:
        """Some of the rows."""
        return Space(self.rows[which], self.squares[which], self.along[which])

    @classmethod
    def joined(cls, parts: list[Space]) -> Space:
        return cls(*(np.concatenate(each) for each in zip(*parts, strict=True)))


class Summary(NamedTuple):
    """A summary of the samples of a class."""

    n: float
    mean: np.ndarray
    root: np.ndarray  # orthogonal rows whose scatter is the leading part of that of the samples, the longest last
    trace: float  # of the whole scatter


class Density(NamedTuple):
    """Student's t around ``center`` with the inverse shape ``I/variance + Σ weights·qqᵀ - rootᵀ root``.

    The root reduces a squared distance by at most ``most``, a limit that samples of the class hardly ever reach. So the
    distance can be bounded without the root, and a class is not wide far away from its samples.
    """

    center: np.ndarray
    variance: float
    weights: np.ndarray  # by direction q of the spread
    root: np.ndarray
    most: float
    height: float  # the logarithm of the density at the center, with a part of the log-determinant


def summarize(rows: np.ndarray, rank: int, quick: bool = False) -> Summary:
    """The summary of the samples of a class; ``quick`` approximates the leading directions."""
    mean = rows.mean(axis=0)
    centered = rows - mean
    return Summary(len(rows), mean, leading_rows(centered, rank, quick), float(np.square(centered).sum()))


def merged(one: Summary, other: Summary, rank: int) -> Summary:
    """The summary of the samples of both; exact if their scatter has at most ``rank`` directions."""
    n, apart = one.n + other.n, other.mean - one.mean
    between = np.sqrt(one.n * other.n / n) * apart
    root = leading_rows(np.concatenate([one.root, other.root, between[None]]), rank)
    trace = one.trace + other.trace + float(np.square(between).sum())
    return Summary(n, one.mean + other.n / n * apart, root, trace)


class Shape(NamedTuple):
    """A shape, in the coordinates of the directions of a class and of the spread."""

    variance: float  # along no direction
    weights: np.ndarray  # by direction q of the spread: what is added to the inverse variance
    stretch: np.ndarray  # by direction of the class: what makes its square the variance beyond the rest
    crossed: np.ndarray  # the stretched directions along q
    inner: np.ndarray  # their inner products, weighted by the inverse variances
    inverse: np.ndarray  # of the Cholesky factor of 1 + inner
    most: float
    height: float


def shape_of(n: float, trace: float, lengths: np.ndarray, crossed: np.ndarray, nu: float, spread: Spread) -> Shape:
    """The covariance ``(scatter + nu·I) / (n + nu)`` plus the uncertainty of the mean.

    The scatter has orthogonal directions with these squared ``lengths``, ``crossed`` with those of the spread.
    """
    d, psi, psi_rest = spread.width, spread.psi, spread.rest
    rest = remaining(trace - lengths.sum(), n, nu, d - len(lengths))
    gain = np.maximum((lengths + nu) / (n + nu) - rest, 0)
    variance, variances = rest + psi_rest / (n * psi_rest + 1), rest + psi / (n * psi + 1)
    weights = 1 / variances - 1 / variance
    stretch = np.sqrt(gain / np.maximum(lengths, 1e-300))
    wide = crossed * stretch[:, None]
    inner = np.diag(gain / variance) + (wide * weights) @ wide.T
    factor = np.linalg.cholesky(np.eye(len(inner)) + inner)
    log_det = (d - len(psi)) * np.log(variance) + np.log(variances).sum() + 2 * np.log(np.diag(factor)).sum()
    scatter = np.diag(stretch * lengths / variance) + (wide * weights) @ crossed.T
    inverse = np.linalg.inv(factor)
    most = _most(inverse @ scatter, n)
    return Shape(variance, weights, stretch, wide, inner, inverse, most, -0.5 * (1 - TEMPER) * float(log_det))


def predictive(known: Summary, nu: float, spread: Spread, rank: int) -> Density:
    """The distribution of a new sample."""
    directions, q = known.root[max(0, len(known.root) - rank) :], spread.directions
    lengths = np.square(directions).sum(axis=1)
    shape = shape_of(known.n, known.trace, lengths, directions @ q.T, nu, spread)
    values, vectors = np.linalg.eigh(shape.inner)
    turned = (vectors / np.sqrt(1 + np.maximum(values, 0))).T
    wide = directions * (shape.stretch / shape.variance)[:, None] + (shape.crossed * shape.weights) @ q
    center = shrunk_mean(known.mean, known.n, spread)
    return Density(center, shape.variance, shape.weights, turned @ wide, shape.most, shape.height)


def nothing(width: int) -> Summary:
    """The summary of a class without samples."""
    return Summary(0.0, np.zeros(width), np.zeros((0, width)), 0.0)


def remaining(trace: float, n: float, nu: float, dimensions: int) -> float:
    """The mean variance of a class in the dimensions that its directions leave."""
    return float(max(trace, 0) / max(dimensions, 1) + nu) / (n + nu)


def shrunk_mean(mean: np.ndarray, n: float, spread: Spread) -> np.ndarray:
    """The expected mean of a class: that of its samples, pulled towards zero as much as few samples allow."""
    share = n * spread.rest / (n * spread.rest + 1)
    along = (n * spread.psi / (n * spread.psi + 1) - share) * (spread.directions @ mean)
    pulled: np.ndarray = share * mean + along @ spread.directions
    return pulled


def _most(reductions: np.ndarray, n: float) -> float:
    """A limit of the reduction of squared distances: for samples of the class a sum of squares, its mean and deviation."""
    mean = np.square(reductions).sum() / max(n, 1)
    variance = 2 * np.square(reductions @ reductions.T).sum() / max(n, 1) ** 2
    return float(mean + DEVIATIONS * np.sqrt(variance))


class View(NamedTuple):
    """A class from some rows: all that their log-densities depend on, except ``nu``."""

    n: float
    trace: float
    lengths: np.ndarray  # squared, of the directions of the class
    crossed: np.ndarray  # these along the directions of the spread
    center: np.ndarray  # along the directions of the spread
    squares: np.ndarray  # squared distances of the rows from the center
    off: np.ndarray  # the rows less the center, along the directions of the class


def view_of(space: Space, known: Summary, spread: Spread) -> View:
    """A class from these rows, in their precision."""
    kind, root, center = space.rows.dtype, known.root, shrunk_mean(known.mean, known.n, spread)
    squares = space.squares - 2 * (space.rows @ center.astype(kind)) + kind.type(center @ center)
    off = space.rows @ root.T.astype(kind) - (root @ center).astype(kind)
    lengths, q = np.square(root).sum(axis=1), spread.directions
    return View(known.n, known.trace, lengths, root @ q.T, q @ center, squares, off)


def log_densities(space: Space, view: View, nu: float, spread: Spread) -> np.ndarray:
    """Tempered log-densities of rows for a class, in the precision of the rows."""
    kind, d = space.rows.dtype, spread.width
    shape = shape_of(view.n, view.trace, view.lengths, view.crossed, nu, spread)
    apart, weights = space.along - view.center.astype(kind), shape.weights.astype(kind)
    distances = view.squares / kind.type(shape.variance) + np.square(apart) @ weights
    if len(view.lengths):
        wide = view.off * (shape.stretch / shape.variance).astype(kind)
        wide += apart @ (shape.crossed * shape.weights).T.astype(kind)
        off = wide @ shape.inverse.T.astype(kind)
        distances -= np.minimum(np.square(off, out=off).sum(axis=1), shape.most)
    scores: np.ndarray = shape.height - d * np.log1p(np.maximum(distances, 0) / d)
    return scores
