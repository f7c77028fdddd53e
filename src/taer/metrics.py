"""Metrics of class-incremental learning, as pure functions of labels, predictions and scores.

Notation: ``a[t, k]`` is the accuracy on the test samples of task k after learning task t, when all classes seen up
to t may be predicted. Tasks are counted from zero here. Accuracies are fractions.
``task_of`` gives the task of each class, by class number; ``scores`` has one column per class number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeVar

import numpy as np

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _of_arrays(metric: Callable[_P, _R]) -> Callable[_P, _R]:
    """The metric of anything that numpy can read, by position: columns of pandas are compared by their labels."""

    @wraps(metric)
    def of_arrays(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        rows = [each if np.isscalar(each) else np.asarray(each) for each in args]
        named = {name: each if np.isscalar(each) else np.asarray(each) for name, each in kwargs.items()}
        return metric(*rows, **named)  # type: ignore[arg-type]

    return of_arrays


@_of_arrays
def task_accuracies(y_true: np.ndarray, y_pred: np.ndarray, task_of: np.ndarray) -> np.ndarray:
    """Accuracy on the samples of each task: one row ``a[t, :t + 1]`` of the accuracy matrix.

    ``a[t, k] = mean over samples of task k of 1[prediction = label]``.

    Examples
    --------
    >>> task_accuracies(np.array([0, 1, 2, 2]), np.array([0, 2, 2, 2]), np.array([0, 0, 1]))
    array([0.5, 1. ])
    """
    tasks = task_of[y_true]
    counts = np.bincount(tasks)
    return np.bincount(tasks, weights=y_true == y_pred) / np.where(counts, counts, 1)


def accuracy_matrix(rows: list[np.ndarray]) -> np.ndarray:
    """The matrix ``a[t, k]`` from its rows; entries above the diagonal (tasks not yet learned) are NaN."""
    matrix = np.full((len(rows), len(rows)), np.nan)
    for t, row in enumerate(rows):
        matrix[t, : t + 1] = row
    return matrix


def average_accuracy(matrix: np.ndarray) -> float:
    """``A_T = (1/T) Σ_k a[T, k]``: mean over tasks of the accuracy after the last task.

    Examples
    --------
    >>> average_accuracy(np.array([[1.0, np.nan], [0.5, 0.75]]))
    0.625
    """
    return float(np.mean(matrix[-1]))


def average_incremental_accuracy(phase_accuracies: np.ndarray) -> float:
    """``AIA = (1/T) Σ_t α_t`` with ``α_t`` the accuracy on the samples of all classes seen at phase t."""
    return float(np.mean(phase_accuracies))


@_of_arrays
def accuracy_among(y_true: np.ndarray, y_pred: np.ndarray, members: np.ndarray) -> float | None:
    """Accuracy on the marked samples, when all classes may be predicted; None if no sample is marked.

    Examples
    --------
    >>> y_true, y_pred = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    >>> accuracy_among(y_true, y_pred, y_true == 0)
    0.5
    """
    return float(np.mean(y_true[members] == y_pred[members])) if members.any() else None


def harmonic_mean(base: float, new: float) -> float:
    """``2·base·new / (base + new)``: high only if both accuracies are high, and zero if either is zero.

    Examples
    --------
    >>> harmonic_mean(0.75, 0.25)
    0.375
    """
    return 2 * base * new / (base + new) if base + new else 0.0


def forgetting(matrix: np.ndarray) -> float:
    """``F = 1/(T-1) Σ_{k<T} (max_{t<T} a[t, k] - a[T, k])``; zero for a single task."""
    if len(matrix) == 1:
        return 0.0
    return float(np.mean(np.nanmax(matrix[:-1, :-1], axis=0) - matrix[-1, :-1]))


def backward_transfer(matrix: np.ndarray) -> float:
    """``BWT = 1/(T-1) Σ_{k<T} (a[T, k] - a[k, k])``; zero for a single task."""
    if len(matrix) == 1:
        return 0.0
    return float(np.mean(matrix[-1, :-1] - np.diag(matrix)[:-1]))


def forward_transfer(matrix: np.ndarray, untrained: np.ndarray) -> float:
    """``FWT = 1/(T-1) Σ_{k>0} (a[k-1, k] - b_k)``, with ``b_k`` the accuracy on task k of a head that has learned nothing.

    Entries above the diagonal that are NaN count as 0: a class that was never seen is never predicted. So in
    class-incremental learning it is 0 for every head without outputs for classes to come.

    Examples
    --------
    >>> forward_transfer(np.array([[1.0, 0.5], [0.5, 0.75]]), untrained=np.array([0.25, 0.25]))
    0.25
    """
    before = np.nan_to_num(np.diag(matrix, 1))
    return float(np.mean(before - untrained[1:])) if len(before) else 0.0


@_of_arrays
def anytime_accuracy(samples: np.ndarray, accuracies: np.ndarray) -> float:
    """``A_AUC = Σ_k f(n_k) · (n_k - n_{k-1}) / n``: the area under the accuracy on the classes seen after each sample.

    ``f(n_k)`` is measured after ``n_k`` training samples, and holds for those since the measurement before.

    Examples
    --------
    >>> anytime_accuracy(np.array([10, 40]), np.array([1.0, 0.5]))
    0.625
    """
    return float(np.diff(samples, prepend=0) @ accuracies / samples[-1])


@_of_arrays
def preserved_accuracy(scores: np.ndarray, y_true: np.ndarray, task_of: np.ndarray) -> np.ndarray:
    """``P_t^T``: accuracy on task t when the final model may only answer with classes of tasks 1 … t.

    ``P_t^T = mean over samples of task t of 1[argmax over y in Y_1:t of score(y) = label]``. It does not count
    errors that occur only because there are more classes. A head whose old scores never move has
    ``P_t^T = a[t, t]``.

    Examples
    --------
    >>> scores = np.array([[1.0, 2.0], [1.0, 2.0]])
    >>> preserved_accuracy(scores, np.array([0, 1]), np.array([0, 1]))
    array([1., 1.])
    """
    tasks = task_of[y_true]
    preserved = np.zeros(task_of.max() + 1)
    for t in range(len(preserved)):
        members = np.flatnonzero(tasks == t)
        if len(members):
            allowed = np.flatnonzero(task_of <= t)
            answers = allowed[scores[np.ix_(members, allowed)].argmax(axis=1)]
            preserved[t] = np.mean(answers == y_true[members])
    return preserved


@_of_arrays
def old_mass(probabilities: np.ndarray, old: np.ndarray) -> float:
    """``mean over x of p(y ∈ old | x) = mean over x of Σ_{i ∈ old} p_i(x)``, for samples of old classes.

    ``old`` marks the columns of old classes. One is ideal; the rest is probability given to the current task.
    """
    return float(probabilities[:, old].sum(axis=1).mean())


class Decomposition(NamedTuple):
    """The two causes of an error, after the paper's factorization ``p(y|x) = p(y|x, task) · p(task|x)``."""

    within_task: float  # knowledge: accuracy among the classes of the sample's own task
    task_identification: float  # bias: how often the predicted class lies in the sample's own task
    old_as_current: float  # fraction of samples of earlier tasks that are predicted as the last task


