"""The base class of all heads: classes that grow, validated input, and calls that succeed or change nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from taer.heads import corrections
from taer.heads.card import Card
from taer.heads.embedding import result_type
from taer.heads.few import warn_of_few
from taer.heads.fitted import (
    FLOATS,
    Fitted,
    Sizes,
    array,
    check_classes,
    check_declared,
    count,
    declared,
    number,
    value_of,
    word,
)
from taer.heads.params import check_params, documented, param, shorten_routing
from taer.heads.predictor import Predictor
from taer.heads.registry import register
from taer.heads.task import Learned as Learned  # methods import it from here
from taer.heads.task import Task as Task
from taer.heads.unknowns import class_thresholds, renew_threshold
from taer.heads.validation import check_features, check_labels, check_weights, generator, repetitions
from taer.origin import Origin
from taer.rows import select
from taer.threads import one_blas_thread


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
@dataclass(kw_only=True, eq=False, repr=False)
class Head(Predictor, ClassifierMixin, BaseEstimator):
    """A scikit-learn classifier whose set of classes grows: one call of ``partial_fit`` is one task.

    A subclass implements ``_learn(task)``. Its scores are ``weights_ @ embedding_(x) + offsets_``, with one column (weight
    vector) per class, unless it overrides ``_scores``. Internally, classes are numbered in order of arrival, so arrays
    with one row per class only grow. The public methods return them sorted, as ``classes_``.
    """

    random_state: int | np.random.Generator | np.random.RandomState | None = param(
        None, "random seed or generator; None for a new seed each time"
    )

    if TYPE_CHECKING:  # fitted, not a parameter
        statistics_: Any = field(init=False)

    name: ClassVar[str] = ""
    card: ClassVar[Card]
    # Fitted attributes. A subclass declares only its own.
    fitted: ClassVar[dict[str, Fitted]] = {
        "n_features_in_": count(help="number of features"),
        "feature_names_in_": value_of(
            np.ndarray, optional=True, help="names of the features, if the first task was a data frame"
        ),
        "classes_": value_of(np.ndarray, help="labels seen so far, sorted"),
        "arrival_": value_of(np.ndarray, help="number of each class of ``classes_`` in order of arrival, from 0"),
        "learning_order_": value_of(
            list,
            help="pairs ``(label, task)`` in order of arrival: each class and the task, from 1, in which it was first seen",
        ),
        "n_tasks_": count(help="number of tasks learned so far"),
        "dtype_": word(*FLOATS, help="type of the scores, from the type of the features of the first task"),
        "rng_": value_of(np.random.Generator, help="random generator"),
        "feature_origin_": value_of(
            Origin,
            optional=True,
            help="backbone, weights and preprocessing of the features, if recorded by a feature file or a pipeline",
        ),
        "threshold_": number(optional=True, help="the novelty above which a sample is unknown, if it was fitted"),
        "false_alarms_": number(
            above=0, optional=True, help="the fraction of samples of known classes that this threshold marks"
        ),
        "class_thresholds_": class_thresholds(help="the same by label, for classes with their own threshold"),
        "misfits_": array(
            "calibration",
            types=("float64",),
            optional=True,
            help="one minus the probability of the true class of each sample of ``calibrate``, sorted",
        ),
    }
    # Whether it stores the novelty of its own samples, so that no held-out ones are needed.
    _own_novelty: ClassVar[bool] = False
    weighs: ClassVar[bool] = False  # whether ``_learn`` uses the weights of a task; otherwise samples are repeated
    # Names of the attributes with one row per class, in order of arrival.
    _class_arrays: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, name: str = "", card: Card | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclass(kw_only=True, eq=False, repr=False)(cls)
        cls._class_arrays = tuple(name for name, item in declared(cls).items() if item.per_class)
        if card is not None or hasattr(cls, "card"):  # the card of a base is inherited, its registration is not
            cls.card = card or replace(cls.card, group="own")
        cls.__doc__ = documented(cls)
        shorten_routing(cls)
        if name:
            register(name, cls)

    @property
    def frozen(self) -> bool:
        """Whether, with its parameters, the scores of old classes never move."""
        return self.card.frozen

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_")

    # Learning

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything, then learn ``X, y`` as the first task."""

        def anew(head: Self) -> None:
            for name in [name for name in vars(head) if name.endswith("_")]:
                delattr(head, name)
            head._learn_task(X, y, None, sample_weight)

        return self._change(anew)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn one more task.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Features of the current task. Any object with ``shape``, ``dtype`` and row indexing is accepted; a
            memory-mapped array is read in batches.
        y : array of shape (n_samples,)
            Labels of new or known classes. The scores of known classes with samples in ``y`` may change; classes
            without samples in ``y`` are treated as old.
        classes : array, optional
            Accepted as in scikit-learn and checked to contain ``y``; it is not needed.
        sample_weight : array of shape (n_samples,), optional
            A weight of 2 counts a sample twice, 0 leaves it out. Closed-form heads use any weight exactly. Others
            repeat samples; the fractional part of a weight is the probability of one more repetition.
        """
        return self._change(lambda head: head._learn_task(X, y, classes, sample_weight))

    def _learn_task(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> None:
        check_params(self)
        first = not hasattr(self, "classes_")
        X = check_features(self, X, reset=first)
        labels = check_labels(y, len(X), None if first else self.classes_)
        weights = check_weights(sample_weight, len(X))
        if classes is not None and (unlisted := np.setdiff1d(labels, classes)).size:
            raise ValueError(f"y has labels that classes lacks: {unlisted[:5].tolist()}")
        if first:
            self.rng_ = generator(self.random_state)
            self.learning_order_: list[Learned] = []
            self.n_tasks_ = 0
            self.dtype_ = result_type(X)
            self._set_labels(labels[:0])
        if weights is not None:
            rows = np.flatnonzero(weights) if self.weighs else repetitions(weights, labels, self.rng_)
            X, labels, weights = select(X, rows), labels[rows], weights[rows] if self.weighs else None
        known, present = self.classes_, np.unique(labels)
        arriving = np.setdiff1d(present, known)
        self.n_tasks_ += 1
        self.learning_order_ = [
            *self.learning_order_,
            *(Learned(label, self.n_tasks_) for label in arriving.tolist()),
        ]
        self._set_labels(np.concatenate([known[np.argsort(self.arrival_)], arriving]))
        numbers = self.arrival_[np.searchsorted(self.classes_, labels)]
        self._learn(Task(X, numbers, len(known), len(self.classes_), self.n_tasks_, weights))
        self._check_learned(np.unique(numbers))
        self._outdate()
        if not (first or self.card.few_shot):
            warn_of_few(self.name, arriving, self._class_counts())

    def _check_learned(self, classes: np.ndarray) -> None:
        """Raise ValueError if the state of some classes is not finite: features of this size cannot be learned."""
        for name in self._class_arrays:
            values = getattr(self, name, None)
            if values is not None and not np.isfinite(values[classes]).all():
                raise ValueError(
                    f"{type(self).__name__} cannot learn features of this size: its {name} would not be finite; scale "
                    "the features to about 1, or use float64"
                )

    def _class_counts(self) -> np.ndarray:
        """Number of samples learned per class, in order of arrival, for the warning about few samples."""
        counts: np.ndarray = self.statistics_.counts
        return counts

    def _set_labels(self, labels: np.ndarray) -> None:
        """Set the labels, given in order of arrival."""
        self.arrival_ = np.argsort(labels, kind="stable")  # of each class of classes_
        self.classes_: np.ndarray = labels[self.arrival_]

    def _change(self, change: Callable[[Self], None]) -> Self:
        """Change a copy of the head, then replace the state in one assignment.

        So a call that fails changes nothing, and a prediction in another thread sees the head before or after the change.
        One BLAS thread is used, so that the head has the same bits on any number of cores.
        """
        changed = self._snapshot()
        if hasattr(self, "rng_"):
            changed.rng_ = np.random.Generator(type(self.rng_.bit_generator)())
            changed.rng_.bit_generator.state = self.rng_.bit_generator.state
        with one_blas_thread():
            change(changed)
        self.__dict__ = changed.__dict__
        return self

    def _learn(self, task: Task) -> None:
        """Learn one task. Fitted arrays are replaced, never changed in place, because others may still use them."""
        raise NotImplementedError

    def _check_origin(self, origin: Origin | None) -> None:
        """Raise ValueError for features of another backbone than those the head has learned, if both are known."""
        known = getattr(self, "feature_origin_", None)
        if known is not None and origin is not None and (difference := origin.difference(known)):
            raise ValueError(f"features of another backbone than the head has learned: {difference}")

    # Corrections

    def unlearn(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Remove samples: up to rounding, scores are then as if they had never been learned.

        What the first task fixed (the embedding, shrinkages) and the temperature of probabilities do not change. A class
        without samples is forgotten. Only for heads whose state is sums over samples; others raise ValueError.
        """
        check_is_fitted(self)
        return self._change(lambda head: corrections.unlearn(head, X, y, sample_weight))

    def merge(self, other: Self, base: Self | None = None) -> Self:
        """A head with the samples of this head and another; ``a + b`` is ``a.merge(b)``.

        Up to rounding, it equals a head that learned all samples. What the first task fixed must be the same in both.
        ``base`` is the head from which both were copied; its samples then count once.
        """
        return corrections.merged(self, other, base)

    def __add__(self, other: Self) -> Self:
        return self.merge(other)

    # Hooks of heads on sums, for ``unlearn`` and ``merge``.

    def _sums(self) -> Any:
        """The sums over samples, by class number; they can be added and subtracted."""
        return self.statistics_

    def _sums_of(self, task: Task) -> Any:
        """The sums over some samples."""
        raise NotImplementedError

    def _set_sums(self, sums: Any, changed: np.ndarray) -> None:
        """Replace the sums, and everything computed from them; the samples of some classes have changed."""
        raise NotImplementedError

    def _fixed(self) -> dict[str, Any]:
        """What the first task fixed, which must be equal in merged heads, by name."""
        return {}

    def _sums_from(self, other: Self) -> tuple[Any, bool]:
        """The sums of another head in this head's embedding, and whether both had the same first task."""
        raise NotImplementedError

    def _absorb(self, other: Self) -> None:
        """Take over the rest of the state of a head that is merged into this one."""

    # Classes

    def rename(self, old: Any, new: Any) -> Self:
        """Rename a class; nothing else changes."""
        check_is_fitted(self)
        number = self._number_of(old)
        renamed = check_labels([new], 1, self.classes_)[0]
        labels = [label for label, _ in self.learning_order_]
        if renamed == labels[number]:
            return self
        if renamed in self.classes_:
            raise ValueError(f"{new!r} is another class already")
        labels[number] = renamed.item() if hasattr(renamed, "item") else renamed

        def relabel(head: Self) -> None:
            tasks = [task for _, task in head.learning_order_]
            head.learning_order_ = [Learned(*entry) for entry in zip(labels, tasks, strict=True)]
            head._set_labels(np.array(labels))
            if old in (own := getattr(head, "class_thresholds_", {})):
                head.class_thresholds_ = {labels[number] if label == old else label: own[label] for label in own}

        return self._change(relabel)

    def forget(self, label: Any) -> Self:
        """Remove a class, with its column or statistics and its samples in the memory.

        Scores of the other classes do not change, except in closed-form heads that depend on every class.
        ``docs/evidence/beyond.md`` lists the heads for which the result is as if the class had never been seen.
        """
        check_is_fitted(self)
        number = self._number_of(label)
        if len(self.classes_) == 1:
            raise ValueError("the only class cannot be forgotten")

        def drop(head: Self) -> None:
            head._drop(number)
            head._update(np.zeros(0, np.int64))
            head._outdate()

        return self._change(drop)

    def _outdate(self) -> None:
        """Delete calibrations and renew the threshold, which are valid only for the head before the change."""
        for name in ("misfits_", "automation_"):
            self.__dict__.pop(name, None)
        renew_threshold(self)

    def _update(self, classes: np.ndarray) -> None:
        """Compute the scores again after the samples of these classes have changed, or a class was removed."""

    def _drop(self, number: int) -> None:
        """Remove the state of a class by its number; later numbers decrease by one."""
        self.learning_order_ = [entry for at, entry in enumerate(self.learning_order_) if at != number]
        self._set_labels(np.delete(self.classes_[np.argsort(self.arrival_)], number))
        for name, value in list(vars(self).items()):
            if name in self._class_arrays:
                setattr(self, name, np.delete(value, number, axis=0))
            elif hasattr(value, "without"):
                setattr(self, name, value.without(number))

    def _numbers_of(self, labels: np.ndarray) -> np.ndarray:
        """Class numbers of labels; raises ValueError for unknown classes."""
        if unknown := np.setdiff1d(labels, self.classes_).tolist():
            raise ValueError(f"{unknown[0]!r} is not a known class")
        return self.arrival_[np.searchsorted(self.classes_, labels)]

    def _number_of(self, label: Any) -> int:
        labels = self.classes_.tolist()  # compared in Python, because numpy ignores a NUL at the end of a string
        if label not in labels:
            raise ValueError(f"{label!r} is not a known class")
        return int(self.arrival_[labels.index(label)])

    # For saving, comparing and exporting heads

    def save(self, path: str | PathLike[str]) -> None:
        """Write the whole state of the head to one ``.safetensors`` file; ``taer.load`` reads it."""
        from taer.persist.save import save  # imports all heads

        save(self, path)

    def push_to_hub(
        self,
        repository: str,
        *,
        test: tuple[ArrayLike, Any] | None = None,
        license: str | None = None,
        private: bool | None = None,
        message: str | None = None,
    ) -> str:
        """Upload the head to the Hugging Face hub, with a model card that is written from it.

        Parameters
        ----------
        repository : str
            ``owner/name``, or ``owner/name@branch``; made if it is not there.
        test : tuple, optional
            Samples and labels on which accuracy and calibration are measured for the card.
        license : str, optional
            License of the head, as the hub names it, such as ``apache-2.0``.
        private : bool, optional
            Whether a repository that is made is private; by default as the owner has set it.
        message : str, optional
            Message of the commit.

        Returns
        -------
        str
            The address with the commit, ``hf:owner/name@commit``, which :func:`taer.load` reads.
        """
        from taer.persist.hub import push

        return push(self, repository, test=test, license=license, private=private, message=message)

    def _state(self) -> dict[str, Any]:
        """Fitted attributes by name: the whole state of the head, except its parameters."""
        return {name: value for name, value in vars(self).items() if name.endswith("_")}

    def _restore(self, state: dict[str, Any]) -> Self:
        """Set fitted attributes from the result of ``_state``."""
        self.__dict__ |= state
        self._check_fitted()
        return self

    def _check_fitted(self) -> None:
        """Raise ValueError unless the fitted state is complete and consistent: that of a file may not be."""
        state, attributes = self._state(), declared(type(self))
        first = {name: attributes[name] for name in Head.fitted}
        check_declared({name: value for name, value in state.items() if name in first}, first, {})
        check_classes(self)
        if (origin := state.get("feature_origin_")) is not None:
            origin.check()
        check_declared(state, attributes, self._sizes())

    def _sizes(self) -> Sizes:
        """Sizes of fitted arrays, by the names used in ``fitted``."""
        return {"classes": len(self.classes_), "width": self.n_features_in_, "embedding": self.n_features_in_}

    def _class_state(self, label: Any) -> list[np.ndarray]:
        """The arrays that determine the scores of a class. If old scores never move, equal arrays mean equal scores."""
        head = self._snapshot()
        number = head._number_of(label)
        return [getattr(head, name)[number] for name in self._class_arrays]

    def _folded(self) -> tuple[np.ndarray, np.ndarray]:
        """``coef, intercept`` with scores ``coef @ x + intercept`` of your features."""
        head, folded = self._snapshot(), None
        if self.card.linear and hasattr(head, "classes_"):
            folded = head.embedding_.fold(head.weights_[head.arrival_], head.offsets_[head.arrival_])
        if folded is None:
            raise AttributeError(f"this {type(self).__name__} has no coefficients in the units of your features")
        return folded[0].astype(head.dtype_), folded[1].astype(head.dtype_)

    @property
    def coef_(self) -> np.ndarray:
        """Weights in the units of your features, one row per class of ``classes_``; only in linear heads."""
        return self._folded()[0]

    @property
    def intercept_(self) -> np.ndarray:
        """Intercepts that belong to ``coef_``."""
        return self._folded()[1]

    def _graph(self, graph: Any) -> str:
        """Add the scores to an ONNX graph that starts at ``features``; returns the name of their value."""
        if not self.card.exports:
            raise ValueError(f"{type(self).__name__} has no ONNX form here")
        columns, offsets = (rows[self.arrival_].astype(np.float64) for rows in (self.weights_, self.offsets_))
        return str(graph.add("Gemm", self.embedding_.graph(graph, "features"), columns, offsets, transB=1))

    def _novelty_graph(self, graph: Any, probabilities: str) -> str:
        """Add the novelty to such a graph: the entropy. A head with another ``_novelty`` overrides this, too."""
        shares = graph.cast(probabilities, np.float64)
        logs = graph.add("Log", graph.add("Max", shares, np.array(1e-300)))
        summed = graph.add("ReduceSum", graph.add("Mul", shares, logs), np.array([1]), keepdims=0)
        return str(graph.add("Neg", summed))
