"""The recommended head: from one example per class to thousands."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from taer.heads.base import Task, grown
from taer.heads.card import Card
from taer.heads.closed_form.base import NORMALIZE
from taer.heads.closed_form.predictive import Summary, merged, summarize
from taer.heads.closed_form.prior import BROAD, fitted_prior
from taer.heads.closed_form.selection import trial_samples
from taer.heads.closed_form.student import TRIED, StudentHead
from taer.heads.closed_form.summaries import Summaries
from taer.heads.embedding import NORMALIZATIONS, Normalize
from taer.heads.fitted import Fitted, array, number
from taer.heads.params import check_params, param
from taer.heads.validation import check_features
from taer.rows import row_chunks
from taer.statistics import ClassStatistics
from taer.threads import one_blas_thread

_ROUNDING = 1e-20  # variance that rounding leaves of equal rows of unit length


class Bayes(
    StudentHead,
    name="bayes",
    card=Card(
        "frozen",
        old_scores="never",
        keeps="statistics",
        forgets="except its part in the first task's prior",
        linear=False,
        sums=True,
    ),
):
    """Gaussian classes with a prior that is learned in the first task: from one example per class to thousands.

    The first task fixes a linear map to rows ``z`` in which the covariance within classes is the identity and that of
    class means is ``diag(psi)``. A class of n samples with mean ``m`` and scatter ``S`` in this space has a Student's t
    with d degrees of freedom as its predictive distribution::

        center  n·psi / (n·psi + 1) · m
        shape   (S + nu·I) / (n + nu)  +  psi / (n·psi + 1)

    The second part of the shape is the uncertainty of the mean. It makes a class of one sample wide, and vanishes with
    many. The score is the log-density with half of its log-determinant, plus an offset that depends on n and makes
    scores of few and of many samples comparable. The offset is measured in the first task, some of whose classes are
    treated as new, with 1, 5, 20 and all of their samples. ``nu``, the shrinkage of the prior and the temperature of
    ``predict_proba`` are chosen in the same trial. With fewer than eight classes in the first task, the defaults are
    used.

    Old scores never change. When a known class gets more samples, its count, mean and scatter (the ``rank`` leading
    directions and the trace) are updated. So a class that is taught in several calls after the first task has the same
    scores as if it were taught in one, up to rounding for at most ``rank`` + 1 samples, and nearly so for more.

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
    rank: int = param(64, "stored directions of each class's scatter; 4 bytes each per feature", at_least=0)

    fitted: ClassVar[dict[str, Fitted]] = {
        "unlabeled_": array("width", "width", optional=True, help="the covariance of unlabeled samples, if given"),
        "n_unlabeled_": number(above=0, optional=True, help="and how many they were"),
    }

    def fit_unlabeled(self, X: ArrayLike) -> Self:
        """Estimate the shape of the default prior from unlabeled samples; then learn with ``partial_fit``.

        This helps if the first task is small. ``fit`` resets it.
        """
        if hasattr(self, "classes_"):
            raise ValueError("the prior is fixed since the first task; fit_unlabeled must come before it")

        def measure(head: Self) -> None:
            check_params(head)
            rows = check_features(head, X, reset=True)
            head.embedding_ = Normalize(Normalize.fit(rows, head.normalize).how, np.zeros(rows.shape[1]))
            statistics = ClassStatistics(rows.shape[1])
            for part in row_chunks(rows):
                statistics.update(head.embedding_(rows[part]), np.zeros(part.stop - part.start, np.int64))
            head.unlabeled_, head.n_unlabeled_ = statistics.covariance(), float(statistics.n_samples)

        return self._change(measure)

    def _learn(self, task: Task) -> None:
        with one_blas_thread():
            if task.number == 1:
                self._begin(task)
            arrays = {name: grown(getattr(self, name), task.n_classes) for name in self.class_arrays}
            held_out = {}
            for label, members in task.members():
                before = self._kept(label) if arrays["counts_"][label] else None
                known, space = self._summary(task.X, members)
                if before is not None or len(space) > 1:
                    held_out[label] = self._held_out(label, space[:TRIED], before, task.n_classes)
                if before is not None:
                    known = merged(before, known, self.roots_.shape[1])
                self._describe(arrays, label, known)
            self.__dict__ |= arrays
            self._try(arrays, held_out)

    def _begin(self, task: Task) -> None:
        width = task.X.shape[1]
        if not hasattr(self, "unlabeled_"):
            self.embedding_ = Normalize(Normalize.fit(task.X, self.normalize).how, np.zeros(width))
        elif width != len(self.unlabeled_):
            raise ValueError(f"fit_unlabeled saw {len(self.unlabeled_)} features, X has {width}")
        samples, y = trial_samples(task.X, task.y, classes=2000)
        rows = self.embedding_(samples)
        if hasattr(self, "unlabeled_"):
            broad, imagined = self.unlabeled_, max(BROAD, min(self.n_unlabeled_, width))
        else:  # one sample, or copies of one, have no variance; rows of unit length have 1 at most
            variance = float(np.square(rows - rows.mean(axis=0)).sum()) / len(rows)
            broad, imagined = np.eye(width) * (variance if variance > _ROUNDING else 1.0) / width, BROAD
        self.prior_ = fitted_prior(rows, y, broad, imagined, self.dtype_)
        self.temperature_ = self.prior_.temperature
        self._no_classes(width, min(self.rank, width))

    def _summary(self, X: Any, members: np.ndarray) -> tuple[Summary, np.ndarray]:
        """The summary of some samples of a class, read in pieces, and the first piece in the space of the prior."""
        rank, parts = self.roots_.shape[1], list(row_chunks(members, X.shape[1]))
        every = rank if len(parts) == 1 else X.shape[1]  # all directions, until the pieces are merged
        first = self.prior_(self.embedding_(X[members[parts[0]]]))
        found = summarize(first, every)
        for part in parts[1:]:
            found = merged(found, summarize(self.prior_(self.embedding_(X[members[part]])), every), every)
        return found._replace(root=found.root[max(0, len(found.root) - rank) :]), first

    def _sums_of(self, task: Task) -> Summaries:
        found = tuple(self._summary(task.X, members)[0] for _, members in task.members())
        return Summaries(task.current, found, self.roots_.shape[1])
