"""The base class of heads with one Student's t per class: stored state, scores, and a shortlist of classes."""

from __future__ import annotations

from functools import reduce
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy import special
from scipy.special import softmax

from taer.heads import exact
from taer.heads.base import Head, grown
from taer.heads.closed_form.directions import products_along
from taer.heads.closed_form.predictive import (
    Density,
    Summary,
    heights_of,
    log_densities,
    merged,
    predictive,
    summarize,
)
from taer.heads.closed_form.prior import Prior
from taer.heads.closed_form.sketch import SIZE, mixed, pooled_quantile, sketched
from taer.heads.closed_form.summaries import Summaries
from taer.heads.embedding import Normalize
from taer.heads.fitted import Fitted, array, number, value_of
from taer.heads.unknowns import ENOUGH
from taer.rows import row_chunks

DIRECTIONS = 32  # of the covariance of a class that are used in its scores
_AT_ONCE = 1 << 22  # values of directions that are processed together
_FOLDS = 4  # of the samples of a class; up to twice as many samples are left out one by one
TRIED = 128  # samples per class whose misfit is measured
_RIVALS = 1 << 10  # scores of all classes that are computed for the novelty of the samples of one class
_NEAREST = 256  # other classes with full scores for a held-out sample; beyond these, one hardly ever is the best
_FEW = 1 / 8  # of the classes; rows with shorter lists share too few classes to be scored together
_MANY = 1 / 3  # of the classes; so many scores take as long as all, because arrays of some classes are copied
_TIES = 1e-5  # relative difference below which scores may be equal in the type of the head


class HeldOut(NamedTuple):
    """Scores of held-out samples for a class without samples and for their own class."""

    space: np.ndarray  # those that are compared with all classes, in the space of the prior
    unseen: np.ndarray
    own: np.ndarray


