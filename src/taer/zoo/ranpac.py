"""Ridge regression after a random projection."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from taer.heads.base import Head, Task
from taer.heads.card import Card
from taer.heads.closed_form.base import SolvedHead
from taer.heads.closed_form.least_squares import STRENGTH, WEIGHT, least_squares
from taer.heads.embedding import Normalize, RandomFeatures
from taer.heads.fitted import Fitted, number, value_of
from taer.heads.params import param


class RanPAC(
    SolvedHead,
    name="ranpac",
    card=Card(
        "closed form",
        old_scores="move",
        keeps="statistics",
        forgets="with `forgettable=True`",
        sums=True,
        few_shot=False,
    ),
):
    """RanPAC: ridge regression on ``relu(x R)`` with a fixed random matrix R; old columns move.

    The second phase of the published method, on features as they are. Keeps a square matrix of ``width``: 32 MB at
    2,000, and 800 MB at the 10,000 of its paper.

    As published, all samples have equal weight. Departures: the strength is chosen by generalized cross-validation on
    all data so far, not on a fifth of the current task; features are centered, which is equivalent to an intercept.

    References
    ----------
    M. McDonnell et al., "RanPAC: Random Projections and Pre-trained Models for Continual Learning", NeurIPS 2023.

    Examples
    --------
    >>> import taer
    >>> sketches = taer.load_features()
    >>> head = taer.zoo.RanPAC(width=500, random_state=0).fit(sketches.train_x, sketches.train_y)
    >>> head.score(sketches.test_x, sketches.test_y) > 0.5
    True
    """

    gamma: Any = param("auto", STRENGTH, at_least=0, options=("auto",))
    class_weight: Any = param(None, WEIGHT)
    width: int = param(2000, "number of random features", at_least=1)

    fitted: ClassVar[dict[str, Fitted]] = {
        "embedding_": value_of(RandomFeatures, width="width", help="the random features, fixed by the first task"),
        "gamma_": number(at_least=0, help="the strength in use"),
    }

    def _embedding(self, task: Task) -> RandomFeatures:
        projection = self.rng_.normal(size=(task.X.shape[1], self.width)).astype(np.float32)
        return RandomFeatures.fit(task.X, Normalize.fit(task.X, self.normalize).how, projection)

    def _calibrate(self, trial: Self, rest: Task, held: Task) -> None:
        trial.gamma = self.gamma_  # choosing it takes ten times as long as solving
        super()._calibrate(trial, rest, held)

    def _solution(self) -> tuple[np.ndarray, np.ndarray]:
        columns, offsets, self.gamma_ = least_squares(self)
        return columns, offsets

    # distances between thousands of random features would cost more than the prediction
    _novelty, _novelty_graph = Head._novelty, Head._novelty_graph
