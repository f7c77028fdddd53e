"""Weights that mattered to earlier tasks are pulled back to where they were: what such methods share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from taer.heads.base import Task, grown

Step = Callable[[np.ndarray, np.ndarray, float], None]


def importance(head: Any, name: str, task: Task) -> np.ndarray:
    """A copy of what the head knows of how much each weight mattered; zero for new classes."""
    return grown(getattr(head, name, np.zeros((0, task.X.shape[1]))), task.n_classes)


def pulled_back(columns: np.ndarray, strength: np.ndarray) -> Step:
    """The step for ``loss + Σ strength · (W - W*)²``, with ``W*`` the columns as they are now.

    The penalty is stepped implicitly, ``W ← (W - lr·g + c·W*) / (1 + c)`` with ``c = 2·lr·strength``: the same minimum,
    and stable however large the penalty is.
    """
    anchor, slope = columns.copy(), (2 * strength).astype(columns.dtype)

    def step(columns: np.ndarray, gradient: np.ndarray, lr: float) -> None:
        pull = lr * slope
        columns -= lr * gradient
        columns += pull * anchor
        columns /= 1 + pull

    return step
