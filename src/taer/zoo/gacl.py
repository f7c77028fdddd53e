"""GACL: ridge regression after a random projection, by sums, for streams in which classes return."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from taer.heads.base import Head, Task
from taer.heads.card import Card
from taer.heads.closed_form.base import SolvedHead
from taer.heads.embedding import Normalize, RandomFeatures
from taer.heads.fitted import Fitted, value_of
from taer.heads.params import param
from taer.zoo.shared.ridge import ridge_solved

_HIDDEN = 1e-6  # of the penalty: sums of squares below it change the solution less than float32 shows


class GACL(
    SolvedHead,
    name="gacl",
    card=Card(
        "closed form",
        old_scores="move",
        keeps="statistics",
        forgets="with `forgettable=True`",
        sums=True,
        few_shot=False,
    ),
):
    """GACL: ridge regression on ``relu(x R)`` without an intercept and with a fixed strength; old columns move.

    ``W = (Σ z zᵀ + gamma·I)⁻¹ Σ z yᵀ`` with ``z = relu(x R)`` and ``y`` the indicator of the class. The published
    recursion updates an inverse batch by batch, and adds what a class that returns contributes; its result is exactly
    this one, whatever the batches and the order, so the sums are solved here when a task ends. Entries of ``R`` are
    uniform in ±1/√n_features, as a linear layer of the authors' code starts.

    Departures: 2,000 random features in place of 5,000 (a square matrix of ``width`` is kept). ``gamma`` is the paper's,
    whose objective has each sample once. The authors' script learns each batch three times, so that their 100 acts
    there like 33 here.

    References
    ----------
    H. Zhuang et al., "GACL: Exemplar-Free Generalized Analytic Continual Learning", NeurIPS 2024.

    Examples
    --------
    >>> import taer
    >>> sketches = taer.load_features()
    >>> head = taer.zoo.GACL(width=500, random_state=0).fit(sketches.train_x, sketches.train_y)
    >>> head.score(sketches.test_x, sketches.test_y) > 0.5
    True
    """

    weighs: ClassVar[bool] = False  # the strength is in units of samples
    gamma: float = param(100.0, "strength of the penalty", above=0)
    width: int = param(2000, "number of random features", at_least=1)

    fitted: ClassVar[dict[str, Fitted]] = {
        "embedding_": value_of(RandomFeatures, width="width", help="the random features, fixed by the first task")
    }

    def _embedding(self, task: Task) -> RandomFeatures:
        bound = 1 / np.sqrt(task.X.shape[1])
        projection = self.rng_.uniform(-bound, bound, (task.X.shape[1], self.width)).astype(np.float32)
        return RandomFeatures.fit(task.X, Normalize.fit(task.X, self.normalize).how, projection)

    def _solution(self) -> tuple[np.ndarray, np.ndarray]:
        center, counts = self.embedding_.center, self.statistics_.counts
        means = self.statistics_.means + center  # the regression has no intercept, so that zero matters
        sums = means * counts[:, None]
        moments = self.statistics_.scatter + means.T @ sums
        if 0 < np.trace(moments) < _HIDDEN * self.gamma:
            raise ValueError(
                "GACL cannot learn features of this size: its penalty hides them; scale the features to about 1"
            )
        moments.flat[:: len(moments) + 1] += self.gamma
        columns = ridge_solved(self, moments, sums.T).T
        return columns, columns @ center

    # distances between thousands of random features would cost more than the prediction
    _novelty, _novelty_graph = Head._novelty, Head._novelty_graph
