"""Gaussian classes with a prior on means and covariances, in the space where the prior is diagonal.

In the space of rows ``z``, the prior covariance within classes is the identity and that of class means is ``diag(psi)``.
A class is summarized by its count, its mean, and its scatter: a few leading directions and the trace.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taer.heads.closed_form.linalg import leading_eigen

DEVIATIONS = 3.0  # standard deviations above the mean reduction of a squared distance, where it is cut
TEMPER = 0.5  # fraction of the log-determinant in the score
_OVERSAMPLED, _POWER_STEPS = 8, 2


class Summary(NamedTuple):
    """A summary of the samples of a class."""

    n: float
    mean: np.ndarray
    root: np.ndarray  # rows whose scatter is the leading part of that of the samples, the longest last
    trace: float  # of the whole scatter


class Density(NamedTuple):
    """Student's t around ``center``, with inverse shape ``diag(inverse) - rootᵀ root``.

    The root reduces a squared distance by at most ``most``, a limit that samples of the class hardly ever reach. So the
    distance can be bounded without the root, and a class is not wide far away from its samples.
    """

    center: np.ndarray
    inverse: np.ndarray
    root: np.ndarray
    most: float
    half_log_det: float


def summarize(rows: np.ndarray, rank: int, quick: bool = False) -> Summary:
    """The summary of the samples of a class; ``quick`` approximates the leading directions."""
    mean = rows.mean(axis=0)
    centered = rows - mean
    return Summary(len(rows), mean, leading(centered, rank, quick), float(np.square(centered).sum()))


def merged(one: Summary, other: Summary, rank: int) -> Summary:
    """The summary of the samples of both; exact if their scatter has at most ``rank`` directions."""
    n, apart = one.n + other.n, other.mean - one.mean
    between = np.sqrt(one.n * other.n / n) * apart
    root = leading(np.concatenate([one.root, other.root, between[None]]), rank)
    trace = one.trace + other.trace + float(np.square(between).sum())
    return Summary(n, one.mean + other.n / n * apart, root, trace)


def leading(rows: np.ndarray, rank: int, quick: bool = False) -> np.ndarray:
    """At most ``rank`` orthogonal rows with the leading part of the scatter of the given rows, the longest last."""
    if not len(rows) or not rank:
        return np.zeros((0, rows.shape[1]))
    if quick and min(rows.shape) > 3 * rank:  # a subspace by random projection
        basis = np.random.default_rng(0).normal(size=(rank + _OVERSAMPLED, len(rows))) @ rows
        for _ in range(_POWER_STEPS):
            basis = np.linalg.qr((basis @ rows.T @ rows).T)[0].T
        spectrum, vectors = np.linalg.eigh((basis @ rows.T) @ (rows @ basis.T))
        return (np.sqrt(np.maximum(spectrum[-rank:], 0)) * vectors[:, -rank:]).T @ basis
    wide = len(rows) <= rows.shape[1]
    gram = rows @ rows.T if wide else rows.T @ rows
    if len(gram) > rank:
        spectrum, vectors = leading_eigen(gram, rank)
    else:  # with less overhead
        spectrum, vectors = np.linalg.eigh(gram)
    kept = spectrum > 1e-9 * max(float(spectrum[-1]), 1e-30)
    spectrum, vectors = spectrum[kept], vectors[:, kept]
    return vectors.T @ rows if wide else np.sqrt(spectrum)[:, None] * vectors.T


def predictive(known: Summary, nu: float, psi: np.ndarray, rank: int) -> Density:
    """The distribution of a new sample: covariance ``(scatter + nu·I) / (n + nu)`` plus the uncertainty of the mean."""
    n, d = known.n, len(psi)
    directions = known.root[max(0, len(known.root) - rank) :]
    spectrum = np.square(directions).sum(axis=1)
    k = len(spectrum)
    rest = (max(known.trace - spectrum.sum(), 0) + nu * (d - k)) / ((n + nu) * (d - k)) if k < d else nu / (n + nu)
    gain = (spectrum + nu) / (n + nu) - rest
    variances = rest + psi / (n * psi + 1)
    wider = (gain > 0) & (spectrum > 0)
    root = directions[wider] * np.sqrt(gain[wider] / spectrum[wider])[:, None] / np.sqrt(variances)
    values, vectors = np.linalg.eigh(root @ root.T) if len(root) else (np.zeros(0), np.zeros((0, 0)))
    values = np.maximum(values, 0)
    root = (vectors / np.sqrt(1 + values)).T @ root / np.sqrt(variances)
    half_log_det = 0.5 * float(np.log(variances).sum() + np.log1p(values).sum())
    # The reduction by the root, for samples of the class, is a sum of squares: its mean and its variance.
    taken = root @ known.root.T
    mean, variance = np.square(taken).sum() / max(n, 1), 2 * np.square(taken @ taken.T).sum() / max(n, 1) ** 2
    most = float(mean + DEVIATIONS * np.sqrt(variance))
    return Density(n * psi / (n * psi + 1) * known.mean, 1 / variances, root, most, half_log_det)


def log_densities(rows: np.ndarray, classes: list[Density]) -> np.ndarray:
    """Tempered log-densities of rows: d degrees of freedom, half of the log-determinant."""
    d = rows.shape[1]
    centers, inverses = (
        np.stack([getattr(c, part) for c in classes]).astype(rows.dtype) for part in ("center", "inverse")
    )
    distances = np.square(rows) @ inverses.T - 2 * rows @ (centers * inverses).T
    distances += (np.square(centers) * inverses).sum(axis=1)
    for at, known in enumerate(classes):
        if len(known.root):
            along = rows @ known.root.T.astype(rows.dtype) - (known.root @ known.center).astype(rows.dtype)
            distances[:, at] -= np.minimum(np.square(along).sum(axis=1), known.most)
    heights = np.array([heights_of(known.half_log_det) for known in classes])
    scores: np.ndarray = -d * np.log1p(np.maximum(distances, 0) / d) + heights
    return scores


def heights_of(half_log_det: float) -> float:
    """The part of the scores that depends on the volume of a class."""
    return -(1 - TEMPER) * half_log_det
