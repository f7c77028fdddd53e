"""Selection by gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np

from taer.memory.base import Memory, Offer, draw


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
