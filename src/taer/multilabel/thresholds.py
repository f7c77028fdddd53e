"""The threshold of a label: where F1 is highest on samples that were scored before they were learned."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit

LOWEST, STEP, BINS = -4.0, 0.1, 200  # scores of samples without a label scatter around 0 by about 1
DEFAULT = 2.5  # deviations, if nothing was seen: about one in 160 samples without the label is above
_POOLED = 20.0  # samples of all labels in the threshold of one: few of its own say little
_SLOPES = (0.1, 20.0)
EDGES = LOWEST + STEP * np.arange(BINS)


def counted(scores: np.ndarray) -> np.ndarray:
    """How many scores fall into each step."""
    steps = np.clip(np.floor((scores - LOWEST) / STEP), 0, BINS - 1).astype(np.int64)
    return np.bincount(steps, minlength=BINS).astype(np.float64)


def threshold(inside: np.ndarray, outside: np.ndarray, pool: np.ndarray) -> float:
    """The step with the highest F1 of a label, whose counts are mixed with those of all labels (two rows)."""
    shared = pool * (_POOLED / pool[0].sum()) if pool[0].sum() else np.zeros_like(pool)
    right, wrong = (each[::-1].cumsum()[::-1] for each in np.stack([inside, outside]) + shared)
    if not right[0]:
        return DEFAULT
    return float(EDGES[np.argmax(2 * right / (right + wrong + right[0]))])


def slope(inside: np.ndarray, outside: np.ndarray, thresholds: np.ndarray) -> float:
    """How fast probabilities grow around a threshold: the lowest log loss over labels, whose counts are rows."""
    if not inside.sum() or not outside.sum():
        return 1.0
    apart = EDGES + STEP / 2 - thresholds[:, None]

    def loss(each: float) -> float:
        return float((inside * np.logaddexp(0, -each * apart) + outside * np.logaddexp(0, each * apart)).sum())

    return float(minimize_scalar(loss, bounds=_SLOPES, method="bounded").x)


def probability(scores: np.ndarray, thresholds: np.ndarray, slope: float) -> np.ndarray:
    """One half at the threshold."""
    found: np.ndarray = expit(slope * (scores - thresholds))
    return found
