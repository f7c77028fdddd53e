"""Learning without forgetting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from taer.heads._params import param
from taer.heads.base import Task
from taer.heads.distillation import TEMPERATURE, old_task_blocks
from taer.heads.sgd import Plan, Samples
from taer.heads.softmax import SoftmaxHead
from taer.heads.ssil import separated


@dataclass(kw_only=True, eq=False, repr=False)
class LwF(SoftmaxHead):
    """LwF: no memory; on the new samples, old outputs should stay what they were.

    ``CE over Y_t + lambda_old · Σ_u CE_u(softmax(before / T), softmax(now / T))`` with T = 2 and one term per
    earlier task u, on the samples of the current task (Li and Hoiem, ECCV 2016). Predicts among all classes.
    """

    lambda_old: float = param(1.0, "weight of the distillation", at_least=0)

    def _plan(self, X: Any, task: Task, columns: np.ndarray) -> Plan:
        weight = self.lambda_old / TEMPERATURE
        gradient = separated(task, old_task_blocks(self, task), columns.copy(), weight)
        return Plan(Samples(X, {"target": task.y}), gradient)