class StudentHead(Head):
    """Scores ``height_c - d·log(1 + r_c(z) / d)`` of rows ``z = prior_(embedding_(x))``.

    ``r_c`` is the squared distance for the inverse shape of the class: a diagonal minus a few directions. A method
    implements how a class is learned; ``_describe`` stores its summary and the arrays of its scores.
    """

    own_novelty: ClassVar[bool] = True

    fitted: ClassVar[dict[str, Fitted]] = {
        "embedding_": value_of(Normalize, width="width", help="the normalization of the features"),
        "prior_": value_of(Prior, width="width", help="the prior, fitted on the first task"),
        "temperature_": number(above=0, help="divisor of the scores in the softmax of ``predict_proba``"),
        "counts_": array("classes", above=0, help="number of samples of each class, in order of arrival"),
        "means_": array("classes", "width", help="means of the classes, in the space of the prior"),
        "roots_": array(
            "classes",
            "rank",
            "width",
            types=("float32",),
            help="rows with the leading part of the scatter of each class",
        ),
        "traces_": array("classes", at_least=0, help="trace of the scatter of each class"),
        "inverses_": array("classes", "width", above=0, help="inverse variances of the predictive of each class"),
        "columns_": array("classes", "width", help="centers of the classes times their inverse variances"),
        "levels_": array("classes", help="squared lengths of the centers, weighted by the inverse variances"),
        "heights_": array(
            "classes", help="parts of the scores that depend on the volumes and sizes of the classes"
        ),
        "directions_": array(
            "classes",
            "directions",
            "width",
            types=("float32",),
            help="directions in which each class is wider than its inverse variances",
        ),
        "along_": array("classes", "directions", help="centers of the classes along these directions"),
        "most_": array("classes", at_least=0, help="largest reduction of a squared distance by these directions"),
        "own_misfits_": array("classes", SIZE, help="quantiles of the misfit of held-out samples of each class"),
        "novelties_": array("classes", SIZE, help="quantiles of their novelty among all known classes"),
        "tried_": array("classes", at_least=0, help="number of these samples"),
    }

    def _no_classes(self, width: int, rank: int) -> None:
        """Create the arrays with one row per class, without rows."""
        directions = min(rank, DIRECTIONS)
        self.counts_, self.means_, self.traces_ = np.zeros(0), np.zeros((0, width)), np.zeros(0)
        self.roots_ = np.zeros((0, rank, width), np.float32)
        self.columns_, self.inverses_ = np.zeros((0, width), self.dtype_), np.zeros((0, width), self.dtype_)
        self.levels_, self.heights_, self.most_ = np.zeros(0), np.zeros(0), np.zeros(0)
        self.own_misfits_, self.novelties_, self.tried_ = np.zeros((0, SIZE)), np.zeros((0, SIZE)), np.zeros(0)
        self.directions_, self.along_ = np.zeros((0, directions, width), np.float32), np.zeros((0, directions))

    def _describe(self, arrays: dict[str, np.ndarray], label: int, known: Summary) -> None:
        """Store the summary of a class and the arrays of its scores."""
        density = predictive(known, self.prior_.nu, self.prior_.psi, self.directions_.shape[1])
        arrays["counts_"][label], arrays["means_"][label], arrays["traces_"][label] = (
            known.n,
            known.mean,
            known.trace,
        )
        arrays["roots_"][label] = 0
        arrays["roots_"][label, len(arrays["roots_"][label]) - len(known.root) :] = known.root
        inverse = exact.rounded(density.inverse[None], self.dtype_)[0]
        column = exact.rounded((density.center * density.inverse)[None], self.dtype_)[0]
        root = exact.rounded(density.root, np.float32).astype(np.float64)
        arrays["inverses_"][label], arrays["columns_"][label] = inverse, column
        arrays["levels_"][label] = (np.square(density.center) * density.inverse).sum()
        arrays["heights_"][label] = heights_of(density.half_log_det) + self._offset(label, known.n)
        arrays["directions_"][label], arrays["along_"][label] = 0, 0
        arrays["directions_"][label, : len(root)], arrays["along_"][label, : len(root)] = (
            root,
            root @ density.center,
        )
        arrays["most_"][label] = density.most

    def _offset(self, label: int, count: float) -> float:
        return self.prior_.offset(count, first=self.learning_order_[label].task == 1)

    def _held_out(self, label: int, space: np.ndarray, before: Summary | None, n_classes: int) -> HeldOut:
        """Scores of samples for their class, learned from ``before`` and the other samples."""
        folds = np.arange(len(space)) % (_FOLDS if len(space) > 2 * _FOLDS else 2 * _FOLDS)
        densities, offsets = [self._unseen()], [0.0]
        for fold in range(folds.max() + 1):
            seen = [] if before is None else [before]
            if (folds != fold).any():
                seen.append(summarize(space[folds != fold], DIRECTIONS, quick=True))
            known = reduce(lambda one, other: merged(one, other, DIRECTIONS), seen)
            densities.append(predictive(known, self.prior_.nu, self.prior_.psi, DIRECTIONS))
            offsets.append(self._offset(label, known.n))
        scores = log_densities(space, densities) + offsets
        compared = max(2 * _RIVALS // n_classes, 2)  # among many classes a few samples of each are enough
        return HeldOut(space[:compared], scores[:, 0], scores[np.arange(len(space)), 1 + folds])

    def _try(self, arrays: dict[str, np.ndarray], held_out: dict[int, HeldOut]) -> None:
        """Store the misfit of held-out samples for their own class, and their novelty among all classes."""
        if not held_out:
            return
        labels = np.repeat(list(held_out), [len(each.space) for each in held_out.values()])
        space = np.concatenate([each.space for each in held_out.values()])
        unseen, own = (
            np.concatenate([getattr(each, name)[: len(each.space)] for each in held_out.values()])
            for name in ("unseen", "own")
        )
        parts = row_chunks(space, len(self.counts_))
        novelties = unseen - np.concatenate([self._best_of(space[p], own[p], labels[p]) for p in parts])
        for label, each in held_out.items():
            tried, n = arrays["tried_"][label], len(each.own)
            found = {"own_misfits_": each.unseen - each.own, "novelties_": novelties[labels == label]}
            for name, sketch in ((name, sketched(values)) for name, values in found.items()):
                arrays[name][label] = mixed(arrays[name][label], tried, sketch, n) if tried else sketch
            arrays["tried_"][label] = tried + n

    def _best_of(self, space: np.ndarray, own: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The highest score of each row among its own class, whose score is given, and the nearest others."""
        lowest, highest = self._bounds(space)
        every = np.arange(len(space))
        lowest[every, labels] = highest[every, labels] = np.inf
        at_most = np.minimum(highest.min(axis=1), np.exp(-own / space.shape[1]))
        possible = (lowest <= at_most[:, None]) & np.isfinite(lowest)
        best = own.copy()
        for row in np.flatnonzero(possible.any(axis=1)):
            rivals = np.flatnonzero(possible[row])
            rivals = rivals[np.argsort(lowest[row, rivals], kind="stable")[:_NEAREST]]
            best[row] = max(own[row], self._scores_at(space[[row]], rivals).max())
        return best

    def _unseen(self) -> Density:
        """A class without samples."""
        psi = self.prior_.psi
        return predictive(Summary(0.0, np.zeros(len(psi)), np.zeros((0, len(psi))), 0.0), self.prior_.nu, psi, 0)

    def _kept_threshold(self, false_alarms: float) -> float:
        if not self.tried_.any():
            raise ValueError("no class has two samples yet: novelty_threshold needs held-out samples")
        kept = self.tried_ > 0
        weights = np.repeat(self.tried_[kept], self.novelties_.shape[1])
        return pooled_quantile(self.novelties_[kept].ravel(), weights, 1 - false_alarms)

    def _class_limits(self, fraction: float) -> np.ndarray:
        """The quantile of the stored misfits of each class; classes with few samples share one."""
        levels = _levels(fraction, np.maximum(self.tried_, 1))
        pairs = zip(self.own_misfits_, levels, strict=True)
        own = np.array([pooled_quantile(each, np.ones(SIZE), level) for each, level in pairs])
        many, tried = self.tried_ >= ENOUGH, self.tried_ > 0
        few = tried & ~many if (tried & ~many).any() else tried
        if not few.any():
            raise ValueError("no class has two samples yet, so calibrate(X, y) with held-out samples comes first")
        counts = self.tried_[few]
        level = _levels(fraction, counts.sum())
        shared = pooled_quantile(self.own_misfits_[few].ravel(), np.repeat(counts, SIZE), level)
        return np.where(many, own, shared)

    def _kept_class_thresholds(self, false_alarms: float) -> dict[Any, float]:
        return {
            label: pooled_quantile(self.novelties_[at], np.ones(SIZE), 1 - false_alarms)
            for at, (label, _) in enumerate(self.learning_order_)
            if self.tried_[at] >= ENOUGH
        }

    def _fitting(self, X: np.ndarray, scores: np.ndarray, coverage: float) -> np.ndarray:
        unseen = log_densities(self.prior_(self.embedding_(X)), [self._unseen()])
        fitting: np.ndarray = unseen - scores <= self._class_limits(coverage)[self.numbers_]
        return fitting

    def _sums(self) -> Summaries:
        n = len(self.counts_)
        return Summaries(np.arange(n), tuple(self._kept(label) for label in range(n)), self.roots_.shape[1])

    def _set_sums(self, sums: Summaries, changed: np.ndarray) -> None:
        arrays = {name: grown(getattr(self, name), len(self.classes_)) for name in self.class_arrays}
        for label in changed.tolist():
            self._describe(arrays, label, sums.each[label])
        self.__dict__ |= arrays

    def _fixed(self) -> dict[str, Any]:
        return {f"prior_.{name}": value for name, value in self.prior_.to_arrays().items()}

    def _sums_from(self, other: Self) -> tuple[Summaries, bool]:
        return other._sums(), True  # the prior is that of a first task, and it is the same

    def _absorb(self, other: Self) -> None:
        """Take over the misfits and novelties of classes that only the other head has learned."""
        names = ("own_misfits_", "novelties_", "tried_")
        arrays = {name: getattr(self, name).copy() for name in names}
        for at, (label, _) in enumerate(other.learning_order_):
            own = self._number_of(label) if label in self.classes_ else None
            if own is not None and not self.tried_[own]:
                for name in names:
                    arrays[name][own] = getattr(other, name)[at]
        self.__dict__ |= arrays

    def _kept(self, label: int) -> Summary:
        """The summary of a class."""
        root = self.roots_[label].astype(np.float64)
        return Summary(self.counts_[label], self.means_[label], root[root.any(axis=1)], self.traces_[label])

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        every = np.arange(len(self.counts_))
        return self._scores_at(self.prior_(self.embedding_(X)), every if classes is None else classes)

    def _scores_at(self, space: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """Scores from squared distances. scipy's logarithm has the same bits on every processor, numpy's does not."""
        width = self.n_features_in_
        distances = np.maximum(self._around(space, classes) - self._along(space, classes), 0)
        scores: np.ndarray = self.heights_[classes] - width * special.log1p(distances / width)
        return scores.astype(self.dtype_)

    def _around(self, space: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """Squared distances to classes for the diagonals of the inverse shapes."""
        squared = exact.products(np.square(space), self.inverses_[classes])
        return squared - 2 * exact.products(space, self.columns_[classes]) + self.levels_[classes]

    def _along(self, space: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """The reductions of the squared distances by the directions of the classes."""
        found, rank = np.zeros((len(space), len(classes))), self.directions_.shape[1]
        at_once = max(1, _AT_ONCE // max(1, rank * max(space.shape)))
        for start in range(0, len(classes) if rank else 0, at_once):
            part = classes[start : start + at_once]
            along = products_along(space, self.directions_, part, len(classes)) - self.along_[part]
            found[:, start : start + at_once] = np.minimum(np.square(along).sum(axis=2), self.most_[part])
        return found

    def _best(self, X: np.ndarray) -> np.ndarray:
        """The best class of each row. Full scores are computed only for classes that can be the best."""
        space = self.prior_(self.embedding_(X))
        lowest, highest = self._bounds(space)
        possible = lowest <= highest.min(axis=1, keepdims=True)
        best = possible.argmax(axis=1)
        unsure = np.flatnonzero(possible.sum(axis=1) > 1)
        if not len(unsure):
            return best
        at_once = 1 if possible[unsure].mean() < _FEW else len(unsure)
        for start in range(0, len(unsure), at_once):
            rows = unsure[start : start + at_once]
            among = np.asarray(possible[rows].any(axis=0))
            if np.count_nonzero(among) > _MANY * len(among):
                classes = self.numbers_
                scores = self._scores_at(space[rows], np.arange(len(among)))[:, classes]
            else:
                classes = self.numbers_[among[self.numbers_]]
                scores = self._scores_at(space[rows], classes)
            best[rows] = classes[scores.argmax(axis=1)]  # on ties, the first in classes_
        return best

    def _bounds(self, space: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of ``exp(-score / d) = (1 + r/d) · exp(-height/d)`` for all classes, computed without directions."""
        inverses, width = self.inverses_, self.n_features_in_
        rows = space.astype(inverses.dtype)
        squared = np.square(rows) @ inverses.T
        levels, heights, most = (
            values.astype(inverses.dtype) for values in (self.levels_, self.heights_, self.most_)
        )
        around = squared - 2 * (rows @ self.columns_.T) + levels
        # The largest rounding error of a sum of so many products; no term is larger than the sum of both squares.
        slack = 4 * width * np.finfo(inverses.dtype).eps * (squared + levels)
        scale = np.exp(-heights / width)
        lowest = (1 + np.maximum(around - slack - most, 0) / width) * scale
        highest = (1 + (around + slack) / width) * scale * (1 + _TIES)
        return lowest, highest

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        found: np.ndarray = softmax(scores / self.temperature_, axis=-1)
        return found

    def _novelty(self, X: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """The log-density of a sample under a class without samples minus its best score."""
        return log_densities(self.prior_(self.embedding_(X)), [self._unseen()])[:, 0] - scores.max(axis=1)

    def graph(self, graph: Any) -> str:
        numbers, width = self.numbers_, self.n_features_in_
        rows = graph.add("Sub", self.embedding_.graph(graph, "features"), self.prior_.center)
        space = graph.add("MatMul", rows, self.prior_.transform.T.astype(np.float64))
        inverses, columns = (values[numbers].astype(np.float64) for values in (self.inverses_, self.columns_))
        around = graph.add("Gemm", graph.add("Mul", space, space), inverses, self.levels_[numbers], transB=1)
        distances = graph.add("Sub", around, graph.add("MatMul", space, 2 * columns.T))
        if rank := self.directions_.shape[1]:
            directions = self.directions_[numbers].reshape(-1, width)
            along = graph.add("Gemm", graph.cast(space, np.float32), directions, transB=1)
            along = graph.add("Sub", along, self.along_[numbers].ravel().astype(np.float32))
            squares = graph.add("Reshape", graph.add("Mul", along, along), np.array([-1, len(numbers), rank]))
            off = graph.cast(graph.add("ReduceSum", squares, np.array([2]), keepdims=0), np.float64)
            distances = graph.add("Sub", distances, graph.add("Min", off, self.most_[numbers]))
        ratio = graph.add("Div", graph.add("Relu", graph.cast(distances, np.float32)), np.array(width, np.float32))
        logs = graph.cast(graph.add("Log", graph.add("Add", ratio, np.array(1, np.float32))), np.float64)
        return str(graph.add("Sub", self.heights_[numbers], graph.add("Mul", logs, np.array(float(width)))))


def _levels(fraction: Any, counts: Any) -> Any:
    """As in conformal prediction: of n samples and a new one, the new one is as likely the largest as any other."""
    return np.minimum(1, fraction * (1 + 1 / counts))
