"""Exact products of rows with the stored directions of classes."""

from __future__ import annotations

import numpy as np

from taer.heads import exact
from taer.heads.closed_form.kept import kept

_PACKED = 0.5  # if no more than this fraction of the directions is used, those are copied together
_FEW = 1 / 8  # of all classes; for fewer, it takes longer to find the used directions than to multiply all


class _Used:
    """Which directions of all classes are used, and a copy of those if they are few.

    A class of few samples has few directions, and the rest of its array is zero.
    """

    def __init__(self, directions: np.ndarray) -> None:
        used = np.asarray(directions.any(axis=2))
        few = used.mean() <= _PACKED
        used |= not few
        # Not a view of the array, which would keep it, and so itself, for ever.
        self.packed = _short(directions[used]) if few else None
        self.places = np.flatnonzero(used)
        self.counts = used.sum(axis=1)
        self.ends = self.counts.cumsum()

    def products(self, rows: np.ndarray, directions: np.ndarray, classes: np.ndarray) -> np.ndarray:
        rank, width = directions.shape[1:]
        counts = self.counts[classes]
        within = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        picked = np.repeat(self.ends[classes] - counts, counts) + within
        places = self.places[picked] + np.repeat((np.arange(len(classes)) - classes) * rank, counts)
        wanted: np.ndarray | slice = picked
        if len(picked) and (np.diff(picked) == 1).all():
            wanted = slice(picked[0], picked[-1] + 1)  # a view
        everything = directions.reshape(-1, width) if self.packed is None else self.packed
        found = exact.products(rows, _short(everything[wanted]))
        if found.shape[1] < len(classes) * rank:
            found, used = np.zeros((len(rows), len(classes) * rank)), found
            found[:, places] = used
        return found.reshape(len(rows), len(classes), rank)


def products_along(rows: np.ndarray, directions: np.ndarray, classes: np.ndarray, in_all: int) -> np.ndarray:
    """``rows · directions[classes]``, of shape (rows, classes, directions), with exact entries.

    The classes are a part of ``in_all`` that are asked for.
    """
    if in_all < _FEW * len(directions):
        few = _short(directions[classes].reshape(-1, directions.shape[2]))
        return exact.products(rows, few).reshape(len(rows), len(classes), directions.shape[1])
    return kept(directions, _Used, lambda: _Used(directions)).products(rows, directions, classes)


def _short(directions: np.ndarray) -> np.ndarray:
    """Directions in float32."""
    return exact.widened(directions) if directions.dtype == np.float16 else directions
