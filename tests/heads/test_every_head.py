"""The promises of every head."""

from __future__ import annotations

import copy
import io
import warnings
from functools import cache
from unittest import mock

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import taer
from tests.conftest import accuracy, blobs, heads_with, small_head, three_tasks

pytestmark = pytest.mark.parametrize("name", list(taer.HEADS))
NEEDS_MEMORY = {"icarl", "gdumb"}
# Closed forms of all classes, and probabilities among those of a task: without one of them the others change.
MOVES_WHEN_A_CLASS_GOES = heads_with(keeps="statistics", frozen=False) + heads_with(guesses_task=True)
# Without samples or statistics of the past, what was learned is lost.
FORGETFUL = heads_with(keeps="nothing")


def learn(head, tasks):
    for X, y in tasks:
        head.partial_fit(X, y)
    return head


@cache
def _learned(name, count):
    return learn(small_head(name, random_state=0), three_tasks()[:count])


def learned(name, count):
    """A head after the first of the ``tasks``; learned once for all tests."""
    return copy.deepcopy(_learned(name, count))


def snapshot(head):
    """Everything that a later prediction or task could depend on."""
    return joblib.hash({k: v for k, v in vars(head).items() if k != "rng_"}), str(head.rng_.bit_generator.state)


def test_scores_of_some_classes_come_in_the_order_in_which_they_are_asked_for(name, tasks):
    head, X = learned(name, 3), np.concatenate([X for X, _ in tasks])
    everything = head.scores(X)
    for wanted in ([1, 0, 4, 5, 2, 3], [5, 0], [3, 2, 5, 0, 4, 1], [4]):  # they came in the order 1, 4, 0, 5, 2, 3
        found, tolerance = head.scores(X, wanted), 0 if head.card.frozen else 1e-9
        np.testing.assert_allclose(found, everything[:, wanted], rtol=tolerance, atol=tolerance)


def test_learns_and_keeps_the_contract(name, tasks):
    head = learned(name, 3)
    X, y = np.concatenate([X for X, _ in tasks]), np.concatenate([y for _, y in tasks])
    assert head.classes_.tolist() == sorted(set(y.tolist()))
    assert [label for label, _ in head.learning_order_] == [1, 4, 0, 5, 2, 3]
    assert [task for _, task in head.learning_order_] == [1, 1, 2, 2, 3, 3]
    scores, proba = head.decision_function(X), head.predict_proba(X)
    assert scores.shape == proba.shape == (len(X), 6)
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(head.predict(X), head.classes_[scores.argmax(axis=1)])
    np.testing.assert_array_equal(scores.argmax(axis=1), proba.argmax(axis=1))
    if name not in FORGETFUL:
        assert head.score(X, y) > 0.9
    assert accuracy(head, *tasks[-1]) > 0.9


def test_string_labels_learn_the_same_as_integers(name, tasks):
    names = np.array(["a", "b", "c", "d", "e", "f"])  # sorts as the integers do
    by_number = learned(name, 3)
    by_name = learn(small_head(name, random_state=0), [(X, names[y]) for X, y in tasks])
    X = tasks[0][0]
    np.testing.assert_array_equal(by_name.predict(X), names[by_number.predict(X)])
    longer = small_head(name, random_state=0).partial_fit(*[tasks[0][0], names[tasks[0][1]]])
    longer.partial_fit(tasks[1][0], np.array(["a much longer name", "b"])[tasks[1][1] % 2])
    assert "a much longer name" in longer.classes_


def test_names_of_classes_do_not_matter(name, tasks):
    """Labels that sort in another order give the same classifier."""
    other = np.array([5, 3, 1, 0, 2, 4]) * 10
    head = learned(name, 3)
    renamed = learn(small_head(name, random_state=0), [(X, other[y]) for X, y in tasks])
    X = np.concatenate([X for X, _ in tasks])
    # Which sample leaves the memory is drawn again, so a few predictions may differ.
    assert np.mean(other[head.predict(X)] == renamed.predict(X)) > 0.9


def test_one_class_and_one_sample_per_task(name):
    X, y = blobs(4, 30)
    head = small_head(name, random_state=0)
    for label in (2, 0, 3):
        head.partial_fit(X[y == label], y[y == label])
    head.partial_fit(X[y == 1][:1], [1])
    assert head.classes_.tolist() == [0, 1, 2, 3]
    assert np.isfinite(head.decision_function(X)).all()


