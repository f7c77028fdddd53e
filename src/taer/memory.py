"""Episodic memories: policies that select which samples of earlier tasks are stored.

A memory has rows of features ``X``, integer labels ``y`` and optional arrays with one row per sample (``extra``, for
example the logits at the time of storing). It is never changed in place: ``add`` replaces its arrays, so a shallow
copy is a snapshot.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

import numpy as np

from taer.rows import Rows

_KEYS = 1 << 20  # random keys drawn at a time
_PIECE = 256  # labels looked up at a time


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
        offer = Offer(X, np.asarray(y, np.int64)[order], order, embed, residuals)
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


class GradientBased(Memory):
    """Greedy gradient-based selection (GSS, Aljundi et al., NeurIPS 2019), as in public benchmark code.

    A sample's score is the largest cosine between its gradient and those of a few stored samples, plus one.
    When the memory is full, a batch whose gradients agree with the stored ones is skipped. Otherwise each sample
    competes with a stored one, drawn by its score ``s``, and replaces it with probability ``s / (s + own score)``.

    The gradient of a sample is ``h ⊗ δ`` with residual ``δ = softmax - onehot``, so the scalar product of two is
    ``(h·h')(δ·δ')``, and gradients are never computed.
    """

    batch_size = 32  # samples that are compared together, and stored samples that they are compared with

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.scores = np.empty(0)

    def _choose(self, offer: Offer, rng: np.random.Generator) -> np.ndarray:
        if offer.residuals is None:
            raise ValueError("the gradient-based memory needs the residuals of the head that offers the samples")
        kept = np.arange(len(self))
        if len(kept) > self.capacity:  # the capacity was lowered
            kept = np.sort(rng.choice(kept, self.capacity, replace=False))
        slots, scores = kept.tolist(), self.scores[kept].tolist()
        for start in range(0, len(offer.y) if self.capacity else 0, self.batch_size):
            batch = np.arange(start, min(start + self.batch_size, len(offer.y)))
            whole, single = self._similarity(offer, batch, slots, rng)
            for number, score in zip(len(self) + batch, single, strict=True):
                if len(slots) < self.capacity:
                    slots.append(int(number))
                    scores.append(whole)
                elif whole < 1:
                    weights = np.array(scores)
                    rival = rng.choice(len(slots), p=weights / weights.sum() if weights.any() else None)
                    if rng.random() * (scores[rival] + score) < scores[rival]:
                        slots[rival], scores[rival] = int(number), score
        order = np.argsort(slots).astype(np.int64)
        self.scores = np.array(scores)[order]
        return np.array(slots, np.int64)[order]

    def _similarity(
        self, offer: Offer, batch: np.ndarray, slots: list[int], rng: np.random.Generator
    ) -> tuple[float, np.ndarray]:
        """Scores of a batch as a whole and of each of its samples, against a few stored ones."""
        if not slots:
            return 0.1, np.full(len(batch), 0.1)
        picks = np.array(slots)[draw(len(slots), self.batch_size, 1, rng)[0]]
        old, new = picks[picks < len(self)], picks[picks >= len(self)] - len(self)
        rows = offer.rows(np.concatenate([batch, new]))
        labels = offer.y[np.concatenate([batch, new])]
        if len(old):
            rows, labels = np.concatenate([rows, self.X[old]]), np.concatenate([labels, self.y[old]])
        assert offer.residuals is not None
        h, delta = offer.embed(rows).astype(np.float64), offer.residuals(rows, labels).astype(np.float64)
        return gradient_similarity(h, delta, len(batch))

    def without(self, label: int) -> Self:
        memory = super().without(label)
        memory.scores = self.scores[self.y != label]
        return memory

    def check(self, width: int, n_labels: int) -> None:
        super().check(width, n_labels)
        if self.scores.shape != self.y.shape or self.scores.dtype != np.float64 or not (self.scores >= 0).all():
            raise ValueError("expected a score from 0 on for each row")

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {**super().to_arrays(), "scores": self.scores}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        memory = super().from_arrays(arrays)
        memory.scores = arrays["scores"]
        return memory


def gradient_similarity(h: np.ndarray, delta: np.ndarray, n: int) -> tuple[float, np.ndarray]:
    """One plus the largest cosine between the gradients ``h ⊗ delta`` of the first n samples and those of the others.

    Returned for the mean of the first n, and for each of them.
    """
    tiny = np.finfo(np.float64).tiny
    products = (h[:n] @ h.T) * (delta[:n] @ delta.T)
    others = np.linalg.norm(h[n:], axis=1) * np.linalg.norm(delta[n:], axis=1)
    own = np.linalg.norm(h[:n], axis=1) * np.linalg.norm(delta[:n], axis=1)
    mean_norm = np.sqrt(max(products[:, :n].mean(), 0))
    whole = (products[:, n:].mean(axis=0) / np.maximum(mean_norm * others, tiny)).max() + 1
    single = (products[:, n:] / np.maximum(own[:, None] * others, tiny)).max(axis=1) + 1
    return float(whole), single


class Everything(Memory):
    """Stores every sample ever offered, for upper bounds."""

    def __init__(self, capacity: int = sys.maxsize) -> None:
        super().__init__(capacity)

    def _choose(self, offer: Offer, rng: np.random.Generator) -> np.ndarray:
        return np.arange(len(self) + len(offer.y))


POLICIES: dict[str, type[Memory]] = {
    "greedy": GreedyBalanced,
    "reservoir": Reservoir,
    "herding": Herding,
    "gss": GradientBased,
}
