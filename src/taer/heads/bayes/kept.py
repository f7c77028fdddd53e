"""The samples that ``bayes-replay`` keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from taer.heads.closed_form.selection import evenly


@dataclass(frozen=True)
class KeptSamples:
    """Samples in the space of the prior, in int8 with a scale each, and what never changes about their scores."""

    kind: ClassVar[str] = "kept-samples"

    rows: np.ndarray  # int8
    scales: np.ndarray
    y: np.ndarray  # numbers of the classes
    own: np.ndarray  # scores of ``bayes`` for the own class, learned without the sample
    blank: np.ndarray  # and for a class without samples
    logs: (
        np.ndarray
    )  # log Σ exp of the scores of all counted classes, in units of the temperature; NaN if not asked for

    @classmethod
    def of(cls, space: np.ndarray, y: np.ndarray, own: np.ndarray, blank: np.ndarray) -> Self:
        scales = np.maximum(np.abs(space).max(axis=1, initial=0), 1e-30).astype(np.float32) / np.float32(127)
        rows = np.rint(space / scales[:, None]).clip(-127, 127).astype(np.int8)
        scores = (own.astype(np.float32), blank.astype(np.float32))
        return cls(rows, scales, y.astype(np.int64), *scores, np.full(len(y), np.nan))

    @classmethod
    def none(cls, width: int) -> Self:
        return cls.of(np.zeros((0, width)), np.zeros(0), np.zeros(0), np.zeros(0))

    def __len__(self) -> int:
        return len(self.y)

    def space(self) -> np.ndarray:
        return self.rows * self.scales[:, None]

    def counts(self, n_classes: int) -> np.ndarray:
        return np.bincount(self.y, minlength=n_classes)

    def plus(self, other: Self) -> Self:
        return self._each(lambda one, two: np.concatenate([one, two]), other)

    def taken(self, rows: np.ndarray) -> Self:
        return self._each(lambda one, _: one[rows], self)

    def _each(self, made: Any, other: Self) -> Self:
        names = [part.name for part in fields(self)]
        return type(self)(**{name: made(getattr(self, name), getattr(other, name)) for name in names})

    @property
    def compared(self) -> np.ndarray:
        """Which samples have a log Σ exp: those that later classes are compared with."""
        return ~np.isnan(self.logs)

    def with_logs(self, logs: np.ndarray) -> Self:
        return replace(self, logs=logs)

    def without(self, label: int) -> Self:
        left = self.taken(self.y != label)
        return replace(left, y=left.y - (left.y > label))

    def minus(self, other: Self) -> Self:
        """Without the samples that the other has, too; each of its samples counts once."""
        gone, left = Counter(other._keys()), []
        for at, key in enumerate(self._keys()):
            if gone[key] > 0:
                gone[key] -= 1
            else:
                left.append(at)
        return self.taken(np.array(left, np.int64))

    def nearest(self, space: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The place of the sample of the same class that is nearest to each row, each once; -1 if none is near.

        Near is within one step of the int8 along every feature: features of one sample differ that much between machines.
        """
        found = np.full(len(y), -1)
        for label in np.unique(y):
            own = np.flatnonzero(self.y == label)
            for at in np.flatnonzero(y == label):
                steps = np.abs(self.rows[own] - space[at] / self.scales[own, None]).max(axis=1, initial=0)
                if len(own) and steps.min() <= 1:
                    found[at] = own[steps.argmin()]
                    own = np.delete(own, steps.argmin())
        return found

    def _keys(self) -> list[tuple[int, bytes, bytes]]:
        parts = zip(self.y.tolist(), self.rows, self.scales, strict=True)
        return [(label, row.tobytes(), scale.tobytes()) for label, row, scale in parts]

    def limited(self, most: int | None) -> Self:
        """At most so many of each class, evenly spaced in the order in which they came."""
        return self if most is None else self.taken(some_of_each(self.y, most))

    def check(self, width: int, n_classes: int) -> None:
        """Raise ValueError unless these are samples of so many features and classes."""
        n = len(self.rows)
        if self.rows.shape != (n, width) or self.rows.dtype != np.int8:
            raise ValueError(f"rows: expected int8 of the shape ({n}, {width})")
        if (
            self.y.shape != (n,)
            or self.y.dtype != np.int64
            or (n and not 0 <= self.y.min() <= self.y.max() < n_classes)
        ):
            raise ValueError(f"y: expected {n} whole numbers from 0 to {n_classes - 1}")
        for name in ("scales", "own", "blank", "logs"):
            value = getattr(self, name)
            known = value[~np.isnan(value)] if name == "logs" else value
            if value.shape != (n,) or value.dtype.kind != "f" or not np.isfinite(known).all():
                raise ValueError(f"{name}: expected {n} finite numbers")
        if (self.scales <= 0).any():
            raise ValueError("scales: expected numbers above zero")

    def to_arrays(self) -> dict[str, np.ndarray]:
        return dict(vars(self))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        return cls(**arrays)


def some_of_each(y: np.ndarray, most: int) -> np.ndarray:
    """Places of at most so many samples of each class, evenly spaced, in order."""
    chosen = [evenly(np.flatnonzero(y == label), most) for label in np.unique(y)]
    return np.sort(np.concatenate([np.zeros(0, np.int64), *chosen]))
