"""Gradient-based sample selection."""

from __future__ import annotations

import copy

import numpy as np
from scipy.special import softmax

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Plan, Samples, check_finite
from taer.heads.descent.losses import cross_entropy, cross_entropy_gradient
from taer.heads.descent.memory import MemoryHead, replay_batch_size
from taer.heads.params import param
from taer.memory import POLICIES, draw


class GSS(MemoryHead, name="gss", card=Card("baseline", old_scores="move", keeps="exemplars", forgets="no")):
    """GSS: replay from a memory whose gradients point in many directions.

    One step on the mean cross-entropy of the current and a replay batch together, then the current batch is
    offered to the memory. Unlike in the other heads, the memory is filled while a task is learned and holds samples
    of the current task. This is the form of its public rerun.

    References
    ----------
    R. Aljundi et al., "Gradient based sample selection for online continual learning", NeurIPS 2019.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.GSS(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    lr: float = param(0.03, "learning rate", above=0)
    memory: str = param("gss", "which samples are kept; fixed by the first task", options=tuple(POLICIES))
    replay_batch_size: int = replay_batch_size()

    def _learn(self, task: Task) -> None:
        self._open(task)
        columns, embed = self._start(task, everything := np.arange(task.n_classes)), self.embedding_
        memory = copy.copy(self.memory_)
        memory.capacity = self.memory_size

        def residuals(X: np.ndarray, y: np.ndarray) -> np.ndarray:
            found: np.ndarray = softmax(embed(X) @ columns.T, axis=1)
            found[np.arange(len(X)), y] -= 1
            return found

        loop, plan = self._loop(), self._plan(task, columns)
        with np.errstate(all="ignore"):
            for batch in (batch for _ in range(self.epochs) for batch in loop.batches(plan)):
                rows, target = batch.rows, batch.constants["target"]
                if len(memory):
                    drawn = draw(len(memory), self.replay_batch_size, 1, self.rng_)[0]
                    rows = np.concatenate([rows, embed(memory.X[drawn])])
                    target = np.concatenate([target, memory.y[drawn]])
                weight = np.full(len(rows), 1 / len(rows), rows.dtype)
                gradient = cross_entropy_gradient(rows @ columns.T, target, weight).T @ rows
                columns -= self.lr * batch.fraction * gradient
                offered = task.X[batch.constants["row"]]
                memory.add(offered, batch.constants["target"], self.rng_, embed=embed, residuals=residuals)
        check_finite(columns, self.lr)
        self._store(everything, columns)
        self.memory_ = memory

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        return Plan(Samples(task.X, {"target": task.y, "row": np.arange(len(task.X))}), cross_entropy)
