"""Learning without forgetting."""

from __future__ import annotations

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.base import DescentHead
from taer.heads.descent.loop import Plan, Samples
from taer.heads.descent.losses import TEMPERATURE, old_task_blocks, separated
from taer.heads.params import param


class LwF(
    DescentHead, name="lwf", card=Card("related", old_scores="move", keeps="nothing", forgets="no", boundaries=True)
):
    """LwF: no memory; distillation keeps the old outputs for new samples unchanged.

    ``CE over Y_t + lambda_old · Σ_u CE_u(softmax(before / T), softmax(now / T))`` with T = 2 and one term per
    earlier task u, on the samples of the current task. Predicts among all classes. On frozen features the distillation
    starts at its minimum, so old columns do not move, up to rounding.

    References
    ----------
    Z. Li, D. Hoiem, "Learning without Forgetting", ECCV 2016.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> taer.zoo.LwF(random_state=0).partial_fit(X, y).predict(np.eye(3))
    array([0, 1, 2])
    """

    lambda_old: float = param(1.0, "weight of the distillation", at_least=0)

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        old_tasks = old_task_blocks(task, self.learning_order_)
        gradient = separated(task, old_tasks, teacher=columns.copy(), kd_weight=self.lambda_old / TEMPERATURE)
        return Plan(Samples(task.X, {"target": task.y}), gradient)
