"""The forms in which samples come with their labels: lists of labels, or an indicator matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import sparse

from taer.heads.validation import check_labels

Form = Literal["lists", "indicator", "sparse"]
_EXPECTED = "expected a list of labels for each sample, such as [['a', 'b'], []], or an indicator matrix of 0 and 1"


@dataclass(frozen=True)
class Taught:
    """Which samples have which labels, as a matrix of booleans with one column per label."""

    labels: list[Any]
    inside: np.ndarray
    form: Form


def taught(Y: Any, n_samples: int, classes: Any, known: Sequence[Any]) -> Taught:
    """The labels that are judged, those that were known first, and which samples have them.

    These are ``classes`` or, without it, all known labels and those in ``Y``.
    """
    listed = None if classes is None else _labels(list(classes), known)
    if listed is not None and len(set(listed)) < len(listed):
        raise ValueError("classes names a label twice")
    if Y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    length = Y.shape[0] if hasattr(Y, "shape") and len(Y.shape) else len(Y)
    if length != n_samples:
        raise ValueError(f"X and Y have inconsistent numbers of samples: {n_samples} and {length}")
    if sparse.issparse(Y) or len(getattr(Y, "shape", ())) == 2:
        return _from_indicator(Y, listed, known)
    return _from_lists(Y, listed, known)


def _from_lists(Y: Any, listed: list[Any] | None, known: Sequence[Any]) -> Taught:
    rows = [_row(number, labels) for number, labels in enumerate(Y)]
    found = _labels([label for row in rows for label in row], known)
    in_order = iter(found)
    rows = [[next(in_order) for _ in row] for row in rows]
    if listed is None:
        labels = [*known, *sorted(set(found) - set(known))]
    else:
        labels = listed
        if unlisted := sorted(set(found) - set(listed)):
            raise ValueError(
                f"Y has labels that classes lacks: {unlisted[:5]}; name all labels that were judged, or take them out of Y"
            )
    if not labels:
        raise ValueError("there is no label to learn: no sample has one, and classes names none")
    place = {label: number for number, label in enumerate(labels)}
    inside = np.zeros((len(rows), len(labels)), np.bool_)
    for number, row in enumerate(rows):
        inside[number, [place[label] for label in row]] = True
    return Taught(labels, inside, "lists")


def _row(number: int, labels: Any) -> list[Any]:
    if isinstance(labels, str | bytes | dict) or not hasattr(labels, "__iter__"):
        raise ValueError(f"{_EXPECTED}; got {labels!r} in row {number}")
    return list(labels)


def _from_indicator(Y: Any, listed: list[Any] | None, known: Sequence[Any]) -> Taught:
    form: Form = "sparse" if sparse.issparse(Y) else "indicator"
    columns = list(Y.columns) if hasattr(Y, "columns") else None  # of a data frame
    values = np.asarray(Y.toarray() if sparse.issparse(Y) else Y)
    if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        raise ValueError(f"{_EXPECTED}; got a matrix with other values")
    labels = _of_columns(values.shape[1], columns, listed, known)
    if listed is not None and set(labels) != set(listed):
        raise ValueError("the columns of Y are not the labels of classes")
    if not labels:
        raise ValueError("there is no label to learn: Y has no columns")
    return Taught(labels, values.astype(np.bool_), form)


def _of_columns(width: int, columns: Any, listed: list[Any] | None, known: Sequence[Any]) -> list[Any]:
    """The labels of the columns of an indicator matrix."""
    if columns is not None:
        labels = _labels(columns, known)
        if missing := [label for label in known if label not in labels and listed is None]:
            raise ValueError(f"Y has no column {missing[0]!r}; name the labels that were judged with classes=[…]")
        return labels
    if listed is not None:
        if len(listed) != width:
            raise ValueError(f"Y has {width} columns and classes names {len(listed)} labels")
        return listed
    if width == len(known):
        return list(known)
    if list(known) == list(range(len(known))) and width > len(known):
        return list(range(width))
    raise ValueError(
        f"Y has {width} columns, and {len(known)} labels are known; name the labels of the columns with classes=[…]"
    )


def _labels(labels: list[Any], known: Sequence[Any]) -> list[Any]:
    """Labels of one kind, as Python values."""
    if not labels:
        return []
    checked: list[Any] = check_labels(labels, len(labels), np.array(known) if len(known) else None).tolist()
    return checked


def answered(inside: np.ndarray, labels: Sequence[Any], form: str) -> Any:
    """Answers in the form in which labels were taught."""
    if form == "lists":
        return [[labels[at] for at in np.flatnonzero(row).tolist()] for row in inside]
    indicator = inside.astype(np.int64)
    return indicator if form == "indicator" else sparse.csr_matrix(indicator)
