"""The errors of a head: confused classes, weak classes, samples that may be mislabeled."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from taer.containers import by_position
from taer.heads import Head
from taer.metrics import confusion_matrix
from taer.rows import row_chunks, select


@dataclass(frozen=True)
class Confused:
    """Samples of one class that are predicted as another."""

    label: Any
    taken_for: Any
    count: int
    fraction: float  # of the samples of the class


@dataclass(frozen=True)
class ClassAccuracy:
    label: Any
    samples: int
    accuracy: float


@dataclass(frozen=True)
class Suspect:
    """A sample whose predicted class is not its label."""

    row: int
    label: Any
    taken_for: Any
    probability: float  # of its own label


@dataclass(frozen=True)
class Diagnosis:
    """The predictions of a head on labeled samples, compared with the labels."""

    labels: list[Any]  # the classes of the head, sorted
    confusion: np.ndarray  # samples of each class (rows) that are predicted as each class (columns)
    suspects: list[Suspect]  # lowest probability of their own label first
    unknown: int  # samples of classes that the head does not know; they are not counted

    @property
    def samples(self) -> int:
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        """Fraction of correct predictions."""
        return float(np.trace(self.confusion) / max(1, self.samples))

    def confused(self) -> list[Confused]:
        """Pairs of classes, the most frequent confusion first."""
        of_class = self.confusion.sum(axis=1)
        pairs = [
            Confused(
                self.labels[i], self.labels[j], int(self.confusion[i, j]), float(self.confusion[i, j] / of_class[i])
            )
            for i, j in np.argwhere(self.confusion)
            if i != j
        ]
        return sorted(pairs, key=lambda pair: (-pair.count, -pair.fraction))

    def weak(self) -> list[ClassAccuracy]:
        """Classes clearly below the accuracy of all samples, the lowest first.

        Clearly means by more than one standard deviation of the accuracy on as many samples as the class has.
        """
        counts = self.confusion.sum(axis=1)
        tested = [
            ClassAccuracy(self.labels[i], int(counts[i]), float(self.confusion[i, i] / counts[i]))
            for i in np.flatnonzero(counts)
        ]
        variance = self.accuracy * (1 - self.accuracy)
        below = [each for each in tested if each.accuracy + np.sqrt(variance / each.samples) < self.accuracy]
        return sorted(below, key=lambda each: (each.accuracy, -each.samples))


def diagnose(head: Head, X: ArrayLike, y: ArrayLike, *, folds: int | None = None) -> Diagnosis:
    """Compare the predictions of a head with the labels.

    Parameters
    ----------
    head : Head
        A fitted head.
    X, y : arrays
        Features and labels. Samples of classes that the head does not know are not counted.
    folds : int, optional
        Use this for samples that the head was trained on. Each sample is then predicted by a head with the same
        parameters that was trained on the other folds, in one task.

    Examples
    --------
    >>> import taer
    >>> sketches = taer.load_features()
    >>> train, test = sketches.train_y < 5, sketches.test_y < 5
    >>> head = taer.NCM().partial_fit(sketches.train_x[train], sketches.train_y[train])
    >>> found = taer.diagnose(head, sketches.test_x[test], sketches.test_y[test])
    >>> found.samples, len(found.suspects), len(found.weak())
    (100, 15, 2)
    """
    head = copy.copy(head)  # a consistent state, even if another thread teaches it now
    samples: Any = by_position(X, "X")
    labels, classes = np.asarray(by_position(y, "y")), head.classes_.tolist()
    if len(labels) != len(samples):
        raise ValueError(f"expected a label for each sample, got {len(labels)} for {len(samples)}")
    known = np.flatnonzero(np.isin(labels, head.classes_))
    if not len(known):
        raise ValueError("none of the samples is of a class that the head knows")
    judged: list[_Judged] = []
    for judge, rows in [(head, known)] if folds is None else _judges(head, samples, labels, known, folds):
        for part in row_chunks(rows, width=max(samples.shape[1], len(classes))):
            judged.append(_judge(judge, head, samples, labels, rows[part]))
    rows, truth, taken_for, likely, margin = map(np.concatenate, zip(*judged, strict=True))
    order = np.lexsort((margin, likely))  # by margin where the probabilities underflow
    return Diagnosis(
        labels=classes,
        confusion=confusion_matrix(truth, taken_for, np.arange(len(classes))),
        suspects=[
            Suspect(int(rows[i]), classes[truth[i]], classes[taken_for[i]], float(likely[i]))
            for i in order
            if taken_for[i] != truth[i]
        ],
        unknown=len(labels) - len(known),
    )


class _Judged(NamedTuple):
    """Samples with their label, their prediction, and the probability and the margin of their label."""

    rows: np.ndarray
    truth: np.ndarray
    taken_for: np.ndarray
    likely: np.ndarray
    margin: np.ndarray


def _judge(judge: Head, head: Head, samples: Any, labels: np.ndarray, rows: np.ndarray) -> _Judged:
    scores, own = judge.scores(samples[rows]), np.searchsorted(judge.classes_, labels[rows])
    place, of_judge = np.arange(len(rows)), np.searchsorted(head.classes_, judge.classes_)
    return _Judged(
        rows,
        of_judge[own],
        of_judge[scores.argmax(axis=1)],
        judge._probabilities(scores)[place, own],
        scores[place, own] - scores.max(axis=1),
    )


def _judges(
    head: Head, samples: Any, labels: np.ndarray, known: np.ndarray, folds: int
) -> Iterator[tuple[Head, np.ndarray]]:
    """For each fold, a head trained on the other folds, and the samples of the fold whose classes it knows."""
    if not 2 <= folds <= np.unique(labels[known], return_counts=True)[1].max():
        raise ValueError(f"folds must be 2 or more, and some class must have as many samples, got {folds}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of classes with fewer samples than folds, which is fine here
        for rest, fold in StratifiedKFold(folds, shuffle=True, random_state=0).split(known, labels[known]):
            judge = clone(head).fit(select(samples, known[rest]), labels[known[rest]])
            rows = known[fold]
            yield judge, rows[np.isin(labels[rows], judge.classes_)]
