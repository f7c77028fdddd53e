"""One head from one example to thousands."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from taer.heads import exact
from taer.heads.base import Head, Task, grown
from taer.heads.card import Card
from taer.heads.closed_form.base import NORMALIZE
from taer.heads.closed_form.predictive import (
    Density,
    Summary,
    heights_of,
    log_densities,
    merged,
    predictive,
    summarize,
)
from taer.heads.closed_form.prior import BROAD, Prior, fitted_prior
from taer.heads.closed_form.selection import trial_samples
from taer.heads.closed_form.sketch import SIZE, mixed, pooled_quantile, sketched
from taer.heads.embedding import NORMALIZATIONS, Normalize
from taer.heads.fitted import Fitted, array, number, value_of
from taer.heads.params import check_params, param
from taer.heads.validation import check_features
from taer.rows import row_chunks
from taer.statistics import ClassStatistics
from taer.threads import one_blas_thread

DIRECTIONS = 32  # of the covariance of a class that enter its scores
_AT_ONCE = 1 << 22  # values of directions that are looked at in one go
_TRIED = 128  # samples of a class whose novelty is looked at
_SLACK = 1e-6  # of the bound on a distance, for the rounding of what it is made of


class Bayes(
    Head,
    name="bayes",
    card=Card(
        "frozen",
        old_scores="never",
        keeps="statistics",
        forgets="all but its share in the first task's prior",
        linear=False,
    ),
):
    """Gaussian classes under a prior that the first task teaches: right from one example to thousands.

    The first task decides, once and for all, a map to rows ``z`` in which the covariance within classes is the identity
    and that of class means is ``diag(psi)``. A class of n samples with mean ``m`` and scatter ``S`` there has the
    predictive distribution of a Student's t with d degrees of freedom::

        center  n·psi / (n·psi + 1) · m            shape  (S + nu·I) / (n + nu)  +  psi / (n·psi + 1)

    The second part of the shape is what is not known of the mean: it makes a class of one sample wide and vanishes with
    many. The score is the log-density with half of its log-determinant, plus an offset by the number of samples. The
    offset makes scores of few and of many samples comparable. It is measured in the first task, whose classes pretend
    to be new with 1, 5 and 20 samples. So are ``nu`` and the shrinkage. A first task of fewer than eight classes keeps
    the defaults.

    Old scores never change. A class that returns adds its samples to what is kept of it: counts, mean and scatter (its
    ``rank`` leading directions and the trace). So a class taught in several calls after the first task scores as if
    taught in one, to rounding, up to ``rank`` + 1 samples and nearly so beyond.

    References
    ----------
    S. Ioffe, "Probabilistic Linear Discriminant Analysis", ECCV 2006, for the prior on means; ``docs/fewshot.md`` for
    the rest.

    Examples
    --------
    >>> import taer
    >>> sketches = taer.load_features()
    >>> X, y = sketches.train_x, sketches.train_y
    >>> head = taer.Bayes().partial_fit(X[y < 20], y[y < 20])
    >>> five = [i for c in range(20, 25) for i in (y == c).nonzero()[0][:5]]
    >>> head = head.partial_fit(X[five], y[five])  # five more classes, of five samples each
    >>> asked = (sketches.test_y >= 20) & (sketches.test_y < 25)
    >>> head.score(sketches.test_x[asked], sketches.test_y[asked]) > 0.5
    True
    """

    normalize: str = param("auto", NORMALIZE, options=(*NORMALIZATIONS, "auto"))
    rank: int = param(64, "directions kept of the scatter of a class; 4 bytes each per feature", at_least=0)

    fitted: ClassVar[dict[str, Fitted]] = {
        "embedding_": value_of(Normalize, width="width", help="the normalization of the features"),
        "prior_": value_of(Prior, width="width", help="what the first task decided"),
        "unlabelled_": array(
            "width", "width", optional=True, help="the covariance of unlabelled samples, if given"
        ),
        "n_unlabelled_": number(above=0, optional=True, help="and how many they were"),
        "temperature_": number(above=0, help="by which scores are divided before the softmax of ``predict_proba``"),
        "counts_": array("classes", above=0, help="samples of each class, in order of arrival"),
        "means_": array("classes", "width", help="their means, in the space of the prior"),
        "roots_": array(
            "classes", "rank", "width", types=("float32",), help="rows with the leading part of their scatters"
        ),
        "traces_": array("classes", at_least=0, help="traces of their scatters"),
        "inverses_": array("classes", "width", above=0, help="inverse variances of their predictives"),
        "columns_": array("classes", "width", help="their centers times these"),
        "levels_": array("classes", help="squared lengths of their centers, by these"),
        "heights_": array("classes", help="what their volumes and offsets add to their scores"),
        "directions_": array(
            "classes",
            "directions",
            "width",
            types=("float16",),
            help="directions in which they are wider than that",
        ),
        "along_": array("classes", "directions", help="their centers along them"),
        "least_": array(
            "classes", at_least=0, help="what is left of a squared distance at least, after the directions"
        ),
        "novelties_": array(
            "classes", SIZE, help="quantiles of how novel its samples looked before they were learned"
        ),
        "tried_": array("classes", at_least=0, help="how many those samples were"),
    }

    def fit_unlabelled(self, X: ArrayLike) -> Self:
        """Take the shape of the default prior from unlabelled samples; then learn with ``partial_fit``.

        It matters where the first task is small. ``fit`` forgets it, as it forgets everything.
        """
        if hasattr(self, "classes_"):
            raise ValueError("the prior is fixed since the first task; fit_unlabelled must come before it")

        def measure(head: Self) -> None:
            check_params(head)
            rows = check_features(head, X, reset=True)
            head.embedding_ = Normalize(Normalize.fit(rows, head.normalize).how, np.zeros(rows.shape[1]))
            statistics = ClassStatistics(rows.shape[1])
            for part in row_chunks(rows):
                statistics.update(head.embedding_(rows[part]), np.zeros(part.stop - part.start, np.int64))
            head.unlabelled_, head.n_unlabelled_ = statistics.covariance(), float(statistics.n_samples)

        return self._change(measure)

    def _learn(self, task: Task) -> None:
        with one_blas_thread():
            if task.number == 1:
                self._begin(task)
            arrays = {name: grown(getattr(self, name), task.n_classes) for name in self.class_arrays}
            for label, members in task.members():
                known = self._summary(task.X, members)
                if arrays["counts_"][label]:
                    known = merged(self._kept(label), known, self.roots_.shape[1])
                self._describe(arrays, label, known)
                self._try(arrays, label, task.X[members[:_TRIED]])
            self.__dict__ |= arrays

    def _begin(self, task: Task) -> None:
        width = task.X.shape[1]
        broad, imagined = np.eye(width) / width, BROAD
        if hasattr(self, "unlabelled_"):
            if width != len(self.unlabelled_):
                raise ValueError(f"fit_unlabelled saw {len(self.unlabelled_)} features, X has {width}")
            broad, imagined = self.unlabelled_, max(BROAD, min(self.n_unlabelled_, width))
        else:
            self.embedding_ = Normalize(Normalize.fit(task.X, self.normalize).how, np.zeros(width))
        samples, y = trial_samples(task.X, task.y, classes=2000)
        self.prior_ = fitted_prior(self.embedding_(samples), y, broad, imagined, self.dtype_)
        self.temperature_ = self.prior_.temperature
        rank, directions = min(self.rank, width), min(self.rank, DIRECTIONS, width)
        self.counts_, self.means_, self.traces_ = np.zeros(0), np.zeros((0, width)), np.zeros(0)
        self.roots_ = np.zeros((0, rank, width), np.float32)
        self.columns_, self.inverses_ = np.zeros((0, width), self.dtype_), np.zeros((0, width), self.dtype_)
        self.levels_, self.heights_, self.least_ = np.zeros(0), np.zeros(0), np.zeros(0)
        self.novelties_, self.tried_ = np.zeros((0, SIZE)), np.zeros(0)
        self.directions_, self.along_ = np.zeros((0, directions, width), np.float16), np.zeros((0, directions))

    def _summary(self, X: Any, members: np.ndarray) -> Summary:
        """Of some samples of a class, read in pieces."""
        found: Summary | None = None
        width = X.shape[1]
        for part in row_chunks(members, width):
            piece = summarize(self.prior_(self.embedding_(X[members[part]])), width)
            found = piece if found is None else merged(found, piece, width)
        assert found is not None
        rank = self.roots_.shape[1]
        return found._replace(root=found.root[len(found.root) - min(rank, len(found.root)) :])

    def _kept(self, label: int) -> Summary:
        root = self.roots_[label].astype(np.float64)
        return Summary(self.counts_[label], self.means_[label], root[root.any(axis=1)], self.traces_[label])

    def _describe(self, arrays: dict[str, np.ndarray], label: int, known: Summary) -> None:
        """Write what is kept of a class, and what its scores are made of."""
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
        root = exact.rounded(density.root.astype(np.float16), np.float32).astype(np.float64)
        arrays["inverses_"][label], arrays["columns_"][label] = inverse, column
        arrays["levels_"][label] = (np.square(density.center) * density.inverse).sum()
        arrays["heights_"][label] = heights_of(density.half_log_det) + self.prior_.offset(known.n)
        arrays["directions_"][label], arrays["along_"][label] = 0, 0
        arrays["directions_"][label, : len(root)], arrays["along_"][label, : len(root)] = (
            root,
            root @ density.center,
        )
        # The directions take at most so much off a squared distance: the rest is a bound that needs no directions.
        largest = np.linalg.eigvalsh((root / density.inverse) @ root.T)[-1] if len(root) else 0.0
        arrays["least_"][label] = max(0.0, 1 - largest - _SLACK)

    def _try(self, arrays: dict[str, np.ndarray], label: int, X: np.ndarray) -> None:
        """Write how novel each half of the samples looks to a class that has seen only the other half."""
        if len(X) < 2:
            return
        prior, novelties = self.prior_, []
        space = prior(self.embedding_(X))
        for seen, held in ((space[::2], space[1::2]), (space[1::2], space[::2])):
            density = predictive(summarize(seen, DIRECTIONS), prior.nu, prior.psi, DIRECTIONS)
            scores = log_densities(held, [density, self._unseen()])
            novelties.append(scores[:, 1] - scores[:, 0] - prior.offset(len(seen)))
        sketch, before = sketched(np.concatenate(novelties)), arrays["tried_"][label]
        arrays["novelties_"][label] = (
            mixed(arrays["novelties_"][label], before, sketch, len(X)) if before else sketch
        )
        arrays["tried_"][label] = before + len(X)

    def _unseen(self) -> Density:
        """A class of which nothing is known."""
        psi = self.prior_.psi
        return predictive(Summary(0.0, np.zeros(len(psi)), np.zeros((0, len(psi))), 0.0), self.prior_.nu, psi, 0)

    def _kept_threshold(self, false_alarms: float) -> float:
        if not self.tried_.any():
            raise ValueError("no class has two samples yet: novelty_threshold needs held-out samples")
        kept = self.tried_ > 0
        weights = np.repeat(self.tried_[kept], self.novelties_.shape[1])
        return pooled_quantile(self.novelties_[kept].ravel(), weights, 1 - false_alarms)

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        wanted = np.arange(len(self.counts_)) if classes is None else classes
        space = self.prior_(self.embedding_(X))
        distances = self._around(space, wanted)
        distances -= self._along(space, wanted)
        return self._score(distances, wanted).astype(self.dtype_)

    def _around(self, space: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """Squared distances by the diagonal of the inverse shapes."""
        everything = len(classes) == len(self.counts_)
        inverses, columns = (a if everything else a[classes] for a in (self.inverses_, self.columns_))
        return (
            exact.products(np.square(space), inverses) - 2 * exact.products(space, columns) + self.levels_[classes]
        )

    def _along(self, space: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """What the directions of the classes take off the squared distances."""
        found, rank = np.zeros((len(space), len(classes))), self.directions_.shape[1]
        at_once = max(1, _AT_ONCE // max(1, rank * max(space.shape)))
        for start in range(0, len(classes) if rank else 0, at_once):
            part = classes[start : start + at_once]
            directions = self.directions_[part].reshape(-1, space.shape[1]).astype(np.float32)
            along = exact.products(space, directions).reshape(len(space), len(part), rank) - self.along_[part]
            found[:, start : start + at_once] = np.square(along).sum(axis=2)
        return found

    def _score(self, distances: np.ndarray, classes: np.ndarray) -> np.ndarray:
        width = self.n_features_in_
        scores: np.ndarray = self.heights_[classes] - width * np.log1p(np.maximum(distances, 0) / width)
        return scores

    def _best(self, X: np.ndarray) -> np.ndarray:
        """The best class of each row, by its full score; only classes that can be the best are scored in full."""
        everything = np.arange(len(self.counts_))
        space = self.prior_(self.embedding_(X))
        around = self._around(space, everything)
        at_least = self._score(around, everything).max(axis=1, keepdims=True)
        possible = self._score(around * self.least_ - _SLACK * np.abs(around), everything) >= at_least
        best, found = np.full(len(X), -np.inf), np.zeros(len(X), np.int64)
        place = np.argsort(self.numbers_)
        for label in np.flatnonzero(possible.any(axis=0)):
            rows = np.flatnonzero(possible[:, label])
            one = np.array([label])
            distances = around[rows][:, one] - self._along(space[rows], one)
            scores = self._score(distances, one)[:, 0].astype(self.dtype_)
            better = (scores > best[rows]) | ((scores == best[rows]) & (place[label] < place[found[rows]]))
            best[rows[better]], found[rows[better]] = scores[better], label
        return found

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        found: np.ndarray = softmax(scores / self.temperature_, axis=-1)
        return found

    def _novelty(self, X: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """How much more a class never seen explains a sample than the best known one."""
        return log_densities(self.prior_(self.embedding_(X)), [self._unseen()])[:, 0] - scores.max(axis=1)

    def graph(self, graph: Any) -> str:
        numbers, width = self.numbers_, self.n_features_in_
        rows = graph.add("Sub", self.embedding_.graph(graph, "features"), self.prior_.center)
        space = graph.add("MatMul", rows, self.prior_.transform.T.astype(np.float64))
        inverses, columns = (values[numbers].astype(np.float64) for values in (self.inverses_, self.columns_))
        around = graph.add("Gemm", graph.add("Mul", space, space), inverses, self.levels_[numbers], transB=1)
        distances = graph.add("Sub", around, graph.add("MatMul", space, 2 * columns.T))
        if rank := self.directions_.shape[1]:
            directions = self.directions_[numbers].reshape(-1, width).astype(np.float32)
            along = graph.add("Gemm", graph.cast(space, np.float32), directions, transB=1)
            along = graph.add("Sub", along, self.along_[numbers].ravel().astype(np.float32))
            squares = graph.add("Reshape", graph.add("Mul", along, along), np.array([-1, len(numbers), rank]))
            off = graph.cast(graph.add("ReduceSum", squares, np.array([2]), keepdims=0), np.float64)
            distances = graph.add("Sub", distances, off)
        ratio = graph.add("Div", graph.add("Relu", graph.cast(distances, np.float32)), np.array(width, np.float32))
        logs = graph.cast(graph.add("Log", graph.add("Add", ratio, np.array(1, np.float32))), np.float64)
        return str(graph.add("Sub", self.heights_[numbers], graph.add("Mul", logs, np.array(float(width)))))
