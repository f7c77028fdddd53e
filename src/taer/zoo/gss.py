"""Gradient-based sample selection."""

from __future__ import annotations

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Batch, step_down
from taer.heads.descent.losses import spread_cross_entropy
from taer.heads.descent.memory import MemoryHead, replay_batch_size
from taer.heads.params import param
from taer.memory import POLICIES, Memory, draw


class GSS(MemoryHead, name="gss", card=Card("baseline", old_scores="move", keeps="exemplars", forgets="no")):
    """GSS: replays from a memory of samples whose gradients point in different directions.

    Each step is on the mean cross-entropy of a current and a replay batch together; then the current batch is
    offered to the memory. Unlike in the other heads, the memory is filled while a task is learned and has samples
    of the current task. This is how the public benchmark code (mammoth) implements it.

    References
    ----------
    R. Aljundi et al., "Gradient based sample selection for online continual learning", NeurIPS 2019.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.GSS(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    lr: float = param(0.03, "learning rate", above=0)
    memory: str = param("gss", "which samples are stored; fixed by the first task", options=tuple(POLICIES))
    replay_batch_size: int = replay_batch_size()

    def _learn(self, task: Task) -> None:
        self._learn_online(task, self._step)

    def _step(self, columns: np.ndarray, batch: Batch, memory: Memory) -> None:
        rows, target = batch.rows, batch.constants["target"]
        if len(memory):
            drawn = draw(len(memory), self.replay_batch_size, 1, self.rng_)[0]
            rows = np.concatenate([rows, self.embedding_(memory.X[drawn])])
            target = np.concatenate([target, memory.y[drawn]])
        weight = np.full(len(rows), 1 / len(rows), rows.dtype)
        gradient = spread_cross_entropy((columns @ rows.T).T, target, weight, self.entropy)
        step_down(columns, gradient, rows, self.lr * batch.fraction)
