"""All samples."""

from __future__ import annotations

import sys

import numpy as np

from taer.memory.base import Memory, Offer


class Everything(Memory):
    """Stores every sample ever offered, for upper bounds."""

    def __init__(self, capacity: int = sys.maxsize) -> None:
        super().__init__(capacity)

    def _choose(self, offer: Offer, rng: np.random.Generator) -> np.ndarray:
        return np.arange(len(self) + len(offer.y))
