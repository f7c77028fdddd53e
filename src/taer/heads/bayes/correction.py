"""The discriminative part of ``bayes-replay``: a linear correction of scores, and how strong it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.linalg import solve
from scipy.optimize import minimize, minimize_scalar

from taer.heads import exact
from taer.heads.bayes.constants import (
    BIAS,
    BOLD,
    BOLDER,
    CAREFUL,
    CHOICE_ROWS,
    DEFAULT,
    HALVES,
    HOPELESS,
    NEW,
    STEPS,
    Strength,
)
from taer.heads.closed_form.calibration import best_temperature, log_losses
from taer.heads.closed_form.selection import evenly
from taer.heads.numerics import grown, log_sum_exp


@dataclass(frozen=True)
class Corrections:
    """What makes the scores of ``bayes`` those of ``bayes-replay``, in units of its temperature.

    A class with a correction has the score ``scale · bayes + lift · blank + weights · z + bias``, with the score of a
    class without samples as ``blank``. A class without one has ``softened · bayes``.
    """

    kind: ClassVar[str] = "bayes-corrections"

    weights: np.ndarray
    biases: np.ndarray
    counted: np.ndarray  # whether the class is in the log Σ exp of the kept samples
    has: np.ndarray  # whether the class has a correction
    scale: float  # of the scores of ``bayes``
    lift: float  # of the score of a class without samples
    penalty: float  # with which corrections are learned
    softened: float  # temperature of all scores, in units of that of ``bayes``

    @classmethod
    def none(cls, width: int) -> Self:
        """No classes."""
        return cls(
            np.zeros((0, width), np.float32),
            np.zeros(0),
            np.zeros(0, np.bool_),
            np.zeros(0, np.bool_),
            1.0,
            0.0,
            CAREFUL.penalty,
            1.0,
        )

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
        weights, biases, has = self.weights.copy(), self.biases.copy(), self.has.copy()
        weights[classes], biases[classes] = exact.rounded(columns[:, :-1], np.float32), columns[:, -1]
        has[classes] = True
        return replace(self, weights=weights, biases=biases, has=has, counted=np.ones_like(self.counted))

    def base(self, plain: np.ndarray, blank: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """Scores without the linear part, from those of ``bayes`` for some classes and for one without samples."""
        scales, lifts = self.factors(classes)
        found: np.ndarray = scales * plain + lifts * blank[:, None]
        return found

    def factors(self, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of the scores of ``bayes`` and of a class without samples, in the scores of some classes."""
        has = self.has[classes]
        return np.where(has, self.scale, self.softened), np.where(has, self.lift, 0.0)

    def without(self, label: int) -> Self:
        left: dict[str, Any] = {name: np.delete(getattr(self, name), label, axis=0) for name in _BY_CLASS}
        return replace(self, **left)

    def check(self, width: int, n_classes: int) -> None:
        """Raise ValueError unless these are corrections of so many classes and features."""
        shapes = {
            "weights": (n_classes, width),
            "biases": (n_classes,),
            "counted": (n_classes,),
            "has": (n_classes,),
        }
        kinds = {"weights": "float32", "biases": "float64", "counted": "bool", "has": "bool"}
        for name, shape in shapes.items():
            value = getattr(self, name)
            if value.shape != shape or value.dtype != kinds[name] or not np.isfinite(value).all():
                raise ValueError(f"{name}: expected finite numbers of the shape {shape}")
        if not all(0 < value < np.inf for value in (self.scale, self.penalty, self.softened)):
            raise ValueError("expected a scale, a penalty and a temperature above zero")
        if not np.isfinite(self.lift):
            raise ValueError("lift: expected a finite number")

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {each.name: np.asarray(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        numbers: dict[str, Any] = {name: float(arrays[name]) for name in ("scale", "lift", "penalty", "softened")}
        return cls(**{**arrays, **numbers})


_BY_CLASS = ("weights", "biases", "counted", "has")


class Problem(NamedTuple):
    """Samples whose scores of some classes are corrected; the scores of all other classes are one constant each."""

    space: np.ndarray
    base: np.ndarray  # scores of the classes without a correction, in units of the temperature
    target: np.ndarray  # number among these classes, -1 for another class
    weight: np.ndarray
    blank: np.ndarray  # scores of a class without samples
    rest: np.ndarray | None = None  # log Σ exp of the scores of the other classes

    @property
    def matters(self) -> np.ndarray:
        """Which samples say something: those of the classes, and others that a correction could give to them."""
        rest = -np.inf if self.rest is None else self.rest
        found: np.ndarray = (self.target >= 0) | (self.base.max(axis=1) > rest - HOPELESS)
        return found

    def picked(self, rows: np.ndarray) -> Problem:
        return Problem(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]


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
    ridge[-1] *= BIAS
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
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
    columns: np.ndarray = found.x.reshape(base.shape[1], -1)
    return columns


def in_place(problem: Problem, scores: np.ndarray, softened: float, penalty: float) -> np.ndarray:
    """What is subtracted from corrected scores, so that all classes together score as in ``bayes``.

    A function that is subtracted from all scores changes nothing among these classes, but classes without a correction
    compare with their log Σ exp. It is the ridge regression of the change of the log Σ exp on the samples, on the score
    of a class without samples and on 1. A sample stands for one of a new class, too: then its own class is left out.
    """
    rows = np.arange(len(scores))

    def together(values: np.ndarray) -> np.ndarray:
        others = values.copy()
        others[rows, problem.target] = -np.inf
        return (1 - NEW) * log_sum_exp(values) + NEW * log_sum_exp(others)

    change = softened * (together(scores / softened) - together(problem.base))
    terms = np.column_stack([problem.space, problem.blank, np.ones(len(rows))]).astype(np.float64)
    ridge = np.append(np.ones(problem.space.shape[1]), [BIAS, BIAS])
    weighted = terms * problem.weight[:, None]
    found: np.ndarray = solve(weighted.T @ terms + penalty * np.diag(ridge), weighted.T @ change, assume_a="pos")
    return found


def first_corrections(problem: Problem, state: Corrections) -> tuple[Corrections, np.ndarray]:
    """How strong corrections are, and the columns of the first classes."""
    problem = problem.picked(problem.target >= 0)._replace(rest=None)
    strength, softened = chosen_strength(problem)
    scaled = problem._replace(base=strength.scale * problem.base)
    columns = learned_columns(scaled, strength.penalty)
    common = in_place(problem, corrected(scaled, columns), softened, strength.penalty)
    found = replace(
        state, scale=strength.scale, penalty=strength.penalty, softened=softened, lift=-float(common[-2])
    )
    return found, columns - np.delete(common, -2)


def chosen_strength(problem: Problem) -> tuple[Strength, float]:
    """How strong corrections are, and the temperature of the corrected scores, by held-out samples.

    The strength is the default, unless the bold one has a lower log loss by two standard errors, each at its own best
    temperature.
    """
    some = problem.picked(evenly(np.argsort(problem.target, kind="stable"), CHOICE_ROWS))
    scores = {strength: _held_out_scores(some, strength) for strength in (DEFAULT, BOLD)}
    losses = {strength: some.weight * _best_losses(each, some) for strength, each in scores.items()}
    gain = losses[DEFAULT] - losses[BOLD]
    chosen = BOLD if gain.mean() > BOLDER * gain.std() / np.sqrt(len(gain)) else DEFAULT
    return chosen, as_confident(scores[chosen], some)


def _best_losses(scores: np.ndarray, problem: Problem) -> np.ndarray:
    return log_losses(scores, problem.target, best_temperature(scores, problem.target, problem.weight))


def as_confident(scores: np.ndarray, problem: Problem) -> float:
    """The temperature at which scores are as confident as those of ``bayes``, and more if they are right more often.

    Not the one of the lowest log loss: the prior has seen these samples, so that ``bayes`` is right on them too often.
    Its own temperature was measured without them.
    """

    def confidence(values: np.ndarray) -> float:
        return float(np.average(np.exp(values.max(axis=1) - log_sum_exp(values)), weights=problem.weight))

    more = (scores.argmax(axis=1) == problem.target) * 1.0 - (problem.base.argmax(axis=1) == problem.target)
    wanted = confidence(problem.base) + np.average(more, weights=problem.weight)
    found = minimize_scalar(
        lambda power: abs(confidence(scores / np.exp(power)) - wanted), bounds=(-2, 2), method="bounded"
    )
    return float(np.exp(found.x))


def _held_out_scores(problem: Problem, strength: Strength) -> np.ndarray:
    """Scores of samples, sorted by class, with a correction that is learned without them."""
    folds = (np.arange(len(problem.target)) - np.searchsorted(problem.target, problem.target)) % HALVES
    scaled, scores = problem._replace(base=strength.scale * problem.base), np.empty(problem.base.shape)
    for fold in range(HALVES):
        columns = learned_columns(scaled.picked(folds != fold), strength.penalty)
        scores[folds == fold] = corrected(scaled.picked(folds == fold), columns)
    return scores
