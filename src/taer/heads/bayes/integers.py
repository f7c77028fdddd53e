"""Rows stored as small integers, with one scale per row: exact products need no further rounding."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike


def quantized(rows: np.ndarray, dtype: DTypeLike = np.int8) -> tuple[np.ndarray, np.ndarray]:
    """Integers and scales with ``integers · scale`` near the rows; a row of zeros has the scale 1."""
    top = np.iinfo(dtype).max
    largest = np.abs(rows).max(axis=1, initial=0)
    scales = np.where(largest > 0, largest / top, 1.0)
    return np.rint(rows / scales[:, None]).astype(dtype), scales
