"""Streaming linear discriminant analysis."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.closed_form.base import SolvedHead
from taer.heads.closed_form.linalg import discriminants, shrunk
from taer.heads.fitted import Fitted, number
from taer.heads.params import param
from taer.statistics import ClassStatistics

_ROWS = 5000  # enough to estimate one number


class SLDA(
    SolvedHead,
    name="slda",
    card=Card(
        "closed form",
        old_scores="move",
        keeps="statistics",
        forgets="with `forgettable=True`",
        sums=True,
        few_shot=False,
    ),
):
    """SLDA: linear discriminant analysis with the covariance of everything seen; old columns move.

    The statistics are exact, so the result does not depend on the order of the tasks (the published streaming update
    does). The shrinkage is a fraction of the mean variance, so that the scale of the features does not matter;
    "ledoit-wolf" and "oas" estimate it in the first task.

    References
    ----------
    T. Hayes, C. Kanan, "Lifelong Machine Learning with Deep Streaming Linear Discriminant Analysis", CVPRW 2020.

    Examples
    --------
    >>> import taer
    >>> sketches = taer.load_features()
    >>> head = taer.SLDA().fit(sketches.train_x, sketches.train_y)
    >>> round(head.score(sketches.test_x, sketches.test_y), 2)
    0.63
    """

    shrinkage: Any = param(
        0.1,
        "fraction of the mean variance mixed into the covariance",
        at_least=0,
        at_most=1,
        options=("ledoit-wolf", "oas"),
    )

    fitted: ClassVar[dict[str, Fitted]] = {"shrinkage_": number(at_least=0, help="the shrinkage in use")}

    fixes: ClassVar[tuple[str, ...]] = ("shrinkage_",)

    def _choose(self, task: Task) -> None:
        self.shrinkage_ = self._estimated(task) if isinstance(self.shrinkage, str) else float(self.shrinkage)

    def _solution(self) -> tuple[np.ndarray, np.ndarray]:
        return discriminants(self.statistics_.means, shrunk(self.statistics_.covariance(), self.shrinkage_))

    def _estimated(self, task: Task) -> float:
        from sklearn.covariance import OAS, ledoit_wolf_shrinkage

        picks = self.rng_.permutation(len(task.X))[:_ROWS]
        rows, y = self.embedding_(task.X[picks]), task.y[picks]
        statistics = ClassStatistics(rows.shape[1]).update(rows, y)
        centered = rows - statistics.means[np.searchsorted(statistics.labels, y)]
        if self.shrinkage == "oas":
            return float(OAS(assume_centered=True).fit(centered).shrinkage_)
        return float(ledoit_wolf_shrinkage(centered, assume_centered=True))
