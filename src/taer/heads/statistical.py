"""Heads in closed form: no exemplars, no learning rate, one pass."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from joblib import Parallel, delayed
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize_scalar
from sklearn.base import clone

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

    The statistics' labels are numbers in order of arrival. A temperature for ``predict_proba`` is fitted in the
    first task, on a fifth of it that a trial head does not see.
    """

    normalize: str = param(
        "none",
        "what is done to each sample: nothing, unit length, signed square root and unit length, or 'auto': the "
        "square root if the first task has no negative value, else unit length",
        options=(*NORMALISATIONS, "auto"),
    )

    @property
    def per_class(self) -> bool:
        """Whether each class keeps a covariance of its own."""
        return False

    def _learn(self, X: Any, task: Task) -> None:
        if self.n_tasks_ == 1:
            self._fix_embedding(X, task)
        self._collect(X, task)
        self._solve(X, task)
        if not hasattr(self, "temperature_"):
            self.temperature_: float = self._calibrated(X, task)

    def _fix_embedding(self, X: Any, task: Task) -> None:
        """Whatever the first task decides once and for all."""
        self.dtype_ = str(np.result_type(X.dtype, np.float32))
        self.normalize_ = self.normalize
        if self.normalize == "auto":
            self.normalize_ = "sqrt-l2" if all(X[rows].min() >= 0 for rows in row_chunks(X)) else "l2"

    def _embed(self, X: np.ndarray) -> np.ndarray:
        return normalised(X, self.normalize_)

    def _collect(self, X: Any, task: Task) -> None:
        """Statistics of blocks of rows, wherever joblib's settings have them computed, added in the order of the rows."""
        from taer.engine import Shared  # where it runs is no part of a method

        numbers = np.argsort(self._arrival)[task.y]
        embedding = copy.copy(self)
        for name in ("statistics_", *self.class_arrays):
            embedding.__dict__.pop(name, None)
        shared = Shared(embedding)
        calls = (
            delayed(_statistics_of)(shared, *_readable(X, rows), numbers[rows])
            for rows in row_chunks(X, width=-(-X.shape[1] // _CHUNKS))
        )
        statistics: Any = getattr(self, "statistics_", None)
        for block in Parallel(return_as="generator")(calls):
            statistics = block if statistics is None else statistics + block
        self.statistics_: ClassStatistics = statistics

    def _solve(self, X: Any, task: Task) -> None:
        """Scores from statistics."""
        raise NotImplementedError

    def _calibrated(self, X: Any, task: Task) -> float:
        rows, y = trial_samples(X, task.y)
        held = np.zeros(len(y), bool)
        for position in np.unique(y):
            members = np.flatnonzero(y == position)
            held[members[: len(members) // 5]] = True
        if len(task.current) < 2 or not held.any():
            return 1.0
        trial = clone(self)
        trial.temperature_ = 1.0
        trial.partial_fit(rows[~held], self.classes_[y[~held]])
        scores = trial._scores(rows[held]).astype(np.float64)
        return best_temperature(scores, np.searchsorted(np.unique(y), y[held]))

    def _forget_number(self, number: int) -> None:
        self.statistics_ = self.statistics_.without(number)

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        return softmax(scores / self.temperature_)


def _readable(X: Any, rows: slice) -> tuple[Any, slice]:
    """What to send to whoever reads these rows: themselves, or a storage that is opened there and where they are in it."""
    from taer.engine import on_cluster

    if isinstance(X, SelectedRows):
        part = SelectedRows(X.X, X.numbers[rows])
        return np.asarray(part) if on_cluster() and isinstance(X.X, np.ndarray) else part, slice(None)
    return (X[rows], slice(None)) if isinstance(X, np.ndarray) else (X, rows)


def _statistics_of(embedding: Shared, X: Any, where: slice, numbers: np.ndarray) -> ClassStatistics:
    """Statistics of one block, the same bits on every machine: hence one thread."""
    from taer.heads.sgd import one_blas_thread

    head, first = embedding.value, where.start or 0
    chunks = (
        (head._embed(X[first + rows.start : first + min(rows.stop, len(numbers))]), numbers[rows])
        for rows in row_chunks(numbers, width=X.shape[1])
    )
    with one_blas_thread():
        return ClassStatistics.of_chunks(chunks, numbers, per_class=head.per_class)


@dataclass(kw_only=True, eq=False, repr=False)
class LinearStatisticsHead(StatisticsHead):
    """Scores ``coef_ @ embedding(x) + intercept_``; without normalisation, ``coef_`` is in the user's features."""

    class_arrays: ClassVar[tuple[str, ...]] = ("coef_", "intercept_")

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
    return (1 - shrinkage) * covariance + shrinkage * level * np.eye(width)


def discriminants(means: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns ``Σ⁻¹ μ_c`` and offsets ``-μ_cᵀ Σ⁻¹ μ_c / 2`` of linear discriminant analysis with equal priors."""
    columns = cho_solve(cho_factor(covariance), means.T).T
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
