"""What no formula gives: offsets for the number of samples, the strength and shrinkage of the prior, the temperature.

All are measured on the first task. Some of its classes are treated as new, with few of their samples, and the values with
the lowest log loss of held-out samples are taken.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from taer.heads.bayes.constants import (
    DIRECTIONS,
    FAR,
    FOLDS,
    KNOTS,
    NEW,
    SHRINKAGES,
    STRENGTHS,
    SURE,
    TEMPERATURE,
    TRIAL_CLASSES,
    TRIAL_DIRECTIONS,
    TRIAL_EXACT,
    TRIAL_RANK,
    TRIAL_ROWS,
)
from taer.heads.bayes.density import Classes, Space, Spread, View, log_densities, nothing, view_of
from taer.heads.bayes.prior import (
    Pseudo,
    class_means,
    covariance_within,
    default_offsets,
    doubt,
    spread_of_means,
    stored,
    whitening,
)
from taer.heads.bayes.spectra import coordinates
from taer.heads.bayes.state import Prior
from taer.heads.closed_form.selection import evenly

_ROUNDING = 1e-6  # of the distances of equal samples, in float32


class Episode(NamedTuple):
    """Classes of the first task, some of them treated as new, and held-out samples of all."""

    asked: Space  # of a prior that has not seen them
    target: np.ndarray
    new: np.ndarray  # which classes are treated as new
    known: View
    shown: dict[int, View]  # the new classes, by the number of samples that they have
    places: np.ndarray  # of the classes among the known and the new ones
    spread: Spread

    def scores(self, strength: float) -> np.ndarray:
        """Log-densities of the held-out samples: by number of samples of the new classes, sample and class."""
        nu = strength * self.spread.width
        known, *shown = (
            log_densities(self.asked, each, nu, self.spread) for each in (self.known, *self.shown.values())
        )
        return np.stack([np.concatenate([known, each], axis=1)[:, self.places] for each in shown])


class Fit(NamedTuple):
    """The temperature and the offsets of new classes with the lowest log loss."""

    temperature: float
    offsets: np.ndarray  # by number of samples
    losses: np.ndarray  # weighted, by number of samples and held-out sample
    labels: np.ndarray  # classes of the held-out samples
    best: np.ndarray  # scores of the held-out samples, where the new classes have all samples


class Chosen(NamedTuple):
    """What the trial chooses."""

    shrinkage: float
    strength: float
    temperature: float
    knots: np.ndarray | None  # of the offsets; None for the default ones
    far: np.ndarray


def chosen(rows: np.ndarray, y: np.ndarray, pseudo: Pseudo) -> Chosen:
    """By a trial, or the defaults if classes or samples are too few; the samples are of classes 0 … k-1."""
    counts = np.bincount(y)
    few = [k for k in KNOTS if 2 * k <= counts.min()]
    if len(counts) < SURE or not few:
        return Chosen(SHRINKAGES[0], STRENGTHS[0], TEMPERATURE * np.sqrt(rows.shape[1]), None, np.zeros(2))
    return _measured(rows, y, pseudo, few)


def fitted_prior(rows: np.ndarray, y: np.ndarray, pseudo: Pseudo, choice: Chosen) -> Prior:
    """The prior of a first task, from its normalized samples of classes 0 … k-1 and from pseudo-samples."""
    within = covariance_within(rows, y, rows.shape[1], pseudo, DIRECTIONS)
    counts, means = class_means(rows, y)
    map_ = whitening(within, choice.shrinkage, means.mean(axis=0))
    spread = spread_of_means(means, counts, within, map_)
    offsets = default_offsets(spread, within, pseudo)
    if choice.knots is not None:  # the fewer the classes, the less the trial says
        share, (sizes, found) = max(0.0, 1 - doubt(len(counts))), choice.knots
        offsets = np.stack([sizes, share * found + (1 - share) * np.interp(sizes, *offsets)])
    return stored(map_, spread, choice.strength, offsets, choice.temperature, choice.far)


def _measured(rows: np.ndarray, y: np.ndarray, pseudo: Pseudo, few: list[int]) -> Chosen:
    width, counts = rows.shape[1], np.bincount(y)
    shots = [*few, int(counts.max())]  # the last is all that a class can show
    classes = evenly(np.arange(len(counts)), TRIAL_CLASSES)
    picks = np.isin(y, classes)
    rows, y = rows[picks] - rows[picks].mean(axis=0), y[picks]  # centered, and of size 1: for single precision
    unit = 0.5 ** int(np.frexp(np.abs(rows).max())[1])
    inside = coordinates(np.concatenate([rows, pseudo.rows]) * unit)
    rows, pseudo = inside[: len(y)], Pseudo(pseudo.samples, pseudo.variance * unit**2, inside[len(y) :])
    episodes = _episodes(rows, np.searchsorted(classes, y), shots, width, pseudo)

    def fit(shrinkage: float, strength: float) -> Fit:
        tried = episodes[shrinkage]
        scores = np.concatenate([each.scores(strength) for each in tried], axis=1)
        new = np.concatenate([np.tile(each.new, (len(each.target), 1)) for each in tried])
        return _fit(scores, np.concatenate([each.target for each in tried]), new, width)

    by_shrinkage = {shrinkage: fit(shrinkage, STRENGTHS[0]) for shrinkage in SHRINKAGES}
    shrinkage = min(SHRINKAGES, key=lambda each: float(by_shrinkage[each].losses.sum()))
    fits = {STRENGTHS[0]: by_shrinkage[shrinkage]} | {each: fit(shrinkage, each) for each in STRENGTHS[1:]}
    strength = _chosen_strength(fits)
    many = max(float(np.median(counts)), 2 * few[-1])
    knots = np.stack([np.log([*few, many]), fits[strength].offsets])
    far = _far(episodes[shrinkage], strength, fits[strength].best)
    return Chosen(shrinkage, strength, fits[strength].temperature, knots, far)


def _chosen_strength(fits: dict[float, Fit]) -> float:
    """The default, unless another has a lower loss by two standard errors over classes."""
    losses = {strength: fit.losses.sum(axis=0) for strength, fit in fits.items()}
    best = min(losses, key=lambda strength: float(losses[strength].mean()))
    labels = fits[best].labels
    gain = np.bincount(labels, losses[STRENGTHS[0]] - losses[best]) / np.maximum(np.bincount(labels), 1)
    return best if gain.mean() > 2 * gain.std() / np.sqrt(len(gain)) else STRENGTHS[0]


def _far(episodes: list[Episode], strength: float, best: np.ndarray) -> np.ndarray:
    """The distance from the center that hardly a sample exceeds, of known or new classes, and a unit of it in novelty."""
    distances, blanks = [], []
    for space, spread in ((each.asked, each.spread) for each in episodes):
        others, more = spread.inverses
        distances.append(space.squares * others + np.square(space.along) @ more)
        view = view_of(space, Classes.of(spread.width, nothing(space.rows.shape[1])), spread)
        blanks.append(log_densities(space, view, strength * spread.width, spread)[:, 0])
    known = np.concatenate([~each.new[each.target] for each in episodes])
    found, novelties = np.concatenate(distances), (np.concatenate(blanks) - best)[known]
    mean, deviation = float(found.mean()), float(found.std())
    told_apart = deviation > _ROUNDING * mean  # otherwise no sample is nearer than another
    return np.array([mean + FAR * deviation, novelties.std() / deviation if told_apart else 0.0], np.float64)


def _episodes(
    rows: np.ndarray, y: np.ndarray, shots: list[int], width: int, pseudo: Pseudo
) -> dict[float, list[Episode]]:
    """By shrinkage: every fourth class is treated as new and tested on a quarter of its samples, the others on a fifth."""
    n_classes, rng = int(y.max()) + 1, np.random.default_rng(0)
    members = [rng.permutation(np.flatnonzero(y == label)) for label in range(n_classes)]
    found: dict[float, list[Episode]] = {shrinkage: [] for shrinkage in SHRINKAGES}
    single = rows.astype(np.float32)  # enough for a trial, and faster
    for fold in range(FOLDS):
        new = np.arange(n_classes) % FOLDS == fold
        tested = [max(1, len(each) // (4 if late else 5)) for each, late in zip(members, new, strict=True)]
        old, fresh = np.flatnonzero(~new), np.flatnonzero(new)
        train = np.concatenate([members[label][tested[label] :] for label in old])
        asked = np.concatenate(
            [_some(np.concatenate([members[label][: tested[label]] for label in group])) for group in (old, fresh)]
        )
        labels = np.searchsorted(old, y[train])
        within = covariance_within(rows[train], labels, width, pseudo, TRIAL_DIRECTIONS)
        counts, means = class_means(rows[train], labels)
        for shrinkage in SHRINKAGES:
            map_ = whitening(within, shrinkage, means.mean(axis=0))
            space = map_(single)
            shown = [space[members[label][tested[label] :]] for label in fresh]
            known = [space[members[label][tested[label] :]] for label in old]
            spread = spread_of_means(means, counts, within, map_)
            seen_from = Space.single(space[asked], spread)
            found[shrinkage].append(
                Episode(
                    asked=seen_from,
                    target=y[asked],
                    new=new,
                    known=_views(seen_from, known, spread),
                    shown={k: _views(seen_from, [each[:k] for each in shown], spread) for k in shots},
                    places=np.argsort(np.concatenate([old, fresh])),
                    spread=spread,
                )
            )
    return found


def _views(space: Space, samples: list[np.ndarray], spread: Spread) -> View:
    """Classes with these samples, from the rows that are asked."""
    return view_of(space, Classes.shown(samples, TRIAL_RANK, TRIAL_EXACT, spread.width), spread)


def _some(numbers: np.ndarray) -> np.ndarray:
    return numbers[:: -(-len(numbers) // TRIAL_ROWS)] if len(numbers) else numbers


def _fit(scores: np.ndarray, target: np.ndarray, new: np.ndarray, width: int) -> Fit:
    """One temperature for all samples, and an offset for each number of samples that the new classes have.

    ``scores`` are by number of samples of the new classes, held-out sample and class; ``new`` tells which classes are new
    for a held-out sample. The log loss is convex in the inverse temperature and in the offsets times it.
    """
    rows = np.arange(len(target))
    late, best = new[rows, target], scores[-1].max(axis=1)
    weight = np.where(late, NEW / max(late.sum(), 1), (1 - NEW) / max((~late).sum(), 1))
    # Both less those of the own class; the first axis is the class
    ahead = np.moveaxis(scores - scores[:, rows, target][:, :, None], 2, 0).astype(np.float64, order="C")
    newer = (new.astype(np.float64) - late[:, None]).T[:, None]

    def measured(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weighted losses by number of samples and held-out sample, and the derivatives of their sum."""
        logits = values[0] * ahead + (width * values[1:, None]) * newer
        top = logits.max(axis=0)
        p = np.exp(logits - top)
        total = p.sum(axis=0)
        p *= weight / total
        slopes = np.append(np.vdot(p, ahead), width * (p * newer).sum(axis=(0, 2)))
        return weight * (top + np.log(total)), slopes

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        losses, slopes = measured(values)
        return float(losses.sum()), slopes

    bounds = [(1 / 256, 4.0)] + [(-0.5, 0.5)] * len(scores)
    start = np.array([1 / (TEMPERATURE * np.sqrt(width))] + [0.0] * len(scores))
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return Fit(1 / found[0], width * found[1:] / found[0], measured(found)[0], target, best)
