"""Experience replay of features drawn from a Gaussian of each class."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.closed_form.collect import collect
from taer.heads.descent.base import DescentHead
from taer.heads.descent.loop import Plan, Samples
from taer.heads.descent.losses import cross_entropy
from taer.heads.descent.memory import replay_batch_size
from taer.heads.fitted import Fitted, value_of
from taer.heads.params import param
from taer.statistics import ClassStatistics


class FeatureReplay(
    DescentHead,
    name="feature-replay",
    card=Card("related", old_scores="move", keeps="statistics", forgets="no", boundaries=True),
):
    """Feature replay: experience replay with samples drawn from one Gaussian per old class instead of stored ones.

    ``CE(D_t) + CE(draws)``, all columns move. At each task, ``draws`` features of every old class are drawn from
    ``N(μ_c, Σ)``, with the mean of the class and the shared covariance within classes, both of standardized features.
    The published method draws images from a generative adversarial network, distills, and corrects the bias on a
    balanced validation set. Features are frozen here, so a Gaussian takes the place of the network.

    Departures: a Gaussian instead of the network, and the loss of ``er``, without distillation and bias correction.

    References
    ----------
    Y. Wu et al., "Incremental Classifier Learning with Generative Adversarial Networks", 2018.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.FeatureReplay(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    draws: int = param(20, "number of features drawn per old class in each task", at_least=1)
    replay_batch_size: int = replay_batch_size()

    fitted: ClassVar[dict[str, Fitted]] = {
        "statistics_": value_of(
            ClassStatistics, width="width", help="counts, means and scatter of the classes in the mapped space"
        )
    }

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        return Plan(
            current=Samples(task.X, {"target": task.y}),
            replay=self._drawn(task) if len(task.old) else None,
            replay_size=self.replay_batch_size,
            weights=(1.0, 1.0),
            gradient=cross_entropy,
        )

    def _drawn(self, task: Task) -> Samples:
        target = np.repeat(task.old, self.draws)
        spectrum, vectors = np.linalg.eigh(self.statistics_.covariance())
        root = vectors * np.sqrt(np.maximum(spectrum, 0))
        noise = self.rng_.standard_normal((len(target), len(root))) @ root.T
        return Samples((self.statistics_.means[target] + noise).astype(self.dtype_), {"target": target})

    def _finish(self, task: Task) -> None:
        known = getattr(self, "statistics_", None)
        self.statistics_ = collect(self.embedding_, task, known, per_class=False)
