"""What a task changed: the columns that moved, and the decisions among old classes that differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from taer.heads import Head
from taer.heads._validation import check_features, row_chunks
from taer.heads.linear import LinearHead


@dataclass(frozen=True)
class Audit:
    """The difference between a head and the same head some tasks later."""

    old_classes: list[Any]  # in order of learning
    new_classes: list[Any]  # in order of learning
    moved: list[Any] | None  # old classes whose column is not bit-identical; None if the head has no columns
    compared: int  # samples looked at
    changed: int  # samples for which the best of the old classes is another one now

    def sentence(self) -> str:
        """The audit in words."""
        words = f"{len(self.new_classes)} new, {len(self.old_classes)} old classes"
        if self.moved is not None and self.old_classes:
            words += (
                f"; all {len(self.old_classes)} old columns are bit-identical"
                if not self.moved
                else f"; {len(self.moved)} of {len(self.old_classes)} old columns moved"
            )
        if self.compared and self.old_classes:
            words += f"; {self.changed} of {self.compared} decisions among old classes differ"
        return words


def audit(old: Head, new: Head, X: Any = None) -> Audit:
    """Compare two versions of a head, on the samples ``X`` if given.

    Examples
    --------
    >>> import copy, taer
    >>> from taer.audit import audit
    >>> sketches = taer.load_features()
    >>> X, y = sketches.train_x, sketches.train_y
    >>> old = taer.TaER(random_state=0).partial_fit(X[y < 5], y[y < 5])
    >>> new = copy.deepcopy(old).partial_fit(X[(y >= 5) & (y < 9)], y[(y >= 5) & (y < 9)])
    >>> audit(old, new, sketches.test_x).sentence()
    '4 new, 5 old classes; all 5 old columns are bit-identical; 0 of 2000 decisions among old classes differ'
    """
    if lost := np.setdiff1d(old.classes_, new.classes_).tolist():
        raise ValueError(f"the newer head lacks classes that the older one knows: {lost[:5]}")
    if old.n_features_in_ != new.n_features_in_:
        raise ValueError(f"the heads take features of width {old.n_features_in_} and {new.n_features_in_}")
    known = {label for label, _ in old.learning_order_}
    place = np.searchsorted(new.classes_, old.classes_)
    moved = None
    before, after = linear_map(old), linear_map(new)
    if before and after:
        same = [
            _same_bits(before[0][i], after[0][j]) and _same_bits(before[1][i], after[1][j])
            for i, j in enumerate(place)
        ]
        moved = [label for label, kept in zip(old.classes_.tolist(), same, strict=True) if not kept]
    compared = changed = 0
    if X is not None:
        X = check_features(old, X, reset=False)
        compared = len(X)
        changed = sum(
            int((_best(old, X[rows], np.arange(len(place))) != _best(new, X[rows], place)).sum())
            for rows in row_chunks(X, width=max(X.shape[1], len(new.classes_)))
        )
    return Audit(
        old_classes=[label for label, _ in old.learning_order_],
        new_classes=[label for label, _ in new.learning_order_ if label not in known],
        moved=moved,
        compared=compared,
        changed=changed,
    )


def linear_map(head: Head) -> tuple[np.ndarray, np.ndarray] | None:
    """``coef, intercept`` of a head whose scores are ``coef @ x + intercept``; None for any other."""
    if isinstance(head, LinearHead) and type(head)._scores is LinearHead._scores:
        return head.coef_, head.intercept_
    return None


def _best(head: Head, X: np.ndarray, among: np.ndarray) -> np.ndarray:
    """The best of some classes for each row, as a position in ``among``."""
    columns = linear_map(head)
    if columns:
        # A product with more columns may be rounded otherwise; one of the same shape is not.
        scores = X.astype(columns[0].dtype, copy=False) @ columns[0][among].T + columns[1][among]
    else:
        scores = head._scores(X)[:, among]
    return scores.argmax(axis=1)


def _same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    return first.dtype == second.dtype and first.tobytes() == second.tobytes()
