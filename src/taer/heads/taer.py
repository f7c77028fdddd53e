"""Task-aware experience replay, the method of the paper."""

from __future__ import annotations

from dataclasses import dataclass

from taer.heads.replay import ReplayHead


@dataclass(kw_only=True, eq=False, repr=False)
class TaER(ReplayHead):
    """Task-aware experience replay: only the columns of the current task move.

    With ``a`` old classes among ``b`` seen so far, task t solves over its own columns ``W_t`` alone::

        (1 - λ) · mean over D_t of CE  +  λ · mean over the memory of CE,      λ = a / b

    where CE is the cross-entropy of the softmax over all ``b`` classes. Old columns and intercepts stay
    bit-identical, so decisions among old classes never change. The gradient needs of a memory sample only
    that it is old, not its label.

    A class that returns is current again: its column may move, its memory samples sit out of the replay, and
    all others stay as they are.

    Reference: Z. Li, S. Jie, Z.-H. Deng, "Detachedly Learn a Classifier for Class-Incremental Learning".
    Departures: features are standardised by the first task and columns start at the normalised class mean
    unless told otherwise; ``standardize="none", init="zero"`` is the paper's form.

    Examples
    --------
    >>> import numpy as np, taer
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(90, 8)) + np.repeat(np.eye(3, 8) * 6, 30, axis=0)
    >>> y = np.repeat(["cat", "dog", "bird"], 30)
    >>> head = taer.TaER(random_state=0).partial_fit(X[:60], y[:60])
    >>> old = head.coef_[np.isin(head.classes_, ["cat", "dog"])]
    >>> head = head.partial_fit(X[60:], y[60:])
    >>> bool((old == head.coef_[np.isin(head.classes_, ["cat", "dog"])]).all())
    True
    >>> head.learning_order_[-1]
    Learned(label='bird', task=2)
    """

    balanced = True
    detached = True
