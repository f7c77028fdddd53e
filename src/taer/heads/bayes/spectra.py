"""Leading directions of a scatter."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from taer.heads.closed_form.linalg import leading_eigen

_OVERSAMPLED, _POWER_STEPS = 8, 2
_ROUNDING = 1e-9  # eigenvalues below this fraction of the largest are rounding errors


def leading_rows(rows: np.ndarray, rank: int, quick: bool = False) -> np.ndarray:
    """At most ``rank`` orthogonal rows with the leading part of the scatter ``rowsᵀ rows``, the longest last.

    They come from the smaller of the two Gram matrices; ``quick`` takes a subspace by random projection.
    """
    if not len(rows) or not rank:
        return np.zeros((0, rows.shape[1]))
    if quick and min(rows.shape) > 3 * rank:
        basis = np.random.default_rng(0).normal(size=(rank + _OVERSAMPLED, len(rows))) @ rows
        for _ in range(_POWER_STEPS):
            basis = np.linalg.qr((basis @ rows.T @ rows).T)[0].T
        along = rows @ basis.T
        spectrum, vectors = np.linalg.eigh(along.T @ along)
        return (np.sqrt(np.maximum(spectrum[-rank:], 0)) * vectors[:, -rank:]).T @ basis
    wide = len(rows) <= rows.shape[1]
    gram = rows @ rows.T if wide else rows.T @ rows
    spectrum, vectors = leading_eigen(gram, rank)
    kept = np.flatnonzero(spectrum > _ROUNDING * max(float(spectrum[-1]), 1e-300))[-rank:]
    spectrum, vectors = spectrum[kept], vectors[:, kept]
    return vectors.T @ rows if wide else np.sqrt(spectrum)[:, None] * vectors.T


def coordinates(rows: np.ndarray) -> np.ndarray:
    """The rows in an orthonormal basis of their span, if that has fewer dimensions than they have entries.

    The pivoted Cholesky factor of their Gram matrix has the same inner products.
    """
    if len(rows) >= rows.shape[1]:
        return rows
    factor, pivots, rank, _ = lapack.dpstrf(rows @ rows.T, lower=1)
    found = np.zeros((len(rows), rank))
    found[pivots - 1] = np.tril(factor)[:, :rank]
    return found