@_of_arrays
def decompose(scores: np.ndarray, y_true: np.ndarray, task_of: np.ndarray) -> Decomposition:
    """Split accuracy into knowledge and bias.

    ``within_task = mean of 1[argmax over Y_task(x) of score = label]``;
    ``task_identification = mean of 1[task(argmax over all of score) = task(x)]``;
    ``old_as_current = mean over x of earlier tasks of 1[task(argmax over all of score) = last task]``.

    Examples
    --------
    >>> scores = np.array([[2.0, 1.0, 0.0], [2.0, 1.0, 3.0]])
    >>> decompose(scores, np.array([0, 1]), np.array([0, 0, 1]))
    Decomposition(within_task=0.5, task_identification=0.5, old_as_current=0.5)
    """
    tasks = task_of[y_true]
    foreign = task_of[None, :] != tasks[:, None]
    own_answer = np.where(foreign, -np.inf, scores).argmax(axis=1)
    answered_task = task_of[scores.argmax(axis=1)]
    last = task_of.max()
    old = tasks < last
    return Decomposition(
        within_task=float(np.mean(own_answer == y_true)),
        task_identification=float(np.mean(answered_task == tasks)),
        old_as_current=float(np.mean(answered_task[old] == last)) if old.any() else 0.0,
    )


