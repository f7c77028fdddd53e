"""Sample weights: 2 counts a sample twice, 0 leaves it out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate

import taer
from taer.heads.descent.loop import Loop
from taer.statistics import ClassStatistics
from tests.conftest import blobs, everyday, small_head

every_head = pytest.mark.parametrize("name", list(taer.HEADS))
WEIGHING = [name for name, head in taer.HEADS.items() if head.weighs]


def centered(scores):
    """Scores up to a number that all classes of a sample share."""
    return scores - scores.mean(axis=1, keepdims=True)


@everyday
@given(st.integers(0, 10_000), st.booleans())
def test_statistics_of_weights_are_those_of_repetitions(seed, per_class):
    rng = np.random.default_rng(seed)
    n, width = int(rng.integers(1, 30)), int(rng.integers(1, 4))
    X, y, times = rng.normal(size=(n, width)) * 3 + 10, rng.integers(0, 4, n), rng.integers(1, 4, n)
    weighted = ClassStatistics(width, per_class=per_class).update(X, y, times)
    repeated = ClassStatistics(width, per_class=per_class).update(np.repeat(X, times, axis=0), np.repeat(y, times))
    for name, array in repeated.to_arrays().items():
        np.testing.assert_allclose(weighted.to_arrays()[name], array, atol=1e-9, err_msg=name)


def test_bad_weights_of_statistics_are_refused():
    for bad in ([1.0], [1.0, 0.0], [1.0, np.inf]):
        with pytest.raises(ValueError, match="weights must be finite numbers above 0"):
            ClassStatistics(1).update([[1.0], [2.0]], [0, 1], bad)


@pytest.mark.parametrize("name", [name for name in taer.HEADS if name not in WEIGHING])
def test_whole_weights_are_repetitions(name, tasks):
    rng = np.random.default_rng(0)
    weighted, repeated = (small_head(name, random_state=0) for _ in range(2))
    for X, y in tasks:
        times = rng.integers(0, 4, len(y))
        weighted.partial_fit(X, y, sample_weight=times)
        repeated.partial_fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_array_equal(weighted.scores(tasks[0][0]), repeated.scores(tasks[0][0]))


@pytest.mark.parametrize("name", WEIGHING)
def test_weights_are_repetitions_where_they_are_counted(name, tasks):
    """To rounding, once the first task has made its choices, which count every sample once."""
    rng = np.random.default_rng(0)
    weighted, repeated = (small_head(name, random_state=0).partial_fit(*tasks[0]) for _ in range(2))
    for X, y in tasks[1:]:
        times = rng.integers(0, 4, len(y))
        weighted.partial_fit(X, y, sample_weight=times)
        repeated.partial_fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    X = tasks[0][0]
    np.testing.assert_allclose(weighted.scores(X), repeated.scores(X), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ["ncm", "slda", "ridge", "rgda", "fecam"])
def test_first_tasks_that_choose_nothing_count_weights_too(name, tasks):
    X, y = tasks[0]
    times = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = small_head(name).fit(X, y, sample_weight=times)
    repeated = small_head(name).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(centered(weighted.scores(X)), centered(repeated.scores(X)), rtol=1e-4, atol=1e-6)


@every_head
def test_fractions_weigh(name):
    """Samples with a wrong label and a small weight do no harm."""
    X, y = blobs(4, 60)
    wrong = np.arange(len(y)) % 2 == 0
    noisy = np.where(wrong, (y + 1) % 4, y)
    weight = np.where(wrong, 0.05, 1.5)
    head = small_head(name, random_state=0).fit(X, noisy, sample_weight=weight)
    assert head.score(X, y) > (0.7 if name == "xdg-adapter" else 0.9)  # with a fifth of 32 units
    assert head.classes_.tolist() == [0, 1, 2, 3]


@every_head
def test_a_class_of_small_weight_is_not_lost(name, tasks):
    X, y = tasks[0]
    head = small_head(name, random_state=0).fit(X, y, sample_weight=np.where(y == 1, 1e-6, 1.0))
    assert head.classes_.tolist() == [1, 4]
    left_out = small_head(name, random_state=0).fit(X, y, sample_weight=(y == 4).astype(float))
    assert left_out.classes_.tolist() == [4]


@every_head
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda n: np.ones(n - 1), "one number for each"),
        (lambda n: np.ones((n, 2)), "one number for each"),
        (lambda n: -np.ones(n), "0 or more"),
        (lambda n: np.full(n, np.nan), "finite"),
        (lambda n: np.zeros(n), "all weights of sample_weight are zero"),
    ],
)
def test_bad_weights_change_nothing(name, tasks, bad, message):
    head = small_head(name, random_state=0).fit(*tasks[0])
    before = head.scores(tasks[0][0])
    with pytest.raises(ValueError, match=message):
        head.partial_fit(*tasks[1], sample_weight=bad(len(tasks[1][1])))
    np.testing.assert_array_equal(head.scores(tasks[0][0]), before)


def test_weighted_ridge_is_weighted_least_squares():
    """Against scikit-learn, with weights that no repetition gives."""
    from sklearn.linear_model import Ridge

    X, y = blobs(3, 30, spread=3.0)
    weight = np.random.default_rng(0).uniform(0.1, 3, len(y))
    ours = taer.Ridge(gamma=2.0, class_weight=None).fit(X, y, sample_weight=weight)
    theirs = Ridge(alpha=2.0).fit(X, np.eye(3)[y], sample_weight=weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["slda", "taer", "bayes"])
def test_metadata_routing_delivers_weights(name):
    X, y = blobs(2, 60)
    y = np.where(np.arange(len(y)) % 2 == 0, 1 - y, y)
    weight = (np.arange(len(y)) % 2).astype(float)
    with config_context(enable_metadata_routing=True):
        head = (
            small_head(name, random_state=0)
            .set_fit_request(sample_weight=True)
            .set_score_request(sample_weight=True)
        )
        found = cross_validate(head, X, y, params={"sample_weight": weight}, cv=3)
        assert found["test_score"].min() > 0.9
        scores = LogisticRegression().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        assert cross_validate(scores, X, y, params={"sample_weight": weight}, cv=3)["test_score"].min() > 0.9


LEARNED_BY_SGD = [name for name in taer.HEADS if "last_batch" in taer.make_head(name).get_params()]


@pytest.mark.parametrize("name", LEARNED_BY_SGD)
def test_balanced_classes_are_equally_frequent_in_an_epoch(name, monkeypatch):
    drawn, choice = [], Loop._order

    def watched(loop, samples):
        order = choice(loop, samples)
        drawn.append(np.bincount(samples.constants["target"][order]))
        return order

    monkeypatch.setattr(Loop, "_order", watched)
    X, y = blobs(2, 400)
    rare = np.flatnonzero((y == 0) | (np.arange(len(y)) % 20 == 0))
    small_head(name, random_state=0, balance_classes=True).fit(X[rare], y[rare])
    fractions = np.sum(drawn, axis=0) / np.sum(drawn)
    np.testing.assert_allclose(fractions[:2], 0.5, atol=0.08)


@pytest.mark.parametrize("name", ["taer", "joint", "er", "finetune-adapter"])
def test_rare_classes_are_found_if_classes_are_balanced(name):
    X, y = blobs(4, 400, width=6, spread=3.0)
    test, rows = (
        np.arange(len(y)) % 2 == 0,
        np.flatnonzero((np.arange(len(y)) % 2) & ((y < 2) | (np.arange(len(y)) % 40 == 1))),
    )
    right = {
        balanced: taer.make_head(name, balance_classes=balanced, random_state=0)
        .fit(X[rows], y[rows])
        .predict(X[test])
        == y[test]
        for balanced in (False, True)
    }
    rare = y[test] >= 2
    assert right[True][rare].mean() > right[False][rare].mean() + 0.05
