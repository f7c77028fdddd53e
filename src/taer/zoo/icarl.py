"""Incremental classifier and representation learning."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import expit

from taer.heads import exact
from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Batch, Plan
from taer.heads.descent.memory import MemoryHead
from taer.heads.embedding import unit_rows
from taer.heads.fitted import Fitted, array
from taer.heads.params import param
from taer.memory import POLICIES


class ICaRL(
    MemoryHead,
    name="icarl",
    card=Card(
        "baseline", old_scores="move", keeps="exemplars", forgets="no", boundaries=True, linear=False, exports=False
    ),
):
    """iCaRL: predicts the nearest mean of exemplars, and also trains a sigmoid head.

    Features and exemplars are scaled to unit length, and so are the means of the exemplars; the class with the nearest
    mean is predicted. The head minimizes the binary cross-entropy over all seen classes on ``D_t ∪ M``, with the outputs
    at the start of the task as targets of old classes. On frozen features the old columns already meet these targets, so
    they do not move. The nearest mean does not depend on the head.

    Departures: no flipped images; ``memory="greedy"`` is the memory described in the paper's comparison.

    References
    ----------
    S.-A. Rebuffi et al., "iCaRL: Incremental Classifier and Representation Learning", CVPR 2017.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.ICaRL(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    lr: float = param(0.3, "learning rate", above=0)
    memory_size: int = param(200, "number of samples stored from all earlier tasks", at_least=1)
    memory: str = param("herding", "which samples are stored; fixed by the first task", options=tuple(POLICIES))
    inference: str = param(
        "nme", "predict with the nearest mean of exemplars or with the head", options=("nme", "head")
    )

    entropy: ClassVar[float] = 0.0  # type: ignore[misc]  # not a parameter: sigmoids are not probabilities over classes
    fitted: ClassVar[dict[str, Fitted]] = {
        "means_": array("classes", "width", help="means of the exemplars of each class, at unit length")
    }

    def _moving(self, task: Task) -> np.ndarray:
        return task.current

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        def gradient(scores: np.ndarray, batch: Batch) -> np.ndarray:
            """Gradient of the mean over samples and all seen classes; old classes contribute a constant."""
            is_class = batch.constants["target"][:, None] == task.current
            found: np.ndarray = (expit(scores) - is_class) / (len(scores) * task.n_classes)
            return found.astype(scores.dtype, copy=False)

        return Plan(self._union(task), gradient)

    def _finish(self, task: Task) -> None:
        self._remember(task)
        exemplars = unit_rows(self.embedding_(self.memory_.X))
        self.means_ = np.zeros((task.n_classes, task.X.shape[1]), self.dtype_)
        for number in np.unique(self.memory_.y):
            self.means_[number] = exemplars[self.memory_.y == number].mean(axis=0)
        self.means_ = unit_rows(self.means_)

    def _trained_scores(self, X: np.ndarray) -> np.ndarray:
        return super()._scores(X)

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        if self.inference == "head":
            return super()._scores(X, classes)
        # -|h - m|² = 2 h·m - 2 at unit length; a class without exemplars has no mean and ranks last
        means = self.means_ if classes is None else self.means_[classes]
        along = exact.products(unit_rows(self.embedding_(X)), exact.rounded(means, self.dtype_))
        scores: np.ndarray = (2 * along - 2).astype(self.dtype_)
        scores[:, ~means.any(axis=1)] = -4
        return scores
