"""Fitting the prior on the first task: what classes look like in general on these features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taer.heads.bayes.constants import (
    DIRECTIONS,
    IMAGINED,
    LATER,
    LATER_SAMPLES,
    LEAST_GAIN,
    LEVEL,
    LEVEL_CLASSES,
    SIZES,
    SURE,
    WIDE,
    WIDER,
    WITHIN,
)
from taer.heads.bayes.density import Spread
from taer.heads.bayes.spectra import leading_rows
from taer.heads.bayes.state import Prior, quantized


class Pseudo(NamedTuple):
    """Pseudo-samples within classes, from before the first sample: those of unlabeled data, or of equal variance."""

    samples: float
    variance: float  # of each feature, in all of them together with the rows
    rows: np.ndarray  # whose scatter is the covariance of unlabeled samples; none if there are none


class Within(NamedTuple):
    """A covariance within classes: some leading directions, and one variance for all others."""

    directions: np.ndarray  # orthonormal rows
    variances: np.ndarray
    rest: float
    width: int
    samples: float  # on which its shape rests

    @property
    def level(self) -> float:
        """The mean variance."""
        return float(self.variances.sum() + self.rest * (self.width - len(self.variances))) / self.width


class Map(NamedTuple):
    """``z = (x - center)·scale + Σ gains·(e·(x - center))·e``: afterwards, the covariance within classes is 1."""

    center: np.ndarray
    scale: float
    directions: np.ndarray  # orthonormal rows e
    gains: np.ndarray

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        kind = rows.dtype
        directions, gains = self.directions.astype(kind), self.gains.astype(kind)
        apart = rows - self.center.astype(kind)
        mapped: np.ndarray = apart * kind.type(self.scale)
        mapped += (apart @ directions.T * gains) @ directions
        return mapped


def class_means(rows: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts and means of classes 0 … k-1, all of which have samples."""
    order = np.argsort(y, kind="stable")
    counts = np.bincount(y).astype(np.float64)
    sums = np.add.reduceat(rows[order], (np.cumsum(counts) - counts).astype(np.int64), axis=0)
    return counts, sums / counts[:, None]


def covariance_within(rows: np.ndarray, y: np.ndarray, width: int, pseudo: Pseudo, most: int) -> Within:
    """The covariance within classes, from samples of classes 0 … k-1 and pseudo-samples.

    Rows may be coordinates of a subspace of the ``width`` features.
    """
    counts, means = class_means(rows, y)
    centered = np.concatenate([rows - means[y], pseudo.rows * np.sqrt(pseudo.samples * WITHIN)])
    found = leading_rows(centered, min(most, width), quick=most < DIRECTIONS)
    spectrum, total = np.square(found).sum(axis=1), float(np.square(centered).sum())
    rest = max(total - float(spectrum.sum()), 0) / max(width - len(found), 1)
    imagined, divisor = pseudo.samples * WITHIN * pseudo.variance, len(rows) - len(counts) + pseudo.samples
    directions = found / np.sqrt(np.maximum(spectrum, 1e-300))[:, None]
    samples = len(rows) + (pseudo.samples if len(pseudo.rows) else 0)
    return Within(directions, (spectrum + imagined) / divisor, (rest + imagined) / divisor, width, samples)


def whitening(within: Within, shrinkage: float, center: np.ndarray) -> Map:
    """The map after which a covariance, shrunk towards its mean variance, is 1.

    With few samples for the number of features, the shrinkage is larger than given. Directions that the map would hardly
    change are left alone.
    """
    shrinkage = max(shrinkage, 2 * within.width / (2 * within.width + within.samples))
    variances, rest = (
        (1 - shrinkage) * each + shrinkage * within.level for each in (within.variances, within.rest)
    )
    if rest <= 0:  # a single sample, or copies of it
        return Map(center, 1.0, within.directions, np.zeros(len(within.directions)))
    scale = float(1 / np.sqrt(rest))
    gains = 1 / np.sqrt(variances) - scale
    return Map(center, scale, within.directions, np.where(np.abs(gains) > LEAST_GAIN * scale, gains, 0.0))


def spread_of_means(means: np.ndarray, counts: np.ndarray, within: Within, map_: Map) -> Spread:
    """The covariance of class means in the space of the prior, without what the scatter of the samples adds to it."""
    d, n_classes = within.width, len(counts)
    space = map_(means)
    found = leading_rows(space, min(n_classes - 1, DIRECTIONS))
    lengths = np.square(found).sum(axis=1)
    directions = found / np.sqrt(np.maximum(lengths, 1e-300))[:, None]
    # The variance of samples after the map; not quite 1, because the covariance was shrunk for the map.
    others, along = within.rest * map_.scale**2, within.variances * np.square(map_.scale + map_.gains)
    noise = others + np.square(directions @ within.directions.T) @ (along - others)
    spectrum = np.maximum(lengths / max(n_classes - 1, 1) - noise * (1 / counts).mean(), 0)
    level = (spectrum.sum() / d * (n_classes - 1) + LEVEL * LEVEL_CLASSES) / (n_classes - 1 + LEVEL_CLASSES)
    equal = 1 / (1 + (n_classes - 1) / IMAGINED)
    wider = WIDER * (1 + doubt(n_classes))
    return Spread(directions, wider * ((1 - equal) * spectrum + equal * level), wider * equal * level, d)


def doubt(n_classes: int) -> float:
    """How little so few classes say of others: their center is hardly that of later ones."""
    return (SURE / n_classes) ** 2


def default_offsets(spread: Spread, within: Within, pseudo: Pseudo) -> np.ndarray:
    """Knots of the score offsets if nothing was measured.

    A quarter more of the log-determinant that is due to the uncertainty of the mean, and less for later classes, because
    the prior fits those of the first task better.
    """
    sizes = np.array(SIZES)
    psi, times = (
        np.append(spread.psi, spread.rest),
        np.append(np.ones(len(spread.psi)), spread.width - len(spread.psi)),
    )
    offsets = np.array([-0.125 * float(times @ np.log1p(psi / (n * psi + 1))) for n in sizes])
    imagined = pseudo.samples * WITHIN * pseudo.variance * spread.width
    total = within.level * spread.width * (within.samples + pseudo.samples)
    fitted = sizes / (sizes + LATER_SAMPLES) * (1 - min(imagined / total, 1) if total > 0 else 0)
    return np.stack([np.log(sizes), offsets - LATER * spread.width * fitted])


def stored(
    map_: Map, spread: Spread, strength: float, knots: np.ndarray, temperature: float, far: np.ndarray
) -> Prior:
    """The prior as it is stored: rounded, so that a row has the same bits in its space on every machine."""
    moved, kind = map_.gains != 0, np.int16 if spread.width < WIDE else np.int8
    within, scales = quantized(map_.directions[moved], kind)
    between, units = quantized(spread.directions, kind)
    return Prior(
        center=map_.center,
        scale=map_.scale,
        within=within,
        gains=map_.gains[moved] * np.square(scales),
        between=between,
        units=units,
        psi=np.append(spread.psi, spread.rest),
        strength=strength,
        knots=knots,
        temperature=float(temperature),
        far=far,
    )
