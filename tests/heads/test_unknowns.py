"""Novelty thresholds, prediction sets, and priors."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import taer
from tests.conftest import blobs, small_head

every_head = pytest.mark.parametrize("name", list(taer.HEADS))


@pytest.fixture(scope="module")
def overlapping():
    """Overlapping classes, in two halves."""
    X, y = blobs(5, 400, width=6, spread=3.0)
    return (X[::2], y[::2]), (X[1::2], y[1::2])


def coverage_of(sets, y):
    return np.mean([label in each for each, label in zip(sets, y, strict=True)])


@every_head
def test_thresholds_are_kept_and_saved(name, tasks, tmp_path):
    X, y = tasks[0]
    head = small_head(name, random_state=0).fit(X, y)
    assert not hasattr(head, "threshold_")
    threshold = head.novelty_threshold(X, 0.1, per_class=True)
    assert head.threshold_ == threshold == np.quantile(head.novelty(X), 0.9)
    head.rename(1, 9)
    head.save(tmp_path / "head")
    loaded = taer.load(tmp_path / "head")
    assert (loaded.threshold_, loaded.class_thresholds_) == (threshold, head.class_thresholds_)
    assert set(loaded.class_thresholds_) == {4, 9}
    np.testing.assert_array_equal(loaded.predict(X, unknown=-1), head.predict(X, unknown=-1))
    assert head.novelty_threshold(X, 0.1) == threshold
    assert not hasattr(head, "class_thresholds_")


def test_each_class_has_its_own_false_alarms():
    """One class lies close together and the other is spread out: with one threshold all alarms are of the latter."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(800, 3)), np.repeat(["dense", "wide"], 400)
    X[y == "wide"] *= 4
    X[:, 0] += np.where(y == "wide", 20, 0)
    head = taer.SLDA().fit(X[::2], y[::2])
    held, truth = X[1::2], y[1::2]
    rates = {}
    for per_class in (False, True):
        head.novelty_threshold(held, 0.1, per_class=per_class)
        alarms = head.predict(held, unknown="?") == "?"
        rates[per_class] = [alarms[truth == label].mean() for label in ("dense", "wide")]
    assert rates[False][1] > 0.15
    np.testing.assert_allclose(rates[True], 0.1, atol=0.02)
    head.partial_fit(rng.normal(size=(50, 3)) - 40, np.repeat("far", 50))
    head.novelty_threshold(held, 0.1, per_class=True)  # without samples of the new class, which has that of all
    held = rng.normal(size=(50, 3)) - 40
    by_all = np.where(head.novelty(held) > head.threshold_, "?", "far")
    np.testing.assert_array_equal(head.predict(held, unknown="?"), by_all)


@every_head
def test_a_threshold_follows_the_head_or_goes(name, tasks):
    """One from stored novelties is computed again for every change; one from held-out samples is stale, and dropped."""
    X, y = tasks[0]
    head = small_head(name, random_state=0).fit(X, y)
    head.novelty_threshold(X, 0.2, per_class=True)
    old = head.threshold_
    changes = [lambda: head.partial_fit(*tasks[1]), lambda: head.forget(tasks[1][1][0])]
    changes += [lambda: head.unlearn(X[:3], y[:3])] if head.card.sums else []
    for change in changes:
        change()
        if head._own_novelty:
            asked = copy.deepcopy(head)
            assert head.threshold_ == asked.novelty_threshold(false_alarms=0.2, per_class=True) != old
            assert head.class_thresholds_ == asked.class_thresholds_
        else:
            assert not hasattr(head, "threshold_")
            assert not hasattr(head, "class_thresholds_")
            with pytest.raises(ValueError, match="dropped when the head learns more"):
                head.predict(X, unknown=-1)
            head.novelty_threshold(X, 0.2, per_class=True)
    head.rename(int(head.classes_[0]), 77)  # which changes no novelty
    assert hasattr(head, "threshold_")


