"""Regularised Gaussian discriminant analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from taer.heads._fitted import Fitted, array
from taer.heads._params import param
from taer.heads.base import Task
from taer.heads.statistical import StatisticsHead, shrunk, squared_distances, whitener


@dataclass(kw_only=True, eq=False, repr=False)
class RGDA(StatisticsHead):
    """RGDA: per-class Gaussians shrunk towards the covariance of everything seen; old scores move.

    ``S_c = (1 - a)·B + a·S̃_c`` with ``B`` the pooled and ``S̃_c`` the own covariance, both shrunk towards a multiple of
    the identity: between SLDA (a = 0) and a Gaussian of its own for each class. Keeps a covariance per class.
    """

    normalize: str = param("auto", "as for every closed-form head", options=("none", "l2", "sqrt-l2", "auto"))
    own: float = param(0.1, "weight of the own covariance of a class", at_least=0, at_most=1)
    shrinkage: float = param(0.1, "share of the mean variance mixed into each covariance", at_least=0, at_most=1)

    class_arrays: ClassVar[tuple[str, ...]] = ("means_", "offsets_", "whiteners_")
    fitted: ClassVar[dict[str, Fitted]] = {
        "means_": array("classes", "width"),
        "offsets_": array("classes"),
        "whiteners_": array("classes", "width", "width"),
    }

    @property
    def per_class(self) -> bool:
        return True

    def _forget_number(self, number: int) -> None:
        super()._forget_number(number)
        self._set_from_statistics()

    def _solve(self, X: Any, task: Task) -> None:
        self._set_from_statistics()

    def _set_from_statistics(self) -> None:
        statistics, order = self.statistics_, np.argsort(self._arrival)
        base = shrunk(statistics.covariance(), self.shrinkage)
        self.means_, self.offsets_ = statistics.means[order], np.empty(len(order))
        self.whiteners_ = np.empty((len(order), *base.shape), self.dtype_)
        for position, number in enumerate(order.tolist()):
            own = shrunk(statistics.scatters[number] / statistics.counts[number], self.shrinkage)
            if statistics.counts[number] < 2:
                own = base
            inverse = whitener((1 - self.own) * base + self.own * own)
            self.whiteners_[position] = inverse
            self.offsets_[position] = np.log(np.diag(inverse)).sum()

    def _scores(self, X: np.ndarray) -> np.ndarray:
        rows, scores = self._embed(X), np.empty((len(X), len(self.means_)))
        for position, mean in enumerate(self.means_):
            distances = squared_distances(rows, mean, self.whiteners_[position])
            scores[:, position] = self.offsets_[position] - 0.5 * distances
        return scores.astype(self.dtype_)
