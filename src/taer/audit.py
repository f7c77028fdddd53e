"""What a task changed: the columns that moved, and the decisions among old classes that differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from taer.heads import Head
from taer.heads._validation import check_features, row_chunks
from taer.heads.linear import LinearHead
from taer.heads.statistical import StatisticsHead


@dataclass(frozen=True)
class Audit:
    """The difference between a head and the same head some tasks later."""

    old_classes: list[Any]  # those that both know, in order of learning
    new_classes: list[Any]  # in order of learning
    forgotten: list[Any]  # in order of learning
    moved: list[Any] | None  # old classes whose column is not bit-identical; None if the head has no columns
    compared: int  # samples looked at
    changed: int  # samples for which the best of the old classes is another one now

    def sentence(self) -> str:
        """The audit in words."""
        words = f"{len(self.new_classes)} new, {len(self.old_classes)} old classes"
        if self.forgotten:
            words += f", {len(self.forgotten)} forgotten"
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
    if type(old) is not type(new):
        raise ValueError(f"{type(old).__name__} and {type(new).__name__} are not two versions of one head")
    if old.n_features_in_ != new.n_features_in_:
        raise ValueError(f"the heads take features of width {old.n_features_in_} and {new.n_features_in_}")
    common, at_old, at_new = np.intersect1d(old.classes_, new.classes_, return_indices=True)
    moved = None
    before, after = _columns(old), _columns(new)
    if before and after:
        moved = [
            label
            for label, i, j in zip(common.tolist(), at_old, at_new, strict=True)
            if not all(_same_bits(one[i], other[j]) for one, other in zip(before, after, strict=True))
        ]
    compared = changed = 0
    if X is not None and len(common):
        X = check_features(old, X, reset=False)
        compared = len(X)
        changed = sum(
            int((_best(old, X[rows], at_old) != _best(new, X[rows], at_new)).sum())
            for rows in row_chunks(X, width=max(X.shape[1], len(new.classes_)))
        )
    earlier, later = (dict.fromkeys(label for label, _ in head.learning_order_) for head in (old, new))
    return Audit(
        old_classes=[label for label in earlier if label in later],
        new_classes=[label for label in later if label not in earlier],
        forgotten=[label for label in earlier if label not in later],
        moved=moved,
        compared=compared,
        changed=changed,
    )


def _columns(head: Head) -> list[np.ndarray] | None:
    """Arrays with a row for each class which decide its score; None where something else does, too."""
    if isinstance(head, StatisticsHead):
        return [getattr(head, name) for name in head.class_arrays]
    found = linear_map(head)
    return list(found) if found else None


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
    elif head.frozen_scores:
        scores = head._scores(X, among)  # type: ignore[call-arg]
    else:
        scores = head._scores(X)[:, among]
    return scores.argmax(axis=1)


def _same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    return first.dtype == second.dtype and first.tobytes() == second.tobytes()