def test_a_threshold_is_renewed_after_loading(tasks, tmp_path):
    head = taer.Bayes().fit(*tasks[0])
    head.novelty_threshold(false_alarms=0.2)
    head.save(tmp_path / "head")
    again = taer.load(tmp_path / "head").partial_fit(*tasks[1])
    assert again.threshold_ == head.partial_fit(*tasks[1]).novelty_threshold(false_alarms=0.2)


@every_head
def test_sets_contain_the_truth_as_often_as_promised(name, overlapping):
    """The guarantee of split conformal prediction: on average over calibrations, at least the coverage."""
    (X, y), (held, truth) = overlapping
    head = small_head(name, random_state=0).fit(X, y)
    for coverage in (0.8, 0.95):
        found, rng = [], np.random.default_rng(0)
        for _ in range(30):
            picks = rng.permutation(len(truth))
            calibration, test = picks[:500], picks[500:]
            head.calibrate(held[calibration], truth[calibration])
            found.append(coverage_of(head.predict_set(held[test], coverage), truth[test]))
        assert coverage - 0.015 < np.mean(found) < coverage + 0.03  # more where many probabilities are equal


@every_head
def test_sets_are_small_and_sorted(name, overlapping):
    (X, y), (held, truth) = overlapping
    head = small_head(name, random_state=0).fit(X, y).calibrate(held, truth)
    sets, probabilities = head.predict_set(held[:50]), head.predict_proba(held[:50])
    for each, row in zip(sets, probabilities, strict=True):
        assert len(each) <= 5
        assert not len(each) or each[0] == head.classes_[row.argmax()]
        assert (np.diff(row[np.searchsorted(head.classes_, each)]) <= 0).all()
    larger = head.predict_set(held[:50], 0.99)
    assert all(set(small) <= set(large) for small, large in zip(sets, larger, strict=True))


@every_head
def test_a_calibration_ends_with_the_head_it_was_made_for(name, tasks, tmp_path):
    X, y = tasks[0]
    head = small_head(name, random_state=0).fit(X, y).calibrate(X, y)
    head.save(tmp_path / "head")
    sets = head.predict_set(X)
    assert [each.tolist() for each in taer.load(tmp_path / "head").predict_set(X)] == [
        each.tolist() for each in sets
    ]
    with pytest.raises(ValueError, match=r"coverage of 0.999 needs 999 held-out samples or more .* got 80"):
        head.predict_set(X, 0.999)
    for bad in (0, 1, 1.5):
        with pytest.raises(ValueError, match="coverage must be above 0 and below 1"):
            head.predict_set(X, bad)
    with pytest.raises(ValueError, match="7 is not a known class"):
        head.calibrate(X, np.full(len(X), 7))
    assert hasattr(head, "misfits_")
    assert not hasattr(head.partial_fit(*tasks[1]), "misfits_")
    if not head._own_novelty:
        with pytest.raises(ValueError, match="keeps no scores of samples before it learned them: calibrate"):
            head.predict_set(X)
    head.calibrate(X, y).forget(0)
    assert not hasattr(head, "misfits_")
    if head.card.corrects:
        assert not hasattr(head.calibrate(X, y).unlearn(X[:5], y[:5]), "misfits_")


@every_head
def test_priors_are_those_of_bayes_rule(name, overlapping):
    (X, y), (held, _) = overlapping
    head = small_head(name, random_state=0).fit(X, y)
    equal, priors = head.predict_proba(held), {0: 6, 1: 1, 2: 1, 3: 0, 4: 2}
    expected = equal * [0.6, 0.1, 0.1, 0.0, 0.2]
    expected /= expected.sum(axis=1, keepdims=True)
    found = head.predict_proba(held, priors=priors)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert found.dtype == equal.dtype
    np.testing.assert_array_equal(head.predict(held, priors=priors), head.classes_[expected.argmax(axis=1)])
    even = dict.fromkeys(range(5), 3.0)
    np.testing.assert_allclose(head.predict_proba(held, priors=even), equal, rtol=1e-5, atol=1e-7)
    for bad, message in (
        ([0.2] * 5, "must be a dictionary"),
        ({0: 1}, "nothing for the class 1"),
        ({**even, 9: 1}, "has 9, which is not a known class"),
        ({**even, 0: -1}, "finite numbers, 0 or more"),
        (dict.fromkeys(range(5), 0), "not all of them 0"),
    ):
        with pytest.raises(ValueError, match=message):
            head.predict(held, priors=bad)


