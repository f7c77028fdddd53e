"""Least squares on class indicators with a penalty, from class statistics alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from taer.heads.closed_form.linalg import eigen
from taer.statistics import ClassStatistics

_POWERS = np.arange(4, -8.1, -0.25)  # powers of ten: the strengths to try, relative to the mean eigenvalue
_RANK = 1e-12  # eigenvalues below this fraction of the largest are rounding errors
_SAFE = 1e-9  # of the sum of all eigenvalues: with a penalty above that, rounding errors do not matter
STRENGTH = "strength of the penalty; 'auto' is chosen at every task"
WEIGHT = (
    "None: every sample counts the same; 'balanced': every class does; or a dictionary of labels and the weights of "
    "their samples, 1 for those left out"
)


def least_squares(head: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """Columns and offsets of ridge regression on class indicators, and the strength used."""
    statistics: ClassStatistics = head.statistics_
    counts, n = statistics.counts * class_weights(head), statistics.n_samples
    total = counts.sum()
    mean = counts @ statistics.means / total
    distances = statistics.means - mean
    sums = distances * counts[:, None]
    matrix, gamma = total / n * statistics.scatter + distances.T @ sums, head.gamma
    if gamma != "auto" and gamma > _SAFE * np.trace(matrix):
        matrix.flat[:: len(matrix) + 1] += gamma
        columns = cho_solve(cho_factor(matrix, overwrite_a=True, check_finite=False), sums.T).T
        return columns, counts / total - columns @ mean, float(gamma)
    directions, spectrum = eigen(matrix)
    projected = directions @ sums.T
    if gamma == "auto":
        powers = np.square(projected).sum(axis=1)
        gamma = cross_validated(spectrum, powers, float(total - np.square(counts).sum() / total), n)
    least = _RANK * float(spectrum.max()) or 1.0  # for gamma=0, or no variance at all
    columns = (projected / (spectrum + max(float(gamma), least))[:, None]).T @ directions
    return columns, counts / total - columns @ mean, float(gamma)


def class_weights(head: Any) -> np.ndarray:
    """The weight of a sample of each class, in order of arrival."""
    counts: np.ndarray = head.statistics_.counts
    if head.class_weight is None:
        return np.ones(len(counts))
    if head.class_weight == "balanced":
        return np.asarray(counts.sum() / (len(counts) * counts))
    if isinstance(head.class_weight, Mapping):
        weights = np.array([float(head.class_weight.get(label, 1)) for label, _ in head.learning_order_])
        if np.isfinite(weights).all() and (weights > 0).all():
            return weights
    raise ValueError(
        f"{type(head).__name__}: class_weight must be None, 'balanced' or a dictionary of labels and weights above 0, "
        f"got {head.class_weight!r}"
    )


def cross_validated(spectrum: np.ndarray, powers: np.ndarray, total: float, n: float) -> float:
    """The strongest γ at which the generalized cross-validation error has a minimum.

    With fewer samples than features all residuals may vanish as the penalty does. Remaining degrees of freedom are then
    due to equal samples and are not counted, and a second decrease of the error after its first minimum is ignored.

    ``spectrum`` has the eigenvalues ``e`` of ``XᵀX``, ``powers`` the squared lengths of the rows of ``VᵀXᵀY``, ``total``
    is ``|Y|²``, all of centered data. Written without cancellation for ``n`` not above the rank:
    ``RSS = |Y|² - Σ power/e + Σ power/e · (γ/(e + γ))²`` and ``n - df = n - 1 - rank + Σ γ/(e + γ)``.
    """
    used = spectrum > _RANK * spectrum.max()
    if not used.any():
        return 1.0
    spectrum, explained = spectrum[used], powers[used] / spectrum[used]
    unexplained, left = total - explained.sum(), n - 1 - len(spectrum)
    if left <= 0 or unexplained <= 1e-9 * total:
        unexplained, left = 0.0, 0

    def error(power: float) -> float:
        shrunk = 1 / (1 + spectrum / (level * 10**power))
        rss = unexplained + explained @ np.square(shrunk)
        return float(np.log(max(rss, 1e-300)) - 2 * np.log(left + shrunk.sum()))

    level = float(spectrum.mean())
    errors = np.array([error(power) for power in _POWERS])
    rising = np.flatnonzero(np.diff(errors) > 0)
    best = int(rising[0]) if len(rising) else len(errors) - 1
    power = float(_POWERS[best])
    if 0 < best < len(errors) - 1:  # the minimum of the parabola through the neighbors
        before, here, after = errors[best - 1 : best + 2]
        power += (_POWERS[1] - _POWERS[0]) * (before - after) / (2 * (before - 2 * here + after))
    return float(level * 10**power)
