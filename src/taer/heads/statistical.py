"""Heads in closed form: no exemplars, no learning rate, one pass."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from joblib import Parallel, delayed
from scipy.linalg import cho_factor, cho_solve, get_blas_funcs, lapack, solve_triangular
from scipy.optimize import minimize_scalar

from taer.heads._fitted import FLOATS, Fitted, array, number, value_of, word
from taer.heads._params import param
from taer.heads._validation import row_chunks
from taer.heads.base import Head, Task, log_sum_exp, softmax
from taer.rows import SelectedRows
from taer.statistics import ClassStatistics

if TYPE_CHECKING:
    from taer.engine import Shared

_TRIAL_ROWS, _TRIAL_CLASSES = 20_000, 200
NORMALISATIONS = ("none", "l2", "sqrt-l2")
_CHUNKS = 32  # chunks of rows in a block, whose statistics are one piece of work
_PIECES = 2  # into which a chunk is cut, so that the cache can hold their float64 copies
_HELD_BACK = 2000  # samples that decide a temperature: enough for one number
_SCORES = 1 << 21  # of theirs in all, however many classes there are
_POWERS = np.linspace(-8, 8, 33)  # of temperatures that are tried, as logarithms


def normalised(X: np.ndarray, how: str) -> np.ndarray:
    """Rows as they are, at unit length, or after a signed square root at unit length; float64."""
    rows = X.astype(np.float64)
    if how == "sqrt-l2":
        rows = np.sign(rows) * np.sqrt(np.abs(rows))
    if how != "none":
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows /= np.where(norms > 0, norms, 1)
    return rows


@dataclass(kw_only=True, eq=False, repr=False)
class StatisticsHead(Head):
    """Collects :class:`~taer.statistics.ClassStatistics` of a fixed embedding and solves for the scores.

    The statistics' labels are numbers in order of arrival. The temperature of ``predict_proba`` is fitted at each
    task, among all classes so far, on a fifth of the task that is counted in only afterwards; by heads whose old
    scores never move, on all that was held back in any task.
    """

    normalize: str = param(
        "none",
        "what is done to each sample: nothing, unit length, signed square root and unit length, or 'auto': the "
        "square root if the first task has no negative value, else unit length",
        options=(*NORMALISATIONS, "auto"),
    )

    fitted: ClassVar[dict[str, Fitted]] = {
        "dtype_": word(*FLOATS),
        "temperature_": number(above=0),
        "normalize_": word(*NORMALISATIONS),
        "statistics_": value_of(ClassStatistics, width="embedding"),
        "trial_losses_": array(len(_POWERS), optional=True),
        "trial_unit_": number(above=0, optional=True),
    }

    @property
    def per_class(self) -> bool:
        """Whether each class keeps a covariance of its own."""
        return False

    def _learn(self, X: Any, task: Task) -> None:
        if self.n_tasks_ == 1:
            self._fix_embedding(X)
            self._choose(X, task)
        held = self._held_back(task)
        self._collect(X, task, np.flatnonzero(~held))
        if held.any():
            self._calibrate(X, task, held)
            self._collect(X, task, np.flatnonzero(held))
        self._solve(X, task)

    def _fix_embedding(self, X: Any) -> None:
        """The map of samples, which the first task decides once and for all."""
        self.dtype_ = str(np.result_type(X.dtype, np.float32))
        self.temperature_ = 1.0
        self.normalize_ = self.normalize
        if self.normalize == "auto":
            self.normalize_ = "sqrt-l2" if all(X[rows].min() >= 0 for rows in row_chunks(X)) else "l2"

    def _choose(self, X: Any, task: Task) -> None:
        """Strengths and shrinkages that the first task decides."""

    def _embed(self, X: np.ndarray) -> np.ndarray:
        return normalised(X, self.normalize_)

    def _collect(self, X: Any, task: Task, rows: np.ndarray) -> None:
        """Count some rows in: blocks of them, wherever joblib's settings have them computed, added in their order."""
        from taer.engine import Shared  # where it runs is no part of a method

        numbers, chosen = np.argsort(self._arrival)[task.y[rows]], SelectedRows(X, rows)
        embedding = copy.copy(self)
        for name in ("statistics_", *self.class_arrays):
            embedding.__dict__.pop(name, None)
        shared = Shared(embedding)
        calls = (
            delayed(_statistics_of)(shared, _sent(chosen, part), numbers[part])
            for part in row_chunks(chosen, width=-(-X.shape[1] // _CHUNKS))
        )
        statistics: Any = getattr(self, "statistics_", None)
        for block in Parallel(return_as="generator")(calls):
            statistics = block if statistics is None else statistics + block
        self.statistics_: ClassStatistics = statistics

    def _solve(self, X: Any, task: Task) -> None:
        """Scores from statistics."""
        raise NotImplementedError

    def _held_back(self, task: Task) -> np.ndarray:
        """A fifth of the samples of each class, but no more than decide a temperature."""
        held = np.zeros(len(task.y), bool)
        if task.n_classes > 1:
            most = max(1, _HELD_BACK // len(task.current))
            for _, members in task.members():
                held[members[: min(most, len(members) // 5)]] = True
        chosen, enough = np.flatnonzero(held), max(1, _SCORES // task.n_classes)
        if len(chosen) > enough:
            held[:] = False
            held[chosen[np.linspace(0, len(chosen) - 1, enough).astype(int)]] = True
        return held

    def _calibrate(self, X: Any, task: Task, held: np.ndarray) -> None:
        """Fit the temperature with scores that do not know the samples held back."""
        rest, trial = np.flatnonzero(~held), copy.copy(self)
        trial._solve(SelectedRows(X, rest), replace(task, y=task.y[rest]))
        scores, target = trial._scores(X[np.flatnonzero(held)]).astype(np.float64), task.y[held]
        if self.frozen_scores:
            self._pool(scores, target)
        else:
            self.temperature_ = best_temperature(scores, target)

    def _pool(self, scores: np.ndarray, target: np.ndarray) -> None:
        """The temperature of least log loss on all that was ever held back: scores that never move have one scale."""
        if not hasattr(self, "trial_losses_"):
            self.trial_losses_, self.trial_unit_ = np.zeros(len(_POWERS)), max(float(scores.std()), 1e-12)
        temperatures = self.trial_unit_ * np.exp(_POWERS)
        self.trial_losses_ = self.trial_losses_ + [log_losses(scores, target, t).sum() for t in temperatures]
        best = int(np.clip(self.trial_losses_.argmin(), 1, len(_POWERS) - 2))
        left, middle, right = self.trial_losses_[best - 1 : best + 2]
        between = (left - right) / (2 * (left - 2 * middle + right)) if middle < left + right - middle else 0.0
        power = _POWERS[best] + (_POWERS[1] - _POWERS[0]) * np.clip(between, -1, 1)  # the bottom of a parabola
        self.temperature_ = float(self.trial_unit_ * np.exp(power))

    def _forget_number(self, number: int) -> None:
        self.statistics_ = self.statistics_.without(number)

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        return softmax(scores / self.temperature_)

    def _novelty(self, X: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """How undecided the head is, and how much farther the sample is from its class than from the middle of all."""
        return (
            super()._novelty(X, scores) + relative_distances(self._embed(X), self.statistics_) / self.temperature_
        )


def _sent(X: SelectedRows, part: slice) -> Any:
    """What is sent to whoever reads these rows: themselves, or where they are in a storage that is opened there."""
    from taer.engine import on_cluster

    rows = SelectedRows(X.X, X.numbers[part])
    return np.asarray(rows) if on_cluster() and isinstance(X.X, np.ndarray) else rows


def _statistics_of(embedding: Shared, X: Any, numbers: np.ndarray) -> ClassStatistics:
    """Statistics of one block, the same bits on every machine: hence one thread."""
    from taer.heads.sgd import one_blas_thread

    head = embedding.value
    pieces = row_chunks(X, width=_PIECES * X.shape[1])
    # sorted by class while rows are still short
    sorted_chunks = (rows.start + np.argsort(numbers[rows], kind="stable") for rows in pieces)
    chunks = ((head._embed(X[rows]), numbers[rows]) for rows in sorted_chunks)
    with one_blas_thread():
        return ClassStatistics.of_chunks(chunks, numbers, per_class=head.per_class)


@dataclass(kw_only=True, eq=False, repr=False)
class LinearStatisticsHead(StatisticsHead):
    """Scores ``coef_ @ embedding(x) + intercept_``; without normalisation, ``coef_`` is in the user's features."""

    class_arrays: ClassVar[tuple[str, ...]] = ("coef_", "intercept_")
    fitted: ClassVar[dict[str, Fitted]] = {"coef_": array("classes", "embedding"), "intercept_": array("classes")}

    def _set_columns(self, columns: np.ndarray, offsets: np.ndarray) -> None:
        """Columns in order of arrival."""
        order = np.argsort(self._arrival)
        self.coef_, self.intercept_ = columns[order], offsets[order]

    def _scores(self, X: np.ndarray) -> np.ndarray:
        return (self._embed(X) @ self.coef_.T + self.intercept_).astype(self.dtype_)


@dataclass(kw_only=True, eq=False, repr=False)
class SolvedHead(LinearStatisticsHead):
    """All columns are solved for anew whenever the statistics change."""

    forgettable: bool = param(False, "keep a scatter per class, so that a class can be forgotten exactly")

    @property
    def per_class(self) -> bool:
        return self.forgettable

    def _solve(self, X: Any, task: Task) -> None:
        self._set_from_statistics()

    def _forget_number(self, number: int) -> None:
        super()._forget_number(number)
        self._set_from_statistics()

    def _set_from_statistics(self) -> None:
        raise NotImplementedError


def trial_samples(X: Any, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Samples by which a first task chooses a few numbers: all, or some of a large task, spread over its classes."""
    classes = np.unique(y)
    if len(classes) > _TRIAL_CLASSES:
        classes = classes[np.linspace(0, len(classes) - 1, _TRIAL_CLASSES).astype(int)]
    picks = np.flatnonzero(np.isin(y, classes))
    if len(picks) > _TRIAL_ROWS:
        by_class = picks[np.argsort(y[picks], kind="stable")]
        picks = np.sort(by_class[np.linspace(0, len(picks) - 1, _TRIAL_ROWS).astype(int)])
    return X[picks], y[picks]


def shrunk(covariance: np.ndarray, shrinkage: float) -> np.ndarray:
    """``(1 - s) Σ + s · tr(Σ)/d · I``; the identity if there is no variance at all."""
    width = len(covariance)
    level = np.trace(covariance) / width
    if level <= 0:
        return np.eye(width)
    mixed: np.ndarray = (1 - shrinkage) * covariance
    mixed.flat[:: width + 1] += shrinkage * level
    return mixed


def discriminants(means: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns ``Σ⁻¹ μ_c`` and offsets ``-μ_cᵀ Σ⁻¹ μ_c / 2`` of linear discriminant analysis with equal priors."""
    columns = cho_solve(cho_factor(covariance, check_finite=False), means.T, check_finite=False).T
    return columns, -0.5 * (means * columns).sum(axis=1)


def log_losses(scores: np.ndarray, target: np.ndarray, temperature: float) -> np.ndarray:
    """Cross-entropy of each sample."""
    scaled = scores / temperature
    return log_sum_exp(scaled) - scaled[np.arange(len(target)), target]


def best_temperature(scores: np.ndarray, target: np.ndarray) -> float:
    """The temperature at which the softmax of the scores has the least cross-entropy."""
    spread = max(float(scores.std()), 1e-12)
    found = minimize_scalar(
        lambda power: log_losses(scores, target, spread * np.exp(power)).mean(), bounds=(-8, 8), method="bounded"
    )
    return float(spread * np.exp(found.x))


def relative_distances(rows: np.ndarray, statistics: ClassStatistics) -> np.ndarray:
    """Half the squared Mahalanobis distance to the nearest class, less that to the mean of all (Ren et al., 2021)."""
    mean = statistics.cross_moments.sum(axis=0, keepdims=True) / statistics.n_samples
    between = (statistics.means - mean) * np.sqrt(statistics.counts)[:, None]
    total = (statistics.scatter + between.T @ between) / statistics.n_samples
    near, far = (shrunk(matrix, 0.1) for matrix in (statistics.covariance(), total))
    columns, offsets = discriminants(statistics.means, near)
    background, level = discriminants(mean, far)
    short = rows.astype(np.float32)  # a ranking needs no more
    curved = ((short @ (np.linalg.inv(near) - np.linalg.inv(far)).astype(np.float32)) * short).sum(axis=1)
    to_nearest = (rows @ columns.T + offsets).max(axis=1)
    distances: np.ndarray = 0.5 * curved - to_nearest + (rows @ background.T + level)[:, 0]
    return distances


def whitened(rows: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """``L⁻¹ x`` for each row."""
    solved: np.ndarray = solve_triangular(factor, rows.T, lower=True, check_finite=False).T
    return solved


def whitener(covariance: np.ndarray) -> np.ndarray:
    """``L⁻¹``, the inverse of the lower Cholesky factor."""
    inverse: np.ndarray = lapack.dtrtri(np.linalg.cholesky(covariance), lower=1)[0]
    return inverse


def squared_distances(rows: np.ndarray, mean: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """Mahalanobis distances of rows to a mean, squared; ``inverse`` is a :func:`whitener`, in any precision."""
    apart = (rows - mean).astype(inverse.dtype)
    multiply = get_blas_funcs("trmm", (inverse, apart))  # half the work of a product with a full matrix
    white = multiply(1.0, inverse.T, apart.T, trans_a=1, overwrite_b=1)
    return np.einsum("ij,ij->j", white, white)


def thin_eigen(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Directions (as rows) and eigenvalues of ``rowsᵀ rows``, by the smaller of the two products."""
    if len(rows) >= rows.shape[1]:
        return eigen(rows.T @ rows)
    spectrum, vectors = np.linalg.eigh(rows @ rows.T)
    kept = spectrum > 1e-9 * max(float(spectrum[-1]), 1e-30)
    return (rows.T @ (vectors[:, kept] / np.sqrt(spectrum[kept]))).T, spectrum[kept]


def eigen(scatter: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Directions (as rows) and eigenvalues of a scatter."""
    spectrum, vectors = np.linalg.eigh(scatter)
    return vectors.T, np.maximum(spectrum, 0)