def test_two_classes_have_one_dimensional_decisions(name, tasks):
    head = small_head(name, random_state=0).partial_fit(*tasks[0])
    decision = head.decision_function(tasks[0][0])
    assert decision.shape == (len(tasks[0][0]),)
    np.testing.assert_array_equal(head.predict(tasks[0][0]), head.classes_[(decision > 0).astype(int)])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_float_type_and_memory_maps(name, tasks, dtype, tmp_path):
    plain, mapped = (small_head(name, random_state=0) for _ in range(2))
    for number, (X, y) in enumerate(tasks):
        path = tmp_path / f"{number}.npy"
        np.save(path, X.astype(dtype))
        plain.partial_fit(X.astype(dtype), y)
        mapped.partial_fit(np.load(path, mmap_mode="r"), y)
    X = tasks[0][0].astype(dtype)
    np.testing.assert_array_equal(plain.decision_function(X), mapped.decision_function(X))
    assert plain.decision_function(X).dtype == (np.float64 if dtype == np.float64 else np.float32)


class RowsOnly:
    """The minimal interface of features."""

    def __init__(self, X):
        self._X, self.shape, self.dtype = X, X.shape, X.dtype

    def __getitem__(self, rows):
        return self._X[rows]

    def __len__(self):
        return len(self._X)


def test_anything_with_rows(name, tasks):
    plain = learned(name, 3)
    lazy = learn(small_head(name, random_state=0), [(RowsOnly(X), y) for X, y in tasks])
    np.testing.assert_array_equal(
        plain.decision_function(tasks[0][0]), lazy.decision_function(RowsOnly(tasks[0][0]))
    )
    with pytest.raises(ValueError, match="expecting 12 features"):
        lazy.predict(RowsOnly(tasks[0][0][:, :5]))


class Tensor:
    """Rows of another library, with a dtype that numpy lacks, but which numpy can convert."""

    dtype = "other.float64"

    def __init__(self, values):
        self.values, self.shape = values, values.shape

    def __getitem__(self, rows):
        return Tensor(self.values[rows])

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)


def test_tensors_of_other_libraries_are_copied(name, tasks):
    plain = learned(name, 2)
    other = learn(small_head(name, random_state=0), [(Tensor(X), y) for X, y in tasks[:2]])
    X = tasks[0][0]
    np.testing.assert_array_equal(plain.decision_function(X), other.decision_function(Tensor(X)))


def test_a_later_task_may_have_another_type_of_number(name, tasks):
    """A first task of integer features must not truncate the features of later tasks."""
    whole, X = tasks[0][0].round().astype(np.int64), tasks[1][0]
    one, other = small_head(name, random_state=0), small_head(name, random_state=0)
    learn(one, [(whole, tasks[0][1]), tasks[1], tasks[2]])
    learn(other, [(whole.astype(np.float64), tasks[0][1]), tasks[1], tasks[2]])
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
    if hasattr(one, "memory_") and hasattr(one.memory_, "X"):
        assert (np.asarray(one.memory_.X[:]) != np.round(one.memory_.X[:])).any()


def test_a_known_class_may_return(name, tasks):
    head = learned(name, 3)
    X, y = tasks[0]
    head.partial_fit(X[y == 1], y[y == 1])
    assert head.classes_.tolist() == [0, 1, 2, 3, 4, 5]
    assert len(head.learning_order_) == 6
    assert accuracy(head, X[y == 1], y[y == 1], classes=[1, 4]) > 0.9


def test_same_seed_same_bits_and_other_seed_other_bits(name, tasks):
    first, second = (learn(small_head(name, random_state=3), tasks) for _ in range(2))
    X = tasks[0][0]
    np.testing.assert_array_equal(first.decision_function(X), second.decision_function(X))
    assert snapshot(first) == snapshot(second)


def test_fit_forgets_everything(name, tasks):
    fresh = small_head(name, random_state=0).fit(*tasks[1])
    again = learned(name, 3).fit(*tasks[1])
    assert snapshot(fresh) == snapshot(again)


def test_clone_pickle_and_pipeline(name, tasks):
    head = learned(name, 2)
    assert not hasattr(clone(head), "classes_")
    file = io.BytesIO()
    joblib.dump(head, file)
    file.seek(0)
    restored = joblib.load(file)
    X = tasks[2][0]
    for each in (head, restored):
        each.partial_fit(*tasks[2])
    np.testing.assert_array_equal(head.decision_function(X), restored.decision_function(X))
    pipeline = make_pipeline(Normalizer(), small_head(name, random_state=0)).fit(*tasks[0])
    assert pipeline.score(*tasks[0]) > 0.9
    assert cross_val_score(small_head(name, random_state=0), *tasks[0], cv=3).mean() > 0.9


