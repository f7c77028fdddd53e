"""Hard attention to the task."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import expit

from taer.heads.base import Task
from taer.heads.descent.loop import Samples
from taer.heads.descent.losses import cross_entropy
from taer.heads.fitted import Fitted
from taer.heads.params import param
from taer.zoo.shared.adapter_network import Network, NetworkPlan
from taer.zoo.shared.adapter_tasks import GUESSING, MASKS, TaskHead

LARGEST = 6.0  # absolute value of an embedding
STEEPEST = 50.0  # s · embedding where the compensation stops growing


class HATAdapter(TaskHead, name="hat-adapter", card=GUESSING):
    """HAT: each task learns a nearly binary mask of the units, and units in earlier masks are protected.

    With a mask ``a = sigmoid(s · e)`` of task t on the units and ``u`` the largest mask of any earlier task::

        CE over Y_t of weights_ @ (a ∘ relu(hidden_ @ h))  +  sparsity · Σ a (1 - u) / Σ (1 - u)

    ``s`` grows from ``1 / s_max`` to ``s_max`` in each epoch. Gradients by the incoming weights of a unit are
    multiplied by ``1 - u``, those by the embedding ``e`` by ``s_max (cosh(s e) + 1) / (s (cosh(e) + 1))``, with
    ``|s e|`` at most 50 there and ``|e|`` at most 6. Each task has its own outputs.

    Departures: one layer of units above frozen features instead of a whole network; the task of a test sample is guessed
    by the lowest entropy. A task without new classes does not change the masks.

    References
    ----------
    J. Serrà et al., "Overcoming Catastrophic Forgetting with Hard Attention to the Task", ICML 2018.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(4), 20, axis=0), np.repeat([0, 1, 2, 3], 20)
    >>> head = taer.zoo.HATAdapter(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.scores(np.eye(4)[2:], classes=[2, 3]).argmax(axis=1)  # the task given
    array([0, 1])
    """

    s_max: float = param(400.0, "largest steepness of the masks", above=1)
    sparsity: float = param(0.75, "strength of the penalty on units that no earlier task uses", at_least=0)

    fitted: ClassVar[dict[str, Fitted]] = MASKS

    def _plan(self, task: Task, network: Network) -> NetworkPlan:
        free = 1 - np.delete(self._masks(), task.number - 1, axis=0).max(axis=0, initial=0)
        by_penalty = self.sparsity * free / max(free.sum(), 1)
        embedding = self.rng_.normal(size=len(free)).astype(self.dtype_)
        steepness = self.s_max

        def prepare(done: float) -> None:
            nonlocal steepness
            steepness = annealed(done, self.s_max)
            network.gates[:] = expit(steepness * embedding)

        def move(network: Network, gradients: Network, lr: float) -> None:
            network.hidden[:] -= lr * free[:, None] * gradients.hidden
            network.columns[:] -= lr * gradients.columns
            if self._is_new(task):
                slope = steepness * network.gates * (1 - network.gates)
                by_embedding = (gradients.gates + by_penalty) * slope
                embedding[:] -= lr * by_embedding * compensation(embedding, steepness, self.s_max)
                np.clip(embedding, -LARGEST, LARGEST, out=embedding)
                network.gates[:] = expit(self.s_max * embedding)

        current = Samples(task.X, {"target": task.y})
        return NetworkPlan(current, cross_entropy, prepare=prepare if self._is_new(task) else None, move=move)


def annealed(done: float, s_max: float) -> float:
    """The steepness after a fraction of the steps of an epoch."""
    return 1 / s_max + (s_max - 1 / s_max) * done


def compensation(embedding: np.ndarray, s: float, s_max: float) -> np.ndarray:
    """The factor for the gradient of the embedding, so that a steep mask can still change."""
    steep = np.clip(s * embedding, -STEEPEST, STEEPEST).astype(np.float64)
    found: np.ndarray = s_max / s * (np.cosh(steep) + 1) / (np.cosh(embedding.astype(np.float64)) + 1)
    return found.astype(embedding.dtype)
