"""Sufficient statistics of labelled features: what every closed-form head is made of."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Self

import numpy as np


class ClassStatistics:
    """Counts, means and scatter of classes; exact, mergeable and subtractable.

    Everything is float64 and independent of the order and the size of the chunks, to rounding: statistics of two
    machines, two months or two files add up (``a + b``), and those of data that should not count any more can
    be taken away (``a - b``). With ``per_class`` each class keeps a scatter of its own, and ``forget`` is exact.

    Attributes
    ----------
    labels : ndarray of int, sorted
    counts : ndarray (classes,)
    means : ndarray (classes, width)
    scatter : ndarray (width, width)
        ``Σ_c Σ_{x of c} (x - mean_c)(x - mean_c)ᵀ``, pooled within classes.
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

    def __init__(self, width: int, *, per_class: bool = False) -> None:
        self.per_class = per_class
        self.labels = np.empty(0, np.int64)
        self.counts = np.empty(0)
        self.means = np.empty((0, width))
        self.scatter = np.zeros((width, width))
        self.scatters: dict[int, np.ndarray] = {}

    @property
    def n_samples(self) -> int:
        return int(self.counts.sum())

    @property
    def nbytes(self) -> int:
        arrays = [self.labels, self.counts, self.means, self.scatter, *self.scatters.values()]
        return sum(array.nbytes for array in arrays)

    @property
    def gram(self) -> np.ndarray:
        """``Σ x xᵀ``."""
        return self.scatter + (self.means * self.counts[:, None]).T @ self.means

    @property
    def cross_moments(self) -> np.ndarray:
        """``Σ onehot(y) xᵀ``, one row per class: the sums of the classes."""
        return self.means * self.counts[:, None]

    def covariance(self) -> np.ndarray:
        """The pooled covariance within classes, with the unbiased divisor ``n - classes``."""
        return self.scatter / max(1, self.n_samples - len(self.labels))

    def update(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Count the rows of ``X`` in."""
        if (y[1:] < y[:-1]).any():
            order = np.argsort(y, kind="stable")
            X, y = X[order], y[order]
        labels, starts, counts = np.unique(y, return_index=True, return_counts=True)
        centred = np.empty(X.shape)
        parts = np.split(centred, starts[1:])  # views
        means = np.empty((len(labels), X.shape[1]))
        for part, rows, mean in zip(parts, np.split(X, starts[1:]), means, strict=True):
            rows.mean(axis=0, dtype=np.float64, out=mean)
            np.subtract(rows, mean, out=part)
        chunk = ClassStatistics(X.shape[1], per_class=self.per_class)
        chunk.labels, chunk.counts, chunk.means = labels.astype(np.int64), counts.astype(np.float64), means
        if self.per_class:
            chunk.scatters = {int(label): part.T @ part for label, part in zip(labels, parts, strict=True)}
            chunk.scatter = np.sum(list(chunk.scatters.values()), axis=0)
        else:
            chunk.scatter = centred.T @ centred
        merged = self + chunk
        self.__dict__.update(vars(merged))
        return self

    def __add__(self, other: ClassStatistics) -> ClassStatistics:
        return self._combine(other, +1)

    def __sub__(self, other: ClassStatistics) -> ClassStatistics:
        """The statistics without those of ``other``, which must be part of them."""
        return self._combine(other, -1)

    def _combine(self, other: ClassStatistics, sign: int) -> ClassStatistics:
        if self.means.shape[1] != other.means.shape[1] or self.per_class != other.per_class:
            raise ValueError("only statistics of the same width and kind can be combined")
        result = ClassStatistics(self.means.shape[1], per_class=self.per_class)
        result.labels = np.union1d(self.labels, other.labels)
        counts = np.zeros((2, len(result.labels)))
        means = np.zeros((2, len(result.labels), self.means.shape[1]))
        for i, part in enumerate((self, other)):
            at = np.searchsorted(result.labels, part.labels)
            counts[i, at], means[i, at] = part.counts, part.means
        total = counts[0] + sign * counts[1]
        if (total < 0).any():
            raise ValueError("more samples are taken away than there are")
        safe = np.where(total > 0, total, 1)
        result.counts = total
        result.means = (counts[0, :, None] * means[0] + sign * counts[1, :, None] * means[1]) / safe[:, None]
        # The scatter of a union has one more rank per class: of the distance between the two means.
        joined = safe if sign > 0 else np.where(counts[0] > 0, counts[0], 1)
        base, taken = (counts[0], counts[1]) if sign > 0 else (total, counts[1])
        reference = means[0] if sign > 0 else result.means
        between = np.sqrt(base * taken / joined)[:, None] * (reference - means[1])
        result.scatter = self.scatter + sign * (other.scatter + between.T @ between)
        result.scatters = dict(self.scatters)
        for label, others in other.scatters.items():
            shift = between[np.searchsorted(result.labels, label)]
            result.scatters[label] = self.scatters.get(label, 0.0) + sign * (others + np.outer(shift, shift))
        return result._without(result.labels[total == 0])

    def forget(self, label: int) -> ClassStatistics:
        """The statistics as if the class had never been seen."""
        if label not in self.labels:
            raise ValueError(f"class {label} is not known")
        if not self.per_class:
            raise ValueError("forgetting a class exactly needs statistics with per_class=True")
        result = copy.copy(self)
        result.scatter = self.scatter - self.scatters[int(label)]
        return result._without(np.array([label]))

    def without(self, label: int) -> ClassStatistics:
        """The statistics without a class; later labels move up by one.

        Exact with ``per_class``. Otherwise the pooled covariance stays what it was: the class's share in it is
        not known.
        """
        if self.per_class:
            result = self.forget(label)
        else:
            result = copy.copy(self)._without(np.array([label]))
            freedom = (max(1, part.n_samples - len(part.labels)) for part in (result, self))
            result.scatter = self.scatter * (next(freedom) / next(freedom))
        result.labels = result.labels - (result.labels > label)
        result.scatters = {number - (number > label): scatter for number, scatter in result.scatters.items()}
        return result

    def _without(self, labels: np.ndarray) -> ClassStatistics:
        keep = ~np.isin(self.labels, labels)
        self.labels, self.counts, self.means = self.labels[keep], self.counts[keep], self.means[keep]
        gone = set(labels.tolist())
        self.scatters = {label: scatter for label, scatter in self.scatters.items() if label not in gone}
        return self

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything that is needed to restore the statistics, as plain arrays."""
        arrays = {"labels": self.labels, "counts": self.counts, "means": self.means, "scatter": self.scatter}
        if self.per_class:
            shape = (len(self.labels), *self.scatter.shape)
            arrays["scatters"] = np.array([self.scatters[label] for label in self.labels.tolist()]).reshape(shape)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> ClassStatistics:
        """The statistics that ``to_arrays`` described."""
        result = cls(arrays["means"].shape[1], per_class="scatters" in arrays)
        result.labels, result.counts = arrays["labels"], arrays["counts"]
        result.means, result.scatter = arrays["means"], arrays["scatter"]
        if result.per_class:
            result.scatters = dict(zip(result.labels.tolist(), arrays["scatters"], strict=True))
        return result
