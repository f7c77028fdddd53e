"""TEEN: prototypes of new classes, pulled towards similar classes of the first task."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import softmax

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.closed_form.ncm import NCM
from taer.heads.embedding import unit_rows
from taer.heads.fitted import Fitted, array
from taer.heads.params import param


class TEEN(
    NCM,
    name="teen",
    card=Card(
        "frozen",
        old_scores="never",
        keeps="statistics",
        boundaries=True,
        forgets="yes, except its part in the prototypes of the first task",
        linear=False,
        sums=True,
    ),
):
    """TEEN: the nearest prototype by angle; those of later classes are pulled to the first task's; old scores never move.

    A class of the first task has the prototype ``p_b``, its mean at unit length. The mean ``p_c`` of a later class, at
    unit length, is replaced by ``(1 - alpha) p_c + alpha q_c``, where ``q_c`` is ``Σ_b softmax(tau · p_c·p_b) p_b`` at unit
    length. The score is the cosine with the prototype.

    Departures: the published method first trains the backbone on the first task (400 epochs on CUB-200); this is the
    part after it, on features as they are. The first task's prototypes are fixed when it ends, so that a class of it that
    is learned again moves only its own score. A class of a later task that is learned again has the mean of all its
    samples.

    References
    ----------
    Q. Wang et al., "Few-Shot Class-Incremental Learning via Training-Free Prototype Calibration", NeurIPS 2023.

    Examples
    --------
    >>> import numpy as np, taer
    >>> head = taer.zoo.TEEN().partial_fit(np.eye(3)[:2], ["a", "b"]).partial_fit([[0.6, 0.0, 0.8]], ["c"])
    >>> of_a, _, of_c = head.scores([[1.0, 0.0, 0.0]])[0]
    >>> round(float(of_a - of_c), 2)  # 0.4 before the prototype of "c" was pulled to that of "a"
    0.11
    """

    metric: str = param("cosine", "nearest by angle", options=("cosine",))
    alpha: float = param(
        0.5, "weight of the first task's prototypes in those of later classes", at_least=0, at_most=1
    )
    tau: float = param(16.0, "how much more the similar ones of them count", at_least=0)

    fitted: ClassVar[dict[str, Fitted]] = {
        "base_": array("base", "width", types=("float64",), help="prototypes of the first task, at unit length")
    }
    fixes: ClassVar[tuple[str, ...]] = ("base_",)

    def _solve(self, task: Task) -> None:
        if task.number == 1:
            self.base_: np.ndarray = self._prototypes(task.current)
        self._update(task.current)

    def _prototypes(self, classes: np.ndarray) -> np.ndarray:
        return unit_rows(self.statistics_.means[classes] + self.embedding_.center)

    def _update(self, classes: np.ndarray) -> None:
        prototypes = self._prototypes(classes)
        later = np.array([self.learning_order_[number].task > 1 for number in classes], bool)
        if later.any():
            near = softmax(self.tau * prototypes[later] @ self.base_.T, axis=1)
            pulled = (1 - self.alpha) * prototypes[later] + self.alpha * unit_rows(near @ self.base_)
            prototypes[later] = unit_rows(pulled)
        apart = prototypes - self.origin_
        self._set(classes, apart, (apart * self.origin_).sum(axis=1))
