"""Ridge regression on class indicators, and the same after a random projection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from taer.heads._params import param
from taer.heads.base import Head
from taer.heads.statistical import SolvedHead, eigen

_POWERS = np.arange(4, -8.1, -0.25)  # of ten: the strengths that are tried, relative to the mean eigenvalue
_CLASS_WEIGHT = (
    "None: every sample counts the same; 'balanced': every class does; or a dictionary of labels and the weights of "
    "their samples, 1 for those left out"
)
_RANK = 1e-12  # eigenvalues below this fraction of the largest are rounding


@dataclass(kw_only=True, eq=False, repr=False)
class Ridge(SolvedHead):
    """Ridge: least squares on one-hot labels, equal to fitting all data at once; old columns move.

    ``(G + γ I)⁻¹ Q`` with ``G = Xᵀ X`` and ``Q = Xᵀ Y`` of centred data, both known from the class statistics. With
    ``gamma="auto"`` the strength is chosen again at every task, from these statistics alone, by generalised
    cross-validation (Golub, Heath and Wahba, 1979): the strongest local minimum of ``RSS / (1 - df / n)²``. So the
    result does not depend on the order of the tasks.

    With ``class_weight="balanced"`` every class counts the same, however few samples it has, as in AIR (Fang et al.,
    2024): ``G`` and ``Q`` are those of ``n / classes`` samples per class around the known means, with the pooled
    covariance. That is weighted ridge regression if all classes have the same covariance; an exact one would have to
    keep a matrix per class.
    """

    gamma: Any = param(
        "auto", "strength of the penalty, a number or chosen at every task", at_least=0, options=("auto",)
    )
    class_weight: Any = param("balanced", _CLASS_WEIGHT)

    def _set_from_statistics(self) -> None:
        statistics = self.statistics_
        counts = statistics.counts * self._class_weights()
        n, total = statistics.n_samples, counts.sum()
        mean = counts @ statistics.means / total
        distances = statistics.means - mean
        sums = distances * counts[:, None]
        directions, spectrum = eigen(total / n * statistics.scatter + distances.T @ sums)
        projected = directions @ sums.T
        if self.gamma == "auto":
            powers = np.square(projected).sum(axis=1)
            self.gamma_ = cross_validated(spectrum, powers, float(total - np.square(counts).sum() / total), n)
        else:
            self.gamma_ = float(self.gamma)
        least = _RANK * float(spectrum.max()) or 1.0  # with gamma=0 or no variance at all
        columns = (projected / (spectrum + max(self.gamma_, least))[:, None]).T @ directions
        self._set_columns(columns, counts / total - columns @ mean)

    def _class_weights(self) -> np.ndarray:
        """The weight of a sample of each class, in order of arrival."""
        counts = self.statistics_.counts
        if self.class_weight is None:
            return np.ones(len(counts))
        if self.class_weight == "balanced":
            return np.asarray(counts.sum() / (len(counts) * counts))
        if isinstance(self.class_weight, Mapping):
            weights = np.array([float(self.class_weight.get(label, 1)) for label, _ in self.learning_order_])
            if np.isfinite(weights).all() and (weights > 0).all():
                return weights
        raise ValueError(
            f"{type(self).__name__}: class_weight must be None, 'balanced' or a dictionary of labels and weights above 0, "
            f"got {self.class_weight!r}"
        )


def cross_validated(spectrum: np.ndarray, powers: np.ndarray, total: float, n: int) -> float:
    """The strongest γ at which the generalised cross-validation error has a minimum.

    With fewer samples than features every residual may vanish with the penalty. Degrees of freedom are then left only
    if some samples are equal, and do not count; and the error may fall again after its first minimum, which says nothing.

    ``spectrum`` are the eigenvalues ``e`` of ``XᵀX``, ``powers`` the squared lengths of the rows of ``VᵀXᵀY``, ``total``
    is ``|Y|²``, all of centred data. Written so that nothing cancels where ``n`` is not above the rank:
    ``RSS = |Y|² - Σ power/e + Σ power/e · (γ/(e + γ))²`` and ``n - df = n - 1 - rank + Σ γ/(e + γ)``.
    """
    kept = spectrum > _RANK * spectrum.max()
    if not kept.any():
        return 1.0
    spectrum, explained = spectrum[kept], powers[kept] / spectrum[kept]
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
    if 0 < best < len(errors) - 1:  # the bottom of the parabola through the neighbours
        before, here, after = errors[best - 1 : best + 2]
        power += (_POWERS[1] - _POWERS[0]) * (before - after) / (2 * (before - 2 * here + after))
    return float(level * 10**power)


@dataclass(kw_only=True, eq=False, repr=False)
class RanPAC(Ridge):
    """RanPAC: ridge regression on ``relu(x R)`` with a fixed random matrix R; old columns move.

    The second phase of McDonnell et al., NeurIPS 2023, on features as they are. Keeps a square matrix of
    ``width``: 32 MB at 2,000, and 800 MB at the 10,000 of its paper.

    As published, every sample counts the same. Departures: the strength is chosen by generalised cross-validation over
    everything seen, not on a fifth of the current task; features are centred, which stands for an intercept.
    """

    class_weight: Any = param(None, _CLASS_WEIGHT)
    width: int = param(2000, "number of random features", at_least=1)

    def _fix_embedding(self, X: Any) -> None:
        super()._fix_embedding(X)
        self.projection_ = self._rng_.normal(size=(X.shape[1], self.width)).astype(np.float32)

    def _embed(self, X: np.ndarray) -> np.ndarray:
        rows = super()._embed(X).astype(self.dtype_) @ self.projection_.astype(self.dtype_)
        return np.maximum(rows, 0).astype(np.float64)

    _novelty = Head._novelty  # distances among thousands of random features would cost more than the answer
