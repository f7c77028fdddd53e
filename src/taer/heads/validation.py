"""Checks of what a user hands to a head, without copying what need not be copied."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import column_or_1d, validate_data

from taer.rows import row_chunks

def check_features(head: Any, X: Any, *, reset: bool) -> Any:
    """Two-dimensional finite features of the head's width; float16 and memory maps stay what they are."""
    if issparse(X):
        raise TypeError(f"{type(head).__name__} takes dense features; convert sparse ones with X.toarray()")
    if _is_lazy(X):
        if len(X.shape) != 2 or not len(X):
            raise ValueError(f"expected features of shape (samples, width), got {tuple(X.shape)}")
        if reset:
            head.n_features_in_ = X.shape[1]
        elif X.shape[1] != head.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(head).__name__} is expecting "
                f"{head.n_features_in_} features as input"
            )
    else:
        X = validate_data(head, X, reset=reset, ensure_all_finite=False)
    for rows in row_chunks(X):
        if not _all_finite(X[rows]):
            raise ValueError("Input X contains NaN or infinity")
    return X


def _all_finite(rows: np.ndarray) -> bool:
    """A finite sum says so at once; one that is not may only be large."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(rows.sum()) or np.isfinite(rows).all())


def _is_lazy(X: Any) -> bool:
    """Row-indexable storage of numpy values that is neither an array nor convertible to one without reading it all."""
    return (
        all(hasattr(X, name) for name in ("shape", "dtype", "__getitem__"))
        and isinstance(X.dtype, np.dtype)
        and not hasattr(X, "__array_interface__")
        and not hasattr(X, "iloc")
    )


def check_labels(y: Any, n_samples: int, known: np.ndarray | None) -> np.ndarray:
    """One label per sample, of one kind, and of the kind of the classes already known."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    y = column_or_1d(y, warn=True)
    if len(y) != n_samples:
        raise ValueError(f"X and y have inconsistent numbers of samples: {n_samples} and {len(y)}")
    if y.dtype.kind == "O":
        kinds = {str if isinstance(label, str) else type(label) for label in y}
        if kinds != {str} and not all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise ValueError(f"Unknown label type: labels must all be strings or all be integers, got {names}")
        y = y.astype(str if kinds == {str} else np.int64)
    if y.dtype.kind == "f":
        if not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity")
        if (y != np.floor(y)).any():
            raise ValueError("Unknown label type: continuous. A label must be a string or a whole number")
    elif y.dtype.kind not in "biuU":
        raise ValueError(f"Unknown label type: {y.dtype}. A label must be a string or a whole number")
    if known is not None and len(known) and _kind(known) != _kind(y):
        raise ValueError(f"labels were {_kind(known)} so far and are {_kind(y)} now; they are never converted")
    return y


def _kind(labels: np.ndarray) -> str:
    return {"b": "booleans", "f": "floating-point numbers", "U": "strings"}.get(labels.dtype.kind, "integers")


def generator(random_state: Any) -> np.random.Generator:
    """A generator from a seed, a generator or a RandomState (of which a seed is drawn)."""
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(np.iinfo(np.int32).max)
    return np.random.default_rng(random_state)
