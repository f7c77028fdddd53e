"""Which answers need no person, so that at most a given share of them is wrong: risk control on held-out samples.

Answers are ordered by the log-odds of their class. The sets that are looked at are the most confident ``n``, ``n/r``,
``n/r²``, … of the ``n`` held-out samples. Of a fixed set with an error rate of ``errors``, the number of wrong answers is
binomial; as a set grows sample by sample, it is a random walk. The level of the tests is such that this walk
falls below any of their limits with a probability of ``1 - confidence`` at most, which is computed exactly. So all
sets can be looked at and the largest one that passes be taken. It is assumed that the samples are independent and like
those to come, and that answers do not become more reliable as they become less confident.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.signal import convolve
from scipy.special import expit
from scipy.stats import beta, binom

from taer.heads.numerics import log_sum_exp
from taer.heads.unknowns import above, thresholds_of
from taer.heads.validation import check_labels
from taer.rows import Rows, row_chunks

_RATIO = 1.05  # of the sizes of neighboring sets
_HALVINGS = 16  # of the interval in which the level is looked for


class Cut(NamedTuple):
    """The answers whose confidence is above a threshold."""

    threshold: float  # log-odds
    coverage: float  # share of all held-out samples
    wrong: float  # share of these answers
    at_most: float  # upper bound of the share of wrong answers, for all cuts at once


@dataclass(frozen=True, repr=False)
class Automation:
    """Which answers need no person: those whose log-odds are above ``threshold`` and that are not unknown."""

    errors: float  # the largest share of them that may be wrong
    confidence: float  # the probability that this holds
    threshold: float
    coverage: float  # share of the held-out samples that they are; 0 if nothing could be promised
    samples: int  # held-out
    unknown: int  # of these, above the limit of novelty: always for a person
    curve: tuple[Cut, ...]  # coverage against errors, the smallest set first

    @property
    def probability(self) -> float:
        """The threshold as a probability."""
        return float(expit(self.threshold))

    @property
    def best(self) -> Cut | None:
        """The cut with the fewest errors that can be promised; None if every sample is unknown."""
        return min(self.curve, key=lambda cut: cut.at_most, default=None)

    def sentence(self) -> str:
        """What is promised, in words."""
        if self.coverage == 0:
            best = self.best
            rest = (
                ""
                if best is None
                else f"; the least is {100 * best.at_most:.2g} %, for {100 * best.coverage:.1f} %"
            )
            return f"nothing can be automated: at most {100 * self.errors:g} % of errors cannot be promised{rest}"
        every = self.threshold == -sys.float_info.max
        return (
            f"{100 * self.coverage:.1f} % need no person; at most {100 * self.errors:g} % of these answers are wrong, "
            f"with a confidence of {100 * self.confidence:g} %. They "
            + ("are all that are not unknown" if every else f"have a probability above {self.probability:.4f}")
        )

    def __repr__(self) -> str:
        return f"<Automation: of {self.samples} held-out samples, {self.sentence()}>"


def automate(head: Any, X: Any, y: Any, errors: float, confidence: float, unknown: Any = None) -> Automation:
    """Find the threshold and keep it in the head."""
    found = controlled(*judged(head, X, y, unknown), errors, confidence)
    keep(head, found)
    return found


def judged(head: Any, X: Any, y: Any, unknown: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """The confidence of the answer for each row, and whether it is right."""
    if head._own_novelty and not hasattr(head, "threshold_") and (head.novelties_.tried > 0).any():
        head.novelty_threshold()
    labels, trust = answered(head, X)
    return trust, labels.astype(object) == _truth(head, y, len(labels), unknown)


def keep(head: Any, found: Automation) -> None:
    """Keep the threshold in the head."""
    kept = {name: getattr(found, name) for name in ("errors", "confidence", "threshold", "coverage")}
    head._restore({"automation_": kept})


def automatic(head: Any, X: Any) -> np.ndarray:
    """Which rows need no person."""
    return is_automatic(head, answered(head, X)[1])


def is_automatic(head: Any, trust: np.ndarray) -> np.ndarray:
    """Which answers need no person, by their confidence."""
    if not hasattr(head, "automation_"):
        raise ValueError(
            "the head has no threshold of automation: automate(X, y) finds one and keeps it. It is dropped when the head "
            "changes"
        )
    found: np.ndarray = trust > head.automation_["threshold"]
    return found


def answered(head: Any, X: Any) -> tuple[np.ndarray, np.ndarray]:
    """The answer for each row and its confidence."""
    parts = []
    in_pieces = isinstance(X, np.ndarray | Rows) and X.ndim == 2 and len(X)
    for part in row_chunks(X, max(X.shape[1], len(head.classes_))) if in_pieces else [slice(None)]:
        scores, novelty = head._scores_with_novelty(X[part] if in_pieces else X)
        parts.append((head.classes_[scores.argmax(axis=1)], confidences(head, scores, novelty)))
    labels, trust = map(np.concatenate, zip(*parts, strict=True))
    return labels, trust


def confidences(head: Any, scores: np.ndarray, novelty: np.ndarray) -> np.ndarray:
    """The log-odds of the best class of each row, or -inf if the row is unknown."""
    best, rows = scores.argmax(axis=1), np.arange(len(scores))
    scaled = scores.astype(np.float64) / head.temperature_
    top = scaled[rows, best]
    scaled[rows, best] = -np.inf
    odds = np.full(len(scores), sys.float_info.max) if scores.shape[1] == 1 else top - log_sum_exp(scaled)
    if hasattr(head, "threshold_"):
        odds[above(novelty, thresholds_of(head, head.classes_[best], None))] = -np.inf
    return odds


def controlled(trust: np.ndarray, right: np.ndarray, errors: float, confidence: float) -> Automation:
    """The largest set of the most confident answers of which at most ``errors`` are wrong."""
    check_share("errors", errors)
    check_share("confidence", confidence)
    errors, confidence = float(errors), float(confidence)
    n, fewest = len(trust), needed(errors, confidence)
    if n < fewest:
        raise ValueError(
            f"nothing can be automated with this many samples: at least {fewest} are needed to promise at most "
            f"{100 * errors:g} % of errors with a confidence of {100 * confidence:g} %, got {n}"
        )
    sizes = tuple(_sizes(n, fewest))
    level = corrected_level(sizes, errors, 1 - confidence)
    order = np.argsort(-trust, kind="stable")
    sorted_trust, wrongs = trust[order], np.cumsum(~right[order])
    limits = np.append(sorted_trust, -np.inf)[list(sizes)]
    counts = np.searchsorted(-sorted_trust, -limits, side="left")  # those above the limit; fewer on ties
    counts, first = np.unique(counts, return_index=True)
    counts, first = counts[counts > 0], first[counts > 0]
    limits, wrong = np.maximum(limits[first], -sys.float_info.max), wrongs[counts - 1]
    bounds = upper_bound(wrong, counts, level)
    curve = tuple(map(Cut, *(each.tolist() for each in (limits, counts / n, wrong / counts, bounds))))
    passed = [cut for cut in curve if cut.at_most <= errors]
    threshold, coverage = (passed[-1].threshold, passed[-1].coverage) if passed else (sys.float_info.max, 0.0)
    unknown = int(np.isneginf(trust).sum())
    return Automation(errors, confidence, threshold, coverage, n, unknown, curve)


def needed(errors: float, confidence: float) -> int:
    """The number of samples from which on something can be promised: if all of them are answered rightly."""
    return int(np.ceil(np.log1p(-confidence) / np.log1p(-errors)))


def upper_bound(wrong: Any, count: Any, level: float) -> np.ndarray:
    """Clopper-Pearson bounds of error rates, each of which is above its rate with the probability ``1 - level``."""
    right = np.asarray(count - wrong)
    found: np.ndarray = np.where(right == 0, 1.0, beta.ppf(1 - level, wrong + 1, np.maximum(right, 1)))
    return found


@cache
def corrected_level(sizes: tuple[int, ...], rate: float, level: float) -> float:
    """The level of each test so that any of them fails with the probability ``level`` if all answers err at this rate."""
    if _any_passes(sizes, rate, level) <= level:
        return level
    low, high = np.log(level / len(sizes)), np.log(level)  # the lower one is Bonferroni's
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _any_passes(sizes, rate, np.exp(middle)) <= level else (low, middle)
    return float(np.exp(low))


def _any_passes(sizes: tuple[int, ...], rate: float, level: float) -> float:
    """The probability that the number of errors in any of the growing sets is so small that its test passes."""
    limits = _most_errors(np.array(sizes), rate, level)
    width = limits[-1] + 1  # walks with more errors never pass, as the limits only grow
    if width < 1:
        return 0.0
    still, passed, before = np.ones(1), 0.0, 0
    for size, limit in zip(sizes, limits, strict=True):
        step = binom.pmf(np.arange(width), size - before, rate)
        still = np.maximum(convolve(still, step)[:width], 0)
        passed += float(still[: limit + 1].sum())
        still[: limit + 1] = 0
        before = size
    return passed


def _most_errors(sizes: np.ndarray, rate: float, level: float) -> list[int]:
    """The most errors with which each test passes; -1 if it never does."""
    found = binom.ppf(level, sizes, rate)  # the first number whose probability, with all below, reaches the level
    return (found - (binom.cdf(found, sizes, rate) > level)).astype(int).tolist()


def _sizes(n: int, fewest: int) -> list[int]:
    found, size = [], float(n)
    while round(size) >= fewest:
        found.append(round(size))
        size = min(size / _RATIO, round(size) - 1)
    return found[::-1]


def _truth(head: Any, y: Any, n_rows: int, unknown: Any) -> np.ndarray:
    """The labels, all of which the head must know; None in place of ``unknown``."""
    known = head.classes_
    if unknown is not None and unknown in known.tolist():
        raise ValueError(f"unknown must not be one of the classes, and {unknown!r} is")
    if unknown is None:
        labels, none = check_labels(y, n_rows, known), np.zeros(n_rows, bool)
    else:
        given = np.asarray(y, object)
        if given.shape != (n_rows,):
            raise ValueError(f"X and y have inconsistent numbers of samples: {n_rows} and {len(given)}")
        none = np.array([label == unknown for label in given.tolist()])
        labels = check_labels(given[~none].tolist(), int((~none).sum()), known)
    if strange := np.setdiff1d(labels, known).tolist():
        raise ValueError(
            f"{strange[0]!r} is not a known class; leave its samples out, or, if such samples will come, give them all "
            "one label and name it as unknown"
        )
    found = np.full(n_rows, None, object)
    found[~none] = labels
    return found


def check_share(name: str, value: Any) -> None:
    """Raise ValueError unless a number can be a share of errors, or a confidence."""
    if not isinstance(value, int | float | np.integer | np.floating) or not 0 < value < 1:
        raise ValueError(f"{name} must be above 0 and below 1, got {value}")
