"""What every memory does: it offers samples to a policy, and stores those that the policy chooses."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from taer.containers import by_position
from taer.rows import Rows

_KEYS = 1 << 20  # random keys drawn at a time


def draw(n: int, size: int, times: int, rng: np.random.Generator) -> np.ndarray:
    """``times`` independent samples of ``n`` numbers without replacement: ``(times, min(size, n))``."""
    if size >= n:
        return np.tile(np.arange(n), (times, 1))
    at_once = max(1, _KEYS // n)
    picks = [
        rng.random((min(at_once, times - start), n), np.float32).argpartition(size, axis=1)
        for start in range(0, times, at_once)
    ]
    return (picks[0] if len(picks) == 1 else np.concatenate(picks))[:, :size]


@dataclass(frozen=True)
class Offer:
    """Samples offered to a memory, in random order, with the embedding and residuals of the head that offers them."""

    X: np.ndarray | Rows
    y: np.ndarray
    order: np.ndarray
    embed: Callable[[np.ndarray], np.ndarray] = np.asarray
    residuals: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        rows: np.ndarray = self.X[self.order[numbers]]
        return rows


class Memory:
    """At most ``capacity`` of the samples offered with :meth:`add`, selected by a policy."""

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

    def add(
        self,
        X: np.ndarray | Rows,
        y: np.ndarray,
        rng: np.random.Generator,
        *,
        embed: Callable[[np.ndarray], np.ndarray] = np.asarray,
        residuals: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
        **extra: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        """Offer the rows of ``X`` in random order; only rows that the policy needs are read.

        ``embed`` maps rows to the space in which a policy compares them. ``residuals`` returns, for rows and
        labels, ``softmax(scores) - onehot`` of the current head (needed by the gradient-based policy).
        Each ``extra`` is computed from the rows of accepted samples and stored with them.
        """
        order = rng.permutation(len(y))
        offer = Offer(by_position(X, "X"), np.asarray(y, np.int64)[order], order, embed, residuals)
        if self.capacity or len(self):
            # The sources of the slots: i for the sample that is stored as i, len(self) + j for offer j.
            sources = self._choose(offer, rng)
            old, new = sources[sources < len(self)], sources[sources >= len(self)] - len(self)
            rows = offer.rows(new)
            self.X = rows if self.X is None else np.concatenate([self.X[old], rows])
            self.extra = {
                name: np.concatenate([self.extra[name][old], compute(rows)]) if len(self) else compute(rows)
                for name, compute in extra.items()
            }
            self.y = np.concatenate([self.y[old], offer.y[new]])
        self.seen += len(y)

    def _choose(self, offer: Offer, rng: np.random.Generator) -> np.ndarray:
        """Numbers of the samples to keep: first those of stored samples, then those of offered ones."""
        raise NotImplementedError

    def without(self, label: int) -> Self:
        """A copy without the samples of a label; later labels move up by one."""
        memory, keep = copy.copy(self), self.y != label
        if memory.X is not None:
            memory.X = self.X[keep]
        memory.y = self.y[keep] - (self.y[keep] > label)
        memory.extra = {name: values[keep] for name, values in self.extra.items()}
        return memory

    def check(self, width: int, n_labels: int) -> None:
        """Raise ValueError unless this is a memory of rows of this width with labels below ``n_labels``."""
        n = self.y.shape[0] if self.y.ndim == 1 else -1
        if self.y.dtype != np.int64 or n < 0 or (n and not 0 <= self.y.min() <= self.y.max() < n_labels):
            raise ValueError(f"expected labels from 0 to {n_labels - 1}")
        if self.X is None and n:
            raise ValueError("its rows are missing")
        if self.X is not None and (
            self.X.shape != (n, width) or self.X.dtype.kind not in "fiub" or not np.isfinite(self.X).all()
        ):
            raise ValueError(f"expected {n} rows of {width} finite numbers, got {self.X.dtype} {self.X.shape}")
        if any(values.shape[:1] != (n,) or values.dtype.kind != "f" for values in self.extra.values()):
            raise ValueError(f"expected what is kept with the rows to have {n} rows, too")
        if self.seen < n or max(self.seen, self.capacity) >= 1 << 63:
            raise ValueError(f"expected {n} samples or more to have been offered, got {self.seen}")

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The memory as plain arrays, from which it can be restored."""
        arrays = {"capacity": np.int64(self.capacity), "seen": np.int64(self.seen), "y": self.y}
        arrays |= {f"extra.{name}": values for name, values in self.extra.items()}
        if self.X is not None:
            arrays["X"] = self.X
        return {name: np.asarray(values) for name, values in arrays.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """The memory from the arrays that ``to_arrays`` returned."""
        memory = cls(int(arrays["capacity"]))
        memory.seen = int(arrays["seen"])
        memory.X, memory.y = arrays.get("X"), arrays["y"]
        memory.extra = {name.removeprefix("extra."): a for name, a in arrays.items() if name.startswith("extra.")}
        return memory
