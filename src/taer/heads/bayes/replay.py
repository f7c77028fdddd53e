"""``bayes`` with a correction that is learned on kept samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from taer.heads import exact
from taer.heads.base import Head, Task
from taer.heads.bayes.constants import CORRECTED, CORRECTED_CLASSES, OTHER_ROWS, OWN_ROWS
from taer.heads.bayes.correction import (
    Corrections,
    Problem,
    balanced,
    first_corrections,
    learned_columns,
)
from taer.heads.bayes.density import Space, Summary
from taer.heads.bayes.head import Bayes
from taer.heads.bayes.kept import KeptSamples, some_of_each
from taer.heads.bayes.sums import Summaries
from taer.heads.card import Card
from taer.heads.fitted import Fitted, value_of
from taer.heads.numerics import log_sum_exp
from taer.heads.params import param
from taer.rows import row_chunks

_CLEAR = 0.1  # share of the other classes in Σ exp from which it is found by subtraction: for rounding


class BayesReplay(
    Bayes,
    name="bayes-replay",
    card=Card(
        "replay",
        old_scores="never",
        keeps="everything",
        forgets="except its part in the prior and the corrections of others",
        linear=False,
        relearns=True,
    ),
):
    """``bayes`` and a linear correction: more accurate where samples may be kept and classes have many of them.

    With T the temperature of ``bayes``, z a row in the space of the prior and ``blank`` the score of a class without
    samples, the score of a class c with ten kept samples or more is::

        a · bayes_c(z)  +  l · blank(z)  +  T · (w_c · z + b_c)

    As in ``taer``, a task learns ``w`` and ``b`` of its own classes alone, by cross-entropy on its samples, at most 500 of
    each class, and on up to 64 kept ones of every other class. Old scores enter as one constant per sample, their log
    Σ exp, and never change. Every class has the same total weight, so old classes together weigh λ = old / all. The
    score of a kept sample for its own class is that of a class which has not seen it.

    The first task chooses ``a`` and the penalty of ``w`` on held-out samples. Its classes are then shifted together
    (``l``, and a part of ``w`` and ``b`` that they have in common), so that classes of few examples, whose scores are
    those of ``bayes``, compare with them as in ``bayes``. If it has fewer than eight classes or fewer samples than
    features, it is learned as by ``bayes``; such a class has a correction once it is taught again. Novelty and
    ``predict_set`` without ``calibrate`` are those of ``bayes``.

    ``unlearn``, ``merge`` and samples of a known class learn the corrections of the classes concerned again.

    References
    ----------
    ``docs/how/bayes.md``; Z. Li, S. Jie, Z.-H. Deng, "Detachedly Learn a Classifier for Class-Incremental Learning",
    for the constants and λ.

    Examples
    --------
    >>> import taer
    >>> sketches = taer.load_features()
    >>> X, y = sketches.train_x, sketches.train_y
    >>> head = taer.BayesReplay(memory_per_class=20).partial_fit(X[y < 10], y[y < 10])
    >>> old = head.scores(sketches.test_x, range(10))
    >>> later = (y >= 10) & (y < 15)
    >>> head = head.partial_fit(X[later], y[later])
    >>> bool((old == head.scores(sketches.test_x, range(10))).all())
    True
    """

    memory_per_class: int | None = param(
        None, "kept samples of each class, one byte per feature; None for all", at_least=0
    )

    fitted: ClassVar[dict[str, Fitted]] = {
        "corrections_": value_of(Corrections, width="width", help="what is added to the scores of ``bayes``"),
        "kept_": value_of(KeptSamples, width="width", help="kept samples in the space of the prior, in int8"),
    }

    # Learning

    def _begin(self, task: Task) -> None:
        super()._begin(task)
        width = task.X.shape[1]
        self.corrections_, self.kept_ = Corrections.none(width), KeptSamples.none(width)

    def _learn(self, task: Task) -> None:
        task = self._awaited(task)
        known = task.current[task.current < task.n_known]
        before = {label: self._summary(label) for label in known.tolist()}
        if task.number > 1:
            self._separate(known)
        held_out = self._learn_densities(task)
        added = KeptSamples.none(task.X.shape[1])
        for label, members in task.members():
            space, own = held_out.get(label, (None, np.zeros(0)))
            if space is None or len(own) < len(members):  # the novelty of some samples is enough
                parts = row_chunks(members, task.X.shape[1])
                space = Space.joined([self.prior_(self.embedding_(task.X[members[part]])) for part in parts])
                own = self._own_scores(label, space, before.get(label))
            added = added.plus(self._sampled(label, space.rows, own))
        self._correct(task.current, added, first=task.number == 1)

    def _own_scores(self, label: int, space: Space, before: Summary | None) -> np.ndarray:
        """Scores of samples for their own class, each learned without the sample unless that is the only one."""
        if before is None and len(space.rows) == 1:
            return self._approximate(space.rows, np.array([label]))[:, 0]
        return self._held_out(label, space, before, len(space.rows))[1]

    def _approximate(self, rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
        return self.densities_.approximate(Space.single(rows, self.prior_.spread), classes)

    def _sampled(self, label: int, rows: np.ndarray, own: np.ndarray) -> KeptSamples:
        """Samples to keep; their scores get the offset of a class with all samples."""
        count = float(self.densities_.counts[label])
        fewer, first = max(1.0, count - 1), self._is_first(label)
        own = own + (self.prior_.offset(count, first) - self.prior_.offset(fewer, first))
        space = Space.single(rows, self.prior_.spread)
        blank = self.prior_.blank.approximate(space, np.zeros(1, np.int64))[:, 0]
        return KeptSamples.of(rows, np.full(len(rows), label), own, blank).limited(self.memory_per_class)

    def _separate(self, classes: np.ndarray) -> None:
        """Take some classes out of the log Σ exp of the kept samples, before their scores change."""
        memory, counted = self.kept_, self.corrections_.counted
        logs = np.where(np.isin(memory.y, classes), np.nan, memory.logs)
        asked, gone = np.flatnonzero(~np.isnan(logs)), classes[counted[classes]]
        if len(gone) and len(asked):
            share = np.exp(log_sum_exp(self._for_kept(memory.taken(asked), gone)) - logs[asked])
            unclear = ~(share < 1 - _CLEAR)
            logs[asked] += np.log1p(-np.where(unclear, 0, share))
            others = np.setdiff1d(np.flatnonzero(counted), gone)
            logs[asked[unclear]] = log_sum_exp(self._for_kept(memory.taken(asked[unclear]), others))
        self.kept_ = memory.with_logs(logs)
        self.corrections_ = self.corrections_.cleared(classes, len(counted))

    def _plain(self, memory: KeptSamples, classes: np.ndarray) -> np.ndarray:
        """Scores of ``bayes`` in units of its temperature; for the own class, of one that has not seen the sample."""
        scores = self._approximate(memory.space(), classes)
        target = _targets(memory.y, classes)
        mine = np.flatnonzero(target >= 0)
        scores[mine, target[mine]] = memory.own[mine]
        return scores / np.float32(self.prior_.temperature)

    def _for_kept(self, memory: KeptSamples, classes: np.ndarray) -> np.ndarray:
        """The same with the correction."""
        linear = memory.space() @ self.corrections_.weights[classes].T + self.corrections_.biases[classes]
        return self._base(memory, self._plain(memory, classes), classes) + linear

    def _base(self, memory: KeptSamples, plain: np.ndarray, classes: np.ndarray) -> np.ndarray:
        return self.corrections_.base(plain, self._blank_of(memory), classes)

    def _blank_of(self, memory: KeptSamples) -> np.ndarray:
        """Scores of a class without samples, in units of the temperature."""
        return memory.blank / np.float32(self.prior_.temperature)

    def _correct(self, classes: np.ndarray, added: KeptSamples, first: bool = False) -> None:
        """Learn the corrections of some classes, which are not counted.

        Without a class of enough samples nothing is computed; the classes are counted when a later one has enough. First
        classes have no correction if their strength cannot be chosen, because they or their samples are too few.
        """
        n_classes = len(self.classes_)
        self.kept_ = self.kept_.plus(added).limited(self.memory_per_class)
        self.corrections_ = self.corrections_.cleared(classes, n_classes)
        enough = classes[self.kept_.counts(n_classes)[classes] >= CORRECTED]
        places = self._learned_on(enough)
        too_few = first and (len(enough) < CORRECTED_CLASSES or len(places) < self.n_features_in_)
        if len(enough) and not too_few:
            memory = self._counted(self.kept_.taken(places), enough)
            plain = self._plain(memory, enough)
            columns = self._learned(memory, enough, plain, first)
            self.corrections_ = self.corrections_.learned(enough, columns)
            linear = memory.space() @ self.corrections_.weights[enough].T + self.corrections_.biases[enough]
            logs = np.logaddexp(memory.logs, log_sum_exp(self._base(memory, plain, enough) + linear))
            self._keep_logs(places, logs)

    def _learned_on(self, classes: np.ndarray) -> np.ndarray:
        """Places of the kept samples on which some classes are learned: theirs, and some of every other class."""
        y, counted = self.kept_.y, self.corrections_.counted
        fresh = np.flatnonzero(~counted[y])
        fresh = fresh[some_of_each(y[fresh], OWN_ROWS)]
        return np.union1d(np.flatnonzero(self.kept_.compared), fresh)

    def _counted(self, memory: KeptSamples, classes: np.ndarray) -> KeptSamples:
        """Samples whose log Σ exp has all classes but some."""
        others = np.setdiff1d(np.arange(len(self.corrections_)), classes)
        uncounted, fresh = others[~self.corrections_.counted[others]], ~memory.compared
        logs = memory.logs.copy()
        logs[~fresh] = np.logaddexp(logs[~fresh], log_sum_exp(self._for_kept(memory.taken(~fresh), uncounted)))
        logs[fresh] = log_sum_exp(self._for_kept(memory.taken(fresh), others))
        return memory.with_logs(logs)

    def _learned(self, memory: KeptSamples, classes: np.ndarray, plain: np.ndarray, first: bool) -> np.ndarray:
        """Columns of some classes."""
        target, weight = _targets(memory.y, classes), balanced(memory.y, len(self.kept_))
        problem = Problem(memory.space(), plain, target, weight, self._blank_of(memory), memory.logs)
        if first:
            self.corrections_, columns = first_corrections(problem, self.corrections_)
            return columns
        state = self.corrections_
        scaled = problem._replace(base=state.scale * plain + state.lift * problem.blank[:, None])
        return learned_columns(scaled.picked(scaled.matters), state.penalty)

    def _keep_logs(self, places: np.ndarray, logs: np.ndarray) -> None:
        """Store the log Σ exp of some samples of each class, with which later classes are compared."""
        some, every = some_of_each(self.kept_.y[places], OTHER_ROWS), np.full(len(self.kept_), np.nan)
        every[places[some]] = logs[some]
        self.kept_ = self.kept_.with_logs(every)

    # Answers

    @property
    def temperature_(self) -> float:
        """Divisor of the scores in the softmax of ``predict_proba``."""
        return self.prior_.temperature * self.corrections_.softened

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        state, space = self.corrections_, self.prior_(self.embedding_(X))
        wanted = np.arange(len(state)) if classes is None else classes
        linear = exact.products(space.rows, state.weights[wanted]) + state.biases[wanted]
        plain = self.densities_.scores(space, wanted)
        base = state.base(plain, self.prior_.blank_scores(space), wanted)
        return (base + self.prior_.temperature * linear).astype(self.dtype_)

    def _best(self, X: np.ndarray) -> np.ndarray:
        return Head._best(self, X)  # the bounds of ``bayes`` know no correction

    def _novelty(self, X: np.ndarray, scores: np.ndarray) -> np.ndarray:
        return super()._novelty(X, super()._scores(X))

    def _fitting(self, X: np.ndarray, scores: np.ndarray, coverage: float) -> np.ndarray:
        return super()._fitting(X, super()._scores(X)[:, self.arrival_], coverage)

    def _graph(self, graph: Any) -> str:
        scales, _ = self.corrections_.factors(self.arrival_)
        return str(graph.add("Add", graph.add("Mul", super()._graph(graph), scales), self._added_graph(graph)))

    def _added_graph(self, graph: Any) -> str:
        """Add what is added to the scaled scores of ``bayes``."""
        state, unit = self.corrections_, self.prior_.temperature
        space, along = self.prior_.graph(graph, self.embedding_.graph(graph, "features"))
        weights = unit * state.weights[self.arrival_].astype(np.float64)
        linear = graph.add("Gemm", space, weights, unit * state.biases[self.arrival_], transB=1)
        blank = self.prior_.blank.graph(graph, space, along, np.zeros(1, np.int64))
        _, lifts = state.factors(self.arrival_)
        return str(graph.add("Add", linear, graph.add("MatMul", blank, lifts[None])))

    def _density_graph(self, graph: Any, space: str) -> str:
        scales, _ = self.corrections_.factors(self.arrival_)
        plain = graph.add("Sub", super()._density_graph(graph, space), self._added_graph(graph))
        return str(graph.add("Div", plain, scales))

    # Changes of what was learned

    def _check_learned(self, classes: np.ndarray) -> None:
        super()._check_learned(classes)
        if not all(np.isfinite(part).all() for part in (self.corrections_.weights, self.corrections_.biases)):
            raise ValueError(
                "BayesReplay cannot learn features of this size: a correction would not be finite; scale the features "
                "to about 1"
            )

    def _class_state(self, label: Any) -> list[np.ndarray]:
        head = self._snapshot()
        number, state = head._number_of(label), head.corrections_
        own = slice(number, number + 1)
        return [*super()._class_state(label), state.weights[number], state.biases[own], state.has[own]]

    def _drop(self, number: int) -> None:
        self._separate(np.array([number]))
        super()._drop(number)

    def _sums_of(self, task: Task) -> Summaries:
        """The sums of samples that are taken back; they leave the memory, too."""
        found = super()._sums_of(task)
        parts = row_chunks(np.arange(len(task.y)), task.X.shape[1])
        space = np.concatenate([self.prior_(self.embedding_(task.X[part])).rows for part in parts])
        places = self.kept_.nearest(space, task.y)
        asked = np.bincount(task.y, minlength=len(self.densities_))
        unknown = task.y[(places < 0) & (asked <= self.densities_.counts)[task.y]]
        if self.memory_per_class is None and len(unknown):
            raise ValueError(
                f"{len(unknown)} of the samples to be taken back were not learned with these labels, one of them of "
                f"{self.learning_order_[unknown[0]].label!r}: all learned samples are kept, and none of its class is like "
                "it; give the features and the labels that were learned"
            )
        self.kept_ = self.kept_.taken(np.setdiff1d(np.arange(len(self.kept_)), places))
        return found

    def _set_sums(self, sums: Summaries, changed: np.ndarray) -> None:
        known = changed[changed < len(self.corrections_)]
        corrected = known[self.corrections_.has[known]]  # fewer samples give no class a correction that had none
        self._separate(known)
        super()._set_sums(sums, changed)
        self.corrections_ = self.corrections_.cleared(changed, len(self.classes_))
        self._correct(corrected, KeptSamples.none(self.n_features_in_))

    def _fixed(self) -> dict[str, Any]:
        state = self.corrections_
        names = ("scale", "lift", "penalty", "softened")
        return super()._fixed() | {f"corrections_.{name}": getattr(state, name) for name in names}

    def _absorb(self, other: Self) -> None:
        super()._absorb(other)
        numbers = np.array([self._number_of(label) for label, _ in other.learning_order_], np.int64)
        added = replace(other.kept_, y=numbers[other.kept_.y]).minus(self.kept_)
        added = added.with_logs(np.full(len(added), np.nan))
        changed = np.unique(added.y)
        self._separate(changed)
        self._correct(changed, added)


def _targets(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The place of each class number among sorted ones, -1 if it is not there."""
    places = np.searchsorted(classes, y)
    return np.where(np.isin(y, classes), places, -1)
