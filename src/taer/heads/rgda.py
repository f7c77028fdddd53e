"""Regularised Gaussian discriminant analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from taer.heads._params import param
from taer.heads.base import Task
from taer.heads.statistical import StatisticsHead, shrunk


@dataclass(kw_only=True, eq=False, repr=False)
class RGDA(StatisticsHead):
    """RGDA: per-class Gaussians shrunk towards the covariance of everything seen; old scores move.

    ``S_c = (1 - a)·B + a·S̃_c`` with ``B`` the pooled and ``S̃_c`` the own covariance, both shrunk towards a multiple of
    the identity: between SLDA (a = 0) and a Gaussian of its own for each class. Keeps a covariance per class.
    """

    normalize: str = param("auto", "as for every closed-form head", options=("none", "l2", "sqrt-l2", "auto"))
    own: float = param(0.1, "weight of the own covariance of a class", at_least=0)
    shrinkage: float = param(0.1, "share of the mean variance mixed into each covariance", at_least=0)

    per_class = True

    def _solve(self, X: Any, task: Task) -> None:
        statistics, order = self.statistics_, np.argsort(self._arrival)
        base = shrunk(statistics.covariance(), self.shrinkage)
        width = len(base)
        precisions, self.offsets_ = np.empty((len(order), width, width), self.dtype_), np.empty(len(order))
        self.means_ = statistics.means[order]
        for position, number in enumerate(order.tolist()):
            own = shrunk(statistics.scatters[number] / statistics.counts[number], self.shrinkage)
            if statistics.counts[number] < 2:
                own = base
            factor = cho_factor((1 - self.own) * base + self.own * own, lower=True)
            precisions[position] = cho_solve(factor, np.eye(width))
            self.offsets_[position] = -np.log(np.diag(factor[0])).sum()
        self.precisions_ = precisions

    def _scores(self, X: np.ndarray) -> np.ndarray:
        rows, scores = self._embed(X), np.empty((len(X), len(self.means_)))
        for position, mean in enumerate(self.means_):
            apart = (rows - mean).astype(self.dtype_)
            scores[:, position] = self.offsets_[position] - 0.5 * (
                (apart @ self.precisions_[position]) * apart
            ).sum(axis=1)
        return scores.astype(self.dtype_)
