"""Is a new version of a head better? Both answer the same samples, which neither has learned."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from taer.heads import Head
from taer.heads.validation import check_labels, kind_of_labels

TOLERANCE = 0.01  # how much worse "not worse" may be
ENOUGH = 30  # comparisons below which nothing is decided
_Z = 1.6448536269514722  # one-sided 95 %


@dataclass(frozen=True)
class Difference:
    """A sample that the two versions answer differently."""

    row: int
    truth: Any
    before: Any
    after: Any


@dataclass(frozen=True)
class Losing:
    """A class of which fewer samples are answered right than before."""

    label: Any
    samples: int
    before: int  # right answers
    after: int


@dataclass(frozen=True)
class Comparison:
    """Two versions on the same samples. Accuracies are on samples of classes that both know."""

    compared: int
    before: float | None  # accuracy; None without samples
    after: float | None
    gained: int  # samples that only the new version answers right
    lost: int  # samples that only the old version answers right
    at_least: float | None  # the change of the accuracy, with 95 % confidence each
    at_most: float | None
    new_classes: list[Any]
    new_compared: int  # samples of new classes
    new_accuracy: float | None
    moved: bool  # whether the score of an old class changed on one of the samples
    differing: list[Difference]  # of all samples
    losing: list[Losing]

    @property
    def not_worse(self) -> bool | None:
        """Whether the accuracy fell by less than a point, with 95 % confidence; None with too few comparisons."""
        if self.compared < ENOUGH or self.at_least is None:
            return None
        return self.at_least > -TOLERANCE

    def sentence(self) -> str:
        """The comparison in words."""
        if self.before is None or self.after is None or self.at_least is None or self.at_most is None:
            return "nothing was held out of the classes that both versions know, so nothing can be compared"
        words = (
            f"{100 * self.before:.1f} % right before, {100 * self.after:.1f} % after, on {self.compared} held-out "
            "examples of classes that both know"
        )
        if self.not_worse is not None:
            words += f" (change {100 * self.at_least:+.1f} to {100 * self.at_most:+.1f} points)"
        if not self.moved and self.new_classes:
            words += "; no old score moved, so an answer can change only where a new class wins"
        if self.not_worse is None:
            words += f"; fewer than {ENOUGH} comparisons decide nothing"
        return words


def compare(old: Head, new: Head, X: ArrayLike, y: ArrayLike) -> Comparison:
    """Compare two versions of a head on samples that neither has learned.

    Samples of classes that only the new version knows are counted apart: the old one cannot answer them, so they would
    hide what the others lose.

    Examples
    --------
    >>> import copy, taer
    >>> sketches = taer.load_features()
    >>> X, y = sketches.train_x, sketches.train_y
    >>> old = taer.Bayes(random_state=0).partial_fit(X[y < 5], y[y < 5])
    >>> new = copy.deepcopy(old).partial_fit(X[y == 5], y[y == 5])
    >>> rows = sketches.test_y < 6
    >>> found = compare(old, new, sketches.test_x[rows], sketches.test_y[rows])
    >>> found.compared, found.new_compared, found.moved
    (100, 20, False)
    >>> {difference.after for difference in found.differing}
    {5}
    """
    X = np.asarray(X)
    if (shape := np.shape(y)) != (len(X),):
        raise ValueError(f"expected one label per sample, got {len(X)} samples and labels of shape {shape}")
    kinds = kind_of_labels(old.classes_), kind_of_labels(new.classes_)
    if kinds[0] != kinds[1]:
        raise ValueError(
            f"the labels of the old head are {kinds[0]} and those of the new one {kinds[1]}, so no class is known to both"
        )
    known, learned = set(old.classes_.tolist()), set(new.classes_.tolist())
    if not len(X):
        empty = [label for label in new.classes_.tolist() if label not in known]
        return Comparison(0, None, None, 0, 0, None, None, empty, 0, None, False, [], [])
    truth = check_labels(y, len(X), old.classes_)
    scores = old.scores(X), new.scores(X)
    answers = [head.classes_[found.argmax(axis=1)] for head, found in zip((old, new), scores, strict=True)]
    both = [label for label in old.classes_.tolist() if label in learned]
    columns = [np.searchsorted(head.classes_, both) for head in (old, new)]
    moved = bool((scores[0][:, columns[0]] != scores[1][:, columns[1]]).any())
    right = [answer == truth for answer in answers]
    common = np.isin(truth, both)
    gained, lost = int((right[1] & ~right[0])[common].sum()), int((right[0] & ~right[1])[common].sum())
    count = int(common.sum())
    fresh = np.isin(truth, [label for label in learned if label not in known])
    return Comparison(
        count,
        float(right[0][common].mean()) if count else None,
        float(right[1][common].mean()) if count else None,
        gained,
        lost,
        lower_bound(gained, lost, count) if count else None,
        -lower_bound(lost, gained, count) if count else None,
        [label for label in new.classes_.tolist() if label not in known],
        int(fresh.sum()),
        float(right[1][fresh].mean()) if fresh.any() else None,
        moved,
        [
            Difference(int(row), *(part[row].item() for part in (truth, *answers)))
            for row in np.flatnonzero(answers[0] != answers[1])
        ],
        _losing(truth[common], right[0][common], right[1][common]),
    )


def _losing(truth: np.ndarray, before: np.ndarray, after: np.ndarray) -> list[Losing]:
    """Classes with fewer right answers than before, those that lose most first."""
    samples = Counter(truth.tolist())
    counts = [Counter(truth[right].tolist()) for right in (before, after)]
    found = [Losing(label, n, counts[0][label], counts[1][label]) for label, n in samples.items()]
    return sorted(
        (one for one in found if one.after < one.before), key=lambda one: (one.after - one.before) / one.samples
    )


def lower_bound(gained: int, lost: int, count: int) -> float:
    """The least change of a paired proportion that is compatible with the counts: one-sided, 95 %, by Tango's score.

    Unlike a bound from the standard deviation it does not claim certainty when no answer differs: then it is
    −2.7 / (count + 2.7), so that a point of difference is excluded by 268 comparisons.

    References
    ----------
    T. Tango, "Equivalence test and confidence interval for the difference in proportions for the paired-sample design",
    Statistics in Medicine 17, 1998.

    Examples
    --------
    >>> round(lower_bound(0, 0, 268), 4), round(lower_bound(5, 1, 100), 4)
    (-0.01, -0.0004)
    """
    low, high = -1.0, (gained - lost) / count
    for _ in range(60):  # of bisection
        middle = (low + high) / 2
        low, high = (low, middle) if _score(middle, gained, lost, count) < _Z else (middle, high)
    return low


def _score(change: float, gained: int, lost: int, count: int) -> float:
    """How many standard errors the counts are above a change of the proportion, which is below theirs."""
    linear = (2 * count - gained + lost) * change - gained - lost
    constant = -lost * change * (1 - change)
    losing = (math.sqrt(max(0.0, linear**2 - 8 * count * constant)) - linear) / (4 * count)
    variance = count * (2 * losing + change * (1 - change))
    return (gained - lost - count * change) / math.sqrt(variance) if variance > 0 else math.inf
