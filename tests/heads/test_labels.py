"""Labels that numpy would take for one another are kept apart or refused."""

from __future__ import annotations

import time

import numpy as np
import pytest

import taer

X = np.random.default_rng(0).normal(size=(8, 4))
BIG = 2**63


def fitted(y):
    return taer.NCM().partial_fit(X[: len(y)], y)


REFUSED = {
    "beyond int64, with negative ones": ([BIG + 1, BIG + 2, -1, -2], "between"),
    "beyond int64": (np.array([BIG + 1, BIG + 2], np.uint64), "between"),
    "beyond uint64": ([2**70, 1], "between"),
    "beyond uint64, as objects": (np.array([2**70, 1], object), "between"),
    "below int64": ([-BIG - 1, 1], "between"),
    "a NUL at the end": (["a", "a\0"], "NUL"),
    "a NUL at the end, as objects": (np.array(["a", "a\0"], object), "NUL"),
    "strings and integers": (["a", 1], "strings, integers|integers, strings"),
    "booleans and integers": ([True, 1], "booleans"),
    "integers and floating-point numbers": ([2**53 + 1, 2.0**53], "floating-point"),
    "something else": ([None, "a"], "NoneType"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_labels_that_would_merge_are_refused(case):
    y, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        fitted(y)


KEPT = {
    "the ends of int64": [BIG - 1, BIG - 2, -BIG, -BIG + 1],
    "numbers of numpy": [np.uint64(BIG - 1), np.int64(BIG - 2), np.int8(-1)],
    "uint64 that fits": np.array([BIG - 1, BIG - 2, 0], np.uint64),
    "a NUL inside": ["a\0b", "a", "a\0c"],
    "booleans": [True, False],
    "floating-point numbers": [1.0, 2.0, -1.0],
    "objects": np.array([BIG - 1, BIG - 2], object),
    "a range": range(5),
}


@pytest.mark.parametrize("case", list(KEPT))
def test_labels_of_one_kind_are_kept_apart(case):
    y = KEPT[case]
    assert fitted(y).classes_.tolist() == sorted(label.item() if hasattr(label, "item") else label for label in y)


def test_unsigned_labels_meet_negative_ones_in_a_later_task():
    head = fitted(np.array([BIG - 1, BIG - 2, 1, 2], np.uint64)).partial_fit(X[4:], [-1, -2, -3, -4])
    assert head.classes_.tolist() == [-4, -3, -2, -1, 1, 2, BIG - 2, BIG - 1]
    with pytest.raises(ValueError, match="between"):
        head.partial_fit(X[:1], np.array([BIG], np.uint64))


def test_a_class_is_renamed_to_nothing_that_would_merge():
    head = fitted(["a", "b"])
    for new in ("b\0", "c\0", 1):
        with pytest.raises(ValueError, match=r"NUL|integers now"):
            head.rename("a", new)
    with pytest.raises(ValueError, match="between"):
        fitted([1, 2]).rename(1, 2**70)


@pytest.mark.parametrize(("labels", "alike"), [(["a", "b"], "a\0"), ([2**53 + 1, 1], 2.0**53)])
def test_a_name_that_only_numpy_takes_for_a_class_is_no_class(labels, alike):
    head = fitted(labels)
    for call in (head.forget, lambda old: head.rename(old, labels[1])):
        with pytest.raises(ValueError, match="is not a known class"):
            call(alike)


def test_scores_are_asked_for_by_a_list_of_classes():
    head = fitted([1, 2])
    assert head.scores(X, [2]).shape == (len(X), 1)
    for wrong in (2, "a", [[1, 2]]):
        with pytest.raises(ValueError, match="classes must be a list of known classes, got"):
            head.scores(X, wrong)


def test_statistics_refuse_labels_that_would_wrap_around():
    with pytest.raises(ValueError, match="between"):
        taer.ClassStatistics(4).update(X[:2], np.array([2**64 - 1, BIG], np.uint64))
    statistics = taer.ClassStatistics(4).update(X[:2], np.array([BIG - 1, 0], np.uint64))
    assert statistics.update(X[2:4], np.array([-1, -2])).labels.tolist() == [-2, -1, 0, BIG - 1]


def test_the_state_of_many_classes_is_checked_at_once():
    """Not class by class among all of them, which took minutes for 100,000."""
    X, y = np.zeros((40_000, 1)), np.arange(40_000)
    head = taer.NCM(normalize="none").fit(X, y)
    started = time.process_time()
    head._restore(head._state())
    assert time.process_time() - started < 2


def test_labels_in_an_array_of_objects(tasks):
    X, y = tasks[0]
    assert taer.NCM().fit(X, y.astype(object)).classes_.dtype == np.int64
    with pytest.raises(ValueError, match="got booleans, integers"):
        taer.NCM().fit(X, np.array([True, *y[1:]], object))
