"""Is a new version better?"""

from __future__ import annotations

import copy

import numpy as np
import pytest
from scipy.stats import binom

import taer
from taer.loop.compare import compare, lower_bound
from tests.conftest import blobs


@pytest.fixture(scope="module")
def versions():
    X, y = blobs(6, 80)
    order = np.argsort(y, kind="stable")
    X, y = X[order], np.array([f"class {label}" for label in y[order]])
    rows = np.arange(len(X))
    train, test = rows % 2 == 0, rows % 2 == 1
    first = np.isin(y, ["class 0", "class 1", "class 2"])
    old = taer.Bayes(random_state=0).partial_fit(X[train & first], y[train & first])
    new = copy.deepcopy(old).partial_fit(X[train & ~first], y[train & ~first])
    return old, new, X[test], y[test]


def test_old_and_new_classes_are_counted_apart(versions):
    old, new, X, y = versions
    found = compare(old, new, X, y)
    assert (found.compared, found.new_compared) == (120, 120)
    assert found.new_classes == ["class 3", "class 4", "class 5"]
    assert found.new_accuracy > 0.9
    assert found.after - found.before == pytest.approx((found.gained - found.lost) / 120)
    assert found.at_least < found.after - found.before < found.at_most


def test_only_a_new_class_can_win_where_old_scores_never_move(versions):
    old, new, X, y = versions
    found = compare(old, new, X, y)
    assert not found.moved
    assert {difference.after for difference in found.differing} <= set(found.new_classes)
    assert "only where a new class wins" in found.sentence()
    assert compare(old, copy.deepcopy(old).partial_fit(X[:40], y[:40]), X, y).moved  # more of a known class


def test_a_version_that_forgot_a_class_loses_it(versions):
    old, new, X, y = versions

    class Blind(type(new)):
        """Takes everything of class 1 for class 0."""

        def scores(self, X):
            found = super().scores(X).copy()
            found[:, 1] = -np.inf
            return found

    blind = copy.deepcopy(new)
    blind.__class__ = Blind
    found = compare(old, blind, X, y)
    assert found.losing[0].label == "class 1"
    assert (found.losing[0].samples, found.losing[0].after) == (40, 0)
    assert found.not_worse is False
    assert found.moved
    row = next(one for one in found.differing if one.truth == "class 1")
    assert y[row.row] == "class 1"


def test_labels_of_two_kinds_are_refused(versions):
    old, _, X, y = versions
    numbers = np.array([int(label[-1]) for label in y])
    other = taer.Bayes(random_state=0).fit(X, numbers)
    with pytest.raises(ValueError, match="of the old head are strings and those of the new one integers"):
        compare(old, other, X, y)
    with pytest.raises(ValueError, match="labels were strings so far and are integers now"):
        compare(old, old, X, numbers)


def test_too_few_comparisons_decide_nothing(versions):
    old, new, X, y = versions
    known = np.isin(y, old.classes_)
    assert compare(old, new, X[known][:29], y[known][:29]).not_worse is None
    nothing = compare(old, new, X[:0], y[:0])
    assert (nothing.compared, nothing.not_worse) == (0, None)
    assert "nothing can be compared" in nothing.sentence()


def test_the_bound_does_not_claim_what_the_counts_cannot_show():
    assert lower_bound(0, 0, 30) < -0.05
    assert lower_bound(0, 0, 267) < -0.01 < lower_bound(0, 0, 300)
    assert lower_bound(0, 3, 300) < -0.01
    assert lower_bound(30, 0, 300) > 0.05


@pytest.mark.parametrize(("count", "rate"), [(100, 0.02), (400, 0.02), (400, 0.01), (1000, 0.012)])
def test_a_version_that_is_worse_by_more_than_a_point_seldom_passes(count, rate):
    """Of versions that lose ``rate`` of the samples and gain none, at most about 5 % look not worse."""
    passed = sum(
        binom.pmf(lost, count, rate)
        for lost in range(count)
        if lower_bound(0, lost, count) > -min(rate, 0.01) - 1e-9
    )
    assert passed < 0.08
