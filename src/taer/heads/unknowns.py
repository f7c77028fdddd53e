"""Novelty thresholds: a sample above the threshold belongs to no known class."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from taer.heads.fitted import Fitted, Sizes

ENOUGH = 20  # samples that a class needs for its own threshold


def class_thresholds(*, help: str) -> Fitted:
    """An optional dictionary from labels to finite numbers."""

    def check(value: Any, sizes: Sizes) -> None:
        if type(value) is not dict or not all(type(each) is float and np.isfinite(each) for each in value.values()):
            raise ValueError("expected labels and finite numbers")

    return Fitted(check, "dict", help, optional=True)


def keep_threshold(head: Any, X: Any, false_alarms: float, per_class: bool) -> None:
    """Set the thresholds of a head from held-out samples, or from the novelties that it stores."""
    for name in ("class_thresholds_", "automation_"):  # the latter was measured with the former threshold
        vars(head).pop(name, None)
    if X is None:
        found, own = head._own_threshold(false_alarms), head._own_class_thresholds(false_alarms)
    else:
        labels, novelty = head.predict(X), head.novelty(X)
        found = float(np.quantile(novelty, 1 - false_alarms))
        if not found < largest(novelty):
            raise ValueError("the novelty of too many of these samples cannot be computed for a threshold")
        groups = {label: novelty[labels == label] for label in np.unique(labels).tolist()} if per_class else {}
        own = {
            label: float(np.quantile(values, 1 - false_alarms))
            for label, values in groups.items()
            if len(values) >= max(ENOUGH, 1 / false_alarms)
        }
    head.threshold_, head.false_alarms_ = found, false_alarms
    if per_class:
        head.class_thresholds_ = own


def renew_threshold(head: Any) -> None:
    """Replace thresholds that a change of the head made stale: from stored novelties, or else by none."""
    had = {name: vars(head).pop(name, None) for name in ("threshold_", "class_thresholds_", "false_alarms_")}
    if head._own_novelty and had["false_alarms_"] is not None:
        with suppress(ValueError):  # nothing is stored while every class has one sample
            keep_threshold(head, None, had["false_alarms_"], had["class_thresholds_"] is not None)


def thresholds_of(head: Any, labels: np.ndarray, threshold: float | None) -> Any:
    """The threshold of each prediction: the given one, else that of its class, else that of the head."""
    if threshold is None and not hasattr(head, "threshold_"):
        raise ValueError(
            "unknown needs a threshold: novelty_threshold() finds one and keeps it in the head. One from held-out "
            "samples is dropped when the head learns more"
        )
    if threshold is not None and not _is_number(threshold):
        raise ValueError(f"unknown needs a threshold that is one number, got {threshold!r}")
    if threshold is not None or not hasattr(head, "class_thresholds_"):
        return head.threshold_ if threshold is None else threshold
    own = head.class_thresholds_
    return np.array([own.get(label, head.threshold_) for label in labels.tolist()])


def _is_number(value: Any) -> bool:
    given = np.asarray(value)
    return given.ndim == 0 and given.dtype.kind in "iuf" and not np.isnan(given)


def above(novelty: np.ndarray, limits: Any) -> np.ndarray:
    """Which samples are unknown: all but those whose novelty could be computed and is at or below the limit."""
    return ~((novelty < largest(novelty)) & (novelty <= limits))


def largest(novelty: np.ndarray) -> Any:
    """The novelty of a sample for which it cannot be computed; unlike infinity, JSON can hold it."""
    return np.finfo(novelty.dtype).max


def marked(labels: np.ndarray, unknown: Any, where: np.ndarray) -> np.ndarray:
    """Labels with ``unknown`` in some places; an object array if its type differs from that of the labels."""
    answer = np.array(unknown)
    if answer.dtype.kind != labels.dtype.kind:
        answer, labels = np.array(unknown, object), labels.astype(object)
    return np.where(where, answer, labels)
