"""``taer.MultiLabel``: a head for samples with several labels, or none."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from taer.heads import exact
from taer.heads.bayes.density import Spread
from taer.heads.bayes.head import Bayes
from taer.heads.bayes.state import Prior
from taer.heads.closed_form.selection import evenly
from taer.heads.embedding import Normalize
from taer.heads.few import collected
from taer.heads.validation import check_features
from taer.metrics import f1_micro
from taer.multilabel import thresholds as limits
from taer.multilabel.forms import answered, taught
from taer.origin import Origin
from taer.rows import row_chunks, select
from taer.threads import one_blas_thread

_FOLDS = 4  # of the first task, held out in turn
_TRIED = 2000  # samples of it


@dataclass(frozen=True)
class Labels:
    """The state of all labels, in order of arrival: one row of each array."""

    counts: np.ndarray  # of samples with the label
    sums: np.ndarray  # of these samples in the space of the prior, less the center
    columns: np.ndarray  # weight vectors of the scores, rounded for exact products
    offsets: np.ndarray
    inside: np.ndarray  # scores of samples with the label before they were learned, counted by step
    outside: np.ndarray  # and of samples without it
    thresholds: np.ndarray

    @classmethod
    def none(cls, width: int) -> Self:
        rows, steps, flat = np.zeros((0, width)), np.zeros((0, limits.BINS)), np.zeros(0)
        return cls(flat, rows, rows.astype(np.float32), flat, steps, steps, flat)

    def grown(self, n_labels: int) -> Self:
        """With more labels, of which nothing is known."""
        more = n_labels - len(self.counts)
        arrays: dict[str, Any] = {
            name: np.concatenate([each, np.zeros((more, *each.shape[1:]), each.dtype)])
            for name, each in self.to_arrays().items()
        }
        arrays["thresholds"][len(self.counts) :] = limits.DEFAULT
        return replace(self, **arrays)

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def check(self, width: int, n_labels: int) -> None:
        """Raise ValueError unless this is a state of so many labels and features."""
        widths = {"sums": width, "columns": width, "inside": limits.BINS, "outside": limits.BINS}
        for name, value in self.to_arrays().items():
            shape = (n_labels, widths[name]) if name in widths else (n_labels,)
            kind = "float32" if name == "columns" else "float64"
            if value.shape != shape or value.dtype != kind or not np.isfinite(value).all():
                raise ValueError(f"{name}: expected finite numbers of the shape {shape}")
        if any((each < 0).any() for each in (self.counts, self.inside, self.outside)):
            raise ValueError("expected counts from zero on")


@dataclass(frozen=True)
class Frame:
    """The space in which labels are learned: that of a prior, around the center of all samples of the first task."""

    prior: Prior
    embedding: Normalize
    center: np.ndarray

    @classmethod
    def fitted(cls, head: Bayes, X: Any, inside: np.ndarray) -> Self:
        """Teach a head the labels as classes, for its prior: a sample with two labels is a sample of both."""
        rows, labels = np.nonzero(inside)
        with collected():
            head.partial_fit(select(X, rows), labels)
        found = cls(head.prior_, head.embedding_, np.zeros(X.shape[1]))
        return replace(found, center=found(X).mean(axis=0))

    def __call__(self, X: Any) -> np.ndarray:
        found: np.ndarray = np.concatenate([self.rows(X[rows]) for rows in row_chunks(X)]) - self.center
        return found

    def rows(self, X: np.ndarray) -> np.ndarray:
        """Rows in the space of the prior, around its own center, with the same bits on every machine."""
        return self.prior(self.embedding(X)).rows


class MultiLabel(BaseEstimator):
    """Several labels per sample, or none: each label is in or out by itself, under the prior of ``bayes``.

    The first task teaches ``head`` what labels look like on these features; only its prior is kept. In its space, a
    label has the mean ``m`` of its samples, and all samples scatter by ``1 + psi`` around the center. The score is
    ``z (1 + psi)^-1 m`` in units of its own deviation over all samples, so that labels of one and of a thousand samples
    compare. A label is in where the score reaches its threshold, which has the highest F1 on samples that were scored
    before they were learned.

    A label depends only on the samples for which it was judged and on the first task. So a label that is added moves no
    other score or threshold. A label that is taught in several calls has the same scores, up to rounding, as in one.

    Parameters
    ----------
    head : Bayes or BayesReplay, default=None
        The head whose prior is used; ``Bayes()`` if not given. It is cloned.

    Attributes
    ----------
    classes_ : list
        Labels in order of arrival: the columns of scores, probabilities and indicator matrices.
    labels_ : Labels
        The state of the labels.
    n_features_in_ : int
        Number of features.

    Examples
    --------
    >>> import numpy as np, taer
    >>> rng = np.random.default_rng(0)
    >>> Y = [set(rng.choice(["late", "broken", "refund", "thanks"], 2).tolist()) for _ in range(80)]
    >>> words = {label: rng.normal(size=16) for label in ["late", "broken", "refund", "thanks", "new"]}
    >>> X = [sum(words[label] for label in sorted(labels)) + 0.1 * rng.normal(size=16) for labels in Y]
    >>> many = taer.MultiLabel().partial_fit(X, Y)
    >>> many.predict([words["late"] + words["refund"]])
    [['late', 'refund']]
    >>> before = many.scores(X)
    >>> many = many.partial_fit([words["new"], words["late"]], [["new"], []], classes=["new"])
    >>> many.classes_
    ['broken', 'late', 'refund', 'thanks', 'new']
    >>> bool((many.scores(X)[:, :-1] == before).all())
    True
    """

    def __init__(self, head: Any = None) -> None:
        self.head = head

    # Learning

    def fit(self, X: ArrayLike, Y: Any, classes: ArrayLike | None = None) -> Self:
        """Forget everything, then learn ``X, Y`` as the first task."""
        fresh = type(self)(self.head)
        fresh.partial_fit(X, Y, classes)
        self.__dict__ = fresh.__dict__
        return self

    def partial_fit(self, X: ArrayLike, Y: Any, classes: ArrayLike | None = None) -> Self:
        """Learn from more samples. A call that fails changes nothing.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        Y : lists of labels, or indicator matrix
            A list (tuple, set) of labels for each sample, or a matrix of 0 and 1, dense or sparse, with a column per label
            of ``classes``. Without ``classes``, its columns are those of a data frame, all known labels, or 0, 1, 2, ….
        classes : list, optional
            The labels that were judged for these samples. Others are left alone. By default, all labels seen so far and
            those in ``Y``.
        """
        changed = object.__new__(type(self))
        changed.__dict__ = dict(self.__dict__)
        with one_blas_thread():
            changed._learn(X, Y, classes)
        self.__dict__ = changed.__dict__
        return self

    def _learn(self, X: Any, Y: Any, classes: Any) -> None:
        first = not hasattr(self, "classes_")
        X = check_features(self, X, reset=first)
        known: list[Any] = [] if first else self.classes_
        judged = taught(Y, len(X), classes, known)
        if first:
            if not judged.inside.any():
                raise ValueError("no sample of the first task has a label, so there is nothing to learn")
            self.frame_, self.labels_ = Frame.fitted(self.template(), X, judged.inside), Labels.none(X.shape[1])
        self.classes_: list[Any] = [*known, *(label for label in judged.labels if label not in known)]
        place = {label: at for at, label in enumerate(self.classes_)}
        labels = self.labels_.grown(len(self.classes_))
        state = _Learning(labels.to_arrays(), self.frame_)
        z, numbers = self.frame_(X), [place[label] for label in judged.labels]
        for at, inside in zip(numbers, judged.inside.T, strict=True):
            state.learn(at, z, inside)
            if not first:
                state.count(at, z, inside)
        if first:
            state.arrays["inside"], state.arrays["outside"] = self._held_out(X, judged.inside)
            self.pool_ = np.stack([state.arrays[name].sum(axis=0) for name in ("inside", "outside")])
        for at in numbers:
            state.set_threshold(at, self.pool_)
        self.labels_ = replace(labels, **state.arrays)
        self.labels_.check(self.n_features_in_, len(self.classes_))
        if first:
            now = self.labels_
            self.slope_ = limits.slope(now.inside, now.outside, now.thresholds)
        self.form_ = judged.form

    def template(self) -> Bayes:
        """A head that has learned nothing, of the kind whose prior is used."""
        head = Bayes() if self.head is None else clone(self.head)
        if not isinstance(head, Bayes):
            raise ValueError(
                f"MultiLabel takes a Bayes or BayesReplay, whose prior the labels share, got {type(head).__name__}; "
                "scikit-learn's OneVsRestClassifier takes any head"
            )
        return head

    def _held_out(self, X: Any, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Counts of the scores of samples with and without each label, by a prior and means that have not seen them.

        The prior fits the samples that it comes from better than others, so their own scores would be too good.
        """
        some = evenly(np.arange(len(X)), _TRIED)
        counts = np.zeros((2, inside.shape[1], limits.BINS))
        for fold in range(_FOLDS):
            asked, seen = some[fold::_FOLDS], np.delete(some, np.s_[fold::_FOLDS])
            if not inside[seen].any():
                continue
            frame, learned = Frame.fitted(self.template(), select(X, seen), inside[seen]), inside[seen]
            z, before = frame(select(X, asked)), frame(select(X, seen))
            for at in np.flatnonzero(learned.any(axis=0)):
                scores = z @ column_of(before[learned[:, at]].mean(axis=0), frame.prior.spread)
                of_label = inside[asked, at]
                counts[0, at] += limits.counted(scores[of_label])
                counts[1, at] += limits.counted(scores[~of_label])
        return counts[0], counts[1]

    # Answers

    def scores(self, X: ArrayLike) -> np.ndarray:
        """Scores, one column per label of ``classes_``, in deviations over samples that lack the label.

        An entry depends only on its sample and its label: its bits are the same whatever else is asked for or learned.
        """
        check_is_fitted(self)
        rows, now = check_features(self, X, reset=False), self.labels_
        with one_blas_thread():
            parts = [
                exact.products(self.frame_.rows(rows[part]), now.columns) - now.offsets
                for part in row_chunks(rows, max(rows.shape[1], len(self.classes_)))
            ]
        return np.concatenate(parts)

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Scores less the thresholds of the labels: a label is in from zero on."""
        return self.scores(X) - self.labels_.thresholds

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Probabilities of the labels, each by itself; 0.5 at the threshold of a label."""
        return limits.probability(self.scores(X), self.labels_.thresholds, self.slope_)

    def predict(self, X: ArrayLike) -> Any:
        """The labels of each sample, in the form in which they were last taught: lists, or an indicator matrix."""
        return answered(self.decision_function(X) >= 0, self.classes_, self.form_)

    def score(self, X: ArrayLike, Y: Any) -> float:
        """Micro-averaged F1 on samples with all their labels."""
        found = self.decision_function(X) >= 0
        asked = taught(Y, len(found), None, self.classes_)
        inside = np.zeros(asked.inside.shape, np.bool_)
        inside[:, : found.shape[1]] = found
        return f1_micro(asked.inside, inside)

    # For saving, and for the command line

    def _check_origin(self, origin: Origin | None) -> None:
        """Raise ValueError for features of another backbone than those that were learned, if both are known."""
        known = getattr(self, "feature_origin_", None)
        if known is not None and origin is not None and (difference := origin.difference(known)):
            raise ValueError(f"features of another backbone than the head has learned: {difference}")

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to one ``.safetensors`` file; ``taer.load`` reads it."""
        from taer.persist.multilabel import save_labels

        save_labels(self, path)


@dataclass(frozen=True)
class _Learning:
    """Copies of the arrays of :class:`Labels`, in which labels are learned."""

    arrays: dict[str, np.ndarray]
    frame: Frame

    def learn(self, at: int, z: np.ndarray, inside: np.ndarray) -> None:
        """Add the samples with a label to it."""
        state = self.arrays
        state["counts"][at] += inside.sum()
        state["sums"][at] += z[inside].sum(axis=0)
        if state["counts"][at]:
            column = column_of(state["sums"][at] / state["counts"][at], self.frame.prior.spread)
            state["columns"][at] = exact.rounded(column[None], np.float32)[0]
            state["offsets"][at] = self.frame.center @ state["columns"][at].astype(np.float64)

    def count(self, at: int, z: np.ndarray, inside: np.ndarray) -> None:
        """Count the scores of samples with and without a label, each by the label as it is without this sample."""
        state, own = self.arrays, z[inside]
        count, total = state["counts"][at], state["sums"][at]
        if count:
            state["outside"][at] += limits.counted(z[~inside] @ column_of(total / count, self.frame.prior.spread))
        if count > 1 and len(own):
            others = column_of((total - own) / (count - 1), self.frame.prior.spread)
            state["inside"][at] += limits.counted((own * others).sum(axis=1))

    def set_threshold(self, at: int, pool: np.ndarray) -> None:
        state = self.arrays
        state["thresholds"][at] = limits.threshold(state["inside"][at], state["outside"][at], pool)


def column_of(means: np.ndarray, spread: Spread) -> np.ndarray:
    """``(1 + psi)^-1 m`` of one mean or of rows of them, divided by the deviation of the score over all samples."""
    q, others = spread.directions, 1 / (1 + spread.rest)
    found = means * others + ((means @ q.T) * (1 / (1 + spread.psi) - others)) @ q
    variance = (found * means).sum(axis=-1, keepdims=True)
    scaled: np.ndarray = found / np.sqrt(np.maximum(variance, 1e-300))
    return scaled
