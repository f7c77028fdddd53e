"""Linear discriminant analysis of random Fourier features."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from taer.heads.base import Head, Task
from taer.heads.card import Card
from taer.heads.closed_form.base import NORMALIZE, SolvedHead
from taer.heads.closed_form.linalg import discriminants, shrunk
from taer.heads.embedding import NORMALIZATIONS, Normalize, RandomFeatures, normalized
from taer.heads.fitted import Fitted, value_of
from taer.heads.params import param


class RFFLDA(
    SolvedHead,
    name="rff-lda",
    card=Card(
        "closed form",
        old_scores="move",
        keeps="statistics",
        forgets="with `forgettable=True`, except its part in the bandwidth",
        sums=True,
        few_shot=False,
    ),
):
    """RFF-LDA: SLDA on random features of a Gaussian kernel; old columns move.

    ``√(2/m) cos(x Ω + u)``, as in KLDA and RanDumb. The bandwidth of the kernel is the median squared distance in the
    first task; these methods tune it per data set.

    References
    ----------
    A. Prabhu et al., "RanDumb: Random Representations Outperform Online Continually Learned Representations",
    NeurIPS 2024.

    Examples
    --------
    >>> import taer
    >>> sketches = taer.load_features()
    >>> head = taer.zoo.RFFLDA(width=500, random_state=0).fit(sketches.train_x, sketches.train_y)
    >>> head.score(sketches.test_x, sketches.test_y) > 0.4
    True
    """

    normalize: str = param("auto", NORMALIZE, options=(*NORMALIZATIONS, "auto"))
    shrinkage: float = param(0.01, "fraction of the mean variance mixed into the covariance", at_least=0, at_most=1)
    width: int = param(2000, "number of random features", at_least=1)

    fitted: ClassVar[dict[str, Fitted]] = {
        "embedding_": value_of(RandomFeatures, width="width", help="the random features, fixed by the first task")
    }

    def _embedding(self, task: Task) -> RandomFeatures:
        X, how = task.X, Normalize.fit(task.X, self.normalize).how
        one, other = (normalized(X[numbers], how) for numbers in self.rng_.integers(0, len(X), (2, 1000)))
        squared = float(np.median(np.square(one - other).sum(axis=1)))
        scale = 1 / np.sqrt(squared) if squared > 0 else 1.0
        frequencies = (scale * self.rng_.normal(size=(X.shape[1], self.width))).astype(np.float32)
        phases = self.rng_.uniform(0, 2 * np.pi, self.width).astype(np.float32)
        return RandomFeatures.fit(X, how, frequencies, phases)

    def _solution(self) -> tuple[np.ndarray, np.ndarray]:
        return discriminants(self.statistics_.means, shrunk(self.statistics_.covariance(), self.shrinkage))

    # distances between thousands of random features would cost more than the prediction
    _novelty, novelty_graph = Head._novelty, Head.novelty_graph
