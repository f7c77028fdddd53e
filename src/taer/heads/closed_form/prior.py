"""The prior of :class:`~taer.heads.closed_form.bayes.Bayes`, which is fitted on the first task.

It has the distribution of class means and covariances, its weight against the samples of a class, and an offset that
makes scores of classes with few and with many samples comparable. The offset is measured: some classes of the first task
are treated as new, with few samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.linalg import qr, solve_triangular
from scipy.optimize import minimize

from taer.heads import exact
from taer.heads.base import log_sum_exp
from taer.heads.closed_form.linalg import leading_eigen, shrunk
from taer.heads.closed_form.predictive import log_densities, predictive, summarize
from taer.heads.closed_form.selection import evenly
from taer.statistics import ClassStatistics

RANK = 32  # directions of the covariance of a class that is treated as new
WIDER, IMAGINED = 2.0, 20.0  # new classes are farther apart than the first; pseudo-classes of equal variance
NEW = 1 / 3  # weight of the classes treated as new against the others
KNOTS = (1, 5, 20)  # numbers of samples of the classes treated as new
LATER, LATER_SAMPLES = 0.02, 30  # per feature: how much better the prior fits the classes of the first task
SIZES = (1, 2, 5, 10, 30, 100, 1000)  # numbers of samples for the default offsets
STRENGTHS = (2.0, 0.5, 1.0, 4.0)  # the first is the default
SHRINKAGES = (0.6, 0.4)  # the first is the default
FOLDS, TRIAL_CLASSES, TRIAL_ROWS = 4, 100, 400
BROAD = 5.0  # pseudo-samples of the default prior
WITHIN = 0.5  # fraction of the variance that is within classes in the default prior
TEMPERATURE = 0.35  # times the root of the number of features: log-densities of correlated features are too sure


@dataclass(frozen=True)
class Prior:
    """``z = transform (x - center)``: within classes the covariance is 1, that of class means is ``diag(psi)``."""

    kind: ClassVar[str] = "bayes-prior"

    center: np.ndarray
    transform: np.ndarray  # one direction per row, rounded for exact products
    psi: np.ndarray
    strength: float  # weight of the shared covariance in that of a class, in pseudo-samples per feature
    knots: np.ndarray  # logarithms of numbers of samples, and the score offsets of later classes with that many
    temperature: float  # of probabilities

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        return exact.products(rows - self.center, self.transform)

    @property
    def nu(self) -> float:
        return self.strength * len(self.psi)

    def offset(self, count: float, first: bool) -> float:
        """The score offset of a class with this number of samples, of the first task or of a later one.

        The prior fits the classes that it comes from better than later ones, even where these have many samples.
        """
        return float(np.interp(np.log(count), *self.knots)) - first * float(self.knots[1, -1])

    def check(self, width: int, n_classes: int) -> None:
        """Raise ValueError unless this is a prior for this number of features."""
        shapes = {"center": (width,), "transform": (width, width), "psi": (width,)}
        for name, shape in shapes.items():
            value = getattr(self, name)
            if value.shape != shape or value.dtype.kind != "f" or not np.isfinite(value).all():
                raise ValueError(f"{name}: expected finite numbers of the shape {shape}")
        if self.knots.ndim != 2 or len(self.knots) != 2 or not np.isfinite(self.knots).all():
            raise ValueError("knots: expected two rows of finite numbers")
        if not (self.psi > 0).all() or not 0 < self.strength < np.inf or not 0 < self.temperature < np.inf:
            raise ValueError("expected variances, a strength and a temperature above zero")

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(value) for name, value in vars(self).items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        return cls(
            center=arrays["center"],
            transform=arrays["transform"],
            psi=arrays["psi"],
            strength=float(arrays["strength"]),
            knots=arrays["knots"],
            temperature=float(arrays["temperature"]),
        )


class Trial(NamedTuple):
    """Held-out samples of the first task, beside classes of which some are treated as new."""

    scores: np.ndarray
    target: np.ndarray
    new: np.ndarray  # which classes are treated as new


class Fit(NamedTuple):
    """The temperature and the offsets of new classes with the lowest log loss."""

    temperature: float
    offsets: np.ndarray  # by number of samples
    losses: np.ndarray  # weighted, by number of samples and held-out sample
    labels: np.ndarray  # classes of the held-out samples


def fitted_prior(rows: np.ndarray, y: np.ndarray, broad: np.ndarray, imagined: float, dtype: str) -> Prior:
    """Fit the prior on the normalized samples of the first task and ``imagined`` pseudo-samples of covariance ``broad``."""
    counts = np.bincount(y)
    few = [k for k in KNOTS if 2 * k <= counts.min()]
    if len(counts) < 2 * FOLDS or not few:
        return gaussian_prior(rows, y, broad, imagined, dtype)
    pretended = [*few, int(counts.max())]  # the last is all that a class can show
    classes = evenly(np.arange(len(counts)), TRIAL_CLASSES)
    picks = np.isin(y, classes)
    priors: dict[tuple[float, int], Prior] = {}

    def fits(shrinkage: float, strengths: tuple[float, ...]) -> dict[float, Fit]:
        def prior_of(fold: int, X: np.ndarray, y: np.ndarray) -> Prior:
            if (shrinkage, fold) not in priors:
                priors[shrinkage, fold] = gaussian_prior(X, y, broad, imagined, dtype, shrinkage)
            return priors[shrinkage, fold]

        trials = _episodes(rows[picks], np.searchsorted(classes, y[picks]), pretended, strengths, prior_of)
        return {strength: _fit([trials[strength, k] for k in pretended], rows.shape[1]) for strength in strengths}

    default, *others = STRENGTHS
    by_shrinkage = {shrinkage: fits(shrinkage, (default,)) for shrinkage in SHRINKAGES}
    shrinkage = min(SHRINKAGES, key=lambda each: float(by_shrinkage[each][default].losses.sum()))
    found = by_shrinkage[shrinkage] | fits(shrinkage, tuple(others))
    strength = _chosen_strength(found)
    many = max(float(np.median(counts)), 2 * few[-1])
    return replace(
        gaussian_prior(rows, y, broad, imagined, dtype, shrinkage),
        strength=strength,
        knots=np.stack([np.log([*few, many]), found[strength].offsets]),
        temperature=found[strength].temperature,
    )


def _chosen_strength(fits: dict[float, Fit]) -> float:
    """The default, unless another has a lower loss by two standard errors over classes."""
    losses = {strength: fit.losses.sum(axis=0) for strength, fit in fits.items()}
    best = min(losses, key=lambda strength: float(losses[strength].mean()))
    labels = fits[best].labels
    gain = np.bincount(labels, losses[STRENGTHS[0]] - losses[best]) / np.maximum(np.bincount(labels), 1)
    return best if gain.mean() > 2 * gain.std() / np.sqrt(len(gain)) else STRENGTHS[0]


def gaussian_prior(
    rows: np.ndarray,
    y: np.ndarray,
    broad: np.ndarray,
    imagined: float,
    dtype: str,
    shrinkage: float = SHRINKAGES[0],
) -> Prior:
    """The covariance within classes and that of class means, from samples of classes 0 … k-1.

    With few samples for the number of features, the shrinkage of the covariance is larger than given.
    """
    statistics = ClassStatistics(rows.shape[1]).update(rows, y)
    means, n_classes = statistics.means, len(statistics.means)
    shrinkage = max(shrinkage, 2 * rows.shape[1] / (2 * rows.shape[1] + len(rows)))
    within = (statistics.scatter + imagined * WITHIN * broad) / (statistics.n_samples - n_classes + imagined)
    factor = np.linalg.cholesky(shrunk(within, shrinkage))
    center = means.mean(axis=0)
    space = solve_triangular(factor, (means - center).T, lower=True).T
    noise = solve_triangular(factor, solve_triangular(factor, within, lower=True).T, lower=True)
    between = space.T @ space / max(n_classes - 1, 1) - noise * (1 / statistics.counts).mean()
    spectrum, vectors = _positive_eigen(between, most=n_classes - 1)
    level = (spectrum.mean() * (n_classes - 1) + 0.2 * 3) / (
        n_classes + 2
    )  # shrunk towards 0.2, as if by 3 classes
    equal = 1 / (1 + (n_classes - 1) / IMAGINED)
    psi = WIDER * ((1 - equal) * spectrum + equal * level)
    transform = solve_triangular(factor, vectors, lower=True, trans="T").T
    # Default offsets: a quarter more of the log-determinant that is due to the uncertainty of the mean.
    sizes = np.array(SIZES)
    offsets = np.array([-0.125 * float(np.log1p(psi / (n * psi + 1)).sum()) for n in sizes])
    measured = np.trace(statistics.scatter)  # how much of the prior comes from the samples
    fitted = sizes / (sizes + LATER_SAMPLES) * measured / (measured + imagined * WITHIN * np.trace(broad))
    knots = np.stack([np.log(sizes), offsets - LATER * rows.shape[1] * fitted])
    temperature = TEMPERATURE * np.sqrt(rows.shape[1])
    return Prior(center, exact.rounded(transform, dtype), psi, STRENGTHS[0], knots, temperature)


def _positive_eigen(matrix: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors (as columns) of a matrix with ``most`` positive eigenvalues, the others as zeros.

    Any basis does for the others, so they are not computed, which takes most of the time of many features.
    """
    width, wanted = len(matrix), min(most, len(matrix))
    if not wanted:
        return np.zeros(width), np.eye(width)
    found, vectors = leading_eigen(matrix, wanted)
    rest = qr(vectors, check_finite=False)[0][:, wanted:]
    return np.append(np.zeros(width - wanted), np.maximum(found, 0)), np.column_stack([rest, vectors])