def test_priors_help_where_the_world_is_not_balanced():
    X, y = blobs(2, 2000, width=2, spread=4.0)
    head = taer.SLDA().fit(X[::2], y[::2])
    rare = np.concatenate([np.flatnonzero(y[1::2] == 0), np.flatnonzero(y[1::2] == 1)[:50]])
    X, y = X[1::2][rare], y[1::2][rare]
    with_priors = head.predict(X, priors={0: len(y) - 50, 1: 50})
    assert np.mean(with_priors == y) > head.score(X, y) + 0.02


def test_bayes_needs_no_held_out_samples():
    """On the embedded drawings, whose test samples it has not seen; classes of many and of five samples."""
    data = taer.load_features()
    X, y = data.train_x, data.train_y
    few = np.concatenate([np.flatnonzero(y == label)[:5] for label in range(50, 100)])
    head = taer.Bayes().partial_fit(X[y < 50], y[y < 50]).partial_fit(X[few], y[few])
    X, y = data.test_x, data.test_y
    sets = head.predict_set(X, 0.9)
    assert coverage_of(sets, y) == pytest.approx(0.9, abs=0.02)
    assert coverage_of(head.predict_set(X, 0.8), y) == pytest.approx(0.8, abs=0.02)
    assert np.mean([len(each) for each in sets]) < 15  # of 100
    head.novelty_threshold(false_alarms=0.1, per_class=True)
    assert set(head.class_thresholds_) == set(range(50))
    assert np.mean(head.predict(X, unknown=-1) == -1) < 0.15
    with pytest.raises(ValueError, match="no class has two samples yet"):
        taer.Bayes().fit(X[:2], y[:2] * 0 + [0, 1]).predict_set(X)


def test_samples_that_come_one_by_one_are_tried_before_they_are_learned():
    data = taer.load_features()
    X, y = data.train_x, data.train_y
    head = taer.Bayes().partial_fit(X[y < 40], y[y < 40])
    for row in np.flatnonzero(y == 40)[:30]:
        head.partial_fit(X[[row]], y[[row]])
    assert head.novelties_.tried[40] == 29
    known = data.test_y == 40
    fits = coverage_of(head.predict_set(data.test_x[known], 0.9), data.test_y[known])
    assert fits == pytest.approx(0.9, abs=0.1)  # of 20


def test_a_threshold_is_one_number(tasks):
    X, y = tasks[0]
    head = taer.Bayes().fit(X, y)
    for wrong in (np.array([1, 2]), [1.0], "1", float("nan"), True):
        with pytest.raises(ValueError, match="unknown needs a threshold that is one number, got"):
            head.predict(X, unknown=-1, threshold=wrong)
    low = head.novelty(X).min() - 1
    for right in (np.float32(low), np.array(low)):
        np.testing.assert_array_equal(head.predict(X, unknown=-1, threshold=right), -1)


def test_novelty_of_takes_the_scores_of_these_samples(tasks):
    X, y = tasks[0]
    head = taer.Bayes().fit(X, y)
    scores = head.scores(X)
    np.testing.assert_array_equal(head._novelty_of(X[:3], scores[:3]), head.novelty(X[:3]))
    for wrong in (scores[:2], scores[:3, :1], scores[0]):
        with pytest.raises(ValueError, match=r"one row per sample and one column per class, \(3, 2\), got"):
            head._novelty_of(X[:3], wrong)
