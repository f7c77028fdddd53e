"""Conformal prediction: sets of classes that contain the true class with a given probability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from taer.heads.validation import check_labels


def misfits(head: Any, X: Any, y: Any) -> np.ndarray:
    """One minus the probability of the true class for each sample, sorted."""
    probabilities = head.predict_proba(X)
    labels = check_labels(y, len(probabilities), head.classes_)
    head._numbers_of(labels)  # all are known
    at = np.searchsorted(head.classes_, labels)
    return np.sort(1 - probabilities[np.arange(len(at)), at].astype(np.float64))


def limit(misfits: np.ndarray, coverage: float) -> float:
    """The misfit that a new sample stays below with probability ``coverage`` or more (split conformal prediction)."""
    rank = int(np.ceil((len(misfits) + 1) * coverage))
    if rank > len(misfits):
        raise ValueError(
            f"a coverage of {coverage:g} needs {int(np.ceil(coverage / (1 - coverage)))} held-out samples or more to "
            f"calibrate with, got {len(misfits)}"
        )
    return float(misfits[rank - 1])


def check_coverage(coverage: float) -> None:
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be above 0 and below 1, got {coverage!r}")


def class_priors(head: Any, priors: Any) -> np.ndarray:
    """The prior of each class of ``classes_``."""
    if not isinstance(priors, Mapping):
        raise ValueError(f"priors must be a dictionary of labels and numbers, got {type(priors).__name__}")
    known = head.classes_.tolist()
    if missing := [label for label in known if label not in priors]:
        raise ValueError(f"priors has nothing for the class {missing[0]!r}")
    if unknown := [label for label in priors if label not in known]:
        raise ValueError(f"priors has {unknown[0]!r}, which is not a known class")
    weights = np.array([priors[label] for label in known], np.float64)
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise ValueError("priors must be finite numbers, 0 or more, and not all of them 0")
    return weights / weights.sum()
