"""A head through any sequence of operations, beside a dictionary of the samples that it should know.

After each step the head answers as one that was taught these samples from scratch, and no step changes a bit of the scores
of classes that it does not name.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import taer
from tests.conftest import blobs, everyday, heads_with, small_head
from tests.heads.test_corrections import assert_same_answers

pytestmark = pytest.mark.filterwarnings("ignore::taer.heads.few.FewSamplesWarning")
FIRST, LAST = 4, 8  # classes of the first task, and of all
PER_CLASS = 24
EXAMPLES, STEPS = (40, 20) if os.environ.get("TAER_TESTS") == "long" else (8, 12)
EXACT = ("yes", "with `forgettable=True`")
seeds = st.integers(0, 2**16)


class Machine(RuleBasedStateMachine):
    """Classes 0 to 3 come first. Only samples that came later are taken back, because the first task fixed the prior."""

    name: str
    folder: Path

    @initialize(seed=st.integers(0, 3))
    def first_task(self, seed):
        self.X, self.y = blobs(LAST, PER_CLASS, seed=seed, spread=2.0)
        first = self.y < FIRST
        self.base = self._taught(np.flatnonzero(first))
        self.head = copy.deepcopy(self.base)
        self.forgotten = set()  # classes of the first task
        self.later = {}  # numbers of samples that came later, by class
        self.renamed = {}  # the label now, by the class

    def _taught(self, rows):
        exactly = {"forgettable": True} if "forgettable" in taer.HEADS[self.name].card.forgets else {}
        return small_head(self.name, random_state=0, **exactly).partial_fit(self.X[rows], self.y[rows])

    def _without_forgotten(self):
        """From scratch without the forgotten classes of the first task, where the card promises as much."""
        left = np.flatnonzero((self.y < FIRST) & ~np.isin(self.y, sorted(self.forgotten)))
        if self.forgotten and len(left) and taer.HEADS[self.name].card.forgets in EXACT:
            return self._taught(left)
        head = copy.deepcopy(self.base)
        for number in sorted(self.forgotten):
            if len(head.classes_) > 1:
                head.forget(number)
        return head

    def _label(self, number):
        return self.renamed.get(number, number)

    def _known(self):
        return sorted((set(range(FIRST)) - self.forgotten) | set(self.later))

    def _step(self, change, *named):
        """Apply a change; scores of classes that it does not name keep their bits."""
        others = [self._label(number) for number in self._known() if number not in named]
        before = self.head.scores(self.X, others) if others else None
        self.head = change(self.head)
        if others and self.head.card.frozen:
            np.testing.assert_array_equal(self.head.scores(self.X, others), before)

    def _drawn(self, number, seed, at_most=6):
        """Samples of a class that the head does not know, or those of its first task, once more."""
        free = np.setdiff1d(np.flatnonzero(self.y == number), self.later.get(number, []))
        rng = np.random.default_rng(seed)
        return rng.permutation(free)[: rng.integers(1, at_most + 1)]

    def _learned(self, numbers, seed):
        rows = {number: self._drawn(number, seed + number) for number in numbers}
        rows = {number: found for number, found in rows.items() if len(found)}
        every = np.concatenate([*rows.values(), np.zeros(0, np.int64)])
        labels = np.array([self._label(number) for number in self.y[every].tolist()])
        return rows, every, labels

    def _keep(self, rows):
        for number, found in rows.items():
            self.later[number] = np.append(self.later.get(number, np.zeros(0, np.int64)), found)

    @rule(numbers=st.sets(st.integers(0, LAST - 1), min_size=1, max_size=3), seed=seeds)
    def learn(self, numbers, seed):
        rows, every, labels = self._learned(numbers - self.forgotten, seed)
        if len(every):
            self._step(lambda head: head.partial_fit(self.X[every], labels), *rows)
            self._keep(rows)

    @precondition(lambda self: self.later)
    @rule(data=st.data(), seed=seeds)
    def unlearn(self, data, seed):
        number = data.draw(st.sampled_from(sorted(self.later)))
        rows = np.random.default_rng(seed).permutation(self.later[number])
        rows = rows[: data.draw(st.integers(1, len(rows)))]
        self._step(lambda head: head.unlearn(self.X[rows], [self._label(number)] * len(rows)), number)
        self.later[number] = np.setdiff1d(self.later[number], rows)
        if not len(self.later[number]):
            del self.later[number]
            if number >= FIRST:
                self.renamed.pop(number, None)

    @precondition(lambda self: len(self._known()) > 2)
    @rule(data=st.data())
    def forget(self, data):
        number = data.draw(st.sampled_from(self._known()))
        self._step(lambda head: head.forget(self._label(number)), number)
        self.later.pop(number, None)
        self.renamed.pop(number, None)
        if number < FIRST:
            self.forgotten.add(number)

    @rule(data=st.data())
    def rename(self, data):
        number = data.draw(st.sampled_from(self._known()))
        new = 1000 - self._label(number)  # 3, 997, 3, …: never a label of another class
        self._step(lambda head: head.rename(self._label(number), new), number)
        self.renamed[number] = new

    @rule(numbers=st.sets(st.integers(0, LAST - 1), min_size=1, max_size=2), seed=seeds)
    def merge(self, numbers, seed):
        """Another site learns beside this one, from a copy."""
        rows, every, labels = self._learned(numbers - self.forgotten, seed)
        if len(every):
            base = copy.deepcopy(self.head)
            other = copy.deepcopy(base).partial_fit(self.X[every], labels)
            self._step(lambda head: head.merge(other, base=base), *rows)
            self._keep(rows)

    @rule()
    def save_and_load(self):
        before = self.head.scores(self.X)
        self.head.save(self.folder / "head.safetensors")
        self.head = taer.load(self.folder / "head.safetensors")
        np.testing.assert_array_equal(self.head.scores(self.X), before)

    @rule()
    def be_refused(self):
        """A call that fails changes nothing."""
        before = self.head.scores(self.X)
        for call in (
            lambda: self.head.partial_fit(self.X[:2] * np.nan, [0, 1]),
            lambda: self.head.unlearn(self.X[:1], [5000]),
            lambda: self.head.forget(5000),
        ):
            with pytest.raises((ValueError, KeyError)):
                call()
        np.testing.assert_array_equal(self.head.scores(self.X), before)

    @invariant()
    def answers_as_if_taught_from_scratch(self):
        head = self._without_forgotten()
        for rows in self.later.values():
            head.partial_fit(self.X[rows], self.y[rows])
        for number in self._known():
            if self._label(number) != number:
                head.rename(number, self._label(number))
        assert_same_answers(self.head, head, self.X)


@pytest.mark.parametrize("name", heads_with(sums=True))
def test_any_sequence_of_operations_is_the_same_as_teaching_what_is_left(name, tmp_path):
    kind = type("Machine", (Machine,), {"name": name, "folder": tmp_path})
    run_state_machine_as_test(
        kind, settings=settings(parent=everyday, max_examples=EXAMPLES, stateful_step_count=STEPS)
    )
