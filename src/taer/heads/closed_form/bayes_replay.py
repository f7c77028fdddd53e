"""``bayes`` with a correction that is learned on kept samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from taer.heads import exact
from taer.heads.base import Head, Task, log_sum_exp
from taer.heads.card import Card
from taer.heads.closed_form.bayes import Bayes
from taer.heads.closed_form.correction import (
    CAREFUL,
    ENOUGH,
    KeptSamples,
    Problem,
    balanced,
    chosen_strength,
    corrected,
    in_place,
    learned_columns,
)
from taer.heads.closed_form.summaries import Summaries
from taer.heads.fitted import Fitted, array, number, value_of
from taer.heads.params import param
from taer.rows import row_chunks

_CLEAR = 0.1  # share of the other classes in Σ exp from which it is found by subtraction


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

    The score of class c is, with T the temperature of ``bayes`` and z a row in the space of the prior::

        a · bayes_c(z)  +  T · (w_c · z + b_c)

    As in ``taer``, a task learns ``w`` and ``b`` of its own classes alone, by cross-entropy on its samples and all kept
    ones. Old scores enter as one constant per sample, their log Σ exp, and never change. Every class has the same total
    weight, so old classes together weigh λ = old / all. The score of a kept sample for its own class is that of a
    class which has not seen it. ``a`` and the penalty of ``w`` are chosen on held-out samples of the first task, whose
    classes are then shifted together, so that classes of few examples compare with them as in ``bayes``. Classes with
    fewer than ten kept samples have no correction. Novelty and ``predict_set`` without ``calibrate`` are those of
    ``bayes``.

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
        "unit_": number(above=0, help="the temperature of ``bayes``, which is the unit of corrections"),
        "scale_": number(above=0, help="factor of the scores of ``bayes``, chosen on the first task"),
        "penalty_": number(above=0, help="penalty of the corrections, chosen on the first task"),
        "weights_": array("classes", "width", help="corrections of the classes in the space of the prior"),
        "biases_": array("classes", help="and what is added to them"),
        "kept_": value_of(KeptSamples, width="width", help="kept samples in the space of the prior, in int8"),
    }

    def _begin(self, task: Task) -> None:
        super()._begin(task)
        width = task.X.shape[1]
        self.unit_, (self.scale_, self.penalty_) = self.temperature_, CAREFUL
        self.weights_, self.biases_ = np.zeros((0, width), self.dtype_), np.zeros(0)
        self.kept_ = KeptSamples.of(np.zeros((0, width)), np.zeros(0), np.zeros(0))

    def _learn(self, task: Task) -> None:
        known = task.current[task.current < task.n_known]
        if task.number > 1:
            self._separate(known)
        before = {label: self._kept(label) for label in known.tolist()}
        super()._learn(task)
        self._correct(task.current, self._sampled(task, before), first=task.number == 1)

    def _sampled(self, task: Task, before: dict[int, Any]) -> KeptSamples:
        """The samples of a task with the scores for their own classes, each learned without the sample."""
        found = []
        for label, members in task.members():
            parts = row_chunks(members, task.X.shape[1])
            space = np.concatenate([self.prior_(self.embedding_(task.X[members[part]])) for part in parts])
            if label in before or len(space) > 1:
                own = self._held_out(label, space, before.get(label), task.n_classes).own
                own += self._offset(label, self.counts_[label]) - self._offset(
                    label, max(1.0, self.counts_[label] - len(space) / 4)
                )
            else:
                own = self._scores_at(space, np.array([label]))[:, 0]
            found.append(KeptSamples.of(space, np.full(len(space), label), own).limited(self.memory_per_class))
        every = found[0]
        for each in found[1:]:
            every = every.plus(each)
        return every

    def _separate(self, classes: np.ndarray) -> None:
        """Take some classes out of the log Σ exp of the kept samples, before their scores change."""
        memory = self.kept_
        if not len(classes) or not len(memory):
            return
        share = np.exp(log_sum_exp(self._for_kept(memory, classes)) - memory.logs)
        with np.errstate(invalid="ignore", divide="ignore"):
            logs = memory.logs + np.log1p(-share)
        others = np.setdiff1d(np.arange(len(self.biases_)), classes)
        unclear = np.flatnonzero(~(share < 1 - _CLEAR))
        logs[unclear] = log_sum_exp(self._for_kept(memory.taken(unclear), others))
        self.kept_ = memory.with_logs(logs)

    def _plain(self, memory: KeptSamples, classes: np.ndarray) -> np.ndarray:
        """Scores of ``bayes`` in units of its temperature; for the own class, of one that has not seen the sample."""
        space, wide = memory.space(), max(memory.rows.shape[1], 32 * len(classes))
        parts = [self._scores_at(space[part], classes) for part in row_chunks(space, wide)] if len(classes) else []
        scores = np.concatenate(parts).astype(np.float64) if parts else np.zeros((len(memory), len(classes)))
        target = _targets(memory.y, classes)
        mine = np.flatnonzero(target >= 0)
        scores[mine, target[mine]] = memory.own[mine]
        return scores / self.unit_

    def _for_kept(self, memory: KeptSamples, classes: np.ndarray) -> np.ndarray:
        """The same with the correction."""
        linear = memory.space() @ self.weights_[classes].T + self.biases_[classes]
        found: np.ndarray = self.scale_ * self._plain(memory, classes) + linear
        return found

    def _correct(self, classes: np.ndarray, added: KeptSamples, first: bool = False) -> None:
        """Learn the corrections of some classes, which are not in the log Σ exp of the kept samples."""
        others = np.setdiff1d(np.arange(len(self.classes_)), classes)
        added = added.with_logs(log_sum_exp(self._for_kept(added, others)))
        memory = self.kept_.plus(added).limited(self.memory_per_class)
        plain, enough = self._plain(memory, classes), memory.counts(len(self.classes_))[classes] >= ENOUGH
        columns = np.zeros((len(classes), memory.rows.shape[1] + 1))
        if first and enough.sum() > 1:
            columns[enough] = self._first_columns(memory, classes[enough], plain[:, enough])
        elif not first and enough.any():
            rest = np.logaddexp(memory.logs, log_sum_exp(self.scale_ * plain[:, ~enough]))
            target = _targets(memory.y, classes[enough])
            problem = Problem(memory.space(), self.scale_ * plain[:, enough], target, balanced(memory.y), rest)
            columns[enough] = learned_columns(problem, self.penalty_)
        self.weights_, self.biases_ = self.weights_.copy(), self.biases_.copy()
        self.weights_[classes], self.biases_[classes] = exact.rounded(columns[:, :-1], self.dtype_), columns[:, -1]
        scores = corrected(Problem(memory.space(), self.scale_ * plain, memory.y, memory.scales), columns)
        self.kept_ = memory.with_logs(np.logaddexp(memory.logs, log_sum_exp(scores)))

    def _first_columns(self, memory: KeptSamples, classes: np.ndarray, plain: np.ndarray) -> np.ndarray:
        """Corrections of classes of the first task among each other; also chooses how strong corrections are."""
        rows = np.isin(memory.y, classes)
        y = _targets(memory.y[rows], classes)
        problem = Problem(memory.space()[rows], plain[rows], y, balanced(y))
        (self.scale_, self.penalty_), temperature = chosen_strength(problem)
        self.temperature_ = self.unit_ * temperature
        scaled = problem._replace(base=self.scale_ * problem.base)
        return in_place(scaled, learned_columns(scaled, self.penalty_), self.penalty_)

    # Answers

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        wanted, space = (
            np.arange(len(self.biases_)) if classes is None else classes,
            self.prior_(self.embedding_(X)),
        )
        linear = exact.products(space, self.weights_[wanted]) + self.biases_[wanted]
        return (self.scale_ * self._scores_at(space, wanted) + self.unit_ * linear).astype(self.dtype_)

    def _best(self, X: np.ndarray) -> np.ndarray:
        return Head._best(self, X)  # the bounds of ``bayes`` know no correction

    def _novelty(self, X: np.ndarray, scores: np.ndarray) -> np.ndarray:
        return super()._novelty(X, super()._scores(X))

    def _fitting(self, X: np.ndarray, scores: np.ndarray, coverage: float) -> np.ndarray:
        return super()._fitting(X, super()._scores(X)[:, self.numbers_], coverage)

    def graph(self, graph: Any) -> str:
        plain = graph.add("Mul", super().graph(graph), np.array(self.scale_))
        origin = self.prior_(np.zeros((1, self.n_features_in_)))
        weights = self.unit_ * self.weights_[self.numbers_].astype(np.float64)
        offsets = weights @ origin[0] + self.unit_ * self.biases_[self.numbers_]
        map_ = self.prior_(np.eye(self.n_features_in_)) - origin
        linear = graph.add("Gemm", self.embedding_.graph(graph, "features"), weights @ map_.T, offsets, transB=1)
        return str(graph.add("Add", plain, linear))

    # Corrections

    def _drop(self, number: int) -> None:
        self._separate(np.array([number]))
        super()._drop(number)

    def _sums_of(self, task: Task) -> Summaries:
        """The sums of samples that are taken back; they leave the memory, too."""
        taken = KeptSamples.of(self.prior_(self.embedding_(task.X[:])), task.y, np.zeros(len(task.y)))
        self.kept_ = self.kept_.minus(taken)
        return super()._sums_of(task)

    def _set_sums(self, sums: Summaries, changed: np.ndarray) -> None:
        self._separate(changed[changed < len(self.biases_)])
        super()._set_sums(sums, changed)
        self._correct(changed, self.kept_.taken(np.zeros(0, np.int64)))

    def _fixed(self) -> dict[str, Any]:
        return super()._fixed() | {name: getattr(self, name) for name in ("scale_", "penalty_")}

    def _absorb(self, other: Self) -> None:
        super()._absorb(other)
        numbers = np.array([self._number_of(label) for label, _ in other.learning_order_], np.int64)
        added = replace(other.kept_, y=numbers[other.kept_.y]).minus(self.kept_)
        changed = np.unique(added.y)
        self._separate(changed)
        self._correct(changed, added)


def _targets(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The place of each class number among sorted ones, -1 if it is not there."""
    places = np.searchsorted(classes, y)
    return np.where(np.isin(y, classes), places, -1)
