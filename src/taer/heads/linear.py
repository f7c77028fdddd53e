"""Heads behind a fixed standardisation, and those that are then one linear map of the user's features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csc_array

from taer.heads._fitted import FLOATS, Fitted, array, word
from taer.heads._params import param
from taer.heads._validation import row_chunks
from taer.heads.base import Head, Task

_FEW = 8  # times smaller pieces than usual, which stay in the cache


@dataclass(kw_only=True, eq=False, repr=False)
class MappedHead(Head):
    """Learns on ``(x - mean_) / scale_``, a map fixed by the first task and never changed again."""

    standardize: str = param(
        "scale",
        "fixed map learned from the first task: subtract its mean, or also divide by its (shrunk) deviation",
        options=("none", "center", "scale"),
    )

    fitted: ClassVar[dict[str, Fitted]] = {
        "mean_": array("width"),
        "scale_": array("width", above=0),
        "dtype_": word(*FLOATS),
        "shift_": array("width", or_none=True),
        "stretch_": array("width", or_none=True),
    }

    def _fix_map(self, X: Any) -> None:
        """Learn the map and the type of the arithmetic from the first task; later calls change nothing."""
        if hasattr(self, "mean_"):
            return
        width = X.shape[1]
        self.mean_, self.scale_ = np.zeros(width), np.ones(width)
        if self.standardize != "none":
            self.mean_ = sum(X[rows].sum(axis=0, dtype=np.float64) for rows in row_chunks(X)) / len(X)
        if self.standardize == "scale":
            squares: Any = sum(np.square(X[rows] - self.mean_).sum(axis=0) for rows in row_chunks(X))
            # As if so many more samples as there are features had the mean variance in each: a feature that is all
            # but constant in a small first task need not be so in later ones.
            variances = (squares + squares.mean() / len(X) * width) / (len(X) + width)
            self.scale_ = np.sqrt(variances) if variances.any() else self.scale_
        # float64 stays, float16 is too short to learn in
        self.dtype_ = str(np.result_type(X.dtype, np.float32))
        # None where there is nothing to do: the loop maps every batch
        self.shift_ = self.mean_.astype(self.dtype_) if self.mean_.any() else None
        self.stretch_ = (1 / self.scale_).astype(self.dtype_) if (self.scale_ != 1).any() else None

    def _map(self, X: np.ndarray) -> np.ndarray:
        """The rows in the space in which the head learns; a new array of the head's type."""
        mapped = np.array(X, self.dtype_)
        self._map_in_place(mapped)
        return mapped

    def _map_in_place(self, rows: np.ndarray) -> None:
        if self.shift_ is not None:
            rows -= self.shift_
        if self.stretch_ is not None:
            rows *= self.stretch_

    def _class_means(self, X: Any, y: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """Means of the samples of some classes, in the mapped space."""
        place = np.full(len(self.classes_), -1)
        place[classes] = np.arange(len(classes))
        codes = place[y]
        sums = np.zeros((len(classes), X.shape[1]))
        for rows in row_chunks(X):
            members = np.flatnonzero(codes[rows] >= 0)
            shape = len(classes), len(members)
            onehot = csc_array((np.ones(len(members)), codes[rows][members], np.arange(len(members) + 1)), shape)
            sums += onehot @ X[rows][members].astype(np.float64)
        means = sums / np.bincount(codes[codes >= 0], minlength=len(classes))[:, None]
        return (means - self.mean_) / self.scale_


@dataclass(kw_only=True, eq=False, repr=False)
class LinearHead(MappedHead):
    """Scores ``coef_ @ x + intercept_``.

    The map is folded into ``coef_`` and ``intercept_`` once, when a task ends; rows of classes that did not
    move are carried over bit by bit.
    """

    class_arrays: ClassVar[tuple[str, ...]] = ("coef_", "intercept_")
    fitted: ClassVar[dict[str, Fitted]] = {"coef_": array("classes", "width"), "intercept_": array("classes")}

    def _fix_map(self, X: Any) -> None:
        super()._fix_map(X)
        if not hasattr(self, "coef_"):
            self.coef_, self.intercept_ = np.zeros((0, X.shape[1]), self.dtype_), np.zeros(0, self.dtype_)

    def _unfold(self, classes: np.ndarray) -> np.ndarray:
        """Columns of known classes in the mapped space."""
        return (self.coef_[classes] * self.scale_).astype(self.dtype_)

    def _fold(self, classes: np.ndarray, columns: np.ndarray) -> None:
        """Store columns of the mapped space as coefficients of the user's features."""
        coef = columns / self.scale_
        self.coef_, self.intercept_ = self.coef_.copy(), self.intercept_.copy()
        self.coef_[classes] = coef
        self.intercept_[classes] = -coef @ self.mean_

    def _reseat(self, task: Task) -> None:
        self.coef_, self.intercept_ = task.reseat(self.coef_), task.reseat(self.intercept_)

    def _scores(self, X: np.ndarray) -> np.ndarray:
        return X.astype(self.dtype_, copy=False) @ self.coef_.T + self.intercept_

    def _log_partition(self, X: Any, classes: np.ndarray) -> np.ndarray:
        """``log Σ exp`` of the scores of some classes: constant while their columns rest."""
        coef, intercept = self.coef_[classes], self.intercept_[classes, None]
        found = np.empty(len(X))
        for rows in row_chunks(X, width=_FEW * max(X.shape[1], len(classes))):
            scores = coef @ X[rows].astype(coef.dtype, copy=False).T
            scores += intercept
            top = scores.max(axis=0)
            scores -= top
            np.exp(scores, out=scores)
            found[rows] = top + np.log(scores.sum(axis=0, dtype=np.float64))
        return found
