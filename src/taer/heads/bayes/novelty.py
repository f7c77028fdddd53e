"""How novel the samples of each class looked before they were learned: thresholds and sets without held-out data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

import numpy as np

from taer.heads.bayes.constants import QUANTILES
from taer.heads.unknowns import ENOUGH


@dataclass(frozen=True)
class Novelties:
    """Distributions of two numbers in each class, as quantiles, in order of arrival."""

    kind: ClassVar[str] = "bayes-novelties"

    misfits: np.ndarray  # how much better an unknown class fits a held-out sample than its own
    novelties: np.ndarray  # of the same samples among all classes
    tried: np.ndarray  # number of these samples

    @classmethod
    def none(cls) -> Self:
        return cls(np.zeros((0, QUANTILES), np.float32), np.zeros((0, QUANTILES), np.float32), np.zeros(0))

    def replaced(self, n_classes: int, found: Mapping[int, tuple[np.ndarray, np.ndarray]]) -> Self:
        """With the misfits and novelties of more samples of some classes."""
        misfits, novelties, tried = (
            np.concatenate([old, np.zeros((n_classes - len(old), *old.shape[1:]), old.dtype)])
            for old in (self.misfits, self.novelties, self.tried)
        )
        for label, (of_class, of_all) in found.items():
            n = len(of_class)
            for quantiles, values in ((misfits, of_class), (novelties, of_all)):
                new = quantiles_of(values)
                quantiles[label] = mixed(quantiles[label], tried[label], new, n) if tried[label] else new
            tried[label] += n
        return replace(self, misfits=misfits, novelties=novelties, tried=tried)

    def averaged(self, other: Self) -> Self:
        """Of both in equal parts; classes that the other has not tried keep theirs."""
        misfits, novelties = self.misfits.copy(), self.novelties.copy()
        for label in np.flatnonzero(other.tried):
            misfits[label] = mixed(misfits[label], 1, other.misfits[label], 1)
            novelties[label] = mixed(novelties[label], 1, other.novelties[label], 1)
        return replace(self, misfits=misfits, novelties=novelties)

    def filled(self, label: int, other: Novelties, their_label: int) -> Self:
        """With the numbers of a class of another head, if this one has none for it."""
        if self.tried[label]:
            return self
        arrays = {each.name: getattr(self, each.name).copy() for each in fields(self)}
        for name, values in arrays.items():
            values[label] = getattr(other, name)[their_label]
        return replace(self, **arrays)

    def without(self, label: int) -> Self:
        return replace(
            self, **{each.name: np.delete(getattr(self, each.name), label, axis=0) for each in fields(self)}
        )

    def threshold(self, false_alarms: float) -> float:
        """The novelty that this fraction of samples of known classes exceeds."""
        tried = self.tried > 0
        if not tried.any():
            raise ValueError("no class has two samples yet: novelty_threshold needs held-out samples")
        weights = np.repeat(self.tried[tried], QUANTILES)
        return pooled_quantile(self.novelties[tried].ravel(), weights, 1 - false_alarms)

    def class_thresholds(self, false_alarms: float) -> dict[int, float]:
        """The same for each class with enough samples."""
        enough = np.flatnonzero(self.tried >= ENOUGH).tolist()
        return {at: pooled_quantile(self.novelties[at], np.ones(QUANTILES), 1 - false_alarms) for at in enough}

    def limits(self, fraction: float) -> np.ndarray:
        """The misfit that this fraction of the samples of each class has at most; classes with few samples share one."""
        many, tried = self.tried >= ENOUGH, self.tried > 0
        few = tried & ~many if (tried & ~many).any() else tried
        if not few.any():
            raise ValueError("no class has two samples yet, so calibrate(X, y) with held-out samples comes first")
        own = [
            pooled_quantile(each, np.ones(QUANTILES), _level(fraction, n))
            for each, n in zip(self.misfits, np.maximum(self.tried, 1), strict=True)
        ]
        counts = self.tried[few]
        level = _level(fraction, float(counts.sum()))
        shared = pooled_quantile(self.misfits[few].ravel(), np.repeat(counts, QUANTILES), level)
        return np.where(many, own, shared)

    def check(self, width: int, n_classes: int) -> None:
        """Raise ValueError unless these are quantiles of so many classes."""
        for name, shape in {
            "misfits": (n_classes, QUANTILES),
            "novelties": (n_classes, QUANTILES),
            "tried": (n_classes,),
        }.items():
            value = getattr(self, name)
            if value.shape != shape or value.dtype.kind != "f" or not np.isfinite(value).all():
                raise ValueError(f"{name}: expected finite numbers of the shape {shape}")
        if (self.tried < 0).any():
            raise ValueError("tried: expected numbers from 0 on")

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        return cls(**arrays)


def quantiles_of(values: np.ndarray) -> np.ndarray:
    """Quantiles at the midpoints of equal fractions."""
    ranks = (np.arange(QUANTILES) + 0.5) / QUANTILES * (len(values) - 1)
    return np.interp(ranks, np.arange(len(values)), np.sort(values))


def mixed(one: np.ndarray, weight: float, other: np.ndarray, other_weight: float) -> np.ndarray:
    """The quantiles of two sets of values together."""
    values, weights = np.concatenate([one, other]), np.repeat([weight, other_weight], QUANTILES)
    return _pooled(values, weights, (np.arange(QUANTILES) + 0.5) / QUANTILES)


def pooled_quantile(values: np.ndarray, weights: np.ndarray, fraction: float) -> float:
    """A weighted quantile of values, with linear interpolation."""
    return float(_pooled(values, weights, np.array(fraction)))


def _pooled(values: np.ndarray, weights: np.ndarray, fractions: np.ndarray) -> np.ndarray:
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    middle = (np.cumsum(weights) - 0.5 * weights) / weights.sum()
    return np.interp(fractions, middle, values)


def _level(fraction: float, n: float) -> float:
    """As in conformal prediction: of n samples and a new one, the new one is as likely the largest as any other."""
    return min(1.0, fraction * (1 + 1 / n))
