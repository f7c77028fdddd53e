"""What samples look like before they are learned: their scores for their own class without them, and their novelty."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from taer.heads.bayes.constants import AT_ONCE, COMPARED, FIRST_ASKED, FIRST_FOLDS, HELD_OUT, NEAREST
from taer.heads.bayes.density import (
    Classes,
    Space,
    Spread,
    Summary,
    View,
    centers_of,
    log_densities,
    merged,
    summarize,
    view_of,
)
from taer.heads.bayes.novelty import Novelties
from taer.heads.bayes.prior import Pseudo
from taer.heads.bayes.state import Densities, Prior
from taer.heads.bayes.trial import Chosen, fitted_prior

Found = dict[int, tuple[np.ndarray, np.ndarray]]  # misfits and novelties of samples, by class


def held_out_scores(
    space: Space, before: Summary | None, prior: Prior, rank: int, most: int, first: bool
) -> tuple[Space, np.ndarray]:
    """Some samples of a class, at least ``most`` if there are, and their scores for it, learned from the others.

    ``before`` is what the class had learned already; ``first`` says whether it is of the first task.
    """
    n_rows = len(space.rows)
    folds = np.arange(n_rows) % HELD_OUT
    if before is None and n_rows <= AT_ONCE:  # all samples are asked
        scores = folded_scores(space, folds, prior.nu, prior.spread)
        counts = n_rows - np.bincount(folds)
    else:
        asked = folds < -(-most // -(-n_rows // HELD_OUT))  # as many folds as have so many samples
        parts = [space.rows[folds != fold] for fold in range(folds[asked].max() + 1)]
        others = Classes.of(*(_together(before, part, rank) for part in parts))
        space, folds, counts = space.at(asked), folds[asked], others.n
        every = log_densities(space, view_of(space, others, prior.spread), prior.nu, prior.spread)
        scores = every[np.arange(len(folds)), folds]
    offsets = np.array([prior.offset(count, first) for count in counts.tolist()])
    return space, scores + offsets[folds]


def _together(before: Summary | None, rows: np.ndarray, rank: int) -> Summary:
    """A summary of more samples of a class, which may be none."""
    if before is None or not len(rows):
        return before or summarize(rows, rank, quick=True)
    return merged(before, summarize(rows, rank, quick=True), rank)


def folded_scores(space: Space, folds: np.ndarray, nu: float, spread: Spread) -> np.ndarray:
    """Of the samples of one class: those of each fold are scored by the class without the fold, along all others.

    All follows from the inner products of the samples, which are computed once for all folds.
    """
    rows, along, gram = space.rows, space.along, space.rows @ space.rows.T
    used = (folds != np.arange(folds.max() + 1)[:, None]).astype(np.float64)
    n = used.sum(axis=1)
    share = used / n[:, None]
    means, shift = share @ rows, share @ gram  # of a class without a fold, and the samples along it
    around = gram - shift[:, :, None] - shift[:, None] + (share * shift).sum(axis=1)[:, None, None]
    around *= used[:, :, None] * used[:, None]
    known = Classes(n, means, np.trace(around, axis1=1, axis2=2), rows[None], around, used)
    centers = centers_of(n, means, spread)
    middle = rows @ centers.T
    view = View(
        known,
        crossed=(along - (share @ along)[:, None]) * used[:, :, None],
        center=centers @ spread.directions.T,
        squares=space.squares[:, None] - 2 * middle + np.square(centers).sum(axis=1),
        off=(gram - shift[:, :, None] - (middle.T - (share * middle.T).sum(axis=1)[:, None])[:, None])
        * used[:, None],
    )
    return log_densities(space, view, nu, spread)[np.arange(len(rows)), folds]


def novelties_of(held_out: Mapping[int, tuple[Space, np.ndarray]], prior: Prior, densities: Densities) -> Found:
    """The misfit of held-out samples, given with their scores for their own class, and the novelty of some of them."""
    if not held_out:
        return {}
    compared = max(COMPARED // len(densities), 2)  # among many classes a few samples of each are enough
    few = Space.joined([space.at(slice(compared)) for space, _ in held_out.values()])
    own = [scores[:compared] for _, scores in held_out.values()]
    ends = np.cumsum([len(each) for each in own])
    labels = np.repeat(list(held_out), np.diff(ends, prepend=0))
    novelty = prior.novelty(few, _best_of(few, np.concatenate(own), labels, densities))
    misfits = [prior.blank_scores(space) - scores for space, scores in held_out.values()]
    return dict(zip(held_out, zip(misfits, np.split(novelty, ends[:-1]), strict=True), strict=True))


def _best_of(space: Space, own: np.ndarray, labels: np.ndarray, densities: Densities) -> np.ndarray:
    """The highest score of each row among its own class, whose score is given, and the nearest others."""
    every = np.arange(len(densities))
    if len(every) <= NEAREST:
        scores = densities.approximate(space, every)
        scores[np.arange(len(own)), labels] = own
        return scores.max(axis=1)
    best = own.copy()
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        lowest = np.nan_to_num(densities.bounds(space.at(rows))[0], nan=np.inf).min(axis=0)
        lowest[label] = np.inf
        others = np.argsort(lowest, kind="stable")[:NEAREST]
        best[rows] = np.maximum(own[rows], densities.approximate(space.at(rows), others).max(axis=1))
    return best


def first_novelties(rows: np.ndarray, y: np.ndarray, pseudo: Pseudo, choice: Chosen, rank: int) -> Novelties:
    """Those of some samples of a small first task, each under a prior and classes that have not seen it.

    The prior follows the few samples from which it comes: to it, they look less novel than any others. To a prior of fewer
    samples, others look more novel than they will, so both kinds are taken in equal parts.
    """
    n_classes = int(y.max()) + 1
    at = np.empty(len(y), np.int64)  # the place of each sample in its class
    for label in range(n_classes):
        at[y == label] = np.arange((y == label).sum())
    folds = np.where(np.bincount(y)[y] > 1, at % FIRST_FOLDS, -1)
    misfits, novelty = np.zeros(len(y)), np.zeros(len(y))
    n_folds = min(FIRST_FOLDS, -(-FIRST_ASKED * FIRST_FOLDS // len(y)))  # so many as have so many samples
    folds[folds >= n_folds] = -1
    for fold in range(folds.max() + 1):
        left, asked = folds != fold, np.flatnonzero(folds == fold)
        prior = fitted_prior(rows[left], y[left], pseudo, choice)
        learned = prior(rows[left]).rows
        known = {label: summarize(learned[y[left] == label], rank) for label in range(n_classes)}
        densities = Densities.none(rows.shape[1], len(prior.units)).learned(known, prior, rank, lambda _: True)
        space = prior(rows[asked])
        scores = densities.scores(space, np.arange(n_classes))
        misfits[asked] = prior.blank_scores(space) - scores[np.arange(len(asked)), y[asked]]
        novelty[asked] = prior.novelty(space, scores.max(axis=1))
    tried = [(label, (y == label) & (folds >= 0)) for label in np.unique(y[folds >= 0]).tolist()]
    return Novelties.none().replaced(n_classes, {label: (misfits[own], novelty[own]) for label, own in tried})
