"""The discriminative part of ``bayes-replay``: kept samples, and a linear correction of scores that is learned on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.linalg import solve
from scipy.optimize import minimize

from taer.heads.base import log_sum_exp
from taer.heads.closed_form.calibration import best_temperature
from taer.heads.closed_form.selection import evenly

ENOUGH = 10  # kept samples of a class from which a correction is learned: with fewer it does harm
LEAST_CLASSES = 8  # in the first task, for a choice by held-out samples
_STEPS = 15  # of L-BFGS
_BIAS = 1e-3  # penalty of the bias, as a fraction of that of the weights
_FOLDS = 4  # of the samples, held out in turn
_TRIAL_ROWS = 10_000
_SURE = 2.0  # standard errors by which another strength than the default must be better


class Strength(NamedTuple):
    """How far to go from ``bayes`` (a scale of 1 and a large penalty) to logistic regression (0 and a small one)."""

    scale: float  # of the scores of ``bayes``
    penalty: float  # of the squared weights, in units of the summed log loss


DEFAULT = Strength(0.7, 300.0)
BOLD = Strength(0.5, 100.0)  # where held-out samples ask for it
CAREFUL = Strength(1.0, 1000.0)  # where there are too few classes to ask


@dataclass(frozen=True)
class KeptSamples:
    """Samples in the space of the prior, in int8 with a scale each, and what never changes about their scores."""

    kind: ClassVar[str] = "kept-samples"

    rows: np.ndarray  # int8
    scales: np.ndarray
    y: np.ndarray  # numbers of the classes
    own: np.ndarray  # scores of ``bayes`` for the own class, learned without the sample
    logs: np.ndarray  # log Σ exp of the scores of all classes, in units of the temperature

    @classmethod
    def of(cls, space: np.ndarray, y: np.ndarray, own: np.ndarray) -> Self:
        scales = np.maximum(np.abs(space).max(axis=1, initial=0), 1e-30).astype(np.float32) / np.float32(127)
        rows = np.rint(space / scales[:, None]).clip(-127, 127).astype(np.int8)
        return cls(rows, scales, y.astype(np.int64), own.astype(np.float32), np.zeros(len(y)))

    def __len__(self) -> int:
        return len(self.y)

    def space(self) -> np.ndarray:
        return self.rows * self.scales[:, None]

    def counts(self, n_classes: int) -> np.ndarray:
        return np.bincount(self.y, minlength=n_classes)

    def plus(self, other: Self) -> Self:
        return self._each(lambda one, two: np.concatenate([one, two]), other)

    def taken(self, rows: np.ndarray) -> Self:
        return self._each(lambda one, _: one[rows], self)

    def _each(self, made: Any, other: Self) -> Self:
        names = [part.name for part in fields(self)]
        return type(self)(**{name: made(getattr(self, name), getattr(other, name)) for name in names})

    def with_logs(self, logs: np.ndarray) -> Self:
        return replace(self, logs=logs)

    def without(self, label: int) -> Self:
        left = self.taken(self.y != label)
        return replace(left, y=left.y - (left.y > label))

    def minus(self, other: Self) -> Self:
        """Without the samples that the other has, too; each of its samples counts once."""
        gone, left = Counter(other._keys()), []
        for at, key in enumerate(self._keys()):
            if gone[key] > 0:
                gone[key] -= 1
            else:
                left.append(at)
        return self.taken(np.array(left, np.int64))

    def _keys(self) -> list[tuple[int, bytes, bytes]]:
        parts = zip(self.y.tolist(), self.rows, self.scales, strict=True)
        return [(label, row.tobytes(), scale.tobytes()) for label, row, scale in parts]

    def limited(self, most: int | None) -> Self:
        """At most so many of each class, evenly spaced in the order in which they came."""
        if most is None or not len(self):
            return self
        chosen = [evenly(np.flatnonzero(self.y == label), most) for label in np.unique(self.y)]
        return self.taken(np.sort(np.concatenate(chosen)))

    def check(self, width: int, n_classes: int) -> None:
        """Raise ValueError unless these are samples of so many features and classes."""
        n = len(self.rows)
        if self.rows.shape != (n, width) or self.rows.dtype != np.int8:
            raise ValueError(f"rows: expected int8 of the shape ({n}, {width})")
        if (
            self.y.shape != (n,)
            or self.y.dtype != np.int64
            or (n and not 0 <= self.y.min() <= self.y.max() < n_classes)
        ):
            raise ValueError(f"y: expected {n} whole numbers from 0 to {n_classes - 1}")
        for name in ("scales", "own", "logs"):
            value = getattr(self, name)
            if value.shape != (n,) or value.dtype.kind != "f" or not np.isfinite(value).all():
                raise ValueError(f"{name}: expected {n} finite numbers")
        if (self.scales <= 0).any():
            raise ValueError("scales: expected numbers above zero")

    def to_arrays(self) -> dict[str, np.ndarray]:
        return dict(vars(self))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        return cls(**arrays)


class Problem(NamedTuple):
    """Samples whose scores of some classes are corrected; the scores of all other classes are one constant each."""

    space: np.ndarray
    base: np.ndarray  # scores of the classes without a correction, in units of the temperature
    target: np.ndarray  # number among these classes, -1 for another class
    weight: np.ndarray
    rest: np.ndarray | None = None  # log Σ exp of the scores of the other classes

    def picked(self, rows: np.ndarray) -> Problem:
        rest = None if self.rest is None else self.rest[rows]
        return Problem(self.space[rows], self.base[rows], self.target[rows], self.weight[rows], rest)


def balanced(y: np.ndarray) -> np.ndarray:
    """Weights with which every class counts the same, of mean 1. So old classes together weigh λ = old / all."""
    counts = np.bincount(y)
    weights: np.ndarray = (len(y) / np.count_nonzero(counts) / np.maximum(counts, 1))[y]
    return weights


def corrected(problem: Problem, columns: np.ndarray) -> np.ndarray:
    """Scores with a correction; the last entry of a column is its bias."""
    scores: np.ndarray = problem.base + problem.space @ columns[:, :-1].T + columns[:, -1]
    return scores


def learned_columns(problem: Problem, penalty: float) -> np.ndarray:
    """The correction with the lowest cross-entropy plus penalty; one column per class."""
    rows = np.column_stack([problem.space, np.ones(len(problem.space))]).astype(np.float32)
    base, weight = problem.base.astype(np.float32), problem.weight.astype(np.float32)
    mine = np.flatnonzero(problem.target >= 0)
    own = problem.target[mine]
    ridge = np.full(rows.shape[1], penalty, np.float32)
    ridge[-1] *= _BIAS
    rest = None if problem.rest is None else problem.rest.astype(np.float32)

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        columns = values.reshape(base.shape[1], -1).astype(np.float32)
        scores = rows @ columns.T + base
        top = scores.max(axis=1) if rest is None else np.maximum(scores.max(axis=1), rest)
        of_own = weight[mine] @ scores[mine, own]
        p = np.exp(scores - top[:, None])
        total = p.sum(axis=1) if rest is None else p.sum(axis=1) + np.exp(rest - top)
        p *= (weight / total)[:, None]
        p[mine, own] -= weight[mine]
        loss = weight @ (top + np.log(total)) - of_own + 0.5 * (ridge * np.square(columns)).sum()
        return float(loss), (p.T @ rows + ridge * columns).ravel().astype(np.float64)

    start = np.zeros(base.shape[1] * rows.shape[1])
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    columns: np.ndarray = found.x.reshape(base.shape[1], -1)
    return columns


def in_place(problem: Problem, columns: np.ndarray, penalty: float) -> np.ndarray:
    """Columns less what all have in common, so that the classes together score as without a correction.

    A vector that is subtracted from all columns changes nothing among these classes, but classes that come later compare
    with the log Σ exp of their scores. The vector is the ridge regression of its change.
    """
    change = log_sum_exp(corrected(problem, columns)) - log_sum_exp(problem.base)
    rows = np.column_stack([problem.space, np.ones(len(problem.space))]).astype(np.float64)
    ridge = np.full(rows.shape[1], penalty)
    ridge[-1] *= _BIAS
    weighted = rows * problem.weight[:, None]
    common: np.ndarray = solve(weighted.T @ rows + np.diag(ridge), weighted.T @ change, assume_a="pos")
    return columns - common


def chosen_strength(problem: Problem) -> tuple[Strength, float]:
    """How strong corrections are, and the temperature of the corrected scores, by held-out samples.

    The strength is the default, unless the bold one has a higher accuracy by two standard errors.
    """
    if problem.base.shape[1] < LEAST_CLASSES:
        return CAREFUL, 1.0
    some = problem.picked(evenly(np.argsort(problem.target, kind="stable"), _TRIAL_ROWS))
    scores = {strength: _held_out_scores(some, strength) for strength in (DEFAULT, BOLD)}
    right = {strength: found.argmax(axis=1) == some.target for strength, found in scores.items()}
    gain = some.weight * (right[BOLD].astype(np.float64) - right[DEFAULT])
    chosen = BOLD if gain.mean() > _SURE * gain.std() / np.sqrt(len(gain)) else DEFAULT
    return chosen, best_temperature(scores[chosen], some.target, some.weight)


def _held_out_scores(problem: Problem, strength: Strength) -> np.ndarray:
    """Scores of samples, sorted by class, with a correction that is learned without them."""
    folds = (np.arange(len(problem.target)) - np.searchsorted(problem.target, problem.target)) % _FOLDS
    scaled, scores = problem._replace(base=strength.scale * problem.base), np.empty(problem.base.shape)
    for fold in range(_FOLDS):
        columns = learned_columns(scaled.picked(folds != fold), strength.penalty)
        scores[folds == fold] = corrected(scaled.picked(folds == fold), columns)
    return scores
