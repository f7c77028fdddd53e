"""Streaming linear discriminant analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from taer.heads._params import param
from taer.heads.base import Task
from taer.heads.statistical import SolvedHead, discriminants, shrunk

_ROWS = 5000  # enough to estimate one number


@dataclass(kw_only=True, eq=False, repr=False)
class SLDA(SolvedHead):
    """SLDA: linear discriminant analysis with the covariance of everything seen; old columns move.

    The statistics are exact, so the result does not depend on the order of the tasks (the streaming update of
    Hayes and Kanan, CVPRW 2020, does). The shrinkage is a share of the mean variance, so that the scale of the
    features does not matter; "ledoit-wolf" and "oas" estimate it in the first task.
    """

    shrinkage: Any = param(
        0.1, "share of the mean variance mixed into the covariance", at_least=0, options=("ledoit-wolf", "oas")
    )

    def _solve(self, X: Any, task: Task) -> None:
        if self.n_tasks_ == 1:
            self.shrinkage_ = self._estimated(X, task) if isinstance(self.shrinkage, str) else float(self.shrinkage)
        self._set_from_statistics()

    def _set_from_statistics(self) -> None:
        covariance = shrunk(self.statistics_.covariance(), self.shrinkage_)
        self._set_columns(*discriminants(self.statistics_.means, covariance))

    def _estimated(self, X: Any, task: Task) -> float:
        from sklearn.covariance import OAS, ledoit_wolf_shrinkage

        rows = self._rng_.permutation(len(X))[:_ROWS]
        means = self.statistics_.means[np.argsort(self._arrival)]
        centred = self._embed(X[rows]) - means[task.y[rows]]
        if self.shrinkage == "oas":
            return float(OAS(assume_centered=True).fit(centred).shrinkage_)
        return float(ledoit_wolf_shrinkage(centred, assume_centered=True))
