"""The discriminative part of ``bayes-replay``: a linear correction of scores, and how strong it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.linalg import solve
from scipy.optimize import minimize

from taer.heads import exact
from taer.heads.base import grown, log_sum_exp
from taer.heads.closed_form.calibration import best_temperature
from taer.heads.closed_form.selection import evenly

ENOUGH = 10  # kept samples of a class from which a correction is learned: with fewer it does harm
LEAST_CLASSES = 8  # in the first task, for a choice by held-out samples
_STEPS = 15  # of L-BFGS
_BIAS = 1e-3  # penalty of the bias, as a fraction of that of the weights
_APART = 8.0  # logarithm of the odds beyond which a correction changes nothing
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
class Corrections:
    """What is added to the scores of ``bayes``, in units of its temperature: ``weights · z + biases`` of each class."""

    kind: ClassVar[str] = "bayes-corrections"

    weights: np.ndarray
    biases: np.ndarray
    counted: np.ndarray  # whether the class is in the log Σ exp of the kept samples
    scale: float  # of the scores of ``bayes``
    penalty: float  # with which corrections are learned
    softened: float  # temperature of the corrected scores, in units of that of ``bayes``

    @classmethod
    def none(cls, width: int) -> Self:
        """No classes."""
        return cls(np.zeros((0, width), np.float32), np.zeros(0), np.zeros(0, np.bool_), *CAREFUL, 1.0)

    def __len__(self) -> int:
        return len(self.biases)

    def cleared(self, classes: np.ndarray, n_classes: int) -> Self:
        """With no corrections of some classes, which are not counted either; numbers beyond the last are new ones."""
        grown_: dict[str, Any] = {name: grown(getattr(self, name), n_classes) for name in _BY_CLASS}
        for values in grown_.values():
            values[classes] = 0
        return replace(self, **grown_)

    def learned(self, classes: np.ndarray, columns: np.ndarray) -> Self:
        """With columns of some classes, whose last entries are biases; all classes are then counted."""
        weights, biases = self.weights.copy(), self.biases.copy()
        weights[classes], biases[classes] = exact.rounded(columns[:, :-1], np.float32), columns[:, -1]
        return replace(self, weights=weights, biases=biases, counted=np.ones_like(self.counted))

    def without(self, label: int) -> Self:
        left: dict[str, Any] = {name: np.delete(getattr(self, name), label, axis=0) for name in _BY_CLASS}
        return replace(self, **left)

    def check(self, width: int, n_classes: int) -> None:
        """Raise ValueError unless these are corrections of so many classes and features."""
        shapes = {"weights": (n_classes, width), "biases": (n_classes,), "counted": (n_classes,)}
        kinds = {"weights": "float32", "biases": "float64", "counted": "bool"}
        for name, shape in shapes.items():
            value = getattr(self, name)
            if value.shape != shape or value.dtype != kinds[name] or not np.isfinite(value).all():
                raise ValueError(f"{name}: expected finite numbers of the shape {shape}")
        if not all(0 < value < np.inf for value in (self.scale, self.penalty, self.softened)):
            raise ValueError("expected a scale, a penalty and a temperature above zero")

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {each.name: np.asarray(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        numbers: dict[str, Any] = {name: float(arrays[name]) for name in ("scale", "penalty", "softened")}
        return cls(**{**arrays, **numbers})


_BY_CLASS = ("weights", "biases", "counted")


class Problem(NamedTuple):
    """Samples whose scores of some classes are corrected; the scores of all other classes are one constant each."""

    space: np.ndarray
    base: np.ndarray  # scores of the classes without a correction, in units of the temperature
    target: np.ndarray  # number among these classes, -1 for another class
    weight: np.ndarray
    rest: np.ndarray | None = None  # log Σ exp of the scores of the other classes

    @property
    def matters(self) -> np.ndarray:
        """Which samples say something: those of the classes, and others that a correction could give to them."""
        rest = -np.inf if self.rest is None else self.rest
        found: np.ndarray = (self.target >= 0) | (self.base.max(axis=1) > rest - _APART)
        return found

    def picked(self, rows: np.ndarray) -> Problem:
        rest = None if self.rest is None else self.rest[rows]
        return Problem(self.space[rows], self.base[rows], self.target[rows], self.weight[rows], rest)


def balanced(y: np.ndarray, total: float) -> np.ndarray:
    """Weights of a given sum with which every class counts the same. So old classes together weigh λ = old / all."""
    counts = np.bincount(y)
    weights: np.ndarray = (total / np.count_nonzero(counts) / np.maximum(counts, 1))[y]
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


def first_columns(problem: Problem, state: Corrections) -> tuple[Corrections, np.ndarray]:
    """The choice of how strong corrections are, and those of the first classes among each other."""
    problem = problem.picked(problem.target >= 0)._replace(rest=None)
    (scale, penalty), softened = chosen_strength(problem)
    scaled = problem._replace(base=scale * problem.base)
    columns = in_place(scaled, learned_columns(scaled, penalty), penalty)
    return replace(state, scale=scale, penalty=penalty, softened=softened), columns


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
