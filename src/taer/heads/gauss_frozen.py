"""Per-class Gaussians around the covariance of the first task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taer.heads._fitted import Fitted, array
from taer.heads.base import Task
from taer.heads.gaussians import GaussianHead, shared_covariance
from taer.heads.statistical import discriminants


@dataclass(kw_only=True, eq=False, repr=False)
class GaussFrozen(GaussianHead):
    """Gaussians shrunk towards the covariance of the first task: old scores never change.

    The score of class c is the log-density of ``N(μ_c, (scatter_c + nu·B) / (n_c + nu))`` with ``B`` the shrunk
    covariance of the first task. No exemplars and no training; the normalisation, the shrinkage of ``B`` and ``nu``
    are chosen in the first task by cross-validation.
    """

    fitted: ClassVar[dict[str, Fitted]] = {"covariance_": array("width", "width")}

    def _shared(self, task: Task) -> np.ndarray:
        if self.n_tasks_ == 1:
            statistics = self.statistics_
            self.covariance_ = shared_covariance(statistics.covariance(), statistics.n_samples, self.prior_)[0]
        return self.covariance_

    def _linear(self, covariance: np.ndarray, task: Task) -> tuple[np.ndarray, np.ndarray, float]:
        means = self.statistics_.means[np.argsort(self._arrival)][task.current]
        return *discriminants(means, covariance), 1.0
