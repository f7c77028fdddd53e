"""Reservoir sampling."""

from __future__ import annotations

import numpy as np

from taer.memory.base import Memory, Offer


class Reservoir(Memory):
    """A uniform random sample of everything offered (Vitter's algorithm R), independent of the classes.

    Examples
    --------
    >>> import numpy as np
    >>> memory = Reservoir(capacity=10)
    >>> memory.add(np.zeros((50, 2)), np.arange(50), np.random.default_rng(0))
    >>> len(memory)
    10
    """

    def _choose(self, offer: Offer, rng: np.random.Generator) -> np.ndarray:
        kept = np.arange(len(self))
        if len(kept) > self.capacity:  # the capacity was lowered
            kept = np.sort(rng.choice(kept, self.capacity, replace=False))
        free = min(self.capacity - len(kept), len(offer.y))
        numbers = len(self) + np.arange(len(offer.y))
        slots = np.concatenate([kept, numbers[:free]])
        # The n-th sample ever offered (from zero) enters with probability capacity / (n + 1).
        places = rng.integers(0, self.seen + np.arange(free, len(offer.y)) + 1)
        entering = places < len(slots)
        slots[places[entering]] = numbers[free:][entering]  # of several for one place, the last one stays
        return np.sort(slots)
