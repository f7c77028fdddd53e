"""``unlearn`` and ``merge``, for heads whose state is sums over samples, or that learn again from kept ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from taer.heads.registry import HEADS
from taer.heads.task import Learned, Task
from taer.heads.validation import check_features, check_labels, check_weights
from taer.rows import select

_TRAINED = "its columns were trained on all samples together"
_FIXED = "its scores were fixed by all samples of a class together"


def check_sums(head: Any, what: str) -> None:
    """Raise unless the state of the head is sums over samples, beside what is learned again from kept ones."""
    if not head.card.corrects:
        reason = _FIXED if head.card.keeps == "statistics" else _TRAINED
        able = ", ".join(name for name, kind in HEADS.items() if kind.card.corrects)
        raise ValueError(f"{type(head).__name__} cannot {what}: {reason}; heads on sums can: {able}")


def unlearn(head: Any, X: Any, y: Any, sample_weight: Any) -> None:
    """Subtract samples from the sums of a head, in place; classes without samples are removed."""
    check_sums(head, "unlearn single samples, only forget a whole class")
    X = check_features(head, X, reset=False)
    labels = check_labels(y, len(X), head.classes_)
    weights = check_weights(sample_weight, len(X))
    if weights is not None:
        if not head.weighs and (weights != np.floor(weights)).any():
            raise ValueError(
                f"{type(head).__name__} takes back whole weights only: fractions are drawn when learning"
            )
        rows = np.flatnonzero(weights) if head.weighs else np.repeat(np.arange(len(X)), weights.astype(np.int64))
        X, labels, weights = select(X, rows), labels[rows], weights[rows] if head.weighs else None
    n_classes = len(head.classes_)
    _subtract(head, head._sums_of(Task(X, head._numbers_of(labels), n_classes, n_classes, head.n_tasks_, weights)))


def _subtract(head: Any, taken: Any) -> None:
    known = head._sums()
    for number, count in zip(taken.labels.tolist(), taken.counts.tolist(), strict=True):
        if count > known.counts[number] * (1 + 1e-9):
            label = head.learning_order_[number].label
            raise ValueError(
                f"{count:g} samples of {label!r} are to be taken back, but only {known.counts[number]:g} were learned"
            )
    left = known - taken
    gone = np.setdiff1d(known.labels, left.labels)
    if len(gone) == len(known.labels):
        raise ValueError("no sample of any class would be left; start with a new head instead")
    changed = np.setdiff1d(taken.labels, gone)
    if len(gone):
        vars(head).pop("statistics_", None)  # replaced below, also for sums that classes share
        for number in gone[::-1].tolist():
            head._drop(number)
        left, changed = left.relabeled(np.arange(len(left.labels))), np.searchsorted(left.labels, changed)
    head._set_sums(left, changed)
    head._check_learned(changed)
    head._outdate()


def merged(one: Any, other: Any, base: Any) -> Any:
    """A new head with the samples of both. Samples of ``base``, from which both were copied, count once."""
    check_sums(one, "be merged")
    one, other = one._snapshot(), other._snapshot()
    for head in (one, other) if base is None else (one, other, base):
        check_is_fitted(head)
        _check_alike(one, head)
    added, copies = one._sums_from(other)
    parted = 0  # the last task that both had in common
    if base is not None:
        added, parted = _since(base, one, other, added), base.n_tasks_
    elif copies:
        added, parted = _without_shared(one, other, added)
    if not len(added.labels):
        return one

    def join(head: Any) -> None:
        before = head._sums()
        new = added.relabeled(_entered(head, other, added.labels, parted))
        head._set_sums(before + new, new.labels)
        head._check_learned(new.labels)
        head._absorb(other)
        head._outdate()

    return one._change(join)


def _check_alike(one: Any, other: Any) -> None:
    """Raise unless the sums of two heads can be added."""
    if type(one) is not type(other):
        raise ValueError(
            f"{type(one).__name__} and {type(other).__name__} are different methods and cannot be merged"
        )
    if one.n_features_in_ != other.n_features_in_:
        raise ValueError(f"the heads take features of width {one.n_features_in_} and {other.n_features_in_}")
    names = [getattr(head, "feature_names_in_", np.empty(0)).tolist() for head in (one, other)]
    if all(names) and names[0] != names[1]:
        raise ValueError("the heads learned from data frames with different columns")
    check_labels(other.classes_, len(other.classes_), one.classes_)
    mine, theirs = one.get_params(), other.get_params()
    for name, value in mine.items():
        if name != "random_state" and value != theirs[name]:
            raise ValueError(f"the heads have different parameters: {name} is {value!r} and {theirs[name]!r}")
    theirs = other._fixed()
    for name, value in one._fixed().items():
        if not np.array_equal(value, theirs[name]):
            raise ValueError(
                f"the heads cannot be merged: the first task of each fixed {name}, and they differ. Let one head learn a "
                "first task, give every site a copy of it, and merge the copies"
            )


def _since(base: Any, one: Any, other: Any, sums: Any) -> Any:
    """The sums that the other head has added since it was copied from ``base``."""
    common, copies = one._sums_from(base)
    numbers = {label: number for number, (label, _) in enumerate(other.learning_order_)}
    try:
        if not copies:
            raise ValueError
        return sums - common.relabeled(np.array([numbers[label] for label, _ in base.learning_order_], np.int64))
    except (KeyError, ValueError):
        raise ValueError("base is not a head that both were copied from: it has samples that they lack") from None


def _without_shared(one: Any, other: Any, sums: Any) -> tuple[Any, int]:
    """The head without the classes that two copies of one head have in common, and the last task of these."""
    mine, parted = one._sums(), 0
    counts, means, their_counts, their_means = mine.counts, mine.means, sums.counts, sums.means
    for number, (label, _) in enumerate(other.learning_order_):
        if label not in one.classes_:
            continue
        own = one._number_of(label)
        try:
            if counts[own] != their_counts[number] or not np.array_equal(means[own], their_means[number]):
                raise ValueError
            sums = sums.forget(number)
        except ValueError:
            raise ValueError(
                f"both heads are copies of one head, and samples of {label!r} would count twice; give the head they were "
                "copied from as base"
            ) from None
        parted = max(parted, one.learning_order_[own].task)
    return sums, parted


def _entered(head: Any, other: Any, numbers: np.ndarray, parted: int) -> np.ndarray:
    """Add the classes of another head to this one; returns their numbers in this head."""
    entries = [other.learning_order_[number] for number in numbers.tolist()]
    new = [entry for entry in entries if entry.label not in head.classes_]
    tasks = [Learned(label, head.n_tasks_ + max(1, task - parted)) for label, task in new]
    head.n_tasks_ += max(1, other.n_tasks_ - parted)
    labels = np.array([label for label, _ in new], other.classes_.dtype)
    head.learning_order_ = [*head.learning_order_, *tasks]
    head._set_labels(np.concatenate([head.classes_[np.argsort(head.arrival_)], labels]))
    return np.array([head._number_of(label) for label, _ in entries], np.int64)
