"""Exact products of rows with the stored directions of classes."""

from __future__ import annotations

import numpy as np

from taer.heads import exact
from taer.heads.closed_form.kept import kept

_PACKED = 0.5  # if no more than this fraction of the directions is used, those are copied together
_FEW = 1 / 8  # of all classes; for fewer, it takes longer to find the used directions than to multiply all


class _Directions:
    """The used directions of all classes, one after the other.

    A class of few samples has few directions, and the rest of its array is zero.
    """

    def __init__(self, directions: np.ndarray) -> None:
        used = np.asarray(directions.any(axis=2))
        if used.mean() > _PACKED:
            used = np.ones_like(used)
        self.rank = directions.shape[1]
        self.rows = directions.reshape(-1, directions.shape[2]) if used.all() else _short(directions[used])
        self.places = np.flatnonzero(used)
        self.counts = used.sum(axis=1)
        self.ends = self.counts.cumsum()

    def __call__(self, rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
        counts = self.counts[classes]
        within = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        picked = np.repeat(self.ends[classes] - counts, counts) + within
        places = self.places[picked] + np.repeat((np.arange(len(classes)) - classes) * self.rank, counts)
        wanted: np.ndarray | slice = picked
        if len(picked) and (np.diff(picked) == 1).all():
            wanted = slice(picked[0], picked[-1] + 1)  # a view
        found = exact.products(rows, _short(self.rows[wanted]))
        if found.shape[1] < len(classes) * self.rank:
            found, used = np.zeros((len(rows), len(classes) * self.rank)), found
            found[:, places] = used
        return found.reshape(len(rows), len(classes), self.rank)


def products_along(rows: np.ndarray, directions: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """``rows · directions[classes]``, of shape (rows, classes, directions), with exact entries."""
    if len(classes) < _FEW * len(directions):
        few = _short(directions[classes].reshape(-1, directions.shape[2]))
        return exact.products(rows, few).reshape(len(rows), len(classes), directions.shape[1])
    return kept(directions, _Directions, lambda: _Directions(directions))(rows, classes)


def _short(directions: np.ndarray) -> np.ndarray:
    """Directions in float32."""
    return exact.widened(directions) if directions.dtype == np.float16 else directions
