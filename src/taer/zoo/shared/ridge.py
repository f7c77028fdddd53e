"""Ridge regression with a fixed strength."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from taer.heads.base import Head


def ridge_solved(head: Head, matrix: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """The solution of a positive definite system; the matrix is overwritten.

    Raises ValueError if the features are so large that nothing is left of the strength on the diagonal.
    """
    try:
        solved: np.ndarray = cho_solve(cho_factor(matrix, overwrite_a=True, check_finite=False), sums)
    except (np.linalg.LinAlgError, ValueError):
        raise ValueError(
            f"{type(head).__name__} cannot learn features of this size: its penalty vanishes beside their squares; "
            "scale the features to about 1"
        ) from None
    return solved
