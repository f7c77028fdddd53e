"""Gradient-based sample selection."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from taer.heads._params import param
from taer.heads.base import Task, softmax
from taer.heads.replay import ReplayHead
from taer.heads.sgd import Plan, Samples, one_blas_thread
from taer.heads.softmax import cross_entropy, cross_entropy_gradient
from taer.memory import POLICIES, draw


@dataclass(kw_only=True, eq=False, repr=False)
class GSS(ReplayHead):
    """GSS: replay from a memory whose gradients point in many directions.

    One step on the mean cross-entropy of the current and a replay batch together, then the current batch is
    offered to the memory: unlike the other heads', it is filled while a task is learned and holds samples of
    the current task (Aljundi et al., NeurIPS 2019, in the form of its public rerun).
    """

    lr: float = param(0.03, "learning rate", above=0)
    memory: str = param("gss", "which samples are kept; fixed by the first task", options=tuple(POLICIES))

    def _plan(self, X: Any, task: Task, columns: np.ndarray) -> Plan:
        self._old_memory(task)  # makes it in the first task
        return Plan(Samples(X, {"target": task.y, "row": np.arange(len(X))}), cross_entropy)

    def _descend(self, columns: np.ndarray, plan: Plan, epochs: int | None = None) -> None:
        memory, arrival = copy.copy(self.memory_), self._arrival
        memory.capacity = self.memory_size
        numbers = np.argsort(arrival)

        def residuals(rows: np.ndarray, number: np.ndarray) -> np.ndarray:
            found = softmax(self._map(rows) @ columns.T)
            found[np.arange(len(rows)), arrival[number]] -= 1
            return found

        with one_blas_thread(), np.errstate(all="ignore"):
            for _ in range(self.epochs if epochs is None else epochs):
                for batch in self._batches(plan):
                    rows, target = batch.rows, batch.constants["target"]
                    if len(memory):
                        drawn = draw(len(memory), self.replay_batch_size, 1, self._rng_)[0]
                        rows = np.concatenate([rows, self._map(memory.X[drawn])])
                        target = np.concatenate([target, arrival[memory.y[drawn]]])
                    weight = np.full(len(rows), 1 / len(rows), rows.dtype)
                    gradient = cross_entropy_gradient(rows @ columns.T, target, weight).T @ rows
                    columns -= self.lr * batch.fraction * gradient
                    offered = plan.current.X[batch.constants["row"]]
                    own = numbers[batch.constants["target"]]
                    memory.add(offered, own, self._rng_, embed=self._map, residuals=residuals)
        self._check_finite(columns)
        self.memory_ = memory

    def _finish(self, X: Any, task: Task) -> None:
        """The memory is full already."""
