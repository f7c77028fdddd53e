"""Exact products of rows with the stored directions of classes."""

from __future__ import annotations

import numpy as np

from taer.heads import exact
from taer.heads.closed_form.derived import Derived

_PACKED = 0.5  # if no more than this fraction of the directions is used, those are copied together
# Of all classes. For fewer, it takes longer to find the used directions than to multiply all.
_WORTH_FINDING = 1 / 8


class _Used:
    """Which directions of all classes are used, and a copy of those if they are few.

    A class of few samples has few directions, and the rest of its array is zero.
    """

    def __init__(self, directions: np.ndarray) -> None:
        self.used = np.asarray(directions.any(axis=2))
        is_sparse = self.used.mean() <= _PACKED
        self.used |= not is_sparse
        self.packed = _short(directions[self.used]) if is_sparse else None
        self.places = self.used.cumsum().reshape(self.used.shape) - 1  # of each direction among the used ones

    def products(self, rows: np.ndarray, directions: np.ndarray, classes: np.ndarray) -> np.ndarray:
        used = self.used[classes]
        places = self.places[classes][used]
        in_a_row = len(places) > 0 and (np.diff(places) == 1).all()
        everything = directions.reshape(-1, directions.shape[2]) if self.packed is None else self.packed
        wanted = everything[places[0] : places[-1] + 1] if in_a_row else everything[places]  # a view, or a copy
        found = exact.products(rows, _short(wanted))
        if not used.all():
            found, of_used = np.zeros((len(rows), used.size)), found
            found[:, used.ravel()] = of_used
        return found.reshape(len(rows), *used.shape)


def products_along(
    rows: np.ndarray, directions: np.ndarray, classes: np.ndarray, in_all: int, derived: Derived
) -> np.ndarray:
    """``rows · directions[classes]``, of shape (rows, classes, directions), with exact entries.

    The classes are a part of ``in_all`` that are asked for. Which directions are used is kept in ``derived``.
    """
    if in_all < _WORTH_FINDING * len(directions):
        wanted = _short(directions[classes].reshape(-1, directions.shape[2]))
        return exact.products(rows, wanted).reshape(len(rows), len(classes), directions.shape[1])
    return derived.of(directions, _Used, lambda: _Used(directions)).products(rows, directions, classes)


def _short(directions: np.ndarray) -> np.ndarray:
    """Directions in float32."""
    return exact.widened(directions) if directions.dtype == np.float16 else directions
