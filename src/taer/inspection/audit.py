"""The changes between two versions of a head: old classes whose scores changed, and decisions among them that differ."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from taer.containers import by_position
from taer.heads import Head
from taer.rows import row_chunks


@dataclass(frozen=True)
class Audit:
    """The difference between a head and the same head some tasks later."""

    old_classes: list[Any]  # classes that both versions know, in order of learning
    new_classes: list[Any]  # in order of learning
    forgotten: list[Any]  # in order of learning
    moved: list[Any]  # old classes whose scores depend on an array that is not bit-identical
    compared: int  # samples on which decisions were compared
    changed: int  # samples for which another old class is best now

    def sentence(self) -> str:
        """The audit in words."""
        words = _classes(len(self.new_classes), "new ")
        if self.forgotten:
            words += f", {len(self.forgotten)} forgotten"
        if self.old_classes:
            known = f"the {_classes(len(self.old_classes), 'other ' if self.forgotten else '')} it knew"
            words += (
                f"; the scores of {len(self.moved)} of {known} changed"
                if self.moved
                else f"; nothing changed for {known}"
            )
        if self.compared and self.old_classes:
            words += f"; {self.changed} of {self.compared} decisions among them differ"
        return words


def audit(old: Head, new: Head, X: ArrayLike | None = None) -> Audit:
    """Compare two versions of a head, on the samples ``X`` if given.

    Examples
    --------
    >>> import copy, taer
    >>> from taer.inspection.audit import audit
    >>> sketches = taer.load_features()
    >>> X, y = sketches.train_x, sketches.train_y
    >>> old = taer.TaER(random_state=0).partial_fit(X[y < 5], y[y < 5])
    >>> new = copy.deepcopy(old).partial_fit(X[(y >= 5) & (y < 9)], y[(y >= 5) & (y < 9)])
    >>> audit(old, new, sketches.test_x).sentence()
    '4 new classes; nothing changed for the 5 classes it knew; 0 of 2000 decisions among them differ'
    """
    if type(old) is not type(new):
        raise ValueError(f"{type(old).__name__} and {type(new).__name__} are not two versions of one head")
    old, new = copy.copy(old), copy.copy(new)  # a consistent state, even if another thread teaches them now
    if old.n_features_in_ != new.n_features_in_:
        raise ValueError(f"the heads take features of width {old.n_features_in_} and {new.n_features_in_}")
    common, at_old, at_new = np.intersect1d(old.classes_, new.classes_, return_indices=True)
    moved = [label for label in common.tolist() if not _same_bits(old._class_state(label), new._class_state(label))]
    compared = changed = 0
    if X is not None and len(common):
        samples: Any = by_position(X, "X")
        compared = len(samples)
        for rows in row_chunks(samples, width=max(samples.shape[1], len(new.classes_))):
            # These are the scores that predict compares, so differences in rounding are found, too.
            before, after = old.scores(samples[rows])[:, at_old], new.scores(samples[rows])[:, at_new]
            changed += int((before.argmax(axis=1) != after.argmax(axis=1)).sum())
    earlier, later = (dict.fromkeys(label for label, _ in head.learning_order_) for head in (old, new))
    return Audit(
        old_classes=[label for label in earlier if label in later],
        new_classes=[label for label in later if label not in earlier],
        forgotten=[label for label in earlier if label not in later],
        moved=moved,
        compared=compared,
        changed=changed,
    )


def _classes(count: int, which: str) -> str:
    return f"{count} {which}class{'' if count == 1 else 'es'}"


def _same_bits(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return all(
        one.dtype == other.dtype and one.tobytes() == other.tobytes()
        for one, other in zip(first, second, strict=True)
    )
