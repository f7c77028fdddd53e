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


def predictive(known: Summary, nu: float, spread: Spread, rank: int) -> Density:
    """The distribution of a new sample: covariance ``(scatter + nu·I) / (n + nu)`` plus the uncertainty of the mean."""
    n, d, (q, psi, psi_rest, _) = known.n, spread.width, spread
    directions = known.root[max(0, len(known.root) - rank) :]
    spectrum = np.square(directions).sum(axis=1)
    rest = remaining(known.trace - spectrum.sum(), n, nu, d - len(spectrum))
    gain = np.maximum((spectrum + nu) / (n + nu) - rest, 0)
    variance, variances = rest + psi_rest / (n * psi_rest + 1), rest + psi / (n * psi + 1)
    weights = 1 / variances - 1 / variance
    wide = directions * np.sqrt(gain / np.maximum(spectrum, 1e-300))[:, None]
    crossed = wide @ q.T
    values, vectors = np.linalg.eigh(wide @ wide.T / variance + (crossed * weights) @ crossed.T)
    values = np.maximum(values, 0)
    turned = (vectors / np.sqrt(1 + values)).T
    root = turned @ (wide / variance + (crossed * weights) @ q)
    log_det = (d - len(psi)) * np.log(variance) + np.log(variances).sum() + np.log1p(values).sum()
    return Density(
        shrunk_mean(known.mean, n, spread),
        variance,
        weights,
        root,
        _most(root @ known.root.T, n),
        -0.5 * (1 - TEMPER) * float(log_det),
    )


def unseen(nu: float, spread: Spread) -> Density:
    """The distribution of a sample of a class without samples."""
    nothing = np.zeros((0, spread.directions.shape[1]))
    return predictive(Summary(0.0, nothing.sum(axis=0), nothing, 0.0), nu, spread, 0)


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


def log_densities(rows: np.ndarray, classes: list[Density], spread: Spread) -> np.ndarray:
    """Tempered log-densities of rows, one column per class, in the precision of the rows."""
    d, kind = spread.width, rows.dtype
    directions, centers = spread.directions.astype(kind), np.stack([known.center for known in classes]).astype(kind)
    along, crossed = rows @ directions.T, centers @ directions.T
    inverse = np.array([1 / known.variance for known in classes], kind)
    weights = np.stack([known.weights for known in classes]).astype(kind)
    distances = (
        np.square(rows).sum(axis=1)[:, None] - 2 * rows @ centers.T + np.square(centers).sum(axis=1)
    ) * inverse
    distances += np.square(along) @ weights.T - 2 * along @ (crossed * weights).T
    distances += (np.square(crossed) * weights).sum(axis=1)
    for at, known in enumerate(classes):
        if len(known.root):
            root = known.root.astype(kind)
            off = rows @ root.T - root @ centers[at]
            distances[:, at] -= np.minimum(np.square(off).sum(axis=1), known.most)
    heights = np.array([known.height for known in classes])
    scores: np.ndarray = heights - d * np.log1p(np.maximum(distances, 0) / d)
    return scores
