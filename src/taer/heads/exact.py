"""Matrix products with exact entries, whose bits depend on nothing else.

A product of floating-point matrices is rounded in an order that depends on the processor, the number of threads and
the shape. Rounding both factors *before* the product removes this dependence. Let every row of both be integers of at
most ``b`` bits times one power of two per row, with ``2b + log2(width) <= 53``. Then each partial sum in float64 is
exact, in any order. An entry depends only on its row and its column, and not on the other classes, the number of rows
or the machine.

The type of the columns sets the precision. float32 columns are rounded to ``b`` bits (21 or 22 for usual widths) when
they are stored, and one product is enough. float64 columns and their rows are split into two parts of ``b`` bits each,
and three products give twice the bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg.blas import dtrmm

from taer.rows import row_chunks

_MANTISSA = 53
_SMALLEST = -900  # smaller exponents are treated as zero
GEMV_ROWS = 2  # up to this many rows, a full product is faster than a triangular one
_SMALLER = 8  # factor for smaller pieces, whose float64 copies stay in the cache


def leading(rows: np.ndarray) -> np.ndarray:
    """Each row of a float64 array rounded to its leading bits: multiples of a power of two set by its largest value."""
    largest = np.maximum(rows.max(axis=-1, keepdims=True), -rows.min(axis=-1, keepdims=True))
    exponent = np.maximum(np.frexp(largest)[1], _SMALLEST)
    bits = (_MANTISSA - (rows.shape[-1] - 1).bit_length()) // 2
    # Adding and subtracting a large enough number leaves multiples of its last bit.
    anchor = np.ldexp(1.5, exponent + (_MANTISSA - 1 - bits))
    rounded: np.ndarray = rows + anchor
    rounded -= anchor
    return rounded


def rounded(columns: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    """Columns (one per row of the array) rounded for :func:`products`, in float32 or float64."""
    if not columns.size or np.dtype(dtype) == np.float64:
        return columns.astype(np.float64 if np.dtype(dtype) == np.float64 else np.float32)
    with np.errstate(over="ignore"):  # too large for float32: the head that learns it raises
        return leading(columns.astype(np.float64)).astype(np.float32)


def products(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """``rows @ columns.T`` in float64, with exact entries; ``columns`` come from :func:`rounded`."""
    rows = rows.astype(np.float64, order="C", copy=False)
    if not rows.size or not columns.size:
        return np.zeros((len(rows), len(columns)))
    high = leading(rows)
    if columns.dtype != np.float64:
        exact = np.empty((len(rows), len(columns)))
        for part in row_chunks(columns, width=_SMALLER * columns.shape[1]):
            np.matmul(high, columns[part].astype(np.float64).T, out=exact[:, part])
        return exact
    low, coarse = leading(rows - high), leading(columns)
    fine = leading(columns - coarse)
    return high @ coarse.T + (high @ fine.T + low @ coarse.T)


def triangular_products(rows: np.ndarray, triangle: np.ndarray) -> np.ndarray:
    """:func:`products` with a lower triangular matrix of float32, for half the work."""
    high = leading(rows.astype(np.float64, order="C", copy=False))
    if len(rows) <= GEMV_ROWS:
        return high @ triangle.astype(np.float64).T
    exact: np.ndarray = dtrmm(1.0, triangle.astype(np.float64).T, high.T, trans_a=1, overwrite_b=1).T
    return exact


def widened(half: np.ndarray) -> np.ndarray:
    """Convert finite float16 numbers to float32, by their bits, because numpy's own conversion is 6 times slower."""
    wide = np.empty(half.shape, np.float32)
    bits = wide.view(np.int32)
    np.left_shift(half.view(np.int16), 13, out=bits, dtype=np.int32)
    bits &= np.int32(-0x70002000)  # sign, five bits of exponent, ten of mantissa
    wide *= np.float32(2.0**112)  # the exponents count from -127, not from -15
    return wide