@_of_arrays
def confusion_matrix(y_true: np.ndarray, y_pred: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Counts ``n[p, q]`` of samples of class ``order[p]`` predicted as class ``order[q]``.

    With ``order`` the classes in the order of learning, bias towards the last task shows as a band on the
    right.

    Examples
    --------
    >>> confusion_matrix(np.array([5, 5, 3]), np.array([5, 3, 3]), order=np.array([5, 3]))
    array([[1, 1],
           [0, 1]])
    """
    place = np.zeros(order.max() + 1, np.int64)
    place[order] = np.arange(len(order))
    pairs = place[y_true] * len(order) + place[y_pred]
    return np.bincount(pairs, minlength=len(order) ** 2).reshape(len(order), -1)


@_of_arrays
def expected_calibration_error(probabilities: np.ndarray, y_true: np.ndarray, bins: int = 15) -> float:
    """``ECE = Σ_b (n_b / n) · |accuracy_b - confidence_b|`` over bins of equal width of the highest probability.

    Zero if, for every p, a fraction p of the samples predicted with confidence p is correct.

    Examples
    --------
    >>> expected_calibration_error(np.array([[0.9, 0.1], [0.9, 0.1]]), np.array([0, 1]))
    0.4
    """
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == y_true
    which = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(which, weights=right - confidence.astype(np.float64))
    return float(np.abs(gaps).sum() / len(y_true))


class Rejection(NamedTuple):
    """Coverage and accuracy if samples that look novel are not answered."""

    coverage: float  # fraction of samples that are answered
    accuracy: float  # of these


@_of_arrays
def rejection(novelty: np.ndarray, right: np.ndarray, threshold: float) -> Rejection:
    """``coverage = mean of 1[novelty <= threshold]``, and the accuracy on these samples (1 if there are none).

    Examples
    --------
    >>> rejection(np.array([0.1, 0.2, 0.9, 0.3]), np.array([True, True, False, False]), threshold=0.5)
    Rejection(coverage=0.75, accuracy=0.6666666666666666)
    """
    answered = novelty <= threshold
    return Rejection(float(answered.mean()), float(right[answered].mean()) if answered.any() else 1.0)


@_of_arrays
def novelty_auroc(known: np.ndarray, unknown: np.ndarray) -> float | None:
    """How often a sample of an unknown class has a higher novelty than one of a known class; ties count half.

    The area under the ROC curve; None if there are no samples of either kind.

    Examples
    --------
    >>> novelty_auroc(np.array([0.1, 0.4]), np.array([0.3, 0.9]))
    0.75
    """
    from sklearn.metrics import roc_auc_score

    if not len(known) or not len(unknown):
        return None
    is_unknown = np.repeat([0, 1], [len(known), len(unknown)])
    return float(roc_auc_score(is_unknown, np.concatenate([known, unknown])))


@_of_arrays
def f1_micro(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    """``F1 = 2·TP / (2·TP + FP + FN)`` over all entries of two indicator matrices; one if no entry is set in either.

    Examples
    --------
    >>> f1_micro([[1, 0], [1, 1]], [[1, 0], [0, 1]])
    0.8
    """
    both, either = (y_true.astype(bool) & y_pred.astype(bool)).sum(), y_true.sum() + y_pred.sum()
    return float(2 * both / either) if either else 1.0


@_of_arrays
def f1_macro(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    """The mean over labels (columns) of the F1 of each; one for a label that no sample has and none is given.

    Examples
    --------
    >>> f1_macro([[1, 0], [1, 1]], [[1, 0], [0, 1]])
    0.8333333333333333
    """
    both, either = (y_true.astype(bool) & y_pred.astype(bool)).sum(axis=0), y_true.sum(axis=0) + y_pred.sum(axis=0)
    return float(np.mean(np.where(either > 0, 2 * both / np.maximum(either, 1), 1.0)))
