"""A feature set: one data set as one frozen backbone sees it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from taer.containers import by_position
from taer.origin import Origin
from taer.rows import Rows, row_chunks


@dataclass(frozen=True)
class FeatureSet:
    """Training and test features of a data set, with labels ``0 … len(classes) - 1``.

    The features are arrays, memory-mapped arrays, or :class:`~taer.rows.Rows`, which read only the rows that are indexed.
    The test part may be empty. A set without labels has no classes and no training samples; its samples are the test
    part, with -1 for every label.

    Examples
    --------
    >>> import numpy as np
    >>> from taer import FeatureSet
    >>> X, y = np.eye(4), np.array([0, 0, 1, 1])
    >>> features = FeatureSet(X, y, X, y, classes=("cat", "dog"))
    >>> features.n_features
    4
    """

    train_x: np.ndarray | Rows
    train_y: np.ndarray
    test_x: np.ndarray | Rows
    test_y: np.ndarray
    classes: tuple[str, ...]
    meta: Mapping[str, str] = field(default_factory=dict)
    name: str = "features"

    def __post_init__(self) -> None:
        for part in ("train_x", "train_y", "test_x", "test_y"):  # a column of pandas would be indexed by its labels
            object.__setattr__(self, part, by_position(getattr(self, part), part))
        for split, x, y in (("train", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            if x.ndim != 2 or y.ndim != 1 or len(x) != len(y):
                raise ValueError(
                    f"{self.name}: {split} features must be n × d with n labels, got shapes {x.shape} and {y.shape}"
                )
            if not len(x) and split == ("train" if self.classes else "test"):
                raise ValueError(f"{self.name}: the {split} part is empty")
            if not np.issubdtype(x.dtype, np.floating):
                raise ValueError(f"{self.name}: {split} features must be floating point, got {x.dtype}")
            if not np.issubdtype(y.dtype, np.integer):
                raise ValueError(f"{self.name}: {split} labels must be integers, got {y.dtype}")
            if not self.classes and (y != -1).any():
                raise ValueError(f"{self.name}: a set without classes has -1 for every label")
            if self.classes and len(y) and (y.min() < 0 or y.max() >= len(self.classes)):
                raise ValueError(
                    f"{self.name}: {split} labels must lie in 0 … {len(self.classes) - 1} "
                    f"({len(self.classes)} classes), got {y.min()} … {y.max()}"
                )
            for rows in row_chunks(x):
                if not np.isfinite(x[rows]).all():
                    raise ValueError(f"{self.name}: {split} features contain NaN or infinite values")
        if self.train_x.shape[1] != self.test_x.shape[1]:
            raise ValueError(
                f"{self.name}: train and test features differ in width, "
                f"{self.train_x.shape[1]} and {self.test_x.shape[1]}"
            )

    @property
    def origin(self) -> Origin | None:
        """The backbone of the features; None if it is not recorded."""
        return Origin.of(self.meta)

    @property
    def n_features(self) -> int:
        """Number of features per sample."""
        return int(self.train_x.shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the features, labels and class names: what makes two sets the same data."""
        digest = hashlib.sha256(json.dumps(self.classes).encode())
        for array in (self.train_x, self.train_y, self.test_x, self.test_y):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            for rows in row_chunks(array):
                digest.update(np.ascontiguousarray(array[rows]).data)
        return digest.hexdigest()
