"""Suggestions of what to label, on Gaussian classes whose answer is known."""

from copy import deepcopy

import numpy as np
import pytest

import taer
from taer.rows import SelectedRows
from tests.loop.test_discover import KNOWN, WIDTH, samples


@pytest.fixture(scope="module", params=[taer.Bayes, taer.BayesReplay])
def head(request):
    return request.param().fit(*samples(range(KNOWN), 20))


@pytest.fixture(scope="module")
def bayes():
    return taer.Bayes().fit(*samples(range(KNOWN), 20))


def test_new_classes_are_asked_for_first_and_each_once(head):
    X, y = samples(range(6, 17), 20, seed=2)
    picked = head.suggest(X, 5)
    assert sorted(y[picked]) == [12, 13, 14, 15, 16]


def test_a_head_that_knows_nothing_picks_by_spread():
    X, y = samples(range(8), 30, seed=3)
    picked = taer.Bayes().suggest(X, 8)
    assert sorted(y[picked]) == list(range(8))


def test_copies_are_asked_for_once_and_outliers_not(bayes):
    X, y = samples([13, 14, 15], 20, seed=4)
    copies = np.repeat(X[y == 13][:1], 20, axis=0) + np.random.default_rng(0).normal(size=(20, WIDTH)) * 1e-3
    outliers = np.random.default_rng(1).normal(size=(10, WIDTH)) * 15
    picked = bayes.suggest(np.concatenate([X, copies, outliers]), 3)
    assert (picked < len(X) + len(copies)).all()
    labels = np.concatenate([y, np.full(20, 13)])
    assert sorted(labels[picked]) == [13, 14, 15]


def test_rows_are_different_and_no_more_than_there_are(bayes):
    X, _ = samples([13, 14], 10, seed=5)
    for some in (bayes, taer.Bayes()):
        assert sorted(some.suggest(X, 50)) == list(range(20))
        assert sorted(some.suggest(np.concatenate([X] * 3), 60)) == list(range(60))
        assert (some.suggest(X, 7) == some.suggest(X, 7)).all()


def test_five_labels_of_each_discovered_group_teach_the_new_classes(bayes):
    """One round of the loop: after it, nothing is new anymore."""
    X, y = samples(range(6, 17), 25, seed=2)
    groups = bayes.discover(X).groups
    asked = np.concatenate([group.rows[bayes.suggest(X[group.rows], 5)] for group in groups])
    assert (len(asked), len(set(asked))) == (25, 25)
    head = deepcopy(bayes).partial_fit(X[asked], y[asked])
    again, truth = samples(range(17), 20, seed=7)
    assert head.score(again, truth) > 0.95
    assert bayes.discover(again).groups  # without the labels, there is something new
    assert head.discover(again).groups == []


def test_a_pool_is_read_in_pieces(bayes, monkeypatch):
    from taer import rows
    from taer.loop import suggest

    X, y = samples(range(6, 17), 40, seed=6)
    whole = bayes.suggest(X, 5)
    read = []

    class Watched(SelectedRows):
        def __getitem__(self, which):
            part = super().__getitem__(which)
            read.append(len(part))
            return part

    monkeypatch.setattr(rows, "_CHUNK", 50 * WIDTH)
    assert (bayes.suggest(Watched(X, np.arange(len(X))), 5) == whole).all()
    monkeypatch.setattr(suggest, "_CANDIDATES", 100)
    read.clear()
    picked = bayes.suggest(Watched(X, np.arange(len(X))), 5)
    assert max(read) <= 100
    assert len(set(y[picked])) == 5
    assert min(y[picked]) >= KNOWN


@pytest.mark.parametrize("n", [0, -1, 2.5, True, "3"])
def test_a_wrong_number_is_refused(bayes, n):
    with pytest.raises(ValueError, match="whole number above 0"):
        bayes.suggest(np.zeros((3, WIDTH)), n)


@pytest.mark.parametrize(
    ("X", "message"),
    [(np.zeros((0, WIDTH)), "0 sample"), (np.zeros((3, 5)), "5 features"), (np.full((4, WIDTH), np.nan), "NaN")],
)
def test_bad_input_is_refused(bayes, X, message):
    with pytest.raises(ValueError, match=message):
        bayes.suggest(X, 2)
    if message != "5 features":
        with pytest.raises(ValueError, match=message):
            taer.Bayes().suggest(X, 2)
