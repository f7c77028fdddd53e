"""Episodic memories: which few samples of the past are kept.

A memory holds rows of features ``X``, integer labels ``y`` and any further arrays with one row per sample
(``extra``, for example the logits at the time of storing). It is never changed in place: ``add`` replaces its
arrays, so a shallow copy is a snapshot.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

_WINDOW = 4096  # samples of the stream looked at in one go
_KEYS = 1 << 20  # random keys drawn in one go


class Memory:
    """At most ``capacity`` samples of what was offered with :meth:`add`; a policy says which."""

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise ValueError(f"a memory cannot hold {capacity} samples")
        self.capacity = int(capacity)
        self.X: Any = None  # rows, once there are any
        self.y = np.empty(0, np.int64)
        self.extra: dict[str, np.ndarray] = {}
        self.seen = 0  # samples offered so far

    def __len__(self) -> int:
        return len(self.y)

    @property
    def nbytes(self) -> int:
        arrays = [self.y, *self.extra.values()] + ([] if self.X is None else [self.X])
        return sum(array.nbytes for array in arrays)

    def add(self, X: Any, y: np.ndarray, rng: np.random.Generator, **extra: np.ndarray) -> None:
        """Offer the rows of ``X`` in random order; only those of accepted samples are read."""
        order = rng.permutation(len(y))
        y = np.asarray(y, np.int64)[order]
        if self.capacity or len(self):
            # A slot's source: ``i`` for the sample it holds now, ``len(self) + j`` for row j of the offer.
            sources = self._choose(y, rng)
            old, new = sources[sources < len(self)], sources[sources >= len(self)] - len(self)
            rows = X[order[new]]
            self.X = rows if self.X is None else np.concatenate([self.X[old], rows.astype(self.X.dtype)])
            self.extra = {
                name: np.concatenate([self.extra[name][old], values[order[new]]])
                if len(self)
                else values[order[new]]
                for name, values in extra.items()
            }
            self.y = np.concatenate([self.y[old], y[new]])
        self.seen += len(y)

    def _choose(self, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Which of the stored samples followed by the offered ones are kept, by number."""
        raise NotImplementedError

    def draw(self, size: int, times: int, rng: np.random.Generator, among: np.ndarray | None = None) -> np.ndarray:
        """``times`` independent samples without replacement, as row numbers: ``(times, min(size, rows))``."""
        rows = np.arange(len(self)) if among is None else among
        if size >= len(rows):
            return np.tile(rows, (times, 1))
        at_once = max(1, _KEYS // len(rows))
        picks = [
            rng.random((min(at_once, times - start), len(rows)), np.float32).argpartition(size, axis=1)
            for start in range(0, times, at_once)
        ]
        return rows[np.concatenate(picks)[:, :size]]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything that is needed to restore the memory, as plain arrays."""
        arrays = {"capacity": np.int64(self.capacity), "seen": np.int64(self.seen), "y": self.y}
        arrays |= {f"extra.{name}": values for name, values in self.extra.items()}
        if self.X is not None:
            arrays["X"] = self.X
        return {name: np.asarray(values) for name, values in arrays.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """The memory that ``to_arrays`` described."""
        memory = cls(int(arrays["capacity"]))
        memory.seen = int(arrays["seen"])
        memory.X, memory.y = arrays.get("X"), arrays["y"]
        memory.extra = {name.removeprefix("extra."): a for name, a in arrays.items() if name.startswith("extra.")}
        return memory


class GreedyBalanced(Memory):
    """The greedy balancing sampler of GDumb (Prabhu et al., ECCV 2020).

    A sample is taken while its class holds less than ``capacity / classes seen`` samples, a real number; when
    the memory is full, a random sample of a largest class makes room. So the first samples of a class are
    kept, the memory ends balanced to one sample, and no slot stays empty.

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
        self.known = np.empty(0, np.int64)  # every label ever offered, also those that no longer hold a slot

    def _choose(self, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        labels = np.union1d(self.known, y)
        codes = np.searchsorted(labels, np.concatenate([self.y, y]))
        seen = np.isin(labels, self.known)
        slots: list[list[int]] = [[] for _ in labels]  # per class, the numbers of its samples
        for number in range(len(self)):
            slots[codes[number]].append(number)
        counts = np.array([len(members) for members in slots])

        def evict() -> None:
            largest = rng.choice(np.flatnonzero(counts == counts.max()))
            slots[largest].pop(rng.integers(counts[largest]))
            counts[largest] -= 1

        while counts.sum() > self.capacity:  # the capacity was lowered
            evict()
        number, end, total = len(self), len(codes), counts.sum()
        while number < end and self.capacity:
            window = codes[number : number + _WINDOW]
            wanted = (counts < self.capacity / max(1, seen.sum())) | ~seen
            hits = np.flatnonzero(wanted[window])
            if not len(hits):
                number += len(window)
                continue
            number += hits[0]
            code = codes[number]
            seen[code] = True
            if total >= self.capacity:
                evict()
                total -= 1
            slots[code].append(number)
            counts[code] += 1
            total += 1
            number += 1
        self.known = labels
        return np.sort(np.concatenate([np.array(members, np.int64) for members in slots]))

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {**super().to_arrays(), "known": self.known}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        memory = super().from_arrays(arrays)
        memory.known = arrays["known"]
        return memory


class Everything(Memory):
    """No choice at all: every sample ever offered, for upper bounds."""

    def __init__(self, capacity: int = sys.maxsize) -> None:
        super().__init__(capacity)

    def _choose(self, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.arange(len(self) + len(y))


class Reservoir(Memory):
    """A uniform random sample of everything offered (Vitter's algorithm R), whatever the classes.

    Examples
    --------
    >>> import numpy as np
    >>> memory = Reservoir(capacity=10)
    >>> memory.add(np.zeros((50, 2)), np.arange(50), np.random.default_rng(0))
    >>> len(memory)
    10
    """

    def _choose(self, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        kept = np.arange(len(self))
        if len(kept) > self.capacity:  # the capacity was lowered
            kept = np.sort(rng.choice(kept, self.capacity, replace=False))
        free = min(self.capacity - len(kept), len(y))
        numbers = len(self) + np.arange(len(y))
        slots = np.concatenate([kept, numbers[:free]])
        # The n-th sample ever offered (from zero) enters with probability capacity / (n + 1).
        places = rng.integers(0, self.seen + np.arange(free, len(y)) + 1)
        entering = places < len(slots)
        slots[places[entering]] = numbers[free:][entering]  # of several for one place, the last one stays
        return np.sort(slots)
