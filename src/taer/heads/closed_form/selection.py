"""Samples and folds for cross-validation on the first task."""

from __future__ import annotations

from typing import Any

import numpy as np

_TRIAL_ROWS, _TRIAL_CLASSES = 20_000, 200
FOLDS = 5


def evenly(numbers: np.ndarray, most: int) -> np.ndarray:
    """All of the numbers, or so many of them, evenly spaced."""
    return numbers if len(numbers) <= most else numbers[np.linspace(0, len(numbers) - 1, most).astype(int)]


def trial_samples(X: Any, y: np.ndarray, classes: int = _TRIAL_CLASSES) -> tuple[np.ndarray, np.ndarray]:
    """All samples of a task, or a stratified subset of a large one, and their classes, numbered from zero."""
    picks = np.flatnonzero(np.isin(y, evenly(np.unique(y), classes)))
    if len(picks) > _TRIAL_ROWS:
        by_class = picks[np.argsort(y[picks], kind="stable")]
        picks = np.sort(evenly(by_class, _TRIAL_ROWS))
    return X[picks], np.unique(y[picks], return_inverse=True)[1]


def stratified_folds(y: np.ndarray) -> np.ndarray | None:
    """A stratified fold for each sample; None if that is impossible or pointless."""
    counts = np.bincount(y)
    if len(counts) < 2 or counts.min() < FOLDS:
        return None
    from sklearn.model_selection import StratifiedKFold  # slow to import, and needed only here

    folds = np.zeros(len(y), np.int64)
    split = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(np.zeros(len(y)), y)
    for number, (_, held) in enumerate(split):
        folds[held] = number
    return folds
