"""The distribution of a number in each class, stored as a few quantiles of equal weight."""

from __future__ import annotations

import numpy as np

SIZE = 32  # quantiles


def sketched(values: np.ndarray) -> np.ndarray:
    """Quantiles at the midpoints of equal fractions."""
    ranks = (np.arange(SIZE) + 0.5) / SIZE * (len(values) - 1)
    return np.interp(ranks, np.arange(len(values)), np.sort(values))


def mixed(one: np.ndarray, weight: float, other: np.ndarray, other_weight: float) -> np.ndarray:
    """The sketch of two sets of values together."""
    values, weights = np.concatenate([one, other]), np.repeat([weight, other_weight], SIZE)
    return np.array([pooled_quantile(values, weights, (at + 0.5) / SIZE) for at in range(SIZE)])


def pooled_quantile(values: np.ndarray, weights: np.ndarray, fraction: float) -> float:
    """The weighted quantile of several sketches, with linear interpolation."""
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    middle = (np.cumsum(weights) - 0.5 * weights) / weights.sum()
    return float(np.interp(fraction, middle, values))
