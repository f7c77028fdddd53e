"""FeCAM: a Mahalanobis distance of its own for each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from taer.heads._fitted import Fitted, array
from taer.heads._params import param
from taer.heads.base import Task
from taer.heads.softmax import unit_rows
from taer.heads.statistical import StatisticsHead, squared_distances, whitener

_RIDGE = 1e-6  # a correlation matrix can be singular, for two features that are each other's opposite


@dataclass(kw_only=True, eq=False, repr=False)
class FeCAM(StatisticsHead):
    """FeCAM: the class that is nearest by the correlations within it; old scores never move.

    Goswami et al., NeurIPS 2023: features without negative values by their square root (Tukey), unit length, and for each
    class ``Σ_c + gamma1·V1·I + gamma2·V2·(1 - I)`` with ``V1`` and ``V2`` the mean variance and the mean covariance of two
    features, divided to correlations ``R_c``. The score is ``-(x - μ_c)ᵀ R_c⁻¹ (x - μ_c) / 2`` with ``μ_c`` at unit length.
    The covariance is that of rows of unit length, as in the authors' code for transformers (that for convolutional
    networks takes it before, and shrinks twice), and is shrunk once. Keeps a covariance per class.
    """

    normalize: str = param("auto", "as for every closed-form head", options=("none", "l2", "sqrt-l2", "auto"))
    gamma1: float = param(1.0, "weight of the mean variance", above=0)
    gamma2: float = param(1.0, "weight of the mean covariance; 0 in the paper for transformers", at_least=0)

    class_arrays: ClassVar[tuple[str, ...]] = ("means_", "whiteners_")
    fitted: ClassVar[dict[str, Fitted]] = {
        "means_": array("classes", "width"),
        "whiteners_": array("classes", "width", "width"),
    }
    frozen_scores: ClassVar[bool] = True

    @property
    def per_class(self) -> bool:
        return True

    def _solve(self, X: Any, task: Task) -> None:
        if self.gamma2 > self.gamma1:
            raise ValueError(f"FeCAM: gamma2 must be at most gamma1 = {self.gamma1:g}, got {self.gamma2:g}")
        statistics, numbers = self.statistics_, np.argsort(self._arrival)
        width = statistics.means.shape[1]
        means = getattr(self, "means_", np.zeros((0, width)))
        whiteners = getattr(self, "whiteners_", np.zeros((0, width, width), np.float32))
        self.means_, self.whiteners_ = task.reseat(means), task.reseat(whiteners)
        self.means_[task.current] = unit_rows(statistics.means[numbers[task.current]])
        for position in task.current:
            number = int(numbers[position])
            covariance = statistics.scatters[number] / max(1, statistics.counts[number] - 1)
            matrix = correlations(covariance, self.gamma1, self.gamma2) + _RIDGE * np.eye(width)
            self.whiteners_[position] = whitener(matrix)

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        """Scores for some classes, by position, or for all."""
        classes, rows = np.arange(len(self.means_)) if classes is None else classes, self._embed(X)
        scores = np.empty((len(rows), len(classes)))
        for column, position in enumerate(classes):
            scores[:, column] = -0.5 * squared_distances(rows, self.means_[position], self.whiteners_[position])
        return scores.astype(self.dtype_)


def correlations(covariance: np.ndarray, gamma1: float, gamma2: float) -> np.ndarray:
    """Of the covariance shrunk towards its mean variance and its mean covariance; the identity without variance."""
    width = len(covariance)
    variance = np.trace(covariance) / width
    if variance <= 0:
        return np.eye(width)
    between = (covariance.sum() - np.trace(covariance)) / max(1, width * (width - 1))
    shrunk = covariance + gamma2 * between + (gamma1 * variance - gamma2 * between) * np.eye(width)
    deviations = np.sqrt(np.diag(shrunk))
    return shrunk / np.outer(deviations, deviations)
