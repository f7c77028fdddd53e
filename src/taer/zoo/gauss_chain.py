"""Per-class Gaussians around a covariance that keeps learning, with old scores that never change."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import softmax

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.closed_form.linalg import discriminants, shrunk
from taer.heads.closed_form.selection import evenly
from taer.heads.fitted import Fitted, number
from taer.zoo.shared.gaussians import GaussianHead, shared_covariance

_PAIRED = 2000  # old classes, every pair of which is compared; all pairs of 10,000 would take gigabytes


class GaussChain(
    GaussianHead,
    name="gauss-chain",
    card=Card(
        "frozen",
        old_scores="never",
        keeps="statistics",
        boundaries=True,
        forgets="except its part in the covariances",
        linear=False,
        few_shot=False,
    ),
):
    """Gaussians with the covariance of all data so far, chained to the frozen scores: old scores never change.

    A later task has a better estimate of the shared covariance than the first one, but its discriminants are not
    comparable with frozen ones. So each new class c inherits the gap between its old neighbors' frozen scores and
    their discriminants ``l`` under the covariance pooled up to task t::

        w_c·x + b_c  =  beta·l_c(x) + Σ_old P_cc' [ w_c'·x + b_c' - beta·l_c'(x) ]

    where ``P_cc'`` is the softmax of ``beta·(l_c'(μ_c) - l_c(μ_c)) / T``, ``T`` the temperature of the first task and
    ``beta`` the slope of the frozen on the current log-odds at the old means. The decision between c and its neighbors
    is then that of the current covariance. The covariance of the class adds a quadratic term, as in ``gauss-frozen``. No
    exemplars and no training; all settings are chosen in the first task by cross-validation.

    References
    ----------
    ``docs/evidence/beyond.md`` of this project.

    Examples
    --------
    >>> import taer
    >>> sketches = taer.load_features()
    >>> few = sketches.train_y < 10
    >>> head = taer.zoo.GaussChain(rank=8).fit(sketches.train_x[few], sketches.train_y[few])
    >>> head.score(sketches.test_x[sketches.test_y < 10], sketches.test_y[sketches.test_y < 10]) > 0.7
    True
    """

    fitted: ClassVar[dict[str, Fitted]] = {
        "shrinkage_": number(at_least=0, help="shrinkage of the shared covariance, chosen in the first task")
    }

    def _shared(self, task: Task) -> np.ndarray:
        statistics = self.statistics_
        if task.number == 1:
            covariance, self.shrinkage_ = shared_covariance(
                statistics.covariance(), statistics.n_samples, self.prior_
            )
            return covariance
        return shrunk(statistics.covariance(), self.shrinkage_)

    def _linear(self, covariance: np.ndarray, task: Task) -> tuple[np.ndarray, np.ndarray, float]:
        means, new, old = self.statistics_.means, task.current, task.old
        columns, offsets = discriminants(means, covariance)
        frozen, frozen_offsets = self.weights_[old].astype(np.float64), self.offsets_[old]
        some = evenly(np.arange(len(old)), _PAIRED)
        at, paired = means[old[some]], old[some]
        beta = _slope(at @ frozen[some].T + frozen_offsets[some], at @ columns[paired].T + offsets[paired])
        columns, offsets = beta * columns, beta * offsets
        if not len(old):
            return columns[new], offsets[new], beta
        at_means = means[new] @ columns.T + offsets
        apart = at_means[:, old] - at_means[np.arange(len(new)), new][:, None]
        neighbors = softmax(apart / self.first_temperature_, axis=1)
        columns_apart, offsets_apart = frozen - columns[old], frozen_offsets - offsets[old]
        return columns[new] + neighbors @ columns_apart, offsets[new] + neighbors @ offsets_apart, beta


def _slope(frozen: np.ndarray, present: np.ndarray) -> float:
    """The slope of the frozen on the current log-odds against the true class, at the means of the classes."""
    if len(frozen) < 2:
        return 1.0
    frozen, present = (scores - np.diag(scores)[:, None] for scores in (frozen, present))
    along, square = float((frozen * present).sum()), float(np.square(present).sum())
    return along / square if along > 0 else 1.0  # undefined if all classes have the same mean
