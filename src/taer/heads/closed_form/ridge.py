"""Ridge regression on class indicators."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.closed_form.base import SolvedHead
from taer.heads.closed_form.least_squares import STRENGTH, WEIGHT, least_squares
from taer.heads.fitted import Fitted, number
from taer.heads.params import param


class Ridge(
    SolvedHead,
    name="ridge",
    card=Card("closed form", old_scores="move", keeps="statistics", forgets="with `forgettable=True`", sums=True),
):
    """Ridge: least squares on one-hot labels, equal to fitting all data at once; old columns move.

    ``(G + γ I)⁻¹ Q`` with ``G = Xᵀ X`` and ``Q = Xᵀ Y`` of centered data, both known from the class statistics. With
    ``gamma="auto"`` the strength is chosen again at every task, from these statistics alone, by generalized
    cross-validation: the strongest local minimum of ``RSS / (1 - df / n)²``. So the result does not depend on the order
    of the tasks.

    With ``class_weight="balanced"`` all classes have equal weight, even those with few samples, as in AIR (Fang et al.,
    2024): ``G`` and ``Q`` are those of ``n / classes`` samples per class around the known means, with the pooled
    covariance. That is weighted ridge regression if all classes have the same covariance. Without this assumption, one
    matrix per class would have to be stored.

    References
    ----------
    G. Golub, M. Heath, G. Wahba, "Generalized Cross-Validation as a Method for Choosing a Good Ridge Parameter", 1979.

    Examples
    --------
    >>> import taer
    >>> sketches = taer.load_features()
    >>> head = taer.Ridge().fit(sketches.train_x, sketches.train_y)
    >>> head.score(sketches.test_x, sketches.test_y) > 0.5
    True
    """

    gamma: Any = param("auto", STRENGTH, at_least=0, options=("auto",))
    class_weight: Any = param("balanced", WEIGHT)

    fitted: ClassVar[dict[str, Fitted]] = {"gamma_": number(at_least=0, help="the strength in use")}

    def _calibrate(self, trial: Self, rest: Task, held: Task) -> None:
        trial.gamma = self.gamma_  # choosing it takes ten times as long as solving
        super()._calibrate(trial, rest, held)

    def _solution(self) -> tuple[np.ndarray, np.ndarray]:
        columns, offsets, self.gamma_ = least_squares(self)
        return columns, offsets
