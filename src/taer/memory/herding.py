"""Herding."""

from __future__ import annotations

import numpy as np

from taer.memory.base import Memory, Offer


class Herding(Memory):
    """The samples whose mean is nearest to the mean of their class (iCaRL, Rebuffi et al., CVPR 2017).

    Rows are compared at unit length. A class keeps its first ``capacity // classes`` choices; remaining slots go to the
    classes that arrived first. When the quota shrinks, the last choices are dropped. A class that is offered again
    chooses among its stored and its new samples.

    Examples
    --------
    >>> import numpy as np
    >>> memory = Herding(capacity=2)
    >>> memory.add(np.array([[1.0, 0], [1, 1], [1, 3]]), np.zeros(3, int), np.random.default_rng(0))
    >>> memory.X[0]  # nearest in angle to the mean
    array([1., 1.])
    """

    def _choose(self, offer: Offer, rng: np.random.Generator) -> np.ndarray:
        present = np.unique(offer.y)
        labels, offered = np.union1d(self.y, present), set(present.tolist())
        chosen = []
        for place, label in enumerate(labels.tolist()):
            quota = self.capacity // len(labels) + (place < self.capacity % len(labels))
            members = np.flatnonzero(self.y == label)
            if quota and label in offered:
                new = np.flatnonzero(offer.y == label)
                rows = np.concatenate([self.X[members], offer.rows(new)]) if len(members) else offer.rows(new)
                members = np.concatenate([members, len(self) + new])[herd(offer.embed(rows), quota)]
            chosen.append(members[:quota])  # stored samples stand in the order of their choice
        return self._stored_first(np.concatenate(chosen))

    def _stored_first(self, numbers: np.ndarray) -> np.ndarray:
        return np.concatenate([numbers[numbers < len(self)], numbers[numbers >= len(self)]])


def herd(rows: np.ndarray, size: int) -> np.ndarray:
    """Row numbers in the order in which herding chooses them: the running mean stays nearest to the mean of all rows."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    shrink = 1 / np.where(lengths > 0, lengths, 1)  # factors of the rows: cheaper than rows of unit length
    mean = shrink @ rows / len(rows)
    towards = mean.copy()
    chosen: list[int] = []
    for _ in range(min(size, len(rows))):
        scores = rows @ towards * shrink
        scores[chosen] = -np.inf
        best = int(scores.argmax())
        chosen.append(best)
        towards += mean - shrink[best] * rows[best]
    return np.array(chosen, np.int64)