def test_data_frames_give_feature_names(name, tasks):
    X, y = tasks[0]
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    head = small_head(name, random_state=0).partial_fit(frame, y)
    assert head.feature_names_in_[0] == "f0"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        head.predict(frame)


def test_classes_may_be_given_and_are_checked(name, tasks):
    X, y = tasks[0]
    given = small_head(name, random_state=0).partial_fit(X, y, classes=[0, 1, 2, 3, 4, 5])
    assert given.classes_.tolist() == [1, 4]
    with pytest.raises(ValueError, match="lacks"):
        small_head(name).partial_fit(X, y, classes=[1])


BAD_INPUT = {
    "NaN": (lambda X, y: (np.where(np.arange(X.size).reshape(X.shape) == 7, np.nan, X), y), "NaN"),
    "infinity": (lambda X, y: (np.where(np.arange(X.size).reshape(X.shape) == 7, np.inf, X), y), "infinity"),
    "width": (lambda X, y: (X[:, :5], y), "features"),
    "lengths": (lambda X, y: (X, y[:-1]), "inconsistent"),
    "label type": (lambda X, y: (X, y.astype(str)), "strings now"),
    "mixed labels": (lambda X, y: (X, np.array([1, "a"] * (len(y) // 2), object)), "label"),
    "continuous labels": (lambda X, y: (X, y + 0.5), "label"),
    "empty": (lambda X, y: (X[:0], y[:0]), "sample"),
    "one-dimensional": (lambda X, y: (X[:, 0], y), "2D"),
}


@pytest.mark.parametrize("bad", list(BAD_INPUT))
def test_bad_input_is_refused_and_changes_nothing(name, tasks, bad):
    head = learned(name, 2)
    before = snapshot(head)
    spoil, message = BAD_INPUT[bad]
    for method in (head.partial_fit, head.fit) if bad not in ("width", "label type") else (head.partial_fit,):
        with pytest.raises(ValueError, match=message):
            method(*spoil(*tasks[2]))
        assert snapshot(head) == before


def test_sparse_input_is_refused(name, tasks):
    with pytest.raises(TypeError, match="dense"):
        small_head(name).partial_fit(csr_array(tasks[0][0]), tasks[0][1])


def test_a_failure_in_the_middle_changes_nothing(name, tasks, monkeypatch):
    head = learned(name, 2)
    before, intact = snapshot(head), copy.deepcopy(head)

    learn_task = type(head)._learn

    def interrupted(self, task):
        learn_task(self, task)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(head), "_learn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        head.partial_fit(*tasks[2])
    assert snapshot(head) == before
    monkeypatch.undo()
    X = tasks[0][0]
    np.testing.assert_array_equal(
        head.partial_fit(*tasks[2]).decision_function(X), intact.partial_fit(*tasks[2]).decision_function(X)
    )


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number, 1 or more, got 0"),
        ({"epochs": 1.5}, "epochs must be a whole number"),
        ({"lr": -0.1}, "lr must be a number above 0"),
        ({"lr": float("nan")}, "lr must be a number"),
        ({"batch_size": True}, "batch_size must be a whole number"),
        ({"memory_size": -1}, "memory_size must be a whole number, [01] or more"),
        ({"replay_batch_size": 0}, "replay_batch_size must be a whole number, 1 or more"),
        ({"standardize": "yes"}, "standardize must be one of 'none', 'center', 'scale'"),
        ({"init": "ones"}, "init must be one of"),
    ],
)
def test_bad_parameters_are_named(name, tasks, bad, message):
    known = small_head(name).get_params()
    if not set(bad) <= set(known):
        with pytest.raises(ValueError, match="no parameter"):
            small_head(name, **bad)
        return
    head = learned(name, 1)
    before = snapshot(head)[1]
    head.set_params(**bad)
    with pytest.raises(ValueError, match=message):
        head.partial_fit(*tasks[1])
    assert snapshot(head)[1] == before


def test_a_class_can_be_renamed(name, tasks):
    head, same = (learned(name, 2) for _ in range(2))
    X = tasks[0][0]
    with mock.patch.object(type(head), "_set_labels", side_effect=KeyboardInterrupt):
        before = snapshot(head)
        with pytest.raises(KeyboardInterrupt):
            head.rename(0, 9)
        assert snapshot(head) == before
    assert head.rename(0, 0).classes_.tolist() == [0, 1, 4, 5]
    head.rename(0, 9)
    assert head.classes_.tolist() == [1, 4, 5, 9]
    assert 9 in [label for label, _ in head.learning_order_]
    before = same.predict(X)
    np.testing.assert_array_equal(head.predict(X), np.where(before == 0, 9, before))
    columns = [1, 2, 3, 0]  # where 0, 1, 4, 5 were, in the new order
    np.testing.assert_allclose(head.predict_proba(X), same.predict_proba(X)[:, columns], rtol=1e-6)
    head.partial_fit(*tasks[2])  # learning goes on
    assert accuracy(head, *tasks[2]) > 0.9
    for bad, message in ((7, "not a known class"), (4, "another class already"), ("x", "never converted")):
        with pytest.raises(ValueError, match=message):
            head.rename(*((bad, 8) if bad == 7 else (1, bad)))


def test_a_class_can_be_forgotten(name, tasks):
    head = learned(name, 3)
    X = np.concatenate([X for X, _ in tasks])
    before = head.decision_function(X)
    head.forget(5)
    assert head.classes_.tolist() == [0, 1, 2, 3, 4]
    assert [label for label, _ in head.learning_order_] == [1, 4, 0, 2, 3]
    assert 5 not in head.predict(X)
    if name not in MOVES_WHEN_A_CLASS_GOES:
        np.testing.assert_array_equal(head.decision_function(X), before[:, [0, 1, 2, 3, 4]])
    if hasattr(head, "memory_"):
        labels = np.array([label for label, _ in head.learning_order_])[head.memory_.y]
        everything, truth = X, np.concatenate([y for _, y in tasks])
        rows = [np.flatnonzero((everything == row).all(axis=1))[0] for row in head.memory_.X]
        np.testing.assert_array_equal(truth[rows], labels)
    head.partial_fit(*tasks[1])  # it may come again
    assert head.classes_.tolist() == [0, 1, 2, 3, 4, 5]
    assert accuracy(head, *tasks[1]) > 0.9
    with pytest.raises(ValueError, match="not a known class"):
        head.forget(17)
    with pytest.raises(ValueError, match="only class"):
        small_head(name).partial_fit(X[:5], np.ones(5, int)).forget(1)


def test_none_of_these(name, tasks):
    X, y = tasks[0]
    held, far = X[::4], X[::4] * 0 + X.mean(0)  # between the two classes: neither
    head = small_head(name, random_state=0).partial_fit(np.delete(X, np.s_[::4], axis=0), np.delete(y, np.s_[::4]))
    threshold = head.novelty_threshold(held, false_alarms=0.1)
    assert np.mean(head.novelty(held) > threshold) <= 0.1
    assert head.novelty(far).mean() > head.novelty(held).mean()
    answers = head.predict(far, unknown="?", threshold=threshold)
    assert set(answers) <= {"?", 1, 4}
    assert (answers == "?").any()
    numbers = head.predict(far, unknown=-1, threshold=threshold)
    assert numbers.dtype == head.classes_.dtype
    np.testing.assert_array_equal(numbers == -1, answers == "?")
    np.testing.assert_array_equal(head.predict(far, unknown="?"), answers)  # by the threshold that is kept
    with pytest.raises(ValueError, match="needs a threshold"):
        head.predict(far, unknown="?", threshold=float("nan"))
    with pytest.raises(ValueError, match="needs a threshold: novelty_threshold"):
        small_head(name, random_state=0).fit(X, y).predict(far, unknown="?")
    with pytest.raises(ValueError, match="must not be one of the classes"):
        head.predict(far, unknown=1, threshold=threshold)
    with pytest.raises(ValueError, match="threshold needs unknown"):
        head.predict(far, threshold=threshold)
    with pytest.raises(ValueError, match="false_alarms must be"):
        head.novelty_threshold(held, 0)


def test_parameters_are_read_at_each_task(name, tasks):
    head = small_head(name, random_state=0)
    if "memory_size" not in head.get_params():
        pytest.skip("has no memory of a given size")
    learn(head.set_params(memory_size=20), tasks[:2])
    assert len(head.memory_) == 20
    head.set_params(memory_size=6).partial_fit(*tasks[2])
    assert len(head.memory_) == 6
    head.set_params(memory_size=0)
    if name in NEEDS_MEMORY:
        with pytest.raises(ValueError, match="memory_size must be a whole number, 1 or more, got 0"):
            head.partial_fit(*tasks[0])
    else:
        assert len(head.partial_fit(*tasks[0]).memory_) == 0
