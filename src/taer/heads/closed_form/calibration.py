"""The temperature of probabilities, fitted on held-out samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy.optimize import minimize_scalar

from taer.heads.base import Task
from taer.heads.numerics import log_sum_exp

_HELD_OUT = 2000  # most samples for a temperature: enough for one number
_SCORES = 1 << 21  # most scores of these samples, for any number of classes
_POWERS = np.linspace(-8, 8, 33)  # grid of log temperatures


def held_out(task: Task) -> np.ndarray:
    """A mask of held-out samples: a fifth of each class, up to the number that a temperature needs."""
    held = np.zeros(len(task.y), bool)
    if task.n_classes > 1:
        most = max(1, _HELD_OUT // len(task.current))
        for _, members in task.members():
            held[members[: min(most, len(members) // 5)]] = True
    chosen, enough = np.flatnonzero(held), max(1, _SCORES // task.n_classes)
    if len(chosen) > enough:
        held[:] = False
        held[chosen[np.linspace(0, len(chosen) - 1, enough).astype(int)]] = True
    return held


def log_losses(scores: np.ndarray, target: np.ndarray, temperature: float) -> np.ndarray:
    """Cross-entropy of each sample."""
    scaled = scores / temperature
    return log_sum_exp(scaled) - scaled[np.arange(len(target)), target]


def best_temperature(scores: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None) -> float:
    """The temperature with the lowest cross-entropy."""
    spread = max(float(scores.std()), 1e-12)
    found = minimize_scalar(
        lambda power: np.average(log_losses(scores, target, spread * np.exp(power)), weights=weight),
        bounds=(-8, 8),
        method="bounded",
    )
    return float(spread * np.exp(found.x))


@dataclass(frozen=True)
class PooledLosses:
    """Log losses of all held-out samples so far, at each temperature of a grid, for scores that never move."""

    kind: ClassVar[str] = "pooled-losses"

    unit: float
    losses: np.ndarray

    @classmethod
    def start(cls, scores: np.ndarray) -> Self:
        return cls(max(float(scores.std()), 1e-12), np.zeros(len(_POWERS)))

    def plus(self, scores: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None) -> Self:
        each = 1.0 if weight is None else weight
        added = [(each * log_losses(scores, target, t)).sum() for t in self.unit * np.exp(_POWERS)]
        return type(self)(self.unit, self.losses + added)

    def __add__(self, other: Self) -> Self:
        """The sum with the losses of another head, interpolated at the temperatures of this grid."""
        found = np.interp(np.log(self.unit) + _POWERS, np.log(other.unit) + _POWERS, other.losses)
        return type(self)(self.unit, self.losses + found)

    def best_temperature(self) -> float:
        best = int(np.clip(self.losses.argmin(), 1, len(_POWERS) - 2))
        left, middle, right = self.losses[best - 1 : best + 2]
        between = (left - right) / (2 * (left - 2 * middle + right)) if middle < left + right - middle else 0.0
        power = _POWERS[best] + (_POWERS[1] - _POWERS[0]) * np.clip(between, -1, 1)  # the minimum of a parabola
        return float(self.unit * np.exp(power))

    def check(self, width: int, n_classes: int) -> None:
        """Raise ValueError unless these are losses on the grid."""
        if (
            self.losses.shape != _POWERS.shape
            or self.losses.dtype != np.float64
            or not np.isfinite(self.losses).all()
        ):
            raise ValueError(f"expected {len(_POWERS)} finite numbers")
        if not 0 < self.unit < np.inf:
            raise ValueError("expected a unit above zero")

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"unit": np.array(self.unit), "losses": self.losses}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        return cls(float(arrays["unit"]), arrays["losses"])
