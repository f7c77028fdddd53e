"""Per-class Gaussians around the covariance of the first task."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.closed_form.linalg import discriminants
from taer.heads.fitted import Fitted, array
from taer.zoo.shared.gaussians import GaussianHead, shared_covariance


class GaussFrozen(
    GaussianHead,
    name="gauss-frozen",
    card=Card(
        "frozen",
        old_scores="never",
        keeps="statistics",
        boundaries=True,
        forgets="except its part in the first covariance",
        linear=False,
        few_shot=False,
    ),
):
    """Gaussians shrunk towards the covariance of the first task: old scores never change.

    The score of class c is the log-density of ``N(μ_c, (scatter_c + nu·B) / (n_c + nu))`` with ``B`` the shrunk
    covariance of the first task. No exemplars and no training; the normalization, the shrinkage of ``B`` and ``nu``
    are chosen in the first task by cross-validation.

    References
    ----------
    J. H. Friedman, "Regularized Discriminant Analysis", JASA 1989, with a fixed covariance.

    Examples
    --------
    >>> import taer
    >>> sketches = taer.load_features()
    >>> few = sketches.train_y < 10
    >>> head = taer.zoo.GaussFrozen(rank=8).fit(sketches.train_x[few], sketches.train_y[few])
    >>> head.score(sketches.test_x[sketches.test_y < 10], sketches.test_y[sketches.test_y < 10]) > 0.7
    True
    """

    fitted: ClassVar[dict[str, Fitted]] = {
        "covariance_": array("width", "width", help="shrunk covariance of the first task")
    }

    def _shared(self, task: Task) -> np.ndarray:
        if task.number == 1:
            statistics = self.statistics_
            self.covariance_ = shared_covariance(statistics.covariance(), statistics.n_samples, self.prior_)[0]
        return self.covariance_

    def _linear(self, covariance: np.ndarray, task: Task) -> tuple[np.ndarray, np.ndarray, float]:
        return *discriminants(self.statistics_.means[task.current], covariance), 1.0
