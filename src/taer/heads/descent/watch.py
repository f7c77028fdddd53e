"""Watching the epochs of heads that are trained by SGD."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

Tell = Callable[[int, float | None], None]


@dataclass
class Watch:
    """What is measured while an epoch runs."""

    tell: Tell
    epochs: int = 0
    gradient: float = 0.0
    weight: float = 0.0

    def step(self, gradient: np.ndarray, weight: np.ndarray) -> None:
        self.gradient += float(np.abs(gradient).sum())
        self.weight += float(weight.sum())

    def end(self) -> None:
        """An epoch is over."""
        self.epochs += 1
        mean = self.gradient / self.weight if self.weight else None
        self.gradient = self.weight = 0.0
        self.tell(self.epochs, mean)


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


def watch() -> Watch | None:
    return _WATCH.get()


@contextmanager
def each_epoch(tell: Tell) -> Iterator[None]:
    """Inside, ``tell(epoch, gradient)`` is called after each epoch of a head that is trained by SGD.

    ``gradient`` is the mean absolute gradient of the scores of a sample, summed over classes: what is left to learn. For
    cross-entropy it is twice the probability that the true class lacks. It is None for methods with a loop of their own.
    Epochs count from 1 each time that this is entered.

    Examples
    --------
    >>> import numpy as np, taer
    >>> from taer.heads.descent.watch import each_epoch
    >>> X, y, seen = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20), []
    >>> with each_epoch(lambda epoch, gradient: seen.append((epoch, gradient))):
    ...     head = taer.Finetune(epochs=3, random_state=0).fit(X, y)
    >>> [epoch for epoch, _ in seen], seen[0][1] > seen[2][1]
    ([1, 2, 3], True)
    """
    token = _WATCH.set(Watch(tell))
    try:
        yield
    finally:
        _WATCH.reset(token)
