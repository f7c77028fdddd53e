"""Maps of the user's features into the space in which a head learns, fixed by the first task.

Each is a value: made once by ``fit``, called on rows, and stored in the head. The mapped rows have a mean near zero, so
that sums of squares and scores in float32 do not suffer from cancellation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from taer.heads import exact
from taer.heads.fitted import FLOATS
from taer.rows import row_chunks

NORMALIZATIONS = ("none", "l2", "sqrt-l2")


def result_type(X: Any) -> str:
    """The type of a head's scores: float64 for float64 features, float32 for the rest."""
    return str(np.result_type(X.dtype, np.float32))


def in_type(X: np.ndarray, dtype: str) -> np.ndarray:
    """Finite rows in C order and in the type of a head; the given array itself if it is that already."""
    if X.dtype == np.float16 and dtype == "float32":
        return exact.widened(X)
    return np.asarray(X, dtype, order="C")


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Rows scaled to unit length; a row of zeros is unchanged."""
    return rows / _lengths(rows)


def _lengths(rows: np.ndarray) -> np.ndarray:
    """The length of each row; 1 for a row of zeros."""
    with np.errstate(over="ignore", under="ignore"):
        norms = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
        limit = np.finfo(norms.dtype).max ** 0.25  # squares of numbers beyond it, or below its inverse, may be lost
        if (extreme := ~((norms > 1 / limit) & (norms < limit))[:, 0]).any():
            units = np.ldexp(norms.dtype.type(1), np.frexp(np.abs(rows[extreme]).max(axis=1, keepdims=True))[1] - 1)
            norms[extreme] = units * np.sqrt(np.square(rows[extreme] / units).sum(axis=1, keepdims=True))
    return np.where(norms > 0, norms, 1)


def _mean(X: Any, embed: Any) -> np.ndarray:
    total: Any = sum(embed(X[rows]).sum(axis=0, dtype=np.float64) for rows in row_chunks(X))
    return total / len(X)


@dataclass(frozen=True)
class Standardize:
    """``(x - mean) / scale`` in the type of the head."""

    kind: ClassVar[str] = "standardize"
    folds: ClassVar[str] = "always"  # whether scores are linear in the user's features

    mean: np.ndarray
    scale: np.ndarray
    dtype: str

    @classmethod
    def fit(cls, X: Any, how: str) -> Self:
        """Fit on the first task: no map, subtract the mean, or also divide by the (shrunk) standard deviation."""
        width = X.shape[1]
        mean, scale = np.zeros(width), np.ones(width)
        if how != "none":
            mean = _mean(X, np.asarray)
        if how == "scale":
            squares: Any = sum(np.square(X[rows] - mean).sum(axis=0) for rows in row_chunks(X))
            # Shrink towards the mean variance, as if `width` extra samples had it: a feature that is almost
            # constant in a small first task may vary in later ones.
            variances = (squares + squares.mean() / len(X) * width) / (len(X) + width)
            scale = np.sqrt(variances) if variances.any() else scale
        return cls(mean, scale, result_type(X))

    def __post_init__(self) -> None:
        # None if there is nothing to do, because the loop maps every batch
        shift = self.mean.astype(self.dtype) if self.mean.any() else None
        stretch = (1 / self.scale).astype(self.dtype) if (self.scale != 1).any() else None
        object.__setattr__(self, "_shift", shift)
        object.__setattr__(self, "_stretch", stretch)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """The mapped rows; the given array itself if there is nothing to do."""
        rows = in_type(X, self.dtype)
        if self._shift is not None:  # type: ignore[attr-defined]
            rows = rows - self._shift  # type: ignore[attr-defined]
        if self._stretch is not None:  # type: ignore[attr-defined]
            rows = np.multiply(rows, self._stretch, out=None if self._shift is None else rows)  # type: ignore[attr-defined]
        return rows

    def apply(self, rows: np.ndarray) -> None:
        """Map rows in place; they must have the head's type."""
        if self._shift is not None:  # type: ignore[attr-defined]
            rows -= self._shift  # type: ignore[attr-defined]
        if self._stretch is not None:  # type: ignore[attr-defined]
            rows *= self._stretch  # type: ignore[attr-defined]

    def fold(self, columns: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients and intercepts of the user's features that give the same scores."""
        coef = columns / self.scale
        return coef, offsets - (coef * self.mean).sum(axis=1)

    def graph(self, graph: Any, rows: str) -> str:
        rows = graph.cast(rows, np.float64)
        return str(graph.add("Div", graph.add("Sub", rows, self.mean), self.scale))

    def check(self, width: int, n_classes: int) -> None:
        """Raise a ValueError unless this is a map of so many features."""
        _check_rows(width, self.mean, self.scale)
        if self.dtype not in FLOATS or (self.scale <= 0).any():
            raise ValueError("expected scales above zero and a type of floating-point numbers")

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"mean": self.mean, "scale": self.scale, "dtype": np.array(self.dtype)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        return cls(arrays["mean"], arrays["scale"], str(arrays["dtype"]))


@dataclass(frozen=True)
class Normalize:
    """Leaves rows as they are, scales them to unit length, or does so after a signed square root; then centers them."""

    kind: ClassVar[str] = "normalize"
    folds: ClassVar[str] = "only with ``normalize='none'``"

    how: str
    center: np.ndarray

    @classmethod
    def fit(cls, X: Any, how: str) -> Self:
        """Fit the mean on the first task. "auto" is the square root if no value is negative, else unit length."""
        if how == "auto":
            how = "sqrt-l2" if all(X[rows].min() >= 0 for rows in row_chunks(X)) else "l2"
        return cls(how, _mean(X, lambda rows: normalized(rows, how)))

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """A new float64 array."""
        rows = np.array(X, np.float64, order="C")
        if self.how == "sqrt-l2":
            rows = np.sign(rows) * np.sqrt(np.abs(rows))
        if self.how != "none":
            rows /= _lengths(rows)
        rows -= self.center
        return rows

    def fold(self, columns: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Coefficients and intercepts of the user's features, if rows are not scaled."""
        return (columns, offsets - (columns * self.center).sum(axis=1)) if self.how == "none" else None

    def graph(self, graph: Any, rows: str) -> str:
        return str(graph.add("Sub", _add_normalized(graph, rows, self.how), self.center))

    def check(self, width: int, n_classes: int) -> None:
        """Raise a ValueError unless this is a map of so many features."""
        _check_rows(width, self.center)
        if self.how not in NORMALIZATIONS:
            raise ValueError(f"expected one of {', '.join(NORMALIZATIONS)}")

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"how": np.array(self.how), "center": self.center}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        return cls(str(arrays["how"]), arrays["center"])


def _check_rows(width: int, *arrays: np.ndarray) -> None:
    for array in arrays:
        if array.shape != (width,) or array.dtype.name not in FLOATS or not np.isfinite(array).all():
            raise ValueError(f"expected {width} finite numbers")


def normalized(X: np.ndarray, how: str) -> np.ndarray:
    """Rows as they are, at unit length, or at unit length after a signed square root; a new float64 array."""
    return Normalize(how, np.zeros(X.shape[1]))(X)


@dataclass(frozen=True)
class RandomFeatures:
    """``relu(x R)`` or, with phases, ``√(2/m) cos(x R + u)`` of normalized rows, with a fixed random ``R``."""

    kind: ClassVar[str] = "random-features"
    folds: ClassVar[str] = "never"

    how: str
    projection: np.ndarray
    phases: np.ndarray | None
    center: np.ndarray

    @classmethod
    def fit(cls, X: Any, how: str, projection: np.ndarray, phases: np.ndarray | None = None) -> Self:
        """Draw ``R``, and fit the mean on the first task; ``how`` is one of NORMALIZATIONS."""
        raw = cls(how, projection, phases, np.zeros(projection.shape[1]))
        return cls(how, projection, phases, _mean(X, raw))

    @cached_property
    def _rounded(self) -> np.ndarray:
        """The projection for exact products, kept because making it takes longer than the product with one row."""
        return exact.rounded(self.projection.T, np.float32)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        waves = exact.products(normalized(X, self.how), self._rounded)
        if self.phases is None:
            np.maximum(waves, 0, out=waves)
        else:
            waves += self.phases
            np.cos(waves, out=waves)
            waves *= np.sqrt(2 / len(self.phases))
        waves -= self.center
        return waves

    def fold(self, columns: np.ndarray, offsets: np.ndarray) -> None:
        """None, because scores are not linear in the user's features."""

    def graph(self, graph: Any, rows: str) -> str:
        waves = graph.add("MatMul", _add_normalized(graph, rows, self.how), self._rounded.T.astype(np.float64))
        if self.phases is None:
            waves = graph.add("Relu", waves)
        else:
            # Few runtimes have a float64 cosine, and float32 is enough for random features.
            short = graph.cast(graph.add("Add", waves, self.phases.astype(np.float64)), np.float32)
            scale = np.array(np.sqrt(2 / len(self.phases)))
            waves = graph.add("Mul", graph.cast(graph.add("Cos", short), np.float64), scale)
        return str(graph.add("Sub", waves, self.center))

    def check(self, width: int, n_classes: int) -> None:
        """Raise a ValueError unless this is a map of so many features."""
        made = self.projection.shape[1] if self.projection.ndim == 2 else -1
        if self.how not in NORMALIZATIONS or self.projection.shape != (width, made):
            raise ValueError(f"expected a projection of {width} features")
        _check_rows(made, self.center, *([] if self.phases is None else [self.phases]), *self.projection)

    def to_arrays(self) -> dict[str, np.ndarray]:
        arrays = {"how": np.array(self.how), "projection": self.projection, "center": self.center}
        return arrays if self.phases is None else {**arrays, "phases": self.phases}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        return cls(str(arrays["how"]), arrays["projection"], arrays.get("phases"), arrays["center"])


def _add_normalized(graph: Any, rows: str, how: str) -> str:
    """:func:`normalized` as ONNX operations, in float64."""
    rows = graph.cast(rows, np.float64)
    if how == "sqrt-l2":
        rows = graph.add("Mul", graph.add("Sign", rows), graph.add("Sqrt", graph.add("Abs", rows)))
    return rows if how == "none" else add_unit_rows(graph, rows)


def add_unit_rows(graph: Any, rows: str) -> str:
    """:func:`unit_rows` as ONNX operations, in float64."""
    squares = graph.add("ReduceSum", graph.add("Mul", rows, rows), np.array([1]), keepdims=1)
    return str(graph.add("Div", rows, graph.add("Max", graph.add("Sqrt", squares), np.array(1e-300))))
