"""Quadratic penalties on changes of important weights, shared by ``oewc``, ``si``, ``mas`` and ``rwalk``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from taer.heads.base import Task
from taer.heads.numerics import grown

Step = Callable[[np.ndarray, np.ndarray, float], None]


def importance(head: Any, name: str, task: Task) -> np.ndarray:
    """A copy of the head's importance of each weight, with zeros for new classes."""
    return grown(getattr(head, name, np.zeros((0, task.X.shape[1]))), task.n_classes)


def pulled_back(columns: np.ndarray, strength: np.ndarray) -> Step:
    """The step for ``loss + Σ strength · (W - W*)²``, with ``W*`` the columns as they are now.

    The step of the penalty is implicit, ``W ← (W - lr·g + c·W*) / (1 + c)`` with ``c = 2·lr·strength``. It has the same
    minimum and is stable for any strength.
    """
    anchor, slope = columns.copy(), (2 * strength).astype(columns.dtype)

    def step(columns: np.ndarray, gradient: np.ndarray, lr: float) -> None:
        pull = lr * slope
        columns -= lr * gradient
        columns += pull * anchor
        columns /= 1 + pull

    return step
