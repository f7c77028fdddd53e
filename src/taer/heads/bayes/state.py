"""What the head stores, as two values: the prior, which maps rows to its space, and the densities of the classes there.

Answers come from these alone: scores, bounds of them, the best class, and the same as an ONNX graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike

from taer.heads import exact
from taer.heads.bayes.constants import NARROW
from taer.heads.bayes.density import Classes, Space, Spread, Summary, centers_of, log_density, nothing, shapes_of
from taer.rows import row_chunks

_WIDEST = 1 - 1e-9  # below one: how far directions may reduce a squared distance
_SHARED = 1 / 8  # of the classes: rows with shorter lists have too few in common to be scored together
_IN_CACHE = 1 << 20  # products with directions that are computed together, so that they stay in the cache
_TIES = 1e-5  # relative difference below which scores may be equal in float32


class Described(NamedTuple):
    """One class, as it is stored."""

    counts: float
    means: np.ndarray
    traces: float
    rests: float
    inverses: float
    weights: np.ndarray
    weighted_centers: np.ndarray
    levels: float
    heights: float
    most: float
    directions: np.ndarray
    scales: np.ndarray
    offsets: np.ndarray


@dataclass(frozen=True)
class Densities:
    """Scores ``heights - d·log(1 + r / d)``, with ``r`` the squared distance of a row in the inverse shape of a class.

    One row per class in order of arrival, except that a class has as many rows of ``directions`` as it needs.
    """

    kind: ClassVar[str] = "bayes-densities"

    counts: np.ndarray  # of samples
    means: np.ndarray  # of samples, in the space of the prior
    traces: np.ndarray  # of their scatters
    rests: np.ndarray  # variances of the shapes where a class has no direction of its own
    inverses: np.ndarray  # inverse variances along no direction
    weights: np.ndarray  # what is added to them along the directions of class means
    weighted_centers: np.ndarray  # times the inverse variances
    levels: np.ndarray  # squared lengths of the centers, weighted by the inverse variances
    heights: np.ndarray  # scores at the centers
    most: np.ndarray  # largest reduction of a squared distance by the directions
    n_directions: np.ndarray  # of each class
    directions: np.ndarray  # in integers, the directions in which classes are wider than the prior
    scales: np.ndarray  # of their integers
    offsets: np.ndarray  # the centers along them

    @classmethod
    def none(cls, width: int, spread: int) -> Self:
        """No classes."""
        flat, wide = np.zeros(0), np.zeros((0, width), np.float32)
        return cls(
            counts=flat,
            means=wide,
            traces=flat,
            rests=flat,
            inverses=flat,
            weights=np.zeros((0, spread), np.float32),
            weighted_centers=wide,
            levels=flat,
            heights=flat,
            most=flat,
            n_directions=np.zeros(0, np.int64),
            directions=np.zeros((0, width), _integers(width)),
            scales=flat,
            offsets=flat,
        )

    def __len__(self) -> int:
        return len(self.counts)

    # Learning

    def learned(self, known: Mapping[int, Summary], prior: Prior, rank: int, first: Callable[[int], bool]) -> Self:
        """With some classes from summaries; ``first`` tells which are of the first task."""
        return self.replaced(
            {
                label: described(each, prior.nu, prior.spread, rank, prior.offset(each.n, first(label)))
                for label, each in known.items()
            }
        )

    def replaced(self, described: Mapping[int, Described]) -> Self:
        """With some classes described anew; numbers beyond the last class are new ones."""
        n_classes = max([len(self), *(label + 1 for label in described)])
        ends = np.cumsum(self.n_directions)
        own = [slice(end - number, end) for end, number in zip(ends, self.n_directions, strict=True)]
        found = {}
        for name in Described._fields:
            old = getattr(self, name)
            if name in _BY_DIRECTION:
                parts = [
                    getattr(described[label], name) if label in described else old[own[label]]
                    for label in range(n_classes)
                ]
                found[name] = np.concatenate(parts).astype(old.dtype, copy=False)
            else:
                grown = np.concatenate([old, np.zeros((n_classes - len(self), *old.shape[1:]), old.dtype)])
                for label, each in described.items():
                    grown[label] = getattr(each, name)
                found[name] = grown
        numbers = [
            len(described[at].scales) if at in described else self.n_directions[at] for at in range(n_classes)
        ]
        return replace(self, **found, n_directions=np.array(numbers, np.int64))

    def without(self, label: int) -> Self:
        """Without a class; later numbers decrease by one."""
        kept = np.arange(len(self)) != label
        of_direction = np.repeat(kept, self.n_directions)
        arrays = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{n: a[of_direction if n in _BY_DIRECTION else kept] for n, a in arrays.items()})

    def _own(self, label: int) -> slice:
        """The places of the directions of a class."""
        end = int(self.n_directions[: label + 1].sum())
        return slice(end - int(self.n_directions[label]), end)

    def of_class(self, label: int) -> list[np.ndarray]:
        """All that the scores of a class depend on."""
        places = self._own(label)
        names = [each.name for each in fields(self)]
        return [np.asarray(getattr(self, n)[places if n in _BY_DIRECTION else label]) for n in names]

    def summary(self, label: int, nu: float, spread: Spread) -> Summary:
        """What is known of the samples of a class. Its scatter follows from the shape, up to the rounding of integers."""
        n, rest, places = float(self.counts[label]), float(self.rests[label]), self._own(label)
        root = self.directions[places] * self.scales[places, None]
        variance, variances = (rest + psi / (n * psi + 1) for psi in (spread.rest, spread.psi))
        stretched = root * variance + ((root @ spread.directions.T) * (variances - variance)) @ spread.directions
        inside = np.linalg.inv(np.eye(len(root)) - stretched @ root.T)
        factor = np.linalg.cholesky((inside + inside.T) / 2)
        wide = factor.T @ stretched
        gain, vectors = np.linalg.eigh(wide @ wide.T)
        gain = np.maximum(gain, 0)
        spectrum = np.maximum((gain + rest) * (n + nu) - nu, 0)
        rows = (vectors * np.sqrt(spectrum / np.maximum(gain, 1e-300))).T @ wide
        return Summary(n, self.means[label].astype(np.float64), rows, float(self.traces[label]))

    # Answering

    def scores(self, space: Space, classes: np.ndarray, products: _Products = exact.products) -> np.ndarray:
        """Scores of some classes; with exact products, they have the same bits on every machine."""
        distances = self._around(space, classes, products)
        distances -= self._reductions(space, classes, products)
        heights = self.heights[classes].astype(distances.dtype)
        return log_density(heights, distances, self.weighted_centers.shape[1])

    def approximate(self, space: Space, classes: np.ndarray) -> np.ndarray:
        """The same in float32, several times as fast; for learning only, where bits do not matter."""
        found = np.zeros((len(space.rows), len(classes)), np.float32)
        if not found.size:
            return found
        for part in row_chunks(
            space.rows, max(self.weighted_centers.shape[1], int(self.n_directions[classes].sum()))
        ):
            single = Space(*(each.astype(np.float32, copy=False) for each in space.at(part)))
            found[part] = self.scores(single, classes, _plain_products)
        return found

    def _around(self, space: Space, classes: np.ndarray | slice, products: _Products) -> np.ndarray:
        """Squared distances without the directions of the classes."""
        kind = space.rows.dtype
        squared = space.squares[:, None] * self.inverses[classes].astype(kind)
        squared += products(np.square(space.along), self.weights[classes])
        squared -= 2 * products(space.rows, self.weighted_centers[classes])
        squared += self.levels[classes].astype(kind)
        return squared

    def _reductions(self, space: Space, classes: np.ndarray, products: _Products) -> np.ndarray:
        """By how much the directions of the classes reduce the squared distances."""
        found = np.zeros((len(space.rows), len(classes)), space.rows.dtype)
        parts = np.cumsum(self.n_directions[classes]) * len(space.rows) // _IN_CACHE
        starts = np.flatnonzero(np.diff(parts, prepend=-1)).tolist()
        before = (
            np.cumsum(self.n_directions) - self.n_directions
        )  # how many directions come before those of a class
        for start, end in zip(starts, [*starts[1:], len(classes)], strict=True):
            some = classes[start:end]
            numbers = self.n_directions[some]
            firsts = np.cumsum(numbers) - numbers  # of each class, among the directions of these classes
            if not numbers.any():
                continue
            places = np.repeat(before[some] - firsts, numbers) + np.arange(numbers.sum())
            in_a_row = len(places) == places[-1] - places[0] + 1 and (np.diff(places) == 1).all()
            directions = self.directions[places[0] : places[-1] + 1] if in_a_row else self.directions[places]
            off = products(space.rows, directions)
            off *= self.scales[places].astype(off.dtype)
            off -= self.offsets[places].astype(off.dtype)
            wide = np.flatnonzero(numbers)
            found[:, start + wide] = np.add.reduceat(np.square(off, out=off), firsts[wide], axis=1)
        return np.minimum(found, self.most[classes], out=found, casting="same_kind")

    def bounds(self, space: Space) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of ``exp(-score / d) = (1 + r / d)·exp(-height / d)`` for all classes, without their directions.

        They are computed in float32, and are NaN or infinite where that is too small for the numbers.
        """
        width, kind = self.weighted_centers.shape[1], np.float32
        with np.errstate(over="ignore", invalid="ignore"):
            single = Space(*(part.astype(kind) for part in space))
            around = self._around(single, slice(None), np.inner)
            # The largest rounding error of a sum of so many products; no term is larger than the sum of both squares.
            slack = np.outer(single.squares, self.inverses.astype(kind)) + self.levels.astype(kind)
            slack *= 4 * width * np.finfo(kind).eps
            scale = np.exp(-self.heights / width).astype(kind)
            lowest = (1 + np.maximum(around - slack - self.most.astype(kind), 0) / width) * scale
            highest = (1 + (around + slack) / width) * scale * (1 + _TIES)
        return lowest, highest

    def best(self, space: Space, order: np.ndarray, dtype: str) -> np.ndarray:
        """The best class of each row, on ties the first in ``order``; only classes that can be the best are scored."""
        lowest, highest = self.bounds(space)
        possible = ~(lowest > highest.min(axis=1, keepdims=True))  # also where a bound is NaN
        best = possible.argmax(axis=1)
        unsure = np.flatnonzero(possible.sum(axis=1) > 1)
        if not len(unsure):
            return best
        at_once = 1 if possible[unsure].mean() < _SHARED else len(unsure)
        for start in range(0, len(unsure), at_once):
            rows = unsure[start : start + at_once]
            classes = order[possible[rows].any(axis=0)[order]]
            best[rows] = classes[self.scores(space.at(rows), classes).astype(dtype).argmax(axis=1)]
        return best

    def graph(self, graph: Any, space: str, along: str, order: np.ndarray) -> str:
        """Add the scores, with columns in this order, to an ONNX graph; returns the name of their value."""
        width, every = self.weighted_centers.shape[1], np.arange(len(self.directions))
        places = np.concatenate([every[:0], *(every[self._own(label)] for label in order)])
        squares = graph.add("ReduceSum", graph.add("Mul", space, space), np.array([1]), keepdims=1)
        distances = graph.add("MatMul", squares, self.inverses[order][None])
        weights, columns = (values[order].T.astype(np.float64) for values in (self.weights, self.weighted_centers))
        if len(weights):
            distances = graph.add("Add", distances, graph.add("MatMul", graph.add("Mul", along, along), weights))
        distances = graph.add("Sub", distances, graph.add("MatMul", space, 2 * columns))
        distances = graph.add("Add", distances, self.levels[order])
        if len(places):
            root = (self.directions[places] * self.scales[places, None]).astype(np.float32)
            off = graph.add(
                "Gemm", graph.cast(space, np.float32), root, -self.offsets[places].astype(np.float32), transB=1
            )
            members = np.repeat(np.arange(len(order)), self.n_directions[order])
            sums = (members[:, None] == np.arange(len(order))).astype(np.float32)
            off = graph.cast(graph.add("MatMul", graph.add("Mul", off, off), sums), np.float64)
            distances = graph.add("Sub", distances, graph.add("Min", off, self.most[order]))
        ratio = graph.add("Div", graph.add("Relu", graph.cast(distances, np.float32)), np.array(width, np.float32))
        logs = graph.cast(graph.add("Log", graph.add("Add", ratio, np.array(1, np.float32))), np.float64)
        return str(graph.add("Sub", self.heights[order], graph.add("Mul", logs, np.array(float(width)))))

    # Saving

    def check(self, width: int, n_classes: int) -> None:
        """Raise ValueError unless this is a state of so many classes and features."""
        total = (
            int(self.n_directions.sum())
            if self.n_directions.dtype == np.int64 and self.n_directions.ndim == 1
            else -1
        )
        shapes = {
            **dict.fromkeys(("counts", "traces", "rests", "inverses", "levels", "heights", "most"), (n_classes,)),
            **dict.fromkeys(("means", "weighted_centers"), (n_classes, width)),
            "weights": (n_classes, self.weights.shape[-1]),
            "n_directions": (n_classes,),
            "directions": (total, width),
            **dict.fromkeys(("scales", "offsets"), (total,)),
        }
        kinds = {
            "n_directions": "int64",
            "directions": _integers(width),
            **dict.fromkeys(("means", "weighted_centers", "weights"), "float32"),
        }
        for name, shape in shapes.items():
            value = getattr(self, name)
            if value.shape != shape or value.dtype != kinds.get(name, "float64") or not np.isfinite(value).all():
                raise ValueError(f"{name}: expected finite numbers of the shape {shape}")
        if (
            (self.n_directions < 0).any()
            or (self.counts <= 0).any()
            or (self.inverses <= 0).any()
            or (self.rests <= 0).any()
        ):
            raise ValueError("expected counts and variances above zero")
        if (self.traces < 0).any() or (self.most < 0).any() or (self.scales < 0).any():
            raise ValueError("expected traces, limits and scales from zero on")

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        return cls(**arrays)


