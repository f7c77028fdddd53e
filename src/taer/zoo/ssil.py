"""Separated softmax for incremental learning."""

from __future__ import annotations

import numpy as np

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Plan, Samples
from taer.heads.descent.losses import TEMPERATURE, old_task_blocks, separated
from taer.heads.descent.memory import MemoryHead, replay_batch_size
from taer.heads.params import param


class SSIL(
    MemoryHead,
    name="ssil",
    card=Card("baseline", old_scores="move", keeps="exemplars", forgets="no", boundaries=True),
):
    """SS-IL: separate softmaxes for new and old classes, and separate distillation for each earlier task.

    On n current and replayed samples together::

        1/n [ Σ current CE over Y_t  +  Σ replay CE over old classes ]  +  T²/n Σ_x Σ_u KL_u(before || now)

    with T = 2 and one KL term per earlier task u. A batch has four current samples per replayed one, and the learning
    rate of task t is ``lr / t``, as in the public code. Departures: plain SGD, without momentum and weight decay.

    References
    ----------
    H. Ahn et al., "SS-IL: Separated Softmax for Incremental Learning", ICCV 2021.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.SSIL(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    replay_batch_size: int = replay_batch_size(8)
    lr_decay_per_task: bool = param(True, "divide the learning rate by the number of the task")

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        old_tasks = old_task_blocks(task, self.learning_order_)
        return Plan(
            current=Samples(task.X, {"target": task.y}),
            replay=self._replay(task, lambda X, y: {"target": y}),
            replay_size=self.replay_batch_size,
            weights=(1.0, 1.0),
            gradient=separated(task, old_tasks, teacher=columns.copy(), kd_weight=TEMPERATURE),
            lr=self.lr / task.number if self.lr_decay_per_task else self.lr,
        )
