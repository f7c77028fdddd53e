"""The distribution of a class: what its samples say, and the Student's t that follows from it and the prior.

In the space of rows ``z`` the covariance within classes is the identity. Class means have the variance ``psi[j]`` along
the direction ``directions[j]`` of a :class:`Spread`, and ``rest`` along all directions that are orthogonal to these.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from taer.heads.bayes.constants import DEVIATIONS, TEMPER
from taer.heads.bayes.spectra import leading_rows


class Spread(NamedTuple):
    """The covariance of class means in ``width`` dimensions."""

    directions: np.ndarray  # orthonormal rows
    psi: np.ndarray  # variances along them
    rest: float  # variance along all other directions
    width: int  # features; the rows may be coordinates of a subspace of fewer dimensions

    @property
    def inverses(self) -> tuple[float, np.ndarray]:
        """The inverse variance of all samples along no direction, and what is added to it along each."""
        others = 1 / (1 + self.rest)
        return others, 1 / (1 + self.psi) - others


class Space(NamedTuple):
    """Rows in the space of the prior."""

    rows: np.ndarray
    squares: np.ndarray  # squared lengths
    along: np.ndarray  # along the directions of class means

    def at(self, which: np.ndarray | slice) -> Space:
        """Some of the rows."""
        return Space(self.rows[which], self.squares[which], self.along[which])

    @classmethod
    def single(cls, rows: np.ndarray, spread: Spread) -> Space:
        """Rows of the space in single precision: enough for learning, and faster."""
        rows = rows.astype(np.float32)
        return cls(rows, np.square(rows).sum(axis=1), rows @ spread.directions.T.astype(np.float32))

    @classmethod
    def joined(cls, parts: list[Space]) -> Space:
        return cls(*(np.concatenate(each) for each in zip(*parts, strict=True)))


class Summary(NamedTuple):
    """A summary of the samples of a class."""

    n: float
    mean: np.ndarray
    root: np.ndarray  # orthogonal rows whose scatter is the leading part of that of the samples, the longest last
    trace: float  # of the whole scatter


def summarize(rows: np.ndarray, rank: int, quick: bool = False) -> Summary:
    """The summary of the samples of a class; ``quick`` approximates the leading directions."""
    mean = rows.mean(axis=0)
    centered = rows - mean
    return Summary(len(rows), mean, leading_rows(centered, rank, quick), float(np.square(centered).sum()))


def merged(one: Summary, other: Summary, rank: int) -> Summary:
    """The summary of the samples of both; exact if their scatter has at most ``rank`` directions."""
    n, apart = one.n + other.n, other.mean - one.mean
    between = np.sqrt(one.n * other.n / n) * apart
    root = leading_rows(np.concatenate([one.root, other.root, between[None]]), rank)
    trace = one.trace + other.trace + float(np.square(between).sum())
    return Summary(n, one.mean + other.n / n * apart, root, trace)


def nothing(width: int) -> Summary:
    """The summary of a class without samples."""
    return Summary(0.0, np.zeros(width), np.zeros((0, width)), 0.0)


class Classes(NamedTuple):
    """Several classes, whose scatters are ``Σ lengths · row rowᵀ + rest · I``; the first axis is the class.

    The rows are orthonormal directions, or samples, and then there is no rest. Rows of zeros fill them up.
    """

    n: np.ndarray
    mean: np.ndarray
    rest: np.ndarray
    rows: np.ndarray
    gram: np.ndarray  # inner products of the rows
    lengths: np.ndarray

    @classmethod
    def of(cls, width: int, *known: Summary) -> Classes:
        """Classes of ``width`` features along their leading directions."""
        size = max(len(each.root) for each in known)
        rows, squares = np.zeros((len(known), size, len(known[0].mean))), np.zeros((len(known), size))
        for at, each in enumerate(known):
            squares[at, : len(each.root)] = np.square(each.root).sum(axis=1)
            rows[at, : len(each.root)] = each.root
        rows /= np.sqrt(np.where(squares > 0, squares, 1))[:, :, None]
        n, mean, trace = (np.array([getattr(each, name) for each in known]) for name in ("n", "mean", "trace"))
        rest = _rest_of(trace, squares, width)
        gram = (squares > 0)[:, None] * np.eye(size)
        return cls(n.astype(np.float64), mean, rest, rows, gram, np.maximum(squares - rest[:, None], 0))

    @classmethod
    def shown(cls, samples: list[np.ndarray], rank: int, exact: int, width: int) -> Classes:
        """Classes with these samples: along all of them, or along ``rank`` directions if they are more than ``exact``."""
        n = np.array([len(each) for each in samples])
        means = np.stack([each.mean(axis=0) for each in samples])
        size = max([*n[n <= exact], *([rank] if (n > exact).any() else [])])
        rows, rests = np.zeros((len(n), size, means.shape[1])), np.zeros(len(n))
        lengths = np.zeros((len(n), size))
        for at, each in enumerate(samples):
            centered = each - means[at]
            found, own = centered, np.ones(len(each))
            if len(each) > exact:
                found = leading_rows(centered, rank, quick=True)
                own = np.square(found).sum(axis=1)
                found /= np.sqrt(np.maximum(own, 1e-300))[:, None]
                rests[at] = _rest_of(np.square(centered).sum(), own, width)
            rows[at, : len(found)], lengths[at, : len(found)] = found, np.maximum(own - rests[at], 0)
        return cls(n.astype(np.float64), means, rests, rows, rows @ rows.swapaxes(1, 2), lengths)


def _rest_of(traces: np.ndarray, squares: np.ndarray, width: int) -> np.ndarray:
    """What scatters have along each direction but their leading ones."""
    others = np.maximum(width - (squares > 0).sum(axis=-1), 1)
    found: np.ndarray = np.maximum(traces - squares.sum(axis=-1), 0) / others
    return found


class Shapes(NamedTuple):
    """Inverse shapes ``B - B·rowsᵀ·inner·rows·B`` of classes, where B is diagonal along the directions of a spread.

    The second part reduces a squared distance by at most ``most``, a limit that samples of the class hardly ever reach.
    So the distance can be bounded without it, and a class is not wide far away from its samples.
    """

    rest: np.ndarray  # the variance of a class where it has no row
    variance: np.ndarray  # and with that of class means, where they have no direction: B is its inverse
    weights: np.ndarray  # by direction of the spread: what is added to the inverse variance in B
    inner: np.ndarray
    most: np.ndarray
    height: np.ndarray  # the logarithm of the density at the center, with a part of the log-determinant


def shapes_of(known: Classes, crossed: np.ndarray, nu: float, spread: Spread) -> Shapes:
    """The covariances ``(scatter + nu·I) / (n + nu)`` plus the uncertainty of the mean.

    ``crossed`` are the rows of the classes along the directions of the spread.
    """
    n, size = known.n, known.lengths.shape[-1]
    rest = (known.rest + nu) / (n + nu)
    variance = rest + spread.rest / (n * spread.rest + 1)
    variances = rest[:, None] + spread.psi / (n[:, None] * spread.psi + 1)
    weights = 1 / variances - 1 / variance[:, None]
    gain = known.lengths / (n + nu)[:, None]
    root = np.sqrt(gain)
    # By Woodbury's formula, with ``wider = root·rows·B·rowsᵀ·root``: how much each row widens the class.
    wider = known.gram / variance[:, None, None] + (crossed * weights[:, None]) @ crossed.swapaxes(1, 2)
    wider *= root[:, :, None] * root[:, None]
    both = wider + np.eye(size)
    inverse = np.linalg.inv(both)
    log_det = (spread.width - len(spread.psi)) * np.log(variance) + np.log(variances).sum(axis=1)
    log_det += 2 * np.log(np.diagonal(np.linalg.cholesky(both), axis1=1, axis2=2)).sum(axis=1)
    # Over samples of the class, the reduction is a sum of squares: its mean, and some deviations more.
    squares = np.maximum(np.diagonal(known.gram, axis1=1, axis2=2), 1e-300)
    scatter = known.lengths + known.rest[:, None] / squares
    scatter /= np.where(gain > 0, gain, np.inf) * np.maximum(n, 1)[:, None]
    reduced = (wider - np.eye(size) + inverse) * scatter[:, :, None]
    deviation = np.sqrt(2 * np.maximum((reduced * reduced.swapaxes(1, 2)).sum(axis=(1, 2)), 0))
    most = np.maximum(np.trace(reduced, axis1=1, axis2=2) + DEVIATIONS * deviation, 0)
    inner = inverse * (root[:, :, None] * root[:, None])
    return Shapes(rest, variance, weights, inner, most, -0.5 * (1 - TEMPER) * log_det)


def centers_of(n: np.ndarray, means: np.ndarray, spread: Spread) -> np.ndarray:
    """The expected means of classes: those of their samples, pulled towards zero as much as few samples allow."""
    n, q = n[:, None], spread.directions
    share = n * spread.rest / (n * spread.rest + 1)
    pulled: np.ndarray = share * means + ((n * spread.psi / (n * spread.psi + 1) - share) * (means @ q.T)) @ q
    return pulled


class View(NamedTuple):
    """Classes from some rows: all that their log-densities depend on, except ``nu``."""

    known: Classes
    crossed: np.ndarray  # the rows of the classes along the directions of the spread
    center: np.ndarray  # along these
    squares: np.ndarray  # squared distances of the rows from the centers
    off: np.ndarray  # by class: the rows less the center, along the rows of the class


def view_of(space: Space, known: Classes, spread: Spread) -> View:
    """Classes from these rows, in their precision."""
    kind, centers = space.rows.dtype, centers_of(known.n, known.mean, spread)
    squares = space.squares[:, None] - 2 * (space.rows @ centers.T.astype(kind))
    squares += np.square(centers).sum(axis=1).astype(kind)
    off = space.rows @ known.rows.astype(kind).swapaxes(1, 2) - (known.rows @ centers[:, :, None]).swapaxes(
        1, 2
    ).astype(kind)
    return View(known, known.rows @ spread.directions.T, centers @ spread.directions.T, squares, off)


def log_densities(space: Space, view: View, nu: float, spread: Spread) -> np.ndarray:
    """Tempered log-densities of rows for classes, in the precision of the rows."""
    kind, shapes = space.rows.dtype, shapes_of(view.known, view.crossed, nu, spread)
    weights, inner, variance = (each.astype(kind) for each in (shapes.weights, shapes.inner, shapes.variance))
    weighted = (shapes.weights * view.center).astype(kind)
    distances = view.squares / variance + np.square(space.along) @ weights.T - 2 * (space.along @ weighted.T)
    distances += (shapes.weights * np.square(view.center)).sum(axis=1).astype(kind)
    turned = view.crossed * shapes.weights[:, None]
    off = view.off / variance[:, None, None] + space.along @ turned.swapaxes(1, 2).astype(kind)
    off -= (turned @ view.center[:, :, None]).swapaxes(1, 2).astype(kind)
    distances -= np.minimum(((off @ inner) * off).sum(axis=2).T, shapes.most)
    return log_density(shapes.height, distances, spread.width)


def log_density(heights: np.ndarray, distances: np.ndarray, width: int) -> np.ndarray:
    """Of a Student's t, from squared distances in its inverse shape and the logarithm at its center."""
    # scipy's logarithm has the same bits on every processor
    found: np.ndarray = heights - width * special.log1p(np.maximum(distances, 0) / width)
    return found
