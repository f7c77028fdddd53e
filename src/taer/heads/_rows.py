"""Rows that are read only where they are indexed."""

from __future__ import annotations

from typing import Any

import numpy as np


class SelectedRows:
    """Some rows of a storage, by number."""

    def __init__(self, X: Any, numbers: np.ndarray) -> None:
        self.X, self.numbers = X, numbers
        self.shape, self.dtype = (len(numbers), X.shape[1]), X.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        selected: np.ndarray = self.X[self.numbers[rows]]
        return selected


class StackedRows:
    """Rows of several storages, one after the other, read only where they are indexed."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])
        self.shape = (int(self.ends[-1]), parts[0].shape[1])
        self.dtype = np.result_type(*(part.dtype for part in parts))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, numbers: np.ndarray) -> np.ndarray:
        rows = np.empty((len(numbers), self.shape[1]), self.dtype)
        which = np.searchsorted(self.ends, numbers, side="right")
        for i, part in enumerate(self.parts):
            if (here := which == i).any():
                rows[here] = part[numbers[here] - (self.ends[i] - len(part))]
        return rows
