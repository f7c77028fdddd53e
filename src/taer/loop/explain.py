"""Why a head answered as it did: the runner-up, how usual the sample is for both classes, and examples of them.

Everything is measured in the space of the prior, in which samples scatter around their class mean by one in every
direction. There is no list of features that mattered: the features of a frozen model have no names, and the score of a
class is not a sum over them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from taer.heads.unknowns import above, thresholds_of
from taer.heads.validation import check_features, check_labels
from taer.rows import row_chunks, select


class Example(NamedTuple):
    """A sample near the explained one."""

    row: int  # among the given examples, or among the samples that the head keeps
    distance: float  # two samples of one class mostly have 0.5 to 1


@dataclass(frozen=True)
class Candidate:
    """A class that was considered."""

    label: Any
    probability: float
    score: float
    distance: float  # from the center of the class, in units of its spread: its own samples mostly have 0.5 to 1
    examples: tuple[Example, ...]  # the nearest first


@dataclass(frozen=True)
class Explanation:
    """An answer, and the reasons for it."""

    answer: Candidate
    runner_up: Candidate | None  # None if the head knows one class
    novelty: float
    limit: float | None  # of novelty; None if the head has no threshold
    unknown: bool | None  # whether the sample is above it
    # Share of the answered class's samples that looked at least as novel before they were learned
    as_novel: float | None

    @property
    def ahead(self) -> float | None:
        """By how much the score of the answer is above that of the runner-up."""
        return None if self.runner_up is None else self.answer.score - self.runner_up.score

    def __str__(self) -> str:
        lines = [_described(self.answer)]
        if self.runner_up is not None:
            lines[0] += f", ahead of {_described(self.runner_up)} by a score of {self.ahead:.3g}"
        if self.limit is not None:
            place = "above" if self.unknown else "at or below"
            verdict = "unknown" if self.unknown else "known"
            lines.append(f"{verdict}: the novelty {self.novelty:.4g} is {place} the limit {self.limit:.4g}")
        if self.as_novel is not None:
            lines[-1] += (
                f"; {100 * self.as_novel:.0f} % of the samples of {self.answer.label} looked at least as novel"
            )
        lines.append(
            "distance from the center, in units of the spread: "
            + ", ".join(
                f"{each.label} {each.distance:.2f}" for each in (self.answer, self.runner_up) if each is not None
            )
        )
        return "\n".join(lines)


def _described(one: Candidate) -> str:
    return f"{one.label} ({100 * one.probability:.1f} %)"


def explained(head: Any, X: Any, examples: Any, count: Any) -> list[Explanation]:
    """The explanations of validated rows."""
    if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
        raise ValueError(f"count must be a whole number from 1 on, got {count!r}")
    find = _finder(head, examples, int(count))
    found = []
    for part in row_chunks(X, max(X.shape[1], len(head.classes_))):
        found += _of_rows(head, np.asarray(X[part]), find)
    return found


Find = Callable[[np.ndarray, int], tuple[Example, ...]]  # the examples of a class, by its number, nearest to a row


def _of_rows(head: Any, X: np.ndarray, find: Find) -> list[Explanation]:
    scores, novelty = head._scores_with_novelty(X)
    probabilities, limited = head._probabilities(scores), hasattr(head, "threshold_")
    best = scores.argmax(axis=1)
    others = scores.copy()
    others[np.arange(len(X)), best] = -np.inf
    second = others.argmax(axis=1)
    limits = np.broadcast_to(thresholds_of(head, head.classes_[best], None) if limited else np.inf, len(X))
    unknown = above(novelty, limits)
    space = head.prior_(head.embedding_(X))
    found = []
    for row in range(len(X)):
        columns = [best[row], second[row]] if scores.shape[1] > 1 else [best[row]]
        numbers = head.arrival_[columns]
        densities = head.densities_.scores(space.at(slice(row, row + 1)), numbers)[0]
        candidates = [
            Candidate(
                label=head.classes_[column].item(),
                probability=probabilities[row, column].item(),
                score=scores[row, column].item(),
                distance=_distance(head, number, density),
                examples=find(space.rows[row], int(number)),
            )
            for column, number, density in zip(columns, numbers, densities, strict=True)
        ]
        found.append(
            Explanation(
                answer=candidates[0],
                runner_up=candidates[1] if len(candidates) > 1 else None,
                novelty=novelty[row].item(),
                limit=float(limits[row]) if limited else None,
                unknown=bool(unknown[row]) if limited else None,
                as_novel=_as_novel(head, numbers[0], novelty[row]),
            )
        )
    return found


def _distance(head: Any, number: int, density: float) -> float:
    """From the center, in units of the spread. The score is ``height - d·log(1 + r / d)``, r a squared distance."""
    d = head.n_features_in_
    return float(np.sqrt(max(0.0, np.expm1((head.densities_.heights[number] - density) / d))))


def _as_novel(head: Any, number: int, novelty: float) -> float | None:
    """The share of the samples of a class that looked as novel, from the quantiles that the head keeps."""
    kept = head.novelties_
    return float(np.mean(kept.novelties[number] >= novelty)) if kept.tried[number] else None


def _finder(head: Any, examples: Any, count: int) -> Find:
    if examples is not None:
        rows_of = _given(head, *examples)
    elif hasattr(head, "kept_"):
        rows_of = _kept(head)
    else:
        return lambda row, number: ()
    found: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def find(row: np.ndarray, number: int) -> tuple[Example, ...]:
        places, rows = found[number] if number in found else found.setdefault(number, rows_of(number))
        distances = np.square(rows - row).sum(axis=1)
        nearest = np.argsort(distances, kind="stable")[:count]
        scaled = np.sqrt(distances[nearest] / (2 * len(row)))
        return tuple(map(Example, places[nearest].tolist(), scaled.tolist()))

    return find


RowsOf = Callable[[int], tuple[np.ndarray, np.ndarray]]  # places and rows of a class in the space of the prior


def _given(head: Any, X: Any, y: Any) -> RowsOf:
    rows = check_features(head, X, reset=False)
    labels = check_labels(y, len(rows), head.classes_)

    def rows_of(number: int) -> tuple[np.ndarray, np.ndarray]:
        places = np.flatnonzero(labels == head.learning_order_[number].label)
        return places, head.prior_(head.embedding_(np.asarray(select(rows, places)))).rows

    return rows_of


def _kept(head: Any) -> RowsOf:
    def rows_of(number: int) -> tuple[np.ndarray, np.ndarray]:
        places = np.flatnonzero(head.kept_.y == number)
        return places, head.kept_.taken(places).space()

    return rows_of
