"""Sufficient statistics of labeled features: counts, means and scatters. Closed-form heads are built on them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from taer.containers import by_position

_ROUNDING = 1e-28  # relative rounding error of squared float64 numbers
_ASYMMETRY = 1e-6  # tolerated in a scatter, relative to its largest entry
_SUMS = 1e-12  # tolerated in sums of squares, relative to them
_LOST = 1e-12  # of a variance: what a subtraction leaves below that is rounding
_WEIGHT = 1e-9  # a class with less weight than this is empty: the rest is rounding


class ClassStatistics:
    """Counts, means and scatter of classes; exact, mergeable and subtractable.

    Everything is float64 and, up to rounding, does not depend on the order and the size of the chunks. Statistics of
    two machines, two months or two files can be added (``a + b``), and those of data that should no longer count can
    be subtracted (``a - b``). With ``per_class`` each class has its own scatter, and ``forget`` is exact. With
    ``diagonal`` only the diagonal of the pooled scatter is kept, as a vector.

    Attributes
    ----------
    labels : ndarray of int, sorted
    counts : ndarray (classes,)
        Numbers of samples, or sums of their weights.
    means : ndarray (classes, width)
    scatter : ndarray (width, width)
        ``Σ_c Σ_{x of c} (x - mean_c)(x - mean_c)ᵀ``, pooled within classes; its diagonal, if ``diagonal``.
    scatters : dict of ndarray
        The same for each class, if ``per_class``.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(100, 3)), rng.integers(0, 4, 100)
    >>> halves = ClassStatistics(3).update(X[:50], y[:50]) + ClassStatistics(3).update(X[50:], y[50:])
    >>> bool(np.allclose(halves.scatter, ClassStatistics(3).update(X, y).scatter))
    True
    """

    def __init__(self, width: int, *, per_class: bool = False, diagonal: bool = False) -> None:
        self.per_class, self.diagonal = per_class, diagonal
        self.labels = np.empty(0, np.int64)
        self.counts = np.empty(0)
        self.means = np.empty((0, width))
        self.scatter = np.zeros(width if diagonal else (width, width))
        self.scatters: dict[int, np.ndarray] = {}

    @property
    def n_samples(self) -> float:
        """Number of samples of all classes, or the sum of their weights."""
        return float(self.counts.sum())

    @property
    def nbytes(self) -> int:
        """Size of all arrays in bytes."""
        arrays = [self.labels, self.counts, self.means, self.scatter, *self.scatters.values()]
        return sum(array.nbytes for array in arrays)

    @property
    def cross_moments(self) -> np.ndarray:
        """``Σ onehot(y) xᵀ``, one row per class: the sums of the classes."""
        return self.means * self.counts[:, None]

    def covariance(self) -> np.ndarray:
        """The pooled covariance within classes, with the unbiased divisor ``n - classes``; variances, if ``diagonal``.

        Zero if the scatter is only rounding error, as for one sample repeated many times.
        """
        if _variances(self.scatter).sum() <= _ROUNDING * (self.counts @ np.square(self.means).sum(axis=1)):
            return np.zeros_like(self.scatter)
        n = self.n_samples  # below 1 if weights are small: divided by 1, the covariance would vanish with them
        return self.scatter / max(min(1, n), n - len(self.labels))

    @classmethod
    def of_chunks(
        cls,
        chunks: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray | None]],
        labels: np.ndarray,
        *,
        per_class: bool = False,
        diagonal: bool = False,
    ) -> ClassStatistics:
        """Statistics of rows, labels and weights (or None) that arrive in chunks.

        The cost of a chunk does not depend on the number of ``labels``.
        """
        result: ClassStatistics | None = None
        for X, y, weight in chunks:
            if result is None:
                empty = cls(X.shape[1], per_class=per_class, diagonal=diagonal)
                result = _with_room_for(empty, np.unique(labels))
            _take_in(result, result.of_rows(X, y, weight))
        if result is None:
            raise ValueError("there are no rows")
        return _without(result, result.labels[result.counts == 0])

    def update(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Add the rows of ``X``; a row of weight 2 counts as two rows."""
        X, y = (np.asarray(by_position(each, name)) for each, name in ((X, "X"), (y, "y")))
        weight = None if sample_weight is None else np.asarray(sample_weight, np.float64)
        if X.ndim != 2 or X.shape[1] != self.means.shape[1] or y.shape != X.shape[:1]:
            raise ValueError(
                f"expected rows of {self.means.shape[1]} features and a label for each, got {X.shape} and {y.shape}"
            )
        if y.dtype.kind not in "biu":
            raise ValueError(f"labels must be integers, got {y.dtype}")
        if y.dtype == np.uint64 and len(y) and y.max() > np.iinfo(np.int64).max:
            raise ValueError(f"labels must lie between -2**63 and 2**63 - 1, got {y.max()}")
        if not len(X):
            return self
        if not np.isfinite(X.sum(dtype=np.float64)):
            raise ValueError("the rows contain NaN or infinity")
        if weight is not None and (weight.shape != y.shape or not (weight > 0).all() or np.isinf(weight).any()):
            raise ValueError("weights must be finite numbers above 0, one for each row")
        merged = self + self.of_rows(X, y, weight)
        self.__dict__.update(vars(merged))
        return self

    def of_rows(self, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> ClassStatistics:
        """Statistics of the same kind, of some rows."""
        if (y[1:] < y[:-1]).any():
            order = np.argsort(y, kind="stable")
            X, y, weight = X[order], y[order], None if weight is None else weight[order]
        labels, starts, counts = np.unique(y, return_index=True, return_counts=True)
        centered = np.empty(X.shape)
        parts = np.split(centered, starts[1:])  # views
        means = np.empty((len(labels), X.shape[1]))
        if weight is None:
            for part, rows, mean in zip(parts, np.split(X, starts[1:]), means, strict=True):
                rows.mean(axis=0, dtype=np.float64, out=mean)
                np.subtract(rows, mean, out=part)
        else:
            counts = np.add.reduceat(weight, starts)
            of_rows = np.repeat(np.arange(len(labels)), np.diff([*starts, len(y)]))
            means[:] = np.add.reduceat(X * weight[:, None], starts, axis=0) / counts[:, None]
            np.multiply(X - means[of_rows], np.sqrt(weight)[:, None], out=centered)
        result = ClassStatistics(X.shape[1], per_class=self.per_class, diagonal=self.diagonal)
        result.labels, result.counts, result.means = labels.astype(np.int64), counts.astype(np.float64), means
        if self.per_class:
            result.scatters = {int(label): part.T @ part for label, part in zip(labels, parts, strict=True)}
            result.scatter = np.sum(list(result.scatters.values()), axis=0)
        else:
            result.scatter = self.scatter_of(centered)
        return result

    def scatter_of(self, centered: np.ndarray) -> np.ndarray:
        """The scatter of rows around zero, in the form of these statistics."""
        return np.square(centered).sum(axis=0) if self.diagonal else centered.T @ centered

    def __add__(self, other: ClassStatistics) -> ClassStatistics:
        self._check_fits(other)
        return _take_in(_with_room_for(self, other.labels), other)

    def __sub__(self, other: ClassStatistics) -> ClassStatistics:
        """The statistics without those of ``other``, which must be part of them."""
        self._check_fits(other)
        at = np.searchsorted(self.labels, other.labels)
        result = _with_room_for(self, other.labels)
        if len(result.labels) > len(self.labels) or (self.counts[at] * (1 + _WEIGHT) < other.counts).any():
            raise ValueError("more samples are taken away than there are")
        before = self.counts[at]
        total = np.where(other.counts < before * (1 - _WEIGHT), before - other.counts, 0.0)
        safe = np.where(total > 0, total, 1)
        rest = (before[:, None] * self.means[at] - other.counts[:, None] * other.means) / safe[:, None]
        between = np.sqrt(total * other.counts / before)[:, None] * (rest - other.means)
        result.scatter = self.scatter - (other.scatter + self.scatter_of(between))
        for label, shift in zip(other.labels.tolist(), between, strict=True):
            if self.per_class:
                result.scatters[label] = self.scatters[label] - (other.scatters[label] + np.outer(shift, shift))
        pairs = [(self.scatter, result.scatter), *((self.scatters[i], result.scatters[i]) for i in self.scatters)]
        rounding = _SUMS * float((self.counts @ np.square(self.means)).max(initial=0))
        for whole, part in pairs:
            if (_variances(part) < -_ASYMMETRY * np.abs(whole).max(initial=0) - rounding).any():
                raise ValueError("what is taken away is not part of what there is: a variance would be negative")
        squares = self.counts @ np.square(self.means)
        result.scatter = _above_rounding(result.scatter, self.scatter, squares)
        for label in other.labels.tolist() if self.per_class else ():
            result.scatters[label] = _above_rounding(result.scatters[label], self.scatters[label], squares)
        result.counts[at], result.means[at] = total, rest
        return _without(result, result.labels[result.counts == 0])

    def _check_fits(self, other: ClassStatistics) -> None:
        if (self.means.shape[1], self.per_class, self.diagonal) != (
            other.means.shape[1],
            other.per_class,
            other.diagonal,
        ):
            raise ValueError("only statistics of the same width and kind can be combined")

    def forget(self, label: int) -> ClassStatistics:
        """The statistics as if the class had never been seen."""
        if label not in self.labels:
            raise ValueError(f"class {label} is not known")
        if not self.per_class:
            raise ValueError("forgetting a class exactly needs statistics with per_class=True")
        result = copy.copy(self)
        squares = self.counts @ np.square(self.means)
        result.scatter = _above_rounding(self.scatter - self.scatters[int(label)], self.scatter, squares)
        return _without(result, np.array([label]))

    def without(self, label: int) -> ClassStatistics:
        """The statistics without a class; later labels move up by one.

        Exact with ``per_class``. Otherwise the pooled covariance does not change, because the contribution of the
        class is not known.
        """
        if self.per_class or label not in self.labels:
            result = self.forget(label)
        else:
            result = _without(copy.copy(self), np.array([label]))
            freedom = (max(1, part.n_samples - len(part.labels)) for part in (result, self))
            result.scatter = self.scatter * (next(freedom) / next(freedom))
        result.labels = result.labels - (result.labels > label)
        result.scatters = {number - (number > label): scatter for number, scatter in result.scatters.items()}
        return result

    def moved(self, by: np.ndarray) -> ClassStatistics:
        """The statistics of the same rows after a vector was added to each of them."""
        result = copy.copy(self)
        result.means = self.means + by
        return result

    def relabeled(self, labels: np.ndarray) -> ClassStatistics:
        """The same classes under other labels, one for each of ``self.labels``."""
        order = np.argsort(labels)
        result = copy.copy(self)
        result.labels, result.counts, result.means = labels[order], self.counts[order], self.means[order]
        names = dict(zip(self.labels.tolist(), labels.tolist(), strict=True))
        result.scatters = {names[label]: scatter for label, scatter in self.scatters.items()}
        return result

    def check(self, width: int, n_labels: int) -> None:
        """Raise ValueError unless these are statistics of ``width`` features for the labels below ``n_labels``."""
        if self.labels.dtype != np.int64 or not np.array_equal(self.labels, np.arange(n_labels)):
            raise ValueError(f"expected the labels 0 to {n_labels - 1}")
        scatter = (width,) if self.diagonal else (width, width)
        arrays = [(self.counts, (n_labels,)), (self.means, (n_labels, width)), (self.scatter, scatter)]
        arrays += [(scatter, (width, width)) for scatter in self.scatters.values()]
        for array, shape in arrays:
            if array.dtype != np.float64 or array.shape != shape or not np.isfinite(array).all():
                raise ValueError(f"expected finite numbers of the shape {shape}, got {array.dtype} {array.shape}")
        if not (self.counts > 0).all():
            raise ValueError("expected samples of every label")
        for array, _ in arrays[2:]:
            off = _ASYMMETRY * max(1e-300, float(np.abs(array).max(initial=0)))
            if not np.allclose(array, array.T, rtol=0, atol=off) or (_variances(array) < -off).any():
                raise ValueError("expected scatters, symmetric and without negative variances")

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The statistics as plain arrays, from which they can be restored."""
        arrays = {"labels": self.labels, "counts": self.counts, "means": self.means, "scatter": self.scatter}
        if self.per_class:
            shape = (len(self.labels), *self.scatter.shape)
            arrays["scatters"] = np.array([self.scatters[label] for label in self.labels.tolist()]).reshape(shape)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> ClassStatistics:
        """The statistics from the arrays that ``to_arrays`` returned."""
        result = cls(0, per_class="scatters" in arrays, diagonal=arrays["scatter"].ndim == 1)
        result.labels, result.counts = arrays["labels"], arrays["counts"]
        result.means, result.scatter = arrays["means"], arrays["scatter"]
        if result.per_class:
            result.scatters = dict(zip(result.labels.tolist(), arrays["scatters"], strict=True))
        return result


def _with_room_for(statistics: ClassStatistics, labels: np.ndarray) -> ClassStatistics:
    """A copy with these classes added, without samples."""
    result = ClassStatistics(0, per_class=statistics.per_class, diagonal=statistics.diagonal)
    result.labels = np.union1d(statistics.labels, labels)
    at = np.searchsorted(result.labels, statistics.labels)
    result.counts = np.zeros(len(result.labels))
    result.means = np.zeros((len(result.labels), statistics.means.shape[1]))
    result.counts[at], result.means[at] = statistics.counts, statistics.means
    result.scatter, result.scatters = statistics.scatter, dict(statistics.scatters)
    return result


def _take_in(statistics: ClassStatistics, other: ClassStatistics) -> ClassStatistics:
    """Add statistics in place; all their classes must be known."""
    at = np.searchsorted(statistics.labels, other.labels)
    before, total = statistics.counts[at], statistics.counts[at] + other.counts
    # The scatter of a union has one more term of rank one per class, from the distance between the two means.
    weights = np.sqrt(before * other.counts / total)
    both = np.flatnonzero(before)
    between = weights[both, None] * (statistics.means[at[both]] - other.means[both])
    statistics.scatter = statistics.scatter + (other.scatter + statistics.scatter_of(between))
    if statistics.per_class:
        shifts = dict(zip(other.labels[both].tolist(), between, strict=True))
        for label, scatter in other.scatters.items():
            if label in shifts:
                scatter = statistics.scatters[label] + (scatter + np.outer(shifts[label], shifts[label]))
            statistics.scatters[label] = scatter
    sums = before[:, None] * statistics.means[at] + other.counts[:, None] * other.means
    statistics.counts[at], statistics.means[at] = total, sums / total[:, None]
    return statistics


def _variances(scatter: np.ndarray) -> np.ndarray:
    return scatter if scatter.ndim == 1 else np.diagonal(scatter)


def _above_rounding(part: np.ndarray, whole: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """What is left of a scatter, without features of which only rounding is left: that may be a negative variance."""
    used = _variances(part) > _LOST * _variances(whole) + _ROUNDING * squares
    return part * used if part.ndim == 1 else part * used * used[:, None]


def _without(statistics: ClassStatistics, labels: np.ndarray) -> ClassStatistics:
    """Remove classes in place."""
    keep = ~np.isin(statistics.labels, labels)
    for name in ("labels", "counts", "means"):
        setattr(statistics, name, getattr(statistics, name)[keep])
    gone = set(labels.tolist())
    statistics.scatters = {label: scatter for label, scatter in statistics.scatters.items() if label not in gone}
    return statistics
