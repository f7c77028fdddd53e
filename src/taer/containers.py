"""Rows and items by their position, whatever a user holds them in: arrays, tables, columns, tensors, lists.

A column of pandas is indexed by the labels of its index, so ``X[0]`` may be any row of it, or none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import numpy as np


def is_lazy(X: Any) -> bool:
    """Whether this is row-indexable storage that cannot become an array without reading all of it."""
    return (
        all(hasattr(X, name) for name in ("shape", "dtype", "__getitem__"))
        and isinstance(X.dtype, np.dtype)
        and not hasattr(X, "__array_interface__")
        and not hasattr(X, "iloc")
    )


def readable(X: Any, what: str) -> Any:
    """What numpy and scikit-learn can read: a tensor becomes an array, and what has no positions is refused."""
    if isinstance(X, Iterator):
        raise ValueError(
            f"{what}: expected a list or an array, got a {type(X).__name__}, which can be read only once: list(…)"
        )
    if isinstance(X, Mapping | Set) or (hasattr(X, "collect") and not hasattr(X, "__len__")):
        raise ValueError(
            f"{what}: expected a list, an array or a table, got a {type(X).__name__}, whose rows have no positions"
        )
    if isinstance(X, list | tuple) and X and hasattr(X[0], "detach"):
        return np.stack([readable(row, what) for row in X])
    if hasattr(X, "detach"):  # a tensor of torch: numpy reads none with gradients, on a GPU, or of bfloat16
        X = X.detach().cpu()
        return (X.float() if str(X.dtype) == "torch.bfloat16" else X).numpy()
    if getattr(getattr(X, "dtype", None), "name", "") == "bfloat16":  # of jax, or a file
        return np.asarray(X).astype(np.float32)
    return X


def by_position(X: Any, what: str) -> Any:
    """An array of tables, columns, tensors and lists. Arrays, and storage that reads what is indexed, stay as they are."""
    X = readable(X, what)
    return X if isinstance(X, np.ndarray) or is_lazy(X) else np.asarray(X)


def items_of(X: Any, what: str) -> Iterable[Any]:
    """The items of a list, an array, a column, or a table with one column, in the order of their positions."""
    if isinstance(X, str | bytes | os.PathLike) or not hasattr(readable(X, what), "__len__") or not len(X):
        raise ValueError(f"expected a list of {what}, at least one; got {X!r:.80}")
    if not _has_columns(X):
        return X.to_pylist() if hasattr(X, "to_pylist") else X
    if X.shape[1] != 1:
        raise ValueError(f"expected one column of {what}, got {X.shape[1]}; choose one")
    if hasattr(X, "iloc"):
        return X.iloc[:, 0]
    return X.column(0).to_pylist() if hasattr(X, "to_pylist") else X[:, 0]


def _has_columns(X: Any) -> bool:
    """Whether this is a table, or an array of texts in a column."""
    return len(getattr(X, "shape", ())) == 2 and (not isinstance(X, np.ndarray) or X.dtype.kind in "OUST")
