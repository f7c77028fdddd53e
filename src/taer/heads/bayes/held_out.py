"""Scores of samples for their own class, each learned without the sample."""

from __future__ import annotations

import numpy as np

from taer.heads.bayes.density import Classes, Spread, centers_of, log_density, shapes_of
from taer.heads.bayes.state import Space


def folded_scores(space: Space, folds: np.ndarray, nu: float, spread: Spread) -> np.ndarray:
    """Of the samples of one class: those of each fold are scored by the class without the fold, along all others.

    All follows from the inner products of the samples, which are computed once for all folds.
    """
    rows, along, gram = space.rows, space.along, space.rows @ space.rows.T
    kept = (folds != np.arange(folds.max() + 1)[:, None]).astype(np.float64)
    n = kept.sum(axis=1)
    share = kept / n[:, None]
    means, shift = share @ rows, share @ gram  # of a class without a fold, and the samples along it
    centers = centers_of(n, means, spread)
    square = (share * shift).sum(axis=1)
    around = gram - shift[:, :, None] - shift[:, None] + square[:, None, None]
    around *= kept[:, :, None] * kept[:, None]
    crossed = (along - (share @ along)[:, None]) * kept[:, :, None]
    trace = np.trace(around, axis1=1, axis2=2)
    shapes = shapes_of(Classes(n, means, trace, rows[None], around, kept), crossed, nu, spread)

    # From here on, each sample with the class that has not seen it
    at = np.arange(len(rows))
    middle, across = rows @ centers.T, centers @ spread.directions.T
    apart = along - across[folds]
    distances = space.squares - 2 * middle[at, folds] + np.square(centers).sum(axis=1)[folds]
    distances = distances / shapes.variance[folds] + (np.square(apart) * shapes.weights[folds]).sum(axis=1)
    off = gram - shift[folds, at][:, None] - (middle.T - (share * middle.T).sum(axis=1)[:, None])[folds]
    off = off * kept[folds] / shapes.variance[folds][:, None]
    for fold in range(len(n)):
        own = folds == fold
        off[own] += (apart[own] * shapes.weights[fold]) @ crossed[fold].T
        taken = ((off[own] @ shapes.inner[fold]) * off[own]).sum(axis=1)
        distances[own] -= np.minimum(taken, shapes.most[fold])
    return log_density(shapes.height[folds], distances, spread.width)
