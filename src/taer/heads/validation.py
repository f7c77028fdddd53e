"""Validation of features, labels and weights, without unnecessary copies."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import column_or_1d, validate_data

from taer.containers import is_lazy, readable
from taer.rows import row_chunks
from taer.threads import one_blas_thread

_INT64 = np.iinfo(np.int64)
_UNTHREADED = 10_000  # values that OpenBLAS sums on one thread
_TYPES: dict[str, Any] = {
    "strings": str,
    "booleans": bool,
    "integers": np.int64,
    "floating-point numbers": np.float64,
}
_KINDS: dict[tuple[type, ...], str] = {
    (str,): "strings",
    (bool, np.bool_): "booleans",  # before integers, because bool is a subclass of int
    (int, np.integer): "integers",
    (float, np.floating): "floating-point numbers",
}


def check_features(head: Any, X: Any, *, reset: bool) -> Any:
    """Two-dimensional finite features of the head's width; float16 arrays and memory maps are not converted."""
    plain = (  # scikit-learn would find nothing wrong, and takes longer than most heads take to score a row
        not reset
        and (type(X) is np.ndarray or isinstance(X, np.memmap))
        and X.dtype.char in "efd"
        and X.shape[1:] == (head.n_features_in_,)
        and len(X) > 0
        and not hasattr(head, "feature_names_in_")
    )
    X = np.asarray(X) if plain else _validated(head, X, reset)
    for chunk in row_chunks(X):
        rows = X[chunk]
        if rows.dtype.char == "e":  # arithmetic in float16 is slow; what is not finite has all bits of the exponent
            finite = ((rows.view(np.uint16) & 0x7C00) != 0x7C00).all()
        else:  # a finite sum is enough; an infinite one may be an overflow
            # BLAS sums squares faster than numpy sums. On several threads it would wait for a busy core.
            alone = one_blas_thread() if rows.size > _UNTHREADED else nullcontext()
            with np.errstate(all="ignore"), alone:
                total = np.vdot(rows, rows) if rows.dtype.char in "fd" else rows.sum()
                finite = np.isfinite(total) or np.isfinite(rows).all()
        if not finite:
            raise ValueError("Input X contains NaN or infinity")
    return X


def _validated(head: Any, X: Any, reset: bool) -> Any:
    if issparse(X):
        raise TypeError(f"{type(head).__name__} takes dense features; convert sparse ones with X.toarray()")
    X = readable(X, "X")
    if not is_lazy(X):
        return validate_data(head, X, reset=reset, ensure_all_finite=False)
    if len(X.shape) != 2 or not len(X):
        raise ValueError(f"expected features of shape (samples, width), got {tuple(X.shape)}")
    if reset:
        head.n_features_in_ = X.shape[1]
    elif X.shape[1] != head.n_features_in_:
        raise ValueError(
            f"X has {X.shape[1]} features, but {type(head).__name__} is expecting "
            f"{head.n_features_in_} features as input"
        )
    return X


def check_labels(y: Any, n_samples: int, known: np.ndarray | None) -> np.ndarray:
    """One label per sample, all of one kind, which is the kind of the known classes."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    # numpy converts a mixed list to one type, in which different labels may become equal.
    if not (type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in "biufU"):
        y = readable(y, "y")
        y = column_or_1d(y if hasattr(y, "__array__") else np.asarray(y, object), warn=True)
    if len(y) != n_samples:
        raise ValueError(f"X and y have inconsistent numbers of samples: {n_samples} and {len(y)}")
    if y.dtype.kind == "O":
        y = _of_one_kind(y)
    if y.dtype == np.uint64:  # combined with int64 it would become float64
        _check_range(y)
        y = y.astype(np.int64)
    if y.dtype.kind == "f":
        if not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity")
        if (y != np.floor(y)).any():
            raise ValueError("Unknown label type: continuous. A label must be a string or a whole number")
    elif y.dtype.kind not in "biuU":
        raise ValueError(f"Unknown label type: {y.dtype}. A label must be a string or a whole number")
    if known is not None and len(known) and kind_of_labels(known) != kind_of_labels(y):
        raise ValueError(
            f"labels were {kind_of_labels(known)} so far and are {kind_of_labels(y)} now; they are never converted"
        )
    return y


def check_weights(sample_weight: Any, n_samples: int) -> np.ndarray | None:
    """One weight per sample, or None if all weights are equal."""
    if sample_weight is None:
        return None
    weights = np.asarray(readable(sample_weight, "sample_weight"), np.float64)
    if weights.shape != (n_samples,):
        raise ValueError(f"sample_weight must have one number for each of {n_samples} samples, got {weights.shape}")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("sample_weight must have finite numbers, 0 or more")
    if not weights.any():
        raise ValueError("all weights of sample_weight are zero, so there is nothing to learn")
    return weights


def repetitions(weights: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sample numbers, each repeated according to its weight.

    The fractional part of a weight is the probability of one more repetition. A class of which nothing is drawn keeps
    its heaviest sample.
    """
    times = np.floor(weights).astype(np.int64)
    if (times != weights).any():
        times += rng.random(len(weights)) < weights - times
        for label in np.setdiff1d(labels[weights > 0], labels[times > 0]):
            times[np.argmax(np.where(labels == label, weights, 0))] = 1
    return np.repeat(np.arange(len(weights)), times)


def _of_one_kind(labels: np.ndarray) -> np.ndarray:
    """An object array converted to strings, booleans, integers or floats."""
    kinds = {_kind_of(label_type) for label_type in set(map(type, labels))}
    if len(kinds) > 1 or not kinds <= set(_TYPES):
        raise ValueError(
            "Unknown label type: labels must all be strings, all integers, all booleans or all floating-point "
            f"numbers, got {', '.join(sorted(kinds))}"
        )
    if kinds == {"strings"} and any(label.endswith("\0") for label in labels):
        raise ValueError(
            "a label must not end with a NUL character: numpy drops it, and two labels could become one"
        )
    if kinds == {"integers"}:
        _check_range(labels)
    return labels.astype(_TYPES[kinds.pop()] if kinds else np.int64)


def _kind_of(label_type: type) -> str:
    """The kind of labels with this type, or the type's name if labels cannot have it."""
    return next((kind for types, kind in _KINDS.items() if issubclass(label_type, types)), label_type.__name__)


def _check_range(labels: np.ndarray) -> None:
    for label in (labels.min(), labels.max()) if len(labels) else ():
        if not _INT64.min <= int(label) <= _INT64.max:
            raise ValueError(
                f"integer labels must lie between -2**63 and 2**63 - 1, got {label}; use strings instead"
            )


def kind_of_labels(labels: np.ndarray) -> str:
    """What the labels of an array are: labels of two kinds are never equal."""
    return {"b": "booleans", "f": "floating-point numbers", "U": "strings"}.get(labels.dtype.kind, "integers")


def generator(random_state: Any) -> np.random.Generator:
    """A generator from a seed, a generator or a RandomState (from which a seed is drawn)."""
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(np.iinfo(np.int32).max)
    return np.random.default_rng(random_state)
