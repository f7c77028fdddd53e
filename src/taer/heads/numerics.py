"""Small functions of arrays that several heads need."""

from __future__ import annotations

import numpy as np


def log_sum_exp(scores: np.ndarray) -> np.ndarray:
    """Logarithm of the sum of exponentials over the last axis, summed in float64; -inf for no columns."""
    if not scores.shape[-1]:
        return np.full(scores.shape[:-1], -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    return top[..., 0].astype(np.float64) + np.log(np.exp(scores - top).sum(axis=-1, dtype=np.float64))


def grown(rows: np.ndarray, n_classes: int) -> np.ndarray:
    """A copy with one row per class; rows of new classes are zeros."""
    return np.concatenate([rows, np.zeros((n_classes - len(rows), *rows.shape[1:]), rows.dtype)])
