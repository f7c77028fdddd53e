"""Greedy balancing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Self

import numpy as np

from taer.memory.base import Memory, Offer

_PIECE = 256  # labels looked up at a time


class GreedyBalanced(Memory):
    """The greedy balancing sampler of GDumb (Prabhu et al., ECCV 2020).

    A sample is stored if its class has fewer than ``capacity / classes seen`` samples, a real number. If the memory is
    full, it replaces a random sample of a largest class. So the first samples of a class are stored, the memory is
    balanced up to one sample, and no slot stays empty.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> memory = GreedyBalanced(capacity=10)
    >>> memory.add(np.zeros((50, 2)), np.repeat([0, 1], 25), rng)
    >>> memory.add(np.zeros((50, 2)), np.repeat([2], 50), rng)
    >>> sorted(np.bincount(memory.y).tolist())
    [3, 3, 4]
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.known = np.empty(0, np.int64)  # every label ever offered, even without stored samples

    def _choose(self, offer: Offer, rng: np.random.Generator) -> np.ndarray:
        present = np.unique(offer.y)
        labels = np.union1d(self.known, present)
        seen = np.isin(labels, self.known).tolist()
        slots: list[list[int]] = [[] for _ in labels]  # per class, the numbers of its samples
        for number, code in enumerate(np.searchsorted(labels, self.y).tolist()):
            slots[code].append(number)
        counts, held = [len(members) for members in slots], len(self)
        quota, may_enter = self.capacity / max(1, sum(seen)), [True] * len(labels)
        offered = np.searchsorted(labels, present).tolist()
        fullest: list[int] = []  # the largest classes, if known

        def evict() -> None:
            if not fullest:
                most = max(counts)
                fullest.extend(code for code, count in enumerate(counts) if count == most)
            largest = fullest.pop(rng.integers(len(fullest)))
            slots[largest].pop(rng.integers(counts[largest]))
            counts[largest] -= 1
            may_enter[largest] = True

        while held > self.capacity:  # the capacity was lowered
            evict()
            held -= 1
        for number, code in enumerate(self._codes(labels, offer.y) if self.capacity else (), len(self)):
            if not may_enter[code]:
                continue
            if seen[code] and counts[code] >= quota:
                may_enter[code] = False  # and so it stays while no sample of it is evicted: the quota only shrinks
                if not any(may_enter[each] for each in offered):
                    break  # nothing enters any more, so nothing is evicted
                continue
            if not seen[code]:
                seen[code] = True
                quota = self.capacity / sum(seen)
            if held >= self.capacity:
                evict()
                held -= 1
            slots[code].append(number)
            counts[code] += 1
            held += 1
            if fullest and counts[code] >= counts[fullest[0]]:
                fullest.clear()
        self.known = labels
        return np.sort(np.fromiter(chain.from_iterable(slots), np.int64))

    @staticmethod
    def _codes(labels: np.ndarray, y: np.ndarray) -> Iterator[int]:
        """Positions in ``labels``, found in pieces, because the first few samples of a class are often enough."""
        for start in range(0, len(y), _PIECE):
            yield from np.searchsorted(labels, y[start : start + _PIECE]).tolist()

    def without(self, label: int) -> Self:
        memory = super().without(label)
        known = self.known[self.known != label]
        memory.known = known - (known > label)
        return memory

    def check(self, width: int, n_labels: int) -> None:
        super().check(width, n_labels)
        known = np.isin(np.arange(n_labels), self.known)
        if self.known.dtype != np.int64 or not np.array_equal(self.known, np.flatnonzero(known)):
            raise ValueError("expected the labels that were ever offered, sorted")

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {**super().to_arrays(), "known": self.known}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        memory = super().from_arrays(arrays)
        memory.known = arrays["known"]
        return memory
