"""Per-class Gaussians around a covariance that goes on learning, with scores that do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taer.heads._fitted import Fitted, number
from taer.heads.base import Task, softmax
from taer.heads.gaussians import GaussianHead, shared_covariance
from taer.heads.statistical import discriminants, shrunk


@dataclass(kw_only=True, eq=False, repr=False)
class GaussChain(GaussianHead):
    """Gaussians around all that is known when a class arrives, chained to the frozen scores: old scores never change.

    A later task knows the shared covariance better than the first one did, but its discriminants are not
    comparable with frozen ones. So with ``l`` the discriminants of all classes under the covariance pooled up to
    task t, each new class c takes over what its old neighbours' frozen scores differ from theirs::

        w_c·x + b_c  =  beta·l_c(x) + Σ_old P_cc' [ w_c'·x + b_c' - beta·l_c'(x) ]

    where ``P_cc'`` is the softmax of ``beta·(l_c'(μ_c) - l_c(μ_c)) / T``, ``T`` the temperature of the first task and
    ``beta`` the slope of the frozen on the present log-odds at the old means. Between c and its neighbours the decision
    is then that of the present covariance. A class's own covariance adds a quadratic term, as in ``gauss-frozen``. No
    exemplars, no training; everything to be chosen is chosen in the first task by cross-validation.
    """

    fitted: ClassVar[dict[str, Fitted]] = {"shrinkage_": number(at_least=0)}

    def _shared(self, task: Task) -> np.ndarray:
        statistics = self.statistics_
        if self.n_tasks_ == 1:
            covariance, self.shrinkage_ = shared_covariance(
                statistics.covariance(), statistics.n_samples, self.prior_
            )
            return covariance
        return shrunk(statistics.covariance(), self.shrinkage_)

    def _linear(self, covariance: np.ndarray, task: Task) -> tuple[np.ndarray, np.ndarray, float]:
        means = self.statistics_.means[np.argsort(self._arrival)]
        columns, offsets = discriminants(means, covariance)
        new, old = task.current, task.old
        beta = _slope(
            means[old] @ self.coef_[old].T + self.intercept_[old], means[old] @ columns[old].T + offsets[old]
        )
        columns, offsets = beta * columns, beta * offsets
        if not len(old):
            return columns[new], offsets[new], beta
        at_means = means[new] @ columns.T + offsets
        apart = at_means[:, old] - at_means[np.arange(len(new)), new][:, None]
        neighbours = softmax(apart / self.first_temperature_)
        columns_apart, offsets_apart = self.coef_[old] - columns[old], self.intercept_[old] - offsets[old]
        return columns[new] + neighbours @ columns_apart, offsets[new] + neighbours @ offsets_apart, beta


def _slope(frozen: np.ndarray, present: np.ndarray) -> float:
    """Of the log-odds against the true class, at the means of the classes: frozen on present."""
    if len(frozen) < 2:
        return 1.0
    frozen, present = (scores - np.diag(scores)[:, None] for scores in (frozen, present))
    along, square = float((frozen * present).sum()), float(np.square(present).sum())
    return along / square if along > 0 else 1.0  # nothing to learn from classes that all have one mean
