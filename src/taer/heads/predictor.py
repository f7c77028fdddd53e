"""The answers of a fitted head: scores, probabilities, classes, novelty, and sets of classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr
from sklearn.utils.validation import check_is_fitted

from taer.heads import conformal, exact, unknowns
from taer.heads.validation import check_features
from taer.rows import row_chunks
from taer.threads import one_blas_thread, spread

_PIECES = 8  # of a chunk; a whole one leaves the cache, and its memory is new every time


class Predictor:
    """How every head answers. A method may override ``_scores``, ``_best``, ``_probabilities`` and ``_novelty``."""

    if TYPE_CHECKING:
        classes_: np.ndarray
        arrival_: np.ndarray  # of each class of classes_, in order of arrival
        dtype_: str
        embedding_: Any  # the fixed embedding of the features
        weights_: np.ndarray
        offsets_: np.ndarray
        misfits_: np.ndarray
        threshold_: float
        _change: Callable[[Callable[[Self], None]], Self]

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        """Scores of some validated rows for some classes, by number, or for all in order of arrival."""
        wanted = slice(None) if classes is None else classes
        scores = exact.products(self.embedding_(X), self.weights_[wanted]) + self.offsets_[wanted]
        return scores.astype(self.dtype_)

    def scores(self, X: ArrayLike, classes: ArrayLike | None = None) -> np.ndarray:
        """Scores, one column per class of ``classes_``, or per class of ``classes``.

        Like ``decision_function``, but always two-dimensional. An entry has the same bits whatever other samples are
        asked for. In heads whose old scores never move, it depends only on its sample and its class. Features whose
        scores are not finite numbers raise ValueError, here and in every other answer.
        """
        head, rows = self._checked(X)
        if classes is None:
            return np.concatenate(head._in_parts(rows, head._sorted_scores))
        known = dict(zip(head.classes_.tolist(), head.arrival_.tolist(), strict=True))
        wanted = np.asarray(classes)
        if wanted.ndim != 1:
            raise ValueError(f"classes must be a list of known classes, got {classes!r}")
        if unknown := [label for label in wanted.tolist() if label not in known]:
            raise ValueError(f"{unknown[0]!r} is not a known class")
        numbers = np.array([known[label] for label in wanted.tolist()], np.int64)
        return np.concatenate(head._in_parts(rows, lambda part: head._finite_scores(part, numbers)))

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Scores, one column per class of ``classes_``; one-dimensional for exactly two classes."""
        scores = self.scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: ArrayLike, *, priors: Mapping[Any, float] | None = None) -> np.ndarray:
        """Probabilities over the classes seen so far, one column per class of ``classes_``.

        ``priors`` are the frequencies of all classes where the head is used, by label, in any unit. By default all
        classes are equally frequent.
        """
        head, rows = self._checked(X)
        parts = head._in_parts(rows, lambda part: head._probabilities(head._sorted_scores(part)))
        found: np.ndarray = np.concatenate(parts)
        if priors is None:
            return found
        weights = conformal.class_priors(head, priors)
        weighted: np.ndarray = np.maximum(found, np.finfo(np.float32).tiny, dtype=np.float64) * weights
        return (weighted / weighted.sum(axis=1, keepdims=True)).astype(found.dtype)

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities from rows of scores."""
        # scipy's softmax takes three times as long
        found: np.ndarray = np.exp(scores - scores.max(axis=-1, keepdims=True))
        found /= found.sum(axis=-1, keepdims=True)
        return found

    def predict(
        self,
        X: ArrayLike,
        *,
        unknown: Any = None,
        threshold: float | None = None,
        priors: Mapping[Any, float] | None = None,
    ) -> np.ndarray:
        """The class with the highest score; with ``priors``, the one with the highest probability.

        ``unknown`` is the answer for samples whose :meth:`novelty` is above ``threshold`` or, if not given, above the
        threshold stored by :meth:`novelty_threshold`. If its type differs from that of the labels (``"?"`` among
        integers), the answers are an object array.
        """
        if unknown is None and threshold is not None:
            raise ValueError("threshold needs unknown: what to answer above it")
        head, rows = self._checked(X)
        if priors is None:
            best = np.argsort(head.arrival_)[np.concatenate(head._in_parts(rows, head._best))]
        else:
            best = head.predict_proba(rows, priors=priors).argmax(axis=1)
        labels = head.classes_[best]
        if unknown is None:
            return labels
        if unknown in head.classes_.tolist():
            raise ValueError(f"unknown must not be one of the classes, and {unknown!r} is")
        limits = unknowns.thresholds_of(head, labels, threshold)
        return unknowns.marked(labels, unknown, unknowns.above(head.novelty(rows), limits))

    def _best(self, X: np.ndarray) -> np.ndarray:
        """The number of the class with the highest score for some rows; on ties, the first in ``classes_``."""
        return self.arrival_[self._sorted_scores(X).argmax(axis=1)]

    def predict_with_proba(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """The results of :meth:`predict` and :meth:`predict_proba` from one pass over ``X`` and one state of the head."""
        head, rows = self._checked(X)

        def answer(part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            scores = head._sorted_scores(part)
            return scores.argmax(axis=1), head._probabilities(scores)

        best, probabilities = map(np.concatenate, zip(*head._in_parts(rows, answer), strict=True))
        return head.classes_[best], probabilities

    def novelty(self, X: ArrayLike) -> np.ndarray:
        """How little a sample looks like any known class; only the order of the values has a meaning.

        It is the entropy of the probabilities. Heads with a covariance add a distance to the classes. Novelty that
        cannot be computed, because a sample is too far away, is the largest number of its type, and always unknown.
        """
        head, rows = self._checked(X)
        return np.concatenate(head._in_parts(rows, lambda part: head._novelties(part, head._sorted_scores(part))))

    def _novelty_of(self, X: ArrayLike, scores: np.ndarray) -> np.ndarray:
        """:meth:`novelty` of samples with known scores, with columns in any order."""
        head, rows = self._checked(X)
        expected = (len(rows), len(head.classes_))
        if np.shape(scores) != expected:
            raise ValueError(
                f"scores must have one row per sample and one column per class, {expected}, got {np.shape(scores)}"
            )
        parts, scores = _scored(rows, scores.shape[1]), np.ascontiguousarray(scores)
        with one_blas_thread():
            return np.concatenate([head._novelties(rows[part], scores[part]) for part in parts])

    def _scores_with_novelty(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """The results of :meth:`scores` and :meth:`novelty` from one pass over ``X`` and one state of the head."""
        head, rows = self._checked(X)

        def answer(part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            scores = head._sorted_scores(part)
            return scores, head._novelties(part, scores)

        scores, novelty = map(np.concatenate, zip(*head._in_parts(rows, answer), strict=True))
        return scores, novelty

    def _novelties(self, X: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """The novelty of some rows; the largest number where it cannot be computed, so that such rows are unknown."""
        with np.errstate(all="ignore"):
            novelty = self._novelty(X, scores)
        return np.where(np.isfinite(novelty), novelty, unknowns.largest(novelty))

    def _novelty(self, X: np.ndarray, scores: np.ndarray) -> np.ndarray:
        entropy: np.ndarray = entr(self._probabilities(scores)).sum(axis=1)
        return entropy

    def novelty_threshold(
        self, X: ArrayLike | None = None, false_alarms: float = 0.05, *, per_class: bool = False
    ) -> float:
        """The novelty that a fraction ``false_alarms`` of samples of known classes exceeds; stored as ``threshold_``.

        ``X`` are held-out samples of known classes, because samples that the head has learned look less novel. ``bayes``
        needs none: it stores how novel its own samples looked before it learned them. With ``per_class``, classes that are
        predicted often enough also get their own threshold (``class_thresholds_``). When the head learns more or is
        corrected, ``bayes`` computes them again by itself; other heads drop them, because they no longer fit.
        """
        if not 0 < false_alarms < 1:
            raise ValueError(f"false_alarms must be above 0 and below 1, got {false_alarms!r}")
        check_is_fitted(self)
        self._change(lambda head: unknowns.keep_threshold(head, X, false_alarms, per_class))
        return self.threshold_

    def _own_threshold(self, false_alarms: float) -> float:
        """The threshold from the stored novelties."""
        raise ValueError(f"{type(self).__name__} needs held-out samples of known classes: novelty_threshold(X)")

    def _own_class_thresholds(self, false_alarms: float) -> dict[Any, float]:
        """Thresholds of classes with enough samples, by label."""
        return {}

    def calibrate(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Calibrate :meth:`predict_set` on held-out samples of known classes.

        The guarantee holds for samples from the same distribution, until the head changes; the calibration is then deleted.
        """

        def keep(head: Self) -> None:
            head.misfits_ = conformal.misfits(head, X, y)

        check_is_fitted(self)
        return self._change(keep)

    def predict_set(self, X: ArrayLike, coverage: float = 0.9) -> list[np.ndarray]:
        """Sets of classes, the most probable first, that contain the true class with probability ``coverage``.

        After :meth:`calibrate` this is guaranteed, on average over samples, by split conformal prediction. Without it,
        ``bayes`` uses how well its own samples fitted their classes before it learned them. A set may be empty if no
        class fits well enough.
        """
        conformal.check_coverage(coverage)
        head, rows = self._checked(X)
        limit = conformal.limit(head.misfits_, coverage) if hasattr(head, "misfits_") else None
        sets = []
        for part in _scored(rows, len(head.classes_)):
            scores = head._sorted_scores(rows[part])
            probabilities = head._probabilities(scores)
            inside = (
                (1 - probabilities <= limit) if limit is not None else head._fitting(rows[part], scores, coverage)
            )
            order = np.argsort(-probabilities, axis=1, kind="stable")
            sets += [head.classes_[best[own[best]]] for best, own in zip(order, inside, strict=True)]
        return sets

    def _fitting(self, X: np.ndarray, scores: np.ndarray, coverage: float) -> np.ndarray:
        """Whether rows fit each class of ``classes_`` as well as a fraction ``coverage`` of its own samples."""
        raise ValueError(
            f"{type(self).__name__} keeps no scores of samples before it learned them: calibrate(X, y) with held-out "
            "samples comes before predict_set"
        )

    def _checked(self, X: Any) -> tuple[Self, Any]:
        """A consistent view of the head, even if another thread teaches it now, and validated features."""
        head = self._snapshot()
        if not hasattr(head, "classes_"):  # scikit-learn's own look takes longer than a row
            check_is_fitted(head)
        return head, check_features(head, X, reset=False)

    def _snapshot(self) -> Self:
        copy = object.__new__(type(self))
        copy.__dict__ = dict(self.__dict__)
        return copy

    def _sorted_scores(self, X: np.ndarray) -> np.ndarray:
        """Finite scores of some validated rows, with columns as in ``classes_``.

        Each row is contiguous, unlike in ``scores[:, numbers]``: sums over a row then do not depend on other rows.
        """
        return self._finite_scores(X).take(self.arrival_, axis=1)

    def _finite_scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        """:meth:`_scores`; raises ValueError unless all are finite, because the best of others means nothing."""
        with np.errstate(all="ignore"):
            scores = self._scores(X, classes)
        if not np.isfinite(scores).all():
            raise ValueError(_not_finite(X[~np.isfinite(scores).all(axis=1)][0]))
        return scores

    def _in_parts(self, X: Any, answer: Callable[[np.ndarray], Any]) -> list[Any]:
        """The results of ``answer`` for parts of the rows, each on one BLAS thread, several chunks on several cores."""
        width = max(X.shape[1], len(self.classes_))
        first, *others = row_chunks(X, width)
        # What is not finite is looked for, so it needs no warning.
        with one_blas_thread(), np.errstate(all="ignore"):
            if not others:
                rows = X[first]
                return [answer(rows[part]) for part in row_chunks(rows, _PIECES * width)]
            every = spread if isinstance(X, np.ndarray) else map  # other storage may not be thread-safe
            return list(
                chain.from_iterable(every(lambda chunk: self._in_parts(X[chunk], answer), (first, *others)))
            )


def _not_finite(row: np.ndarray) -> str:
    return (
        f"a sample whose largest feature is {np.abs(row).max():.3g} has a score that is not a finite number; "
        "scale the features like those that the head has learned"
    )


def _scored(X: Any, n_classes: int) -> Iterator[slice]:
    """Rows that are scored together."""
    return row_chunks(X, _PIECES * max(X.shape[1], n_classes))
