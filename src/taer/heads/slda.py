"""Streaming linear discriminant analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from taer.heads._fitted import Fitted, number
from taer.heads._params import param
from taer.heads.base import Task
from taer.heads.statistical import SolvedHead, discriminants, shrunk
from taer.statistics import ClassStatistics

_ROWS = 5000  # enough to estimate one number


@dataclass(kw_only=True, eq=False, repr=False)
class SLDA(SolvedHead):
    """SLDA: linear discriminant analysis with the covariance of everything seen; old columns move.

    The statistics are exact, so the result does not depend on the order of the tasks (the streaming update of
    Hayes and Kanan, CVPRW 2020, does). The shrinkage is a share of the mean variance, so that the scale of the
    features does not matter; "ledoit-wolf" and "oas" estimate it in the first task.
    """

    shrinkage: Any = param(
        0.1,
        "share of the mean variance mixed into the covariance",
        at_least=0,
        at_most=1,
        options=("ledoit-wolf", "oas"),
    )

    fitted: ClassVar[dict[str, Fitted]] = {"shrinkage_": number(at_least=0)}

    def _choose(self, X: Any, task: Task) -> None:
        self.shrinkage_ = self._estimated(X, task) if isinstance(self.shrinkage, str) else float(self.shrinkage)

    def _set_from_statistics(self) -> None:
        covariance = shrunk(self.statistics_.covariance(), self.shrinkage_)
        self._set_columns(*discriminants(self.statistics_.means, covariance))

    def _estimated(self, X: Any, task: Task) -> float:
        from sklearn.covariance import OAS, ledoit_wolf_shrinkage

        picks = self._rng_.permutation(len(X))[:_ROWS]
        rows, y = self._embed(X[picks]), task.y[picks]
        statistics = ClassStatistics(rows.shape[1]).update(rows, y)
        centred = rows - statistics.means[np.searchsorted(statistics.labels, y)]
        if self.shrinkage == "oas":
            return float(OAS(assume_centered=True).fit(centred).shrinkage_)
        return float(ledoit_wolf_shrinkage(centred, assume_centered=True))
