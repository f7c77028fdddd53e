"""Separated softmax for incremental learning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from taer.heads._params import param
from taer.heads.base import Task
from taer.heads.distillation import TEMPERATURE, Blocks, old_task_blocks
from taer.heads.replay import ReplayHead
from taer.heads.sgd import Batch, Plan


@dataclass(kw_only=True, eq=False, repr=False)
class SSIL(ReplayHead):
    """SS-IL: new and old classes in separate softmaxes, and distillation task by task.

    On n current and replayed samples together (Ahn et al., ICCV 2021)::

        1/n [ Σ current CE over Y_t  +  Σ replay CE over old classes ]  +  T²/n Σ_x Σ_u KL_u(before || now)

    with T = 2 and one KL term per earlier task u. Four current samples go with one replayed, and the learning
    rate of task t is ``lr / t``, as in the public code. Departures: plain descent, neither momentum nor decay
    of the weights.
    """

    replay_batch_size: int = param(8, "samples of the memory in a step", at_least=1)
    lr_decay_per_task: bool = param(True, "divide the learning rate by the number of the task")

    def _plan(self, X: Any, task: Task, columns: np.ndarray) -> Plan:
        plan = super()._plan(X, task, columns)
        rate = self.lr / self.n_tasks_ if self.lr_decay_per_task else self.lr
        gradient = separated(task, old_task_blocks(self, task), columns.copy(), TEMPERATURE)
        return replace(plan, gradient=gradient, lr=rate)


def separated(task: Task, old_tasks: Blocks, teacher: np.ndarray, kd_weight: float) -> Any:
    """Gradient of cross-entropies inside the current and inside all old classes, and of the distillation.

    ``kd_weight`` multiplies ``softmax(z / T) - softmax(before / T)``: T with the factor T², 1 / T without.
    """
    own = [Blocks([task.current]), Blocks([task.old])]

    def gradient(scores: np.ndarray, batch: Batch) -> np.ndarray:
        found, n = np.zeros_like(scores), len(scores)
        for part, block in zip(batch.parts, own, strict=False):
            found[part, block.columns] = block.softmax(scores[part])
        found[np.arange(n), batch.constants["target"]] -= 1
        if len(old_tasks.columns):
            before = batch.rows @ teacher.T
            found[:, old_tasks.columns] += kd_weight * old_tasks.distillation(scores, before, TEMPERATURE)
        found /= n
        return found

    return gradient
