"""The state of all classes, as one value: scores, bounds of them, the best class, and the same as an ONNX graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy import special

from taer.heads import exact
from taer.heads.bayes.density import Density, Space, Spread, Summary, predictive, remaining
from taer.heads.bayes.integers import quantized

_WIDEST = 1 - 1e-9  # below one: how far directions may reduce a squared distance
_FEW = 1 / 8  # of the classes: rows with shorter lists share too few classes to be scored together
_NARROW = 128  # features
_AT_ONCE = 1 << 20  # products with directions that are computed together, so that they stay in the cache
_TIES = 1e-5  # relative difference below which scores may be equal in float32


class Described(NamedTuple):
    """One class, as it is stored."""

    counts: float
    means: np.ndarray
    traces: float
    rests: float
    inverses: float
    weights: np.ndarray
    columns: np.ndarray
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
    columns: np.ndarray  # centers times the inverse variances
    levels: np.ndarray  # squared lengths of the centers, weighted by the inverse variances
    heights: np.ndarray  # scores at the centers
    most: np.ndarray  # largest reduction of a squared distance by the directions
    numbers: np.ndarray  # how many directions a class has
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
            columns=wide,
            levels=flat,
            heights=flat,
            most=flat,
            numbers=np.zeros(0, np.int64),
            directions=np.zeros((0, width), _integers(width)),
            scales=flat,
            offsets=flat,
        )

    def __len__(self) -> int:
        return len(self.counts)

    # Learning

    def replaced(self, described: Mapping[int, Described]) -> Self:
        """With some classes described anew; numbers beyond the last class are new ones."""
        n_classes = max([len(self), *(label + 1 for label in described)])
        ends = np.cumsum(self.numbers)
        own = [slice(end - number, end) for end, number in zip(ends, self.numbers, strict=True)]
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
        numbers = [len(described[at].scales) if at in described else self.numbers[at] for at in range(n_classes)]
        return replace(self, **found, numbers=np.array(numbers, np.int64))

    def without(self, label: int) -> Self:
        """Without a class; later numbers decrease by one."""
        kept = np.arange(len(self)) != label
        of_direction = np.repeat(kept, self.numbers)
        arrays = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{n: a[of_direction if n in _BY_DIRECTION else kept] for n, a in arrays.items()})

    def of_class(self, label: int) -> list[np.ndarray]:
        """All that the scores of a class depend on."""
        places = self._places(np.array([label]))
        names = [each.name for each in fields(self)]
        return [np.asarray(getattr(self, n)[places if n in _BY_DIRECTION else label]) for n in names]

    def summary(self, label: int, nu: float, spread: Spread) -> Summary:
        """What is known of the samples of a class. Its scatter follows from the shape, up to the rounding of integers."""
        n, rest, places = float(self.counts[label]), float(self.rests[label]), self._places(np.array([label]))
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

    def scores(self, space: Space, classes: np.ndarray) -> np.ndarray:
        """Scores of some classes. scipy's logarithm has the same bits on every processor, numpy's does not."""
        width = self.columns.shape[1]
        distances = np.maximum(self._around(space, classes) - self._reductions(space, classes), 0)
        scores: np.ndarray = self.heights[classes] - width * special.log1p(distances / width)
        return scores

    def _around(self, space: Space, classes: np.ndarray) -> np.ndarray:
        """Squared distances without the directions of the classes."""
        squared = space.squares[:, None] * self.inverses[classes]
        squared += exact.products(np.square(space.along), self.weights[classes])
        return squared - 2 * exact.products(space.rows, self.columns[classes]) + self.levels[classes]

    def _reductions(self, space: Space, classes: np.ndarray) -> np.ndarray:
        """By how much the directions of the classes reduce the squared distances."""
        found = np.zeros((len(space.rows), len(classes)))
        parts = np.cumsum(self.numbers[classes]) * len(space.rows) // _AT_ONCE
        starts = np.flatnonzero(np.diff(parts, prepend=-1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(classes)], strict=True):
            found[:, start:end] = self._reductions_of(space.rows, classes[start:end])
        return np.minimum(found, self.most[classes], out=found)

    def _reductions_of(self, rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
        places, numbers = self._places(classes), self.numbers[classes]
        found = np.zeros((len(rows), len(classes)))
        if len(places):
            in_a_row = len(places) == places[-1] - places[0] + 1 and (np.diff(places) == 1).all()
            directions = self.directions[places[0] : places[-1] + 1] if in_a_row else self.directions[places]
            off = exact.products(rows, directions)
            off *= self.scales[places]
            off -= self.offsets[places]
            starts = (np.cumsum(numbers) - numbers)[numbers > 0]
            found[:, numbers > 0] = np.add.reduceat(np.square(off, out=off), starts, axis=1)
        return found

    def _places(self, classes: np.ndarray) -> np.ndarray:
        """The places of the directions of classes, class after class."""
        numbers = self.numbers[classes]
        firsts = (np.cumsum(self.numbers) - self.numbers)[classes] - (np.cumsum(numbers) - numbers)
        return np.repeat(firsts, numbers) + np.arange(numbers.sum())

    def bounds(self, space: Space) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of ``exp(-score / d) = (1 + r / d)·exp(-height / d)`` for all classes, without their directions.

        They are computed in float32, and are NaN or infinite where that is too small for the numbers.
        """
        width, kind = self.columns.shape[1], np.float32
        with np.errstate(over="ignore", invalid="ignore"):
            squared = np.outer(space.squares.astype(kind), self.inverses.astype(kind))
            around = squared + np.square(space.along.astype(kind)) @ self.weights.T
            around -= 2 * (space.rows.astype(kind) @ self.columns.T)
            levels, most = self.levels.astype(kind), self.most.astype(kind)
            around += levels
            # The largest rounding error of a sum of so many products; no term is larger than the sum of both squares.
            slack = 4 * width * np.finfo(kind).eps * (squared + levels)
            scale = np.exp(-self.heights / width).astype(kind)
            lowest = (1 + np.maximum(around - slack - most, 0) / width) * scale
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
        at_once = 1 if possible[unsure].mean() < _FEW else len(unsure)
        for start in range(0, len(unsure), at_once):
            rows = unsure[start : start + at_once]
            classes = order[possible[rows].any(axis=0)[order]]
            best[rows] = classes[self.scores(space.at(rows), classes).astype(dtype).argmax(axis=1)]
        return best

    def graph(self, graph: Any, space: str, along: str, order: np.ndarray) -> str:
        """Add the scores, with columns in this order, to an ONNX graph; returns the name of their value."""
        width, places = self.columns.shape[1], self._places(order)
        squares = graph.add("ReduceSum", graph.add("Mul", space, space), np.array([1]), keepdims=1)
        distances = graph.add("MatMul", squares, self.inverses[order][None])
        weights, columns = (values[order].T.astype(np.float64) for values in (self.weights, self.columns))
        if len(weights):
            distances = graph.add("Add", distances, graph.add("MatMul", graph.add("Mul", along, along), weights))
        distances = graph.add("Sub", distances, graph.add("MatMul", space, 2 * columns))
        distances = graph.add("Add", distances, self.levels[order])
        if len(places):
            root = (self.directions[places] * self.scales[places, None]).astype(np.float32)
            off = graph.add(
                "Gemm", graph.cast(space, np.float32), root, -self.offsets[places].astype(np.float32), transB=1
            )
            members = np.repeat(np.arange(len(order)), self.numbers[order])
            sums = (members[:, None] == np.arange(len(order))).astype(np.float32)
            off = graph.cast(graph.add("MatMul", graph.add("Mul", off, off), sums), np.float64)
            distances = graph.add("Sub", distances, graph.add("Min", off, self.most[order]))
        ratio = graph.add("Div", graph.add("Relu", graph.cast(distances, np.float32)), np.array(width, np.float32))
        logs = graph.cast(graph.add("Log", graph.add("Add", ratio, np.array(1, np.float32))), np.float64)
        return str(graph.add("Sub", self.heights[order], graph.add("Mul", logs, np.array(float(width)))))

    # Saving

    def check(self, width: int, n_classes: int) -> None:
        """Raise ValueError unless this is a state of so many classes and features."""
        total = int(self.numbers.sum()) if self.numbers.dtype == np.int64 and self.numbers.ndim == 1 else -1
        shapes = {
            **dict.fromkeys(("counts", "traces", "rests", "inverses", "levels", "heights", "most"), (n_classes,)),
            **dict.fromkeys(("means", "columns"), (n_classes, width)),
            "weights": (n_classes, self.weights.shape[-1]),
            "numbers": (n_classes,),
            "directions": (total, width),
            **dict.fromkeys(("scales", "offsets"), (total,)),
        }
        kinds = {
            "numbers": "int64",
            "directions": _integers(width),
            **dict.fromkeys(("means", "columns", "weights"), "float32"),
        }
        for name, shape in shapes.items():
            value = getattr(self, name)
            if value.shape != shape or value.dtype != kinds.get(name, "float64") or not np.isfinite(value).all():
                raise ValueError(f"{name}: expected finite numbers of the shape {shape}")
        if (
            (self.numbers < 0).any()
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


_BY_DIRECTION = ("directions", "scales", "offsets")


def _integers(width: int) -> str:
    """The type of the directions. Two bytes where they take little room, so that repeated corrections lose less."""
    return "int16" if width <= _NARROW else "int8"


def described(known: Summary, nu: float, spread: Spread, rank: int, offset: float) -> Described:
    """A class as it is stored: rounded, so that its scores have the same bits on every machine."""
    mean = known.mean.astype(np.float32)
    density = predictive(known._replace(mean=mean.astype(np.float64)), nu, spread, rank)
    crossed = spread.directions @ density.center
    column = density.center / density.variance + (density.weights * crossed) @ spread.directions
    level = density.center @ density.center / density.variance + density.weights @ np.square(crossed)
    directions, scales = _directions(density, spread)
    kept = known.root[max(0, len(known.root) - rank) :]
    rest = remaining(known.trace - float(np.square(kept).sum()), known.n, nu, spread.width - len(kept))
    return Described(
        known.n,
        mean,
        known.trace,
        rest,
        1 / density.variance,
        exact.rounded(density.weights[None], np.float32)[0],
        exact.rounded(column[None], np.float32)[0],
        float(level),
        density.height + offset,
        density.most,
        directions,
        scales,
        (directions.astype(np.float64) @ density.center) * scales,
    )


def _directions(density: Density, spread: Spread) -> tuple[np.ndarray, np.ndarray]:
    """The root in integers. Each row is scaled so that rounding does not change how much it widens the class."""
    root = density.root[np.square(density.root).sum(axis=1) > 0]
    integers, _ = quantized(root, _integers(spread.width))

    def widths(rows: np.ndarray) -> np.ndarray:
        """Squared lengths in the shape without the root; below one."""
        crossed = np.square(rows @ spread.directions.T)
        variances = 1 / (density.weights + 1 / density.variance)
        found: np.ndarray = np.square(rows).sum(axis=1) * density.variance + crossed @ (
            variances - density.variance
        )
        return found

    wide = integers.astype(np.float64)
    wanted = np.minimum(widths(root), _WIDEST)
    return integers, np.sqrt(wanted / np.maximum(widths(wide), 1e-300))