def _episodes(
    rows: np.ndarray, y: np.ndarray, pretended: list[int], strengths: tuple[float, ...], prior_of: Any
) -> dict[tuple[float, int], list[Trial]]:
    """For each strength and k: every fourth class is treated as new, with k samples, and tested on a quarter of its own.

    The other classes are tested on a fifth of their samples.
    """
    n_classes = int(y.max()) + 1
    rng, found = np.random.default_rng(0), dict[tuple[float, int], list[Trial]]()
    members = [rng.permutation(np.flatnonzero(y == label)) for label in range(n_classes)]
    for fold in range(FOLDS):
        new = np.arange(n_classes) % FOLDS == fold
        old, fresh = np.flatnonzero(~new), np.flatnonzero(new)
        fifth = {label: max(1, len(members[label]) // 5) for label in old}
        quarter = {label: max(1, len(members[label]) // 4) for label in fresh}
        train = np.concatenate([members[label][fifth[label] :] for label in old])
        test = _some(np.concatenate([members[label][: fifth[label]] for label in old]))
        held = _some(np.concatenate([members[label][: quarter[label]] for label in fresh]))
        prior = prior_of(fold, rows[train], np.searchsorted(old, y[train]))
        space = prior(rows[train])
        known = [summarize(space[y[train] == label], RANK, quick=True) for label in old]
        shown = [prior(rows[members[label][quarter[label] :]]) for label in fresh]
        asked = prior(rows[np.concatenate([test, held])]).astype(np.float32)
        target, order = y[np.concatenate([test, held])], np.argsort(np.concatenate([old, fresh]))
        learned = {k: [summarize(each[:k], RANK, quick=True) for each in shown] for k in pretended}
        for strength in strengths:
            nu = strength * rows.shape[1]
            before = log_densities(asked, [predictive(each, nu, prior.psi, RANK) for each in known])
            for k in pretended:
                classes = [predictive(each, nu, prior.psi, RANK) for each in learned[k]]
                scores = np.concatenate([before, log_densities(asked, classes)], axis=1)[:, order]
                found.setdefault((strength, k), []).append(Trial(scores, target, new))
    return found


def _some(numbers: np.ndarray) -> np.ndarray:
    return numbers[:: -(-len(numbers) // TRIAL_ROWS)] if len(numbers) else numbers


def _fit(trials: list[list[Trial]], width: int) -> Fit:
    """One temperature for all trials, and an offset for each number of samples that the new classes have.

    The log loss is convex in the inverse temperature and in the offsets times it.
    """

    def measured(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weighted losses by number of samples, and the derivatives of their sum."""
        slopes, losses = np.zeros(len(values)), []
        for at, (folds, offset) in enumerate(zip(trials, values[1:], strict=True), 1):
            for scores, target, new in folds:
                late, own = new[target], np.arange(len(target))
                weight = np.where(late, NEW / max(late.sum(), 1), (1 - NEW) / max((~late).sum(), 1)) / len(folds)
                logits = values[0] * scores + offset * width * new
                logits -= logits[own, target][:, None]
                partition = log_sum_exp(logits)
                p = np.exp(logits - partition[:, None])
                losses.append(weight * partition)
                slopes[0] += weight @ ((p * scores).sum(axis=1) - scores[own, target])
                slopes[at] += width * (weight @ (p @ new - late))
        return np.concatenate(losses).reshape(len(trials), -1), slopes

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        losses, slopes = measured(values)
        return float(losses.sum()), slopes

    bounds = [(1 / 256, 4.0)] + [(-0.5, 0.5)] * len(trials)
    start = np.array([1 / (TEMPERATURE * np.sqrt(width))] + [0.0] * len(trials))
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    labels = np.concatenate([trial.target for trial in trials[0]])
    return Fit(1 / found[0], width * found[1:] / found[0], measured(found)[0], labels)
