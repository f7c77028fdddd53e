"""Distillation: scores of old classes should stay what they were when the task began."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from taer.heads.base import Head, Task

TEMPERATURE = 2.0  # of every published distillation here


class Blocks:
    """Disjoint groups of columns, each with a softmax of its own."""

    def __init__(self, groups: Iterable[np.ndarray]) -> None:
        groups = [group for group in groups if len(group)]
        self.sizes = np.array([len(group) for group in groups], np.int64)
        self.columns = np.concatenate([*groups, np.empty(0, np.int64)]).astype(np.int64)
        self.starts = np.cumsum(self.sizes) - self.sizes

    def softmax(self, scores: np.ndarray) -> np.ndarray:
        """Softmax of each block, columns in the order of ``self.columns``; overwrites nothing."""
        by_class = scores.T[self.columns]
        by_class -= np.repeat(np.maximum.reduceat(by_class, self.starts, axis=0), self.sizes, axis=0)
        np.exp(by_class, out=by_class)
        by_class /= np.repeat(np.add.reduceat(by_class, self.starts, axis=0), self.sizes, axis=0)
        return by_class.T

    def distillation(self, scores: np.ndarray, teacher: np.ndarray, temperature: float) -> np.ndarray:
        """``softmax(scores / T) - softmax(teacher / T)`` in each block: the gradient of ``T·Σ KL``."""
        return self.softmax(scores / temperature) - self.softmax(teacher / temperature)


def old_task_blocks(head: Head, task: Task) -> Blocks:
    """The old classes, grouped by the task in which they arrived."""
    learned_in = np.array([at for _, at in head.learning_order_])
    arrival = head._arrival
    old = np.isin(arrival, task.old)
    return Blocks([arrival[old & (learned_in == at)] for at in range(1, head.n_tasks_)])
