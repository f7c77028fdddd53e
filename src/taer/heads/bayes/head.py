"""The recommended head: from one example per class to thousands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.utils.validation import check_is_fitted

from taer.heads.base import Head, Task
from taer.heads.bayes import names
from taer.heads.bayes.constants import ASKED, BROAD, LEADING, PRIOR_CLASSES, SMALL, TRIED, UNLABELED
from taer.heads.bayes.density import Space, Summary, merged, summarize
from taer.heads.bayes.held_out import first_novelties, held_out_scores, novelties_of
from taer.heads.bayes.novelty import Novelties
from taer.heads.bayes.prior import Pseudo
from taer.heads.bayes.spectra import leading_rows
from taer.heads.bayes.state import Densities, Prior
from taer.heads.bayes.sums import Summaries
from taer.heads.bayes.trial import chosen, fitted_prior
from taer.heads.bayes.waiting import Waiting
from taer.heads.card import Card
from taer.heads.closed_form.base import NORMALIZE
from taer.heads.closed_form.selection import evenly, trial_samples
from taer.heads.embedding import NORMALIZATIONS, Normalize
from taer.heads.fitted import Fitted, array, count, number, numbers, value_of
from taer.heads.params import check_params, param
from taer.heads.validation import check_features
from taer.rows import row_chunks

if TYPE_CHECKING:
    from taer.loop.automate import Automation
    from taer.loop.discover import Discovery
    from taer.loop.explain import Explanation

_ROUNDING = 1e-20  # fraction of the squares of equal rows that rounding leaves as their variance
_LARGEST = 1e290  # squared length of a row, up to which no score overflows


class Bayes(
    Head,
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

    Rows are mapped to a space in which samples scatter around their class mean by one in every direction. A score is the
    log-density of a Student's t there, which follows from the samples and the prior, plus an offset for their number. Old
    scores never change; samples in several calls give nearly those of one. ``docs/how/bayes.md`` explains the method.

    References
    ----------
    S. Ioffe, "Probabilistic Linear Discriminant Analysis", ECCV 2006, for the prior on means.

    Examples
    --------
    >>> import taer
    >>> sketches = taer.load_features()
    >>> X, y, known = sketches.train_x, sketches.train_y, sketches.test_y <= 20
    >>> head = taer.Bayes().partial_fit(X[y < 20], y[y < 20])
    >>> head.partial_fit(X[y == 20][:5], y[y == 20][:5]).score(sketches.test_x[known], sketches.test_y[known]) > 0.5
    True
    """

    normalize: str = param("auto", NORMALIZE, options=(*NORMALIZATIONS, "auto"))
    rank: int = param(32, "stored directions of each class's scatter; one byte each per feature", at_least=0)

    prior_samples: int = param(
        0,
        "samples that the prior waits for, if small batches come instead of a first task. They are kept until then, "
        "the prior is fitted again whenever they have doubled, and old scores move",
        at_least=0,
    )

    _own_novelty: ClassVar[bool] = True
    fitted: ClassVar[dict[str, Fitted]] = {
        "embedding_": value_of(Normalize, width="width", help="the normalization of the features"),
        "prior_": value_of(Prior, width="width", help="the prior, fitted on the first task"),
        "waiting_": value_of(
            Waiting, width="width", optional=True, help="the samples so far, while the prior waits for more"
        ),
        "prior_task_": count(optional=True, help="the last task in the prior, if it has waited"),
        "densities_": value_of(Densities, width="width", help="the distributions of the classes"),
        "novelties_": value_of(Novelties, width="width", help="how novel samples looked before they were learned"),
        "unlabeled_": array("directions", "width", optional=True, help="directions of unlabeled samples, if given"),
        "n_unlabeled_": number(above=0, optional=True, help="and how many they were"),
        "automation_": numbers(
            "errors",
            "confidence",
            "threshold",
            "coverage",
            optional=True,
            help="what ``automate`` found and promised",
        ),
        "description_offset_": array(
            "width",
            types=("float64",),
            optional=True,
            help="what descriptions of classes have in common, if some came",
        ),
        "description_examples_": number(above=0, optional=True, help="how many examples a description counts as"),
    }

    # Learning

    def fit_unlabeled(self, X: ArrayLike) -> Self:
        """Estimate the shape of the default prior from unlabeled samples; then learn with ``partial_fit``.

        This helps if the first task is small. ``fit`` resets it.
        """
        if hasattr(self, "classes_"):
            raise ValueError("the prior is fixed since the first task; fit_unlabeled must come before it")

        def measure(head: Self) -> None:
            check_params(head)
            X_checked = check_features(head, X, reset=True)
            how = Normalize.fit(X_checked, head.normalize).how
            head.embedding_ = Normalize(how, np.zeros(X_checked.shape[1]))
            rows = head.embedding_(X_checked[evenly(np.arange(len(X_checked)), UNLABELED)])
            centered = (rows - rows.mean(axis=0)) / np.sqrt(len(rows))
            head.unlabeled_, head.n_unlabeled_ = leading_rows(centered, LEADING), float(len(X_checked))

        return self._change(measure)

    def describe(self, descriptions: Mapping[Any, ArrayLike]) -> Self:
        """Add classes by descriptions, such as embeddings of their names; examples may follow.

        ``descriptions`` are vectors by label, of the same backbone as the examples. Known classes among them do not change:
        the head compares them with their examples, and learns how much a description counts. So describe known classes
        in the same words. A pipeline with an ``Extractor`` takes texts.
        """
        check_is_fitted(self)
        self._check_prior("describe a class")
        return self._change(lambda head: names.describe(head, descriptions))

    @property
    def frozen(self) -> bool:
        return super().frozen and not self.prior_samples

    def _learn(self, task: Task) -> None:
        self._learn_densities(self._awaited(task))

    def _awaited(self, task: Task) -> Task:
        """The task or, while the prior waits and has to be fitted again, all samples so far as a first task."""
        if task.number == 1:
            if len(task.y) < self.prior_samples:
                self.waiting_, self.prior_task_ = Waiting.of(task), 1
            return task
        if not hasattr(self, "waiting_"):
            return task
        self.waiting_ = self.waiting_.plus(task)
        found = len(self.waiting_)
        if found < min(self.prior_samples, 2 * int(self.waiting_.fitted)):
            return task
        every, self.prior_task_ = self.waiting_.task(task.n_classes), task.number
        if found < self.prior_samples:
            self.waiting_ = Waiting.of(every)
        else:
            del self.waiting_
        return every

    def _check_prior(self, what: str) -> None:
        """Raise ValueError while the prior waits: it is then fitted on kept samples alone."""
        if hasattr(self, "waiting_"):
            raise ValueError(
                f"Bayes cannot {what} yet: its prior waits for {self.prior_samples} samples (prior_samples), of which "
                f"{len(self.waiting_)} have come; learn the others first"
            )

    def _begin(self, task: Task) -> None:
        """Fit the prior."""
        width = task.X.shape[1]
        if not hasattr(self, "unlabeled_"):
            self.embedding_ = Normalize(Normalize.fit(task.X, self.normalize).how, np.zeros(width))
        elif width != self.unlabeled_.shape[1]:
            raise ValueError(f"fit_unlabeled saw {self.unlabeled_.shape[1]} features, X has {width}")
        samples, y = trial_samples(task.X, task.y, classes=PRIOR_CLASSES)
        rows = self.embedding_(samples)
        if hasattr(self, "unlabeled_"):
            pseudo = Pseudo(max(BROAD, min(self.n_unlabeled_, width)), 0.0, self.unlabeled_)
        else:  # one sample, or copies of one, have no variance, but it can hardly be more than their length
            variance, square = (
                float(np.square(each).sum()) / len(rows) for each in (rows - rows.mean(axis=0), rows)
            )
            variance = variance if variance > _ROUNDING * square else square or 1.0
            pseudo = Pseudo(BROAD, variance / width, np.zeros((0, width)))
        choice = chosen(rows, y, pseudo)
        self.prior_ = fitted_prior(rows, y, pseudo, choice)
        self.densities_ = Densities.none(width, len(self.prior_.units))
        self.novelties_ = Novelties.none()
        if len(rows) <= SMALL and len(rows) == len(task.y):
            self.novelties_ = first_novelties(rows, y, pseudo, choice, self._rank)

    def _learn_densities(self, task: Task) -> dict[int, tuple[Space, np.ndarray]]:
        """Store the densities and novelties of the classes; returns what :meth:`_held_out` found for each."""
        if task.number == 1:
            self._begin(task)
        learned, held_out = {}, {}
        for label, members in task.members():
            before = self._summary(label) if label < task.n_known else None
            known, space = self._summary_of(task.X, members)
            learned[label] = known if before is None else merged(before, known, self._rank)
            if learned[label].n > 1:
                held_out[label] = self._held_out(label, space.at(slice(TRIED)), before, ASKED)
        self._describe(learned)
        earlier = Novelties.none() if task.number == 1 else self.novelties_
        found = earlier.replaced(len(self.densities_), novelties_of(held_out, self.prior_, self.densities_))
        self.novelties_ = found.averaged(self.novelties_) if task.number == 1 else found  # those of _begin
        return held_out

    @property
    def _rank(self) -> int:
        return min(self.rank, self.n_features_in_)

    def _summary_of(self, X: Any, members: np.ndarray) -> tuple[Summary, Space]:
        """The summary of some samples of a class, read in pieces, and the first piece in the space of the prior."""
        parts = list(row_chunks(members, X.shape[1]))
        every = self._rank if len(parts) == 1 else X.shape[1]  # all directions, until the pieces are merged
        first = self.prior_(self.embedding_(X[members[parts[0]]]))
        found = summarize(first.rows, every)
        for part in parts[1:]:
            found = merged(found, summarize(self.prior_(self.embedding_(X[members[part]])).rows, every), every)
        return found._replace(root=found.root[max(0, len(found.root) - self._rank) :]), first

    def _held_out(self, label: int, space: Space, before: Summary | None, most: int) -> tuple[Space, np.ndarray]:
        """Some samples of a class, and their scores for it, learned from ``before`` and the other samples."""
        return held_out_scores(space, before, self.prior_, self._rank, most, self._is_first(label))

    def _describe(self, learned: dict[int, Summary]) -> None:
        """Store summaries of classes."""
        self.densities_ = self.densities_.learned(learned, self.prior_, self._rank, self._is_first)

    def _is_first(self, label: int) -> bool:
        """Whether a class is one of those in the prior."""
        return self.learning_order_[label].task <= getattr(self, "prior_task_", 1)

    def _summary(self, label: int) -> Summary:
        return self.densities_.summary(label, self.prior_.nu, self.prior_.spread)

    # Answers

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        every = np.arange(len(self.densities_)) if classes is None else classes
        return self.densities_.scores(self.prior_(self.embedding_(X)), every).astype(self.dtype_)

    def _best(self, X: np.ndarray) -> np.ndarray:
        space = self.prior_(self.embedding_(X))
        if not (space.squares < _LARGEST).all():
            return super()._best(X)  # which raises if a score cannot be computed
        return self.densities_.best(space, self.arrival_, self.dtype_)

    @property
    def temperature_(self) -> float:
        """Divisor of the scores in the softmax of ``predict_proba``."""
        return self.prior_.temperature

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        found: np.ndarray = softmax(scores / self.temperature_, axis=-1)
        return found

    def _novelty(self, X: np.ndarray, scores: np.ndarray) -> np.ndarray:
        return self.prior_.novelty(self.prior_(self.embedding_(X)), scores.max(axis=1))

    def _own_threshold(self, false_alarms: float) -> float:
        return self.novelties_.threshold(false_alarms)

    def _own_class_thresholds(self, false_alarms: float) -> dict[Any, float]:
        found = self.novelties_.class_thresholds(false_alarms)
        return {self.learning_order_[at].label: limit for at, limit in found.items()}

    def _fitting(self, X: np.ndarray, scores: np.ndarray, coverage: float) -> np.ndarray:
        blank = self.prior_.blank_scores(self.prior_(self.embedding_(X)))
        fitting: np.ndarray = blank[:, None] - scores <= self.novelties_.limits(coverage)[self.arrival_]
        return fitting

    def _graph(self, graph: Any) -> str:
        space, along = self.prior_.graph(graph, self.embedding_.graph(graph, "features"))
        return self.densities_.graph(graph, space, along, self.arrival_)

    def _novelty_graph(self, graph: Any, probabilities: str) -> str:
        space, along = self.prior_.graph(graph, self.embedding_.graph(graph, "features"))
        blank = self.prior_.blank.graph(graph, space, along, np.zeros(1, np.int64))
        best = graph.add("ReduceMax", self._density_graph(graph, space), axes=[1], keepdims=1)
        far = self.prior_.far_graph(graph, space, along)
        novelty = graph.add("Add", graph.add("Sub", blank, best), far)
        return str(graph.add("Squeeze", novelty, np.array([1])))

    def _density_graph(self, graph: Any, space: str) -> str:
        """Add the scores of the densities, from those that the graph has divided by the temperature."""
        return str(graph.add("Mul", graph.cast("scores", np.float64), np.array(self.temperature_)))

    # The loop around the head, which is loaded when it is asked for

    def automate(
        self,
        X: ArrayLike,
        y: ArrayLike,
        errors: float = 0.02,
        confidence: float = 0.95,
        *,
        unknown: Any = None,
    ) -> Automation:
        """The largest share of answers that need no person, so that at most ``errors`` of them are wrong.

        This holds with the probability ``confidence`` for samples like ``X``, which are held-out samples with their labels
        ``y``: the head keeps too little of its own samples to promise anything without them. ``unknown`` is the label of
        those of no known class, if such samples will come: every answer to them is wrong. Unknown answers, above the limit
        of novelty, are always for a person. The threshold is kept in the head for :meth:`automatic`, until the head
        changes.
        """
        from taer.loop.automate import automate

        return automate(self, X, y, errors, confidence, unknown)

    def automatic(self, X: ArrayLike) -> np.ndarray:
        """Which answers need no person, by the threshold of :meth:`automate`."""
        from taer.loop.automate import automatic

        return automatic(self, X)

    def explain(
        self, X: ArrayLike, examples: tuple[ArrayLike, ArrayLike] | None = None, count: int = 3
    ) -> list[Explanation]:
        """Why each row got its answer: the runner-up, how usual the row is, and the nearest examples of both classes.

        ``X`` may be one row. ``examples`` are samples and labels in which the nearest are looked for. Without them,
        ``bayes-replay`` looks in the samples that it keeps.
        """
        from taer.loop.explain import explained

        return explained(*self._checked(np.asarray(X)[None] if np.ndim(X) == 1 else X), examples, count)

    def _in_prior(self, X: ArrayLike) -> np.ndarray:
        """Rows in the space of the prior, where samples scatter around their class mean by one in every direction."""
        head, rows = self._checked(X)
        return np.concatenate(
            head._in_parts(rows, lambda part: head.prior_(head.embedding_(part)).rows.astype(np.float32))
        )

    def discover(self, X: ArrayLike, texts: Sequence[str] | None = None) -> Discovery:
        """Groups of samples that belong to no known class, as proposals of new classes; ``docs/guides/discovering.md``.

        With the ``texts`` of the rows, each group has the words that set it apart.
        """
        from taer.loop.discover import discover

        return discover(self, X, texts)

    def suggest(self, X: ArrayLike, n: int) -> np.ndarray:
        """The ``n`` rows whose labels would help most, the best first; without a class, by spread alone."""
        from taer.loop.suggest import suggest

        return suggest(self, X, n)

    # Corrections

    def _check_fitted(self) -> None:
        super()._check_fitted()
        if self.densities_.weights.shape[1] != len(self.prior_.units):
            raise ValueError("densities_: expected a weight for each direction of class means in prior_")

    def _check_learned(self, classes: np.ndarray) -> None:
        state, novelties = self.densities_, self.novelties_
        parts = [part for label in classes.tolist() for part in state.of_class(label)]
        if not all(np.isfinite(part).all() for part in (*parts, self.prior_.far, *novelties.to_arrays().values())):
            raise ValueError(
                "Bayes cannot learn features of this size: a class would not be finite; scale the features to about 1"
            )

    def _class_state(self, label: Any) -> list[np.ndarray]:
        head = self._snapshot()
        return head.densities_.of_class(head._number_of(label))

    def _class_counts(self) -> np.ndarray:
        return self.densities_.counts

    def _sums(self) -> Summaries:
        labels, state = np.arange(len(self.densities_)), self.densities_
        each = tuple((lambda at=label: self._summary(at)) for label in labels.tolist())
        return Summaries(labels, state.counts, state.means.astype(np.float64), each, self._rank)

    def _sums_of(self, task: Task) -> Summaries:
        self._check_prior("unlearn samples")
        found = [self._summary_of(task.X, members)[0] for _, members in task.members()]
        return Summaries.of(task.current, found, self._rank)

    def _set_sums(self, sums: Summaries, changed: np.ndarray) -> None:
        self._describe({label: sums[label] for label in changed.tolist()})
        self.novelties_ = self.novelties_.replaced(len(self.densities_), {})

    def _fixed(self) -> dict[str, Any]:
        return {f"prior_.{name}": value for name, value in self.prior_.to_arrays().items()}

    def _sums_from(self, other: Self) -> tuple[Summaries, bool]:
        for head in (self, other):
            head._check_prior("be merged")
        return other._sums(), True  # the prior is that of a first task, and it is the same

    def _absorb(self, other: Self) -> None:
        """Take over the novelties of classes that only the other head has learned."""
        for at, (label, _) in enumerate(other.learning_order_):
            if label in self.classes_:
                self.novelties_ = self.novelties_.filled(self._number_of(label), other.novelties_, at)
