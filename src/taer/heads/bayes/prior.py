"""The prior, fitted on the first task: what classes look like in general on these features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from taer.heads import exact
from taer.heads.bayes.constants import (
    DIRECTIONS,
    IMAGINED,
    LATER,
    LATER_SAMPLES,
    LEAST_GAIN,
    SIZES,
    SURE,
    WIDER,
    WITHIN,
)
from taer.heads.bayes.density import Space, Spread, nothing
from taer.heads.bayes.integers import quantized
from taer.heads.bayes.spectra import leading_rows
from taer.heads.bayes.state import Densities, described


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
        apart = rows - self.center
        mapped: np.ndarray = apart * self.scale + (apart @ self.directions.T * self.gains) @ self.directions
        return mapped


@dataclass(frozen=True)
class Prior:
    """The map to the space of the prior, the spread of class means there, and what the trial measured."""

    kind: ClassVar[str] = "bayes-prior"

    center: np.ndarray
    scale: float
    within: np.ndarray  # directions e in integers
    gains: np.ndarray  # for the integers
    between: np.ndarray  # directions of class means in integers
    units: np.ndarray  # of these integers
    psi: np.ndarray  # variances of class means along these directions, and along all others
    strength: float  # weight of the shared covariance in that of a class, in pseudo-samples per feature
    knots: np.ndarray  # logarithms of numbers of samples, and the score offsets of later classes with that many
    temperature: float  # of probabilities
    far: np.ndarray  # from which squared length on a sample is far from all classes, and what each unit beyond adds

    def __call__(self, rows: np.ndarray) -> Space:
        """Rows in the space of the prior, with the same bits on every machine."""
        apart = rows - self.center
        along = exact.integer_products(apart, self._within) * self.gains
        return self.space(apart * self.scale + exact.integer_products(along, self._within.T))

    def space(self, rows: np.ndarray) -> Space:
        """Rows that are in the space already."""
        rows = exact.leading(rows)
        return Space(rows, exact.squares(rows), exact.integer_products(rows, self._between) * self.units)

    @cached_property
    def _within(self) -> np.ndarray:
        return self.within.astype(np.float64)

    @cached_property
    def _between(self) -> np.ndarray:
        return self.between.astype(np.float64)

    @cached_property
    def blank(self) -> Densities:
        """A class without samples."""
        width = len(self.center)
        none = Densities.none(width, len(self.units))
        return none.replaced({0: described(nothing(width), self.nu, self.spread, 0, 0.0)})

    @cached_property
    def spread(self) -> Spread:
        directions = self.between * self.units[:, None]
        return Spread(directions, self.psi[:-1], float(self.psi[-1]), len(self.center))

    @property
    def nu(self) -> float:
        return self.strength * len(self.center)

    def offset(self, count: float, first: bool) -> float:
        """The score offset of a class with this number of samples, of the first task or of a later one.

        The prior fits the classes that it comes from better than later ones, even where these have many samples.
        """
        return float(np.interp(np.log(count), *self.knots)) - first * float(self.knots[1, -1])

    def beyond(self, space: Space) -> np.ndarray:
        """How far beyond all classes rows are, in units of novelty; zero for nearly all samples of any class."""
        limit, unit = self.far
        others, more = self._inverses
        distance = space.squares * others + exact.products(np.square(space.along), more)[:, 0]
        found: np.ndarray = unit * np.maximum(distance - limit, 0)
        return found

    @property
    def _inverses(self) -> tuple[float, np.ndarray]:
        """The inverse variance of all samples along no direction, and what is added to it along those of class means."""
        others = float(1 / (1 + self.psi[-1]))
        return others, exact.rounded((1 / (1 + self.psi[:-1]) - others)[None], np.float32)

    def check(self, width: int, n_classes: int) -> None:
        """Raise ValueError unless this is a prior for this number of features."""
        k, m = (len(self.gains), len(self.units)) if self.gains.ndim == self.units.ndim == 1 else (-1, -1)
        shapes = {
            "center": (width,),
            "within": (k, width),
            "gains": (k,),
            "between": (m, width),
            "units": (m,),
            "psi": (m + 1,),
            "far": (2,),
        }
        for name, shape in shapes.items():
            value = getattr(self, name)
            kinds = "i" if name in ("within", "between") else "f"
            if value.shape != shape or value.dtype.kind != kinds or not np.isfinite(value).all():
                raise ValueError(f"{name}: expected finite numbers of the shape {shape}")
        if self.knots.ndim != 2 or len(self.knots) != 2 or not np.isfinite(self.knots).all():
            raise ValueError("knots: expected two rows of finite numbers")
        positive = (self.scale, self.strength, self.temperature)
        if not (self.psi > 0).all() or not all(0 < value < np.inf for value in positive):
            raise ValueError("expected variances, a scale, a strength and a temperature above zero")

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {each.name: np.asarray(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        numbers: dict[str, Any] = {name: float(arrays[name]) for name in ("scale", "strength", "temperature")}
        return cls(**{**arrays, **numbers})

    def graph(self, graph: Any, rows: str) -> tuple[str, str]:
        """Add the map to an ONNX graph; returns the names of the rows in the space and along the directions."""
        apart = graph.add("Sub", rows, self.center)
        space = graph.add("Mul", apart, np.array(self.scale))
        if len(self.gains):
            within = self.within.astype(np.float64)
            along = graph.add("MatMul", apart, within.T * self.gains)
            space = graph.add("Add", space, graph.add("MatMul", along, within))
        return space, graph.add("MatMul", space, self.between.T * self.units) if len(self.units) else space

    def far_graph(self, graph: Any, space: str, along: str) -> str:
        """Add :meth:`beyond` to an ONNX graph, as a column."""
        (limit, unit), (others, more) = self.far, self._inverses
        squares = graph.add("ReduceSum", graph.add("Mul", space, space), np.array([1]), keepdims=1)
        distance = graph.add("Mul", squares, np.array(others))
        if len(self.units):
            turned = graph.add("MatMul", graph.add("Mul", along, along), more.T.astype(np.float64))
            distance = graph.add("Add", distance, turned)
        past = graph.add("Max", graph.add("Sub", distance, np.array(limit)), np.array(0.0))
        return str(graph.add("Mul", past, np.array(unit)))


def class_means(rows: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts and means of classes 0 … k-1, all of which have samples."""
    order = np.argsort(y, kind="stable")
    counts = np.bincount(y).astype(np.float64)
    sums = np.add.reduceat(rows[order], (np.cumsum(counts) - counts).astype(np.int64), axis=0)
    return counts, sums / counts[:, None]


def covariance_within(
    rows: np.ndarray, y: np.ndarray, width: int, pseudo: Pseudo, most: int, quick: bool
) -> Within:
    """The covariance within classes, from samples of classes 0 … k-1 and pseudo-samples.

    Rows may be coordinates of a subspace of the ``width`` features.
    """
    counts, means = class_means(rows, y)
    centered = np.concatenate([rows - means[y], pseudo.rows * np.sqrt(pseudo.samples * WITHIN)])
    found = leading_rows(centered, min(most, width), quick)
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
    level = (spectrum.sum() / d * (n_classes - 1) + 0.2 * 3) / (n_classes + 2)  # towards 0.2, as if by 3 classes
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
    moved = map_.gains != 0
    within, scales = quantized(map_.directions[moved], np.int16)
    between, units = quantized(spread.directions, np.int16)
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
