"""Dark experience replay++."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from taer.heads._params import param
from taer.heads.base import Task
from taer.heads.replay import ReplayHead
from taer.heads.sgd import Batch, Plan
from taer.heads.softmax import cross_entropy_gradient


@dataclass(kw_only=True, eq=False, repr=False)
class DERPP(ReplayHead):
    """DER++: replay of labels and of the logits that the samples had when they were stored.

    ``CE(current) + alpha · MSE(scores, stored logits) + beta · CE(replay)``, the last two on independent draws
    from the memory; the MSE is a mean over samples and columns (Buzzega et al., NeurIPS 2020).

    Departures: the memory is the paper's greedy one, filled when a task ends, with the logits of that moment; a
    growing head has no columns for future classes, so logits are compared on the columns that existed then.
    """

    lr: float = param(0.03, "learning rate", above=0)
    alpha: float = param(0.1, "weight of the stored logits", at_least=0)
    beta: float = param(0.5, "weight of the replayed labels", at_least=0)

    def _check_fitted(self) -> None:
        super()._check_fitted()
        logits = self.memory_.extra.get("logits")
        if len(self.memory_) and (logits is None or logits.ndim != 2 or logits.shape[1] > len(self.classes_)):
            raise ValueError("memory_: expected the logits of each sample")

    def _plan(self, X: Any, task: Task, columns: np.ndarray) -> Plan:
        plan = super()._plan(X, task, columns)
        if plan.replay is None:
            return plan
        old = np.isin(self._arrival[self.memory_.y], task.old)
        stored = self.memory_.extra["logits"][old]  # columns in order of arrival; NaN where there were none yet
        logits = np.full((len(stored), task.n_classes), np.nan, columns.dtype)
        logits[:, self._arrival[: stored.shape[1]]] = stored
        constants = {**plan.replay.constants, "logits": logits}
        return Plan(
            current=plan.current,
            replay=replace(plan.replay, constants=constants),
            replay_size=self.replay_batch_size,
            weights=(1.0, self.alpha, self.beta),
            gradient=_gradient,
        )

    def _forget_number(self, number: int) -> None:
        super()._forget_number(number)
        logits = self.memory_.extra.get("logits", np.empty((0, 0)))
        if number < logits.shape[1]:
            self.memory_.extra = {"logits": np.delete(logits, number, axis=1)}

    def _finish(self, X: Any, task: Task) -> None:
        memory = copy.copy(self.memory_)
        if len(memory):
            missing = task.n_classes - memory.extra["logits"].shape[1]
            memory.extra = {
                "logits": np.pad(memory.extra["logits"], [(0, 0), (0, missing)], constant_values=np.nan)
            }
        self.memory_ = memory
        self._remember(X, task, logits=lambda rows: self._scores(rows)[:, self._arrival])


def _gradient(scores: np.ndarray, batch: Batch) -> np.ndarray:
    current, first, second = batch.parts
    difference = scores[first] - batch.constants["logits"][: first.stop - first.start]
    known = np.isfinite(difference)
    by_logits = np.where(known, difference, 0) * (2 * batch.weight[first] / known.sum(axis=1))[:, None]
    for part in (current, second):
        target, weight = batch.constants["target"][part], batch.weight[part]
        scores[part] = cross_entropy_gradient(scores[part], target, weight)
    scores[first] = by_logits
    return scores
