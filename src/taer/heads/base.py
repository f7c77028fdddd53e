"""What every head shares: classes that grow, checked input, calls that succeed or change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from os import PathLike
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import entr
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from taer.heads._fitted import Fitted, Sizes, check_declared, count, declared, value_of
from taer.heads._params import check_params, param
from taer.heads._validation import check_features, check_labels, generator, row_chunks


class Learned(NamedTuple):
    """A class and the task (counted from 1) in which it was first seen."""

    label: Any
    task: int


@dataclass(frozen=True)
class Task:
    """One call of ``partial_fit``. Classes are given by their position in the grown ``classes_``."""

    y: np.ndarray  # of each sample
    current: np.ndarray  # classes with samples in this task
    new: np.ndarray  # those of them never seen before
    old: np.ndarray  # all classes without a sample in this task
    known: np.ndarray  # where each class that was known before the task is now

    @property
    def n_classes(self) -> int:
        return len(self.current) + len(self.old)

    def members(self) -> Iterator[tuple[int, np.ndarray]]:
        """Each class of this task, with the numbers of its samples."""
        order = np.argsort(self.y, kind="stable")
        ends = np.searchsorted(self.y[order], self.current, side="right")
        yield from zip(self.current.tolist(), np.split(order, ends[:-1]), strict=True)

    def reseat(self, rows: np.ndarray) -> np.ndarray:
        """Rows of the classes known before, moved to their new positions; zeros for new classes."""
        grown = np.zeros((self.n_classes, *rows.shape[1:]), rows.dtype)
        grown[self.known] = rows
        return grown


@dataclass(kw_only=True, eq=False, repr=False)
class Head(ClassifierMixin, BaseEstimator):
    """A scikit-learn classifier whose set of classes grows: one call of ``partial_fit`` is one task.

    A subclass implements ``_learn(X, task)`` and ``_scores(X)``. ``_learn`` replaces fitted arrays and never
    writes into them, so that a call that fails can be undone.
    """

    random_state: Any = param(None, "seed of everything random; None for a new one each time")

    # Fitted arrays with one row per class, in the order of ``classes_``; a subclass adds its own.
    class_arrays: ClassVar[tuple[str, ...]] = ()
    # Fitted attributes and what they must look like when they are read from a file; a subclass adds its own.
    fitted: ClassVar[dict[str, Fitted]] = {
        "n_features_in_": count(),
        "feature_names_in_": value_of(np.ndarray, optional=True),
        "classes_": value_of(np.ndarray),
        "learning_order_": value_of(list),
        "n_tasks_": count(),
        "_rng_": value_of(np.random.Generator),
    }
    # Whether ``_scores(X, classes)`` of known classes never changes, so that it need not be computed again.
    frozen_scores: ClassVar[bool] = False

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_")

    def fit(self, X: Any, y: Any) -> Self:
        """Forget everything, then learn ``X, y`` as the first task."""
        with self._unchanged_on_error():
            for name in [name for name in vars(self) if name.endswith("_")]:
                delattr(self, name)
            self._learn_task(X, y, None)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn one more task.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Features of the current task. Anything with ``shape``, ``dtype`` and row indexing will do; a
            memory-mapped array is read in batches.
        y : array of shape (n_samples,)
            Labels, new ones or known ones. A class that was known before is current again: its column may
            move, those of classes without samples here are treated as old.
        classes : array, optional
            Accepted as in scikit-learn and checked to contain ``y``; it is not needed.
        """
        with self._unchanged_on_error():
            self._learn_task(X, y, classes)
        return self

    def _learn_task(self, X: Any, y: Any, classes: Any) -> None:
        check_params(self)
        first = not hasattr(self, "classes_")
        X = check_features(self, X, reset=first)
        labels = check_labels(y, len(X), None if first else self.classes_)
        if classes is not None and (unlisted := np.setdiff1d(labels, classes)).size:
            raise ValueError(f"y has labels that classes lacks: {unlisted[:5].tolist()}")
        if first:
            self.classes_: np.ndarray = labels[:0]
            self.learning_order_: list[Learned] = []
            self.n_tasks_ = 0
            self._rng_ = generator(self.random_state)
        task = self._open_task(labels)
        self._learn(X, task)

    def _open_task(self, labels: np.ndarray) -> Task:
        known, present = self.classes_, np.unique(labels)
        arriving = np.setdiff1d(present, known)
        self.classes_ = np.union1d(known, present)
        self.n_tasks_ += 1
        self.learning_order_ = [
            *self.learning_order_,
            *(Learned(label, self.n_tasks_) for label in arriving.tolist()),
        ]
        current = np.searchsorted(self.classes_, present)
        return Task(
            y=np.searchsorted(self.classes_, labels),
            current=current,
            new=np.searchsorted(self.classes_, arriving),
            old=np.setdiff1d(np.arange(len(self.classes_)), current),
            known=np.searchsorted(self.classes_, known),
        )

    @property
    def _arrival(self) -> np.ndarray:
        """Positions in ``classes_`` in order of arrival; a class's number in that order never changes."""
        return np.searchsorted(self.classes_, np.array([label for label, _ in self.learning_order_]))

    def _learn(self, X: Any, task: Task) -> None:
        raise NotImplementedError

    def _scores(self, X: np.ndarray) -> np.ndarray:
        """Scores of a few checked rows for every class of ``classes_``."""
        raise NotImplementedError

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        before = dict(vars(self))
        rng_state = self._rng_.bit_generator.state if hasattr(self, "_rng_") else None
        try:
            yield
        except BaseException:
            self.__dict__ = before
            if rng_state is not None:
                self._rng_.bit_generator.state = rng_state
            raise

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores, one column per class of ``classes_``; one-dimensional for exactly two classes."""
        scores = np.concatenate(list(self._score_chunks(X)))
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Softmax of the scores over the classes seen so far."""
        return np.concatenate([self._probabilities(scores) for scores in self._score_chunks(X)])

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        return softmax(scores)

    def predict(self, X: Any, *, unknown: Any = None, threshold: float | None = None) -> np.ndarray:
        """The class with the highest score, or ``unknown`` where :meth:`novelty` is above ``threshold``.

        With an ``unknown`` of another kind than the labels (``"?"`` among integers) the answers are an array of objects.
        """
        if unknown is None and threshold is not None:
            raise ValueError("threshold needs unknown: what to answer above it")
        best = [scores.argmax(axis=1) for scores in self._score_chunks(X)]
        labels = self.classes_[np.concatenate(best)]
        if unknown is None:
            return labels
        if threshold is None or np.isnan(threshold):
            raise ValueError("unknown needs a threshold; novelty_threshold(X) finds one from held-back samples")
        if unknown in self.classes_.tolist():
            raise ValueError(f"unknown must not be one of the classes, and {unknown!r} is")
        answer = np.array(unknown)
        if answer.dtype.kind != labels.dtype.kind:
            answer, labels = np.array(unknown, object), labels.astype(object)
        return np.where(self.novelty(X) > threshold, answer, labels)

    def novelty(self, X: Any) -> np.ndarray:
        """How little a sample looks like any known class; only the order of the values means anything.

        The entropy of the probabilities; heads that keep a covariance add how far the sample is from all classes.
        """
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        return np.concatenate([self._novelty(X[rows], self._scores(X[rows])) for rows in self._chunks(X)])

    def _novelty(self, X: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Novelty of a few rows with these scores, the columns in any order."""
        entropy: np.ndarray = entr(self._probabilities(scores)).sum(axis=1)
        return entropy

    def novelty_threshold(self, X: Any, false_alarms: float = 0.05) -> float:
        """The novelty that a share ``false_alarms`` of samples of known classes exceeds.

        ``X`` are samples of known classes that were held back: the head is surer of those it learned from.
        """
        if not 0 < false_alarms < 1:
            raise ValueError(f"false_alarms must be above 0 and below 1, got {false_alarms!r}")
        return float(np.quantile(self.novelty(X), 1 - false_alarms))

    def rename(self, old: Any, new: Any) -> Self:
        """Give a class another name; nothing else changes."""
        check_is_fitted(self)
        position = self._position_of(old)
        renamed = check_labels([new], 1, self.classes_)[0]
        if renamed == self.classes_[position]:
            return self
        if renamed in self.classes_:
            raise ValueError(f"{new!r} is another class already")
        labels = self.classes_.tolist()
        labels[position] = renamed.item() if hasattr(renamed, "item") else renamed
        order = np.argsort(np.array(labels))
        with self._unchanged_on_error():
            self.learning_order_ = [
                Learned(labels[position] if label == old else label, task) for label, task in self.learning_order_
            ]
            self.classes_ = np.array(labels)[order]
            self._take_classes(order)
        return self

    def forget(self, label: Any) -> Self:
        """Drop a class: its column or statistics and its samples in the memory.

        Scores of other classes stay, but where a closed form depends on all classes; ``docs/beyond.md`` says for
        which heads the result is as if the class had never been seen.
        """
        check_is_fitted(self)
        position = self._position_of(label)
        if len(self.classes_) == 1:
            raise ValueError("the only class cannot be forgotten")
        number = [known for known, _ in self.learning_order_].index(label)
        with self._unchanged_on_error():
            self.learning_order_ = [entry for entry in self.learning_order_ if entry.label != label]
            keep = np.delete(np.arange(len(self.classes_)), position)
            self.classes_ = self.classes_[keep]
            self._take_classes(keep)
            self._forget_number(number)
        return self

    def _position_of(self, label: Any) -> int:
        found = np.flatnonzero(self.classes_ == label)
        if not len(found):
            raise ValueError(f"{label!r} is not a known class")
        return int(found[0])

    def _take_classes(self, order: np.ndarray) -> None:
        names = {name for cls in type(self).__mro__ for name in vars(cls).get("class_arrays", ())}
        for name in names:
            setattr(self, name, getattr(self, name)[order])

    def _forget_number(self, number: int) -> None:
        """Drop what is kept under a class's number in order of arrival; later numbers move up."""

    def _check_fitted(self) -> None:
        """Raise a ValueError unless the fitted state is complete and fits together, as that of a file need not."""
        params = {item.name for item in fields(self)}
        state = {name: value for name, value in vars(self).items() if name not in params}
        check_declared({name: state[name] for name in Head.fitted if name in state}, Head.fitted, {})
        self._check_classes()
        check_declared(state, declared(type(self)), self._sizes())

    def _sizes(self) -> Sizes:
        """Sizes of fitted arrays by the names that ``fitted`` uses."""
        return {"classes": len(self.classes_), "width": self.n_features_in_, "embedding": self.n_features_in_}

    def _check_classes(self) -> None:
        classes, names = self.classes_, getattr(self, "feature_names_in_", None)
        if classes.ndim != 1 or not len(classes) or classes.dtype.kind not in "biufU":
            raise ValueError("classes_: expected a list of strings or of whole numbers")
        if not (classes[:-1] < classes[1:]).all() or (classes.dtype.kind == "f" and not np.isfinite(classes).all()):
            raise ValueError("classes_: expected each class once, sorted")
        if not all(isinstance(entry, Learned) and type(entry.task) is int for entry in self.learning_order_):
            raise ValueError("learning_order_: expected pairs of a class and a task")
        labels, tasks = (
            [entry.label for entry in self.learning_order_],
            [entry.task for entry in self.learning_order_],
        )
        known = {(type(label), label) for label in classes.tolist()}
        if len(labels) != len(classes) or {(type(label), label) for label in labels} != known:
            raise ValueError("learning_order_: expected every class once")
        if tasks != sorted(tasks) or tasks[0] < 1 or tasks[-1] > self.n_tasks_:
            raise ValueError(f"learning_order_: expected tasks from 1 to {self.n_tasks_}, in order")
        if names is not None and (names.shape != (self.n_features_in_,) or {type(name) for name in names} != {str}):
            raise ValueError(f"feature_names_in_: expected {self.n_features_in_} names")

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything the head knows to one ``.safetensors`` file; ``taer.load`` reads it."""
        from taer.saving import save  # which knows all heads

        save(self, path)

    def _score_chunks(self, X: Any) -> Iterator[np.ndarray]:
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        for rows in self._chunks(X):
            yield self._scores(X[rows])

    def _chunks(self, X: Any) -> Iterator[slice]:
        """Rows that are scored in one go; for frozen scores always as many, as products of one shape round alike."""
        return row_chunks(X, width=X.shape[1] if self.frozen_scores else max(X.shape[1], len(self.classes_)))


def softmax(scores: np.ndarray) -> np.ndarray:
    """Softmax over the last axis."""
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1, keepdims=True)


def log_sum_exp(scores: np.ndarray) -> np.ndarray:
    """Logarithm of the sum of exponentials over the last axis, summed in float64; -inf for no columns."""
    if not scores.shape[-1]:
        return np.full(scores.shape[:-1], -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    return top[..., 0].astype(np.float64) + np.log(np.exp(scores - top).sum(axis=-1, dtype=np.float64))
