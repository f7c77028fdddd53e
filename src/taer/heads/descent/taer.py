"""Task-aware experience replay, the method of the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import entr, softmax

from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Plan, Samples
from taer.heads.descent.losses import cross_entropy
from taer.heads.descent.memory import MemoryHead, replay_batch_size
from taer.rows import row_chunks


class TaER(
    MemoryHead,
    name="taer",
    card=Card("paper", old_scores="never", keeps="exemplars", forgets="no", boundaries=True),
):
    """Task-aware experience replay: only the columns of the current task move.

    With ``a`` old classes among ``b`` seen so far, task t minimizes over its own columns ``W_t`` alone::

        (1 - λ) · mean over D_t of CE  +  λ · mean over the memory of CE,      λ = a / b

    where CE is the cross-entropy of the softmax over all ``b`` classes. Old columns never move, so the score of an
    old class for a sample never changes, bit for bit. For the same reason the old columns enter the softmax as one
    more class, "old", whose score for a sample is the constant ``log Σ exp`` of theirs. So a step costs the same
    for any number of old classes. The gradient of a memory sample does not depend on its label, only on being old.

    A known class with samples in a later task is current again: its column may move, and its memory samples are not
    replayed. All other columns stay as they are.

    Departures from the paper: by default features are standardized with the first task, and columns start at the
    normalized class mean; ``standardize="none", init="zero"`` is the paper's form.

    References
    ----------
    Z. Li, S. Jie, Z.-H. Deng, "Detachedly Learn a Classifier for Class-Incremental Learning".

    Examples
    --------
    >>> import numpy as np, taer
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(90, 8)) + np.repeat(np.eye(3, 8) * 6, 30, axis=0)
    >>> y = np.repeat(["cat", "dog", "bird"], 30)
    >>> head = taer.TaER(random_state=0).partial_fit(X[:60], y[:60])
    >>> old = head.scores(X, ["cat", "dog"])
    >>> head = head.partial_fit(X[60:], y[60:])
    >>> bool((old == head.scores(X, ["cat", "dog"])).all())
    True
    >>> head.learning_order_[-1]
    Learned(label='bird', task=2)
    """

    replay_batch_size: int = replay_batch_size()

    def _moving(self, task: Task) -> np.ndarray:
        return task.current

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        old_share = len(task.old) / task.n_classes  # λ
        constants = detached_constants(self, task)
        return Plan(
            current=Samples(task.X, constants(task.X, task.y)),
            replay=self._replay(task, constants),
            replay_size=self.replay_batch_size,
            weights=(1 - old_share, old_share),
            gradient=cross_entropy,
            resting="old" if len(task.old) else None,
        )


def _entropy_among(head: MemoryHead, X: Any, classes: np.ndarray) -> np.ndarray:
    """The entropy of the probabilities among some classes, for each row."""
    found = np.empty(len(X), head.dtype_)
    for rows in row_chunks(X, width=max(X.shape[1], len(classes))):
        found[rows] = entr(softmax(head._scores(X[rows], classes), axis=1)).sum(axis=1)
    return found


def detached_constants(head: MemoryHead, task: Task) -> Any:
    """Constants of rows: the column of their class among the current ones, and the score of the class "old"."""
    column = np.full(task.n_classes, len(task.current))  # old classes share the column after the current ones
    column[task.current] = np.arange(len(task.current))

    def constants(X: Any, y: np.ndarray) -> dict[str, np.ndarray]:
        found = {"target": column[y]}
        if len(task.old):
            found["old"] = head._log_partition(X, task.old)
            if head.entropy:
                found["old_entropy"] = _entropy_among(head, X, task.old)
        return found

    return constants
