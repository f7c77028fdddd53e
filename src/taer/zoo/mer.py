"""Meta-experience replay."""

from __future__ import annotations

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Batch, step_down
from taer.heads.descent.losses import spread_cross_entropy
from taer.heads.descent.memory import MemoryHead, replay_batch_size
from taer.heads.params import param
from taer.memory import POLICIES, Memory, draw


class MER(MemoryHead, name="mer", card=Card("related", old_scores="move", keeps="exemplars", forgets="no")):
    """MER: alternates steps on old and new samples, and takes only a part of the total change (Reptile).

    For each batch of the task, ``batches`` times: a step of SGD on a draw from the memory, then a step on the batch, then
    ``W ← W_i + beta · (W - W_i)`` with ``W_i`` the columns before these two steps. Finally
    ``W ← W_0 + gamma · (W - W_0)`` with ``W_0`` the columns before all steps. Then the batch is offered to the
    memory, a reservoir. This is algorithm 1 of the paper; with ``batches=1, beta=1`` it is algorithm 6.

    Departure: the paper makes one step per sample; here a step is on a whole batch or draw, and ``gamma`` is smaller for
    a smaller last batch.

    References
    ----------
    M. Riemer et al., "Learning to Learn without Forgetting by Maximizing Transfer and Minimizing Interference", ICLR
    2019.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.MER(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    memory: str = param("reservoir", "which samples are stored; fixed by the first task", options=tuple(POLICIES))
    replay_batch_size: int = replay_batch_size()
    batches: int = param(5, "number of repetitions of a step on the memory and a step on the batch", at_least=1)
    beta: float = param(0.1, "fraction of the change that is kept after each repetition", above=0, at_most=1)
    gamma: float = param(1.0, "fraction of the change that is kept after all repetitions", above=0, at_most=1)

    def _learn(self, task: Task) -> None:
        self._learn_online(task, self._step)

    def _step(self, columns: np.ndarray, batch: Batch, memory: Memory) -> None:
        first = columns.copy()
        for _ in range(self.batches):
            start = columns.copy()
            if len(memory):
                drawn = draw(len(memory), self.replay_batch_size, 1, self.rng_)[0]
                self._descend(columns, self.embedding_(memory.X[drawn]), memory.y[drawn])
            self._descend(columns, batch.rows, batch.constants["target"])
            _go_back(columns, start, self.beta)
        _go_back(columns, first, self.gamma * batch.fraction)

    def _descend(self, columns: np.ndarray, rows: np.ndarray, target: np.ndarray) -> None:
        weight = np.full(len(rows), 1 / len(rows), rows.dtype)
        gradient = spread_cross_entropy((columns @ rows.T).T, target, weight, self.entropy)
        step_down(columns, gradient, rows, self.lr)


def _go_back(columns: np.ndarray, start: np.ndarray, part: float) -> None:
    """Keep a part of the change since ``start``, in place."""
    if part != 1:
        columns -= start
        columns *= part
        columns += start
