"""Rows that are read from disk only when they are indexed: a selection of rows, or several arrays stacked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

_CHUNK = 1 << 22  # values per chunk


def row_chunks(X: Any, width: int | None = None) -> Iterator[slice]:
    """Slices of the rows with a few million values each; ``width`` is the number of values per row."""
    step = max(1, _CHUNK // max(1, math.prod(X.shape[1:]) if width is None else width))
    for start in range(0, len(X), step):
        yield slice(start, min(start + step, len(X)))


class Rows:
    """A two-dimensional array that reads only the rows that are indexed; ``np.asarray`` reads all."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    ndim = 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            return self._range(start, max(start, stop)) if step == 1 else self._take(np.arange(start, stop, step))
        numbers = np.asarray(rows)
        if numbers.dtype == bool:
            numbers = np.flatnonzero(numbers)
        numbers = np.where(numbers < 0, numbers + len(self), numbers)
        return self._take(numbers) if numbers.ndim else self._take(numbers[None])[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        everything = np.empty(self.shape, dtype or self.dtype)
        for rows in row_chunks(self):
            everything[rows] = self[rows]
        return everything

    def _take(self, numbers: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _range(self, start: int, stop: int) -> np.ndarray:
        return self._take(np.arange(start, stop))


class SelectedRows(Rows):
    """Some rows of another array, by number."""

    X: Any

    def __init__(self, X: Any, numbers: np.ndarray) -> None:
        if isinstance(X, SelectedRows):
            X, numbers = X.X, X.numbers[numbers]
        self.X, self.numbers = X, numbers
        self.shape, self.dtype = (len(numbers), X.shape[1]), X.dtype

    def _take(self, numbers: np.ndarray) -> np.ndarray:
        return np.asarray(self.X[self.numbers[numbers]])

    def _range(self, start: int, stop: int) -> np.ndarray:
        return np.asarray(self.X[self.numbers[start:stop]])


class StackedRows(Rows):
    """Rows of several arrays, one after the other."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])
        self.shape = (int(self.ends[-1]), parts[0].shape[1])
        self.dtype = np.result_type(*(part.dtype for part in parts))

    def _take(self, numbers: np.ndarray) -> np.ndarray:
        which = np.searchsorted(self.ends, numbers, side="right")
        first = self.parts[0]
        if isinstance(first, np.ndarray) and first.dtype == self.dtype and len(first):
            rows = first.take(numbers, axis=0, mode="clip")  # as if all were there: then few are copied twice
            others = np.unique(which[which > 0])
        else:
            rows, others = np.empty((len(numbers), self.shape[1]), self.dtype), np.unique(which)
        for i in others:
            here = np.flatnonzero(which == i)
            rows[here] = self.parts[i][numbers[here] - (self.ends[i] - len(self.parts[i]))]
        return rows

    def _range(self, start: int, stop: int) -> np.ndarray:
        pieces = [
            np.asarray(part[max(0, start - first) : stop - first])
            for part, first in zip(self.parts, self.ends - [len(part) for part in self.parts], strict=True)
            if first < stop and start < first + len(part)
        ]
        return (
            pieces[0] if len(pieces) == 1 else np.concatenate(pieces or [np.empty((0, self.shape[1]), self.dtype)])
        )


def select(X: np.ndarray | Rows, numbers: np.ndarray) -> np.ndarray | Rows:
    """Some rows. They are copied if the array is in memory, and read when they are indexed otherwise."""
    in_memory = isinstance(X, np.ndarray) and not isinstance(X, np.memmap)
    return X[numbers] if in_memory else SelectedRows(X, numbers)
