"""Dark experience replay++."""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import DTypeLike

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Batch, Plan, Samples
from taer.heads.descent.losses import cross_entropy
from taer.heads.descent.memory import MemoryHead, replay_batch_size
from taer.heads.params import param


class DERPP(MemoryHead, name="derpp", card=Card("baseline", old_scores="move", keeps="exemplars", forgets="no")):
    """DER++: replays labels, and the logits that the samples had when they were stored.

    ``CE(current) + alpha · MSE(scores, stored logits) + beta · CE(replay)``, the last two on independent draws
    from the memory; the MSE is a mean over samples and columns.

    In the public code the head has outputs for all classes from the start, so a stored sample also has the logits of
    untrained outputs for classes that were not yet known. ``unseen_logits="zero"`` corresponds to that code;
    ``"ignore"`` compares only the columns that existed when the sample was stored.

    Departures: the memory is the paper's greedy one, filled when a task ends, with the logits at that time; the
    softmax and the MSE run over the classes seen so far, not over all future classes.

    References
    ----------
    P. Buzzega et al., "Dark Experience for General Continual Learning", NeurIPS 2020.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> head = taer.zoo.DERPP(random_state=0).partial_fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    >>> head.predict(np.eye(3))
    array([0, 1, 2])
    """

    lr: float = param(0.03, "learning rate", above=0)
    replay_batch_size: int = replay_batch_size()
    alpha: float = param(0.1, "weight of the stored logits", at_least=0)
    beta: float = param(0.5, "weight of the replayed labels", at_least=0)
    unseen_logits: str = param(
        "zero",
        "stored logits of classes that were unknown when the sample was stored: zero, or left out of the loss",
        options=("zero", "ignore"),
    )

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        stored, pull = self._stored_logits(task, columns.dtype)

        def gradient(scores: np.ndarray, batch: Batch) -> np.ndarray:
            if len(batch.parts) == 1:
                return cross_entropy(scores, batch)
            _, first, _ = batch.parts
            drawn = batch.constants["row"][: first.stop - first.start]
            by_logits = scores.T[:, first] - stored.take(drawn, axis=1)  # class by class
            by_logits *= pull.take(drawn, axis=1) * batch.weight[first]
            # Of all rows at once, which is faster; then the first draw is replaced.
            found = cross_entropy(scores, batch)
            found.T[:, first] = by_logits
            return found

        return Plan(
            current=Samples(task.X, {"target": task.y}),
            replay=self._replay(task, lambda X, y: {"target": y, "row": np.arange(len(y))}),
            replay_size=self.replay_batch_size,
            weights=(1.0, self.alpha, self.beta),
            gradient=gradient,
        )

    def _stored_logits(self, task: Task, dtype: DTypeLike) -> tuple[np.ndarray, np.ndarray]:
        """The stored logits of the replayed samples, class by class, and the factors of the differences from them."""
        if not len(self.memory_):
            return np.empty((task.n_classes, 0), dtype), np.empty((1, 0), dtype)
        old = np.isin(self.memory_.y, task.old)
        logits = _widened(self.memory_.extra["logits"][old], task.n_classes).T
        pull = np.full((1, logits.shape[1]), 2 / task.n_classes)
        if self.unseen_logits == "ignore":
            compared = np.isfinite(logits)
            pull = 2 * compared / compared.sum(axis=0)
        return np.nan_to_num(logits, nan=0).astype(dtype, order="C"), pull.astype(dtype)

    def _finish(self, task: Task) -> None:
        memory = copy.copy(self.memory_)
        if len(memory):
            memory.extra = {"logits": _widened(memory.extra["logits"], task.n_classes)}
        self.memory_ = memory
        self._remember(task, logits=self._scores)

    def _check_fitted(self) -> None:
        super()._check_fitted()
        logits = self.memory_.extra.get("logits")
        if len(self.memory_) and (logits is None or logits.ndim != 2 or logits.shape[1] > len(self.classes_)):
            raise ValueError("memory_: expected the logits of each sample")

    def _drop(self, number: int) -> None:
        super()._drop(number)
        if "logits" in self.memory_.extra:
            self.memory_.extra = {"logits": np.delete(self.memory_.extra["logits"], number, axis=1)}


def _widened(logits: np.ndarray, n_classes: int) -> np.ndarray:
    """Stored logits with one column per class; NaN for classes that were unknown when the sample was stored."""
    return np.pad(logits, [(0, 0), (0, n_classes - logits.shape[1])], constant_values=np.nan)
