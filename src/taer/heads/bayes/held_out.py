"""What samples look like before they are learned: their scores for their own class without them, and their novelty."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from taer.heads.bayes.constants import AT_ONCE, COMPARED, FIRST_ASKED, FIRST_FOLDS, NEAREST, TEMPER
from taer.heads.bayes.density import (
    Classes,
    Space,
    Spread,
    Summary,
    centers_of,
    log_density,
    merged,
    nothing,
    shapes_of,
    summarize,
)
from taer.heads.bayes.novelty import Novelties
from taer.heads.bayes.prior import Pseudo
from taer.heads.bayes.state import Densities, Prior
from taer.heads.bayes.trial import Chosen, fitted_prior
from taer.heads.closed_form.selection import evenly

_ROUNDING = 1e-6  # how little a class may be without one sample, before rounding decides

Found = dict[int, tuple[np.ndarray, np.ndarray]]  # misfits and novelties of samples, by class


def held_out_scores(
    space: Space, before: Summary | None, prior: Prior, rank: int, most: int, first: bool
) -> tuple[Space, np.ndarray]:
    """Some samples of a class, ``most`` if there are more than ``AT_ONCE``, and their scores for it without them.

    Each is scored by the class of all other samples and of ``before``, what the class had learned already; ``first`` says
    whether it is of the first task.
    """
    n_rows = len(space.rows)
    asked = evenly(np.arange(n_rows), n_rows if n_rows <= AT_ONCE else most)
    scores = []
    for part in np.array_split(asked, -(-len(asked) // AT_ONCE)):
        others = np.delete(space.rows, part, axis=0)
        known = before or nothing(space.rows.shape[1])
        if len(others):
            known = merged(known, summarize(others, rank, quick=True), rank)
        scores.append(left_out_scores(space.at(part), known, prior.nu, prior.spread))
    count = n_rows - 1 + (0 if before is None else before.n)
    return space.at(asked), np.concatenate(scores) + prior.offset(count, first)


def left_out_scores(space: Space, others: Summary, nu: float, spread: Spread) -> np.ndarray:
    """Scores of samples for their class, each learned from ``others`` and the other samples.

    Without a sample, the scatter of a class is that of all samples less a multiple of one outer product. So the inverse
    shape and its determinant follow from those of all samples, by the formula of Sherman and Morrison.
    """
    q, n_asked, n = spread.directions, len(space.rows), others.n + len(space.rows)
    left, mean = n - 1, (others.n * others.mean + space.rows.sum(axis=0)) / n
    apart = space.rows - mean
    known = Classes.of(spread.width, others)
    root = np.concatenate([known.rows[0], np.sqrt(others.n) * (others.mean - mean)[None], apart])
    lengths = np.append(known.lengths[0], np.ones(n_asked + 1))
    whole = Classes(np.array([left]), mean[None], known.rest, root[None], (root @ root.T)[None], lengths[None])
    crossed = root @ q.T
    shapes = shapes_of(whole, crossed[None], nu, spread)
    inner, weights, variance = shapes.inner[0], shapes.weights[0], shapes.variance[0]
    away = space.rows - centers_of(np.array([left]), mean - apart / left, spread)  # from the class without each
    across = away @ q.T
    along = root @ away.T / variance + (crossed * weights) @ across.T  # in the shape without the rows of the class
    turned = inner @ along
    own = np.arange(-n_asked, 0), np.arange(n_asked)  # each sample along its own row
    shrunk = np.maximum(n * (left + nu) * np.diagonal(inner)[-n_asked:] - 1, _ROUNDING) / left
    reduced = (along * turned).sum(axis=0) - n / left * (left + nu) * np.square(turned[own]) / shrunk
    reduced[shrunk <= _ROUNDING / left] = 0
    squares = np.square(away).sum(axis=1) / variance + np.square(across) @ weights
    heights = shapes.height - 0.5 * (1 - TEMPER) * np.log(shrunk)
    return log_density(heights, squares - np.minimum(reduced, shapes.most), spread.width)


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