_Products = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _plain_products(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Products in the precision of the rows."""
    found: np.ndarray = rows @ columns.T.astype(rows.dtype, copy=False)
    return found


_BY_DIRECTION = ("directions", "scales", "offsets")


def _integers(width: int) -> str:
    """The type of the directions."""
    return "int16" if width <= NARROW else "int8"


def described(known: Summary, nu: float, spread: Spread, rank: int, offset: float) -> Described:
    """A class as it is stored: rounded, so that its scores have the same bits on every machine."""
    mean, root = known.mean.astype(np.float32), known.root[max(0, len(known.root) - rank) :]
    seen = Classes.of(spread.width, known._replace(mean=mean.astype(np.float64), root=root))
    q, rows = spread.directions, seen.rows[0]
    shapes = shapes_of(seen, rows @ q.T[None], nu, spread)
    inverse, weights, center = (
        1 / float(shapes.variance[0]),
        shapes.weights[0],
        centers_of(seen.n, seen.mean, spread)[0],
    )

    def weighted(vectors: np.ndarray) -> np.ndarray:
        """In the inverse shape without the directions of the class."""
        found: np.ndarray = vectors * inverse + (vectors @ q.T * weights) @ q
        return found

    values, vectors = np.linalg.eigh((shapes.inner[0] + shapes.inner[0].T) / 2)
    wide = values > 0
    turned = (vectors[:, wide] * np.sqrt(values[wide])).T @ weighted(rows)
    directions, scales = _rounded_root(turned, inverse, weights, spread)
    return Described(
        known.n,
        mean,
        known.trace,
        float(shapes.rest[0]),
        inverse,
        exact.rounded(weights[None], np.float32)[0],
        exact.rounded(weighted(center)[None], np.float32)[0],
        float(center @ weighted(center)),
        float(shapes.height[0]) + offset,
        float(shapes.most[0]),
        directions,
        scales,
        (directions.astype(np.float64) @ center) * scales,
    )


def _rounded_root(
    root: np.ndarray, inverse: float, weights: np.ndarray, spread: Spread
) -> tuple[np.ndarray, np.ndarray]:
    """Rows in integers. Each is scaled so that rounding does not change how much it widens the class."""

    def widths(rows: np.ndarray) -> np.ndarray:
        """Squared lengths in the shape without the root; below one."""
        crossed = np.square(rows @ spread.directions.T)
        found: np.ndarray = np.square(rows).sum(axis=1) / inverse + crossed @ (
            1 / (weights + inverse) - 1 / inverse
        )
        return found

    integers, _ = quantized(root, _integers(spread.width))
    wanted = np.minimum(widths(root), _WIDEST)
    return integers, np.sqrt(wanted / np.maximum(widths(integers.astype(np.float64)), 1e-300))


def quantized(rows: np.ndarray, dtype: DTypeLike) -> tuple[np.ndarray, np.ndarray]:
    """Integers and scales with ``integers · scale`` near the rows; a row of zeros has the scale 1."""
    top = np.iinfo(dtype).max
    largest = np.abs(rows).max(axis=1, initial=0)
    scales = np.where(largest > 0, largest / top, 1.0)
    return np.rint(rows / scales[:, None]).astype(dtype), scales


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
        mapped = apart * self.scale
        if len(self.gains):  # products of leading bits and integers are exact
            along = exact.leading(apart) @ self._within.T * self.gains
            mapped += exact.leading(along) @ self._within
        mapped = exact.leading(mapped)
        along = exact.leading(mapped) @ self._between.T * self.units
        return Space(mapped, np.square(mapped).sum(axis=1), along)

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

    def blank_scores(self, space: Space) -> np.ndarray:
        """Scores of a class without samples."""
        return self.blank.scores(space, np.zeros(1, np.int64))[:, 0]

    def novelty(self, space: Space, best: np.ndarray) -> np.ndarray:
        """The log-density under a class without samples minus the best score; more for rows far from all classes."""
        return self.blank_scores(space) - best + self.beyond(space)

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
        others, more = self.spread.inverses
        return others, exact.rounded(more[None], np.float32)

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
