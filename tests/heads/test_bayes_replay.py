"""``bayes-replay``: what its correction gains, and that it never costs the promises of ``bayes``."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

import taer
from taer.heads.bayes import correction, replay
from taer.heads.bayes.constants import BOLD, DEFAULT, NEW
from taer.heads.bayes.correction import (
    Problem,
    as_confident,
    balanced,
    chosen_strength,
    corrected,
    in_place,
    learned_columns,
)
from taer.heads.bayes.kept import KeptSamples
from taer.heads.numerics import log_sum_exp
from tests.conftest import blobs


@pytest.fixture(scope="module")
def curved():
    """Classes whose samples lie on two sides, which one Gaussian each describes badly: train and test."""
    rng = np.random.default_rng(0)
    centers, sides = rng.normal(size=(14, 16)), rng.normal(size=(14, 16))
    parts = []
    for per_class in (60, 40):
        y = np.repeat(np.arange(14), per_class)
        skew = rng.exponential(size=(len(y), 1)) * np.where(rng.random((len(y), 1)) < 0.3, -1.0, 0.4)
        parts.append((centers[y] + 2 * skew * sides[y] + 0.7 * rng.normal(size=(len(y), 16)), y))
    return parts


def some(data, classes):
    X, y = data
    rows = np.isin(y, list(classes))
    return X[rows], y[rows]


@pytest.fixture(scope="module")
def heads(curved):
    """``bayes`` and ``bayes-replay`` after a first task of ten classes and one of four."""
    train, _ = curved
    return [
        kind().partial_fit(*some(train, range(10))).partial_fit(*some(train, range(10, 14)))
        for kind in (taer.Bayes, taer.BayesReplay)
    ]


def assert_constants_are_those_of_the_scores(head):
    compared, counted = head.kept_.taken(head.kept_.compared), np.flatnonzero(head.corrections_.counted)
    assert len(np.unique(compared.y)) == len(counted)
    np.testing.assert_allclose(compared.logs, log_sum_exp(head._for_kept(compared, counted)), atol=1e-3)


def test_probabilities_are_calibrated(heads, curved):
    X, y = curved[1]
    errors = [taer.metrics.expected_calibration_error(head.predict_proba(X), y) for head in heads]
    assert errors[1] < max(0.04, errors[0] + 0.01)


@pytest.mark.slow
def test_with_many_examples_it_is_more_accurate_than_bayes():
    sketches = taer.load_features()
    train, test = (sketches.train_x, sketches.train_y), (sketches.test_x[:], sketches.test_y[:])
    found = []
    for kind in (taer.Bayes, taer.BayesReplay):
        head = kind().partial_fit(*some(train, range(20))).partial_fit(*some(train, range(20, 30)))
        found.append(head.score(*some(test, range(30))))
    assert found[1] > found[0] + 0.005


@pytest.mark.parametrize("per_class", [1, 5, 9])
def test_with_few_examples_it_is_bayes_bit_for_bit(per_class):
    X, y = blobs(9, per_class)
    one, other = (kind().fit(X, y) for kind in (taer.Bayes, taer.BayesReplay))
    assert np.array_equal(one.scores(X), other.scores(X))


def test_new_classes_of_five_examples_are_found_as_by_bayes(curved):
    train, test = curved
    five = [i for c in range(10, 14) for i in np.flatnonzero(train[1] == c)[:5]]
    found = []
    for kind in (taer.Bayes, taer.BayesReplay):
        head = kind().partial_fit(*some(train, range(10))).partial_fit(train[0][five], train[1][five])
        found.append(head.score(*test))
    assert found[1] > found[0] - 0.01


def test_a_class_that_returns_moves_alone(heads, curved):
    head, (X, y) = copy.deepcopy(heads[1]), curved[1]
    others = [c for c in range(14) if c != 3]
    before, own = head.scores(X, others), head.scores(X, [3])
    head.partial_fit(X[y == 3], y[y == 3])
    assert np.array_equal(before, head.scores(X, others))
    assert not np.array_equal(own, head.scores(X, [3]))
    assert_constants_are_those_of_the_scores(head)


def test_what_is_unlearned_leaves_the_memory_and_the_scores_of_its_class_alone(heads, curved):
    train, test = curved
    extra, labels = test[0][test[1] == 12], test[1][test[1] == 12]
    more = copy.deepcopy(heads[1]).partial_fit(extra, labels)
    head = copy.deepcopy(more).unlearn(extra, labels)
    others = [c for c in range(14) if c != 12]
    assert np.array_equal(more.scores(test[0], others), head.scores(test[0], others))
    assert len(head.kept_) == len(train[1])
    never, again = (each.predict(test[0]) for each in (heads[1], head))
    assert np.mean(never == again) > 0.98
    assert_constants_are_those_of_the_scores(head)


def test_a_sample_is_unlearned_whose_features_differ_by_rounding(heads, curved):
    """As those do that another processor, a GPU or another batch of the backbone computes."""
    X, y = (part[::7] for part in curved[0])
    noise = 1 + 1e-6 * np.random.default_rng(0).normal(size=X.shape)
    exact, near = (copy.deepcopy(heads[1]).unlearn(rows, y) for rows in (X, X * noise))
    assert (near.kept_.counts(14) == near.densities_.counts).all()
    assert np.array_equal(exact.kept_.rows, near.kept_.rows)


def test_a_sample_that_was_not_learned_is_not_unlearned(heads, curved):
    (X, y), (unseen, labels) = curved
    head, limited = copy.deepcopy(heads[1]), taer.BayesReplay(memory_per_class=20).fit(*some(curved[0], range(10)))
    before = head.scores(unseen)
    for rows, asked in ((unseen[:1], labels[:1]), (X[:1], [3]), (X[[0, 0]], y[[0, 0]])):
        with pytest.raises(ValueError, match=r"1 of the samples .* were not learned with these labels"):
            head.unlearn(rows, asked)
        assert len(head.kept_) == len(y)
        assert np.array_equal(head.scores(unseen), before)
    assert limited.unlearn(X[:30], y[:30]).densities_.counts[0] == 30  # not all of these are kept


def test_a_class_that_is_forgotten_leaves_the_constants_of_the_others(heads, curved):
    head = copy.deepcopy(heads[1])
    before = head.scores(curved[1][0], [2, 13])
    head.forget(5)
    assert np.array_equal(before, head.scores(curved[1][0], [2, 13]))
    assert (head.kept_.counts(13) == 60).all()
    assert_constants_are_those_of_the_scores(head)


def test_merged_copies_know_the_samples_of_both(curved):
    train, test = curved
    base = taer.BayesReplay().partial_fit(*some(train, range(10)))
    one, other = (copy.deepcopy(base).partial_fit(*some(train, part)) for part in ((10, 11), (12, 13)))
    both = one + other
    assert np.array_equal(both.scores(test[0], range(12)), one.scores(test[0], range(12)))
    assert (both.kept_.counts(14) == 60).all()
    assert both.score(*test) > taer.Bayes().partial_fit(*train).score(*test) - 0.02
    assert_constants_are_those_of_the_scores(both)


def test_classes_of_few_examples_are_compared_with_once_a_class_has_enough(curved):
    train, _ = curved
    few = [i for c in (10, 11) for i in np.flatnonzero(train[1] == c)[:5]]
    head = taer.BayesReplay().partial_fit(*some(train, range(10))).partial_fit(train[0][few], train[1][few])
    assert head.corrections_.counted.sum() == 10
    head.partial_fit(*some(train, [12, 13]))
    assert head.corrections_.counted.all()
    assert not head.corrections_.weights[10:12].any()
    assert_constants_are_those_of_the_scores(head)


def test_a_class_is_compared_with_some_samples_of_each_other(curved, monkeypatch):
    train, test = curved
    monkeypatch.setattr(replay, "OTHER_ROWS", 15)
    head = taer.BayesReplay().partial_fit(*some(train, range(10))).partial_fit(*some(train, range(10, 14)))
    assert np.bincount(head.kept_.y[head.kept_.compared]).tolist() == [15] * 14
    assert len(head.kept_) == len(train[1])
    assert_constants_are_those_of_the_scores(head)
    assert head.score(*test) > taer.Bayes().partial_fit(*train).score(*test) - 0.02


def test_scores_for_learning_are_near_those_of_bayes(heads, curved):
    bayes, classes = heads[0], np.array([1, 4, 12])
    space = bayes.prior_(bayes.embedding_(curved[1][0]))
    near = bayes.densities_.approximate(space, classes)
    np.testing.assert_allclose(near, bayes.densities_.scores(space, classes), atol=1e-3)


def test_only_so_many_samples_are_kept_of_a_class(curved):
    train, _ = curved
    head = taer.BayesReplay(memory_per_class=20)
    for classes in (range(10), range(10, 14), [3]):
        head.partial_fit(*some(train, classes))
        assert (head.kept_.counts(len(head.classes_)) == 20).all()
    assert head.kept_.rows.dtype == np.int8
    assert_constants_are_those_of_the_scores(head)
    with pytest.raises(ValueError, match=r"memory_per_class must be a whole number, 0 or more, or None, got 2\.5"):
        taer.BayesReplay(memory_per_class=2.5).fit(*train)


def test_novelty_and_sets_are_those_of_bayes(heads, curved):
    bayes, replay = heads
    assert np.array_equal(bayes.novelty(curved[1][0]), replay.novelty(curved[1][0]))
    inside = [
        label in each for each, label in zip(replay.predict_set(curved[1][0], 0.9), curved[1][1], strict=True)
    ]
    assert np.mean(inside) > 0.85


def test_samples_in_a_byte_per_feature_are_the_samples():
    space = np.random.default_rng(0).normal(size=(5, 40)) * [[1e-3], [1], [1], [1e3], [0]]
    kept = KeptSamples.of(space, np.arange(5), np.zeros(5), np.zeros(5))
    assert (np.abs(kept.space() - space) <= kept.scales[:, None] * 0.51).all()
    assert len(kept.minus(kept.taken(np.array([1, 3])))) == 3
    assert kept.without(2).y.tolist() == [0, 1, 2, 3]


def problem(n_classes=4, rest=None):
    X, y = blobs(n_classes, 30, width=6, spread=4.0)
    return Problem(X, np.zeros((len(y), n_classes)), y, balanced(y, len(y)), -np.square(X).sum(axis=1) / 2, rest)


def test_a_correction_of_nothing_is_logistic_regression(monkeypatch):
    monkeypatch.setattr(correction, "STEPS", 500)
    asked = problem()
    ours = softmax(corrected(asked, learned_columns(asked, 10.0)), axis=1)
    theirs = LogisticRegression(C=0.1, max_iter=1000).fit(asked.space, asked.target)
    np.testing.assert_allclose(ours, theirs.predict_proba(asked.space), atol=0.01)


def test_old_classes_are_one_constant(monkeypatch):
    """As if they were one more class whose column cannot move: the gradient of the others is zero."""
    monkeypatch.setattr(correction, "STEPS", 500)
    X, y = blobs(4, 30, width=6, spread=4.0)
    old = y == 3
    constant = np.where(old, 2.0, -2.0)
    asked = Problem(X, np.zeros((len(y), 3)), np.where(old, -1, y), balanced(y, len(y)), np.zeros(len(y)), constant)
    columns = learned_columns(asked, 10.0)
    scores = np.column_stack([corrected(asked, columns), constant])
    p = softmax(scores, axis=1)
    p[np.arange(len(y)), y] -= 1
    gradient = p[:, :3].T @ X + 10.0 * columns[:, :-1]
    np.testing.assert_allclose(gradient, 0, atol=0.1)


def test_classes_together_score_as_in_bayes():
    asked = problem()
    scores = corrected(asked, learned_columns(asked, 10.0))
    common = in_place(asked, scores, 1.0, 1e-6)
    moved = scores - np.column_stack([asked.space, asked.blank, np.ones(len(scores))]) @ common[:, None]
    np.testing.assert_allclose(softmax(scores, axis=1), softmax(moved, axis=1), atol=1e-5)

    def together(values):
        """With each sample as it is, and as one of a new class."""
        others = np.where(np.arange(4) == asked.target[:, None], -np.inf, values)
        return (1 - NEW) * log_sum_exp(values) + NEW * log_sum_exp(others)

    changes = [together(values) - together(asked.base) for values in (scores, moved)]
    assert abs(changes[1].mean()) < 0.01
    assert changes[1].std() < changes[0].std()


def test_the_bold_strength_is_chosen_where_bayes_says_little(monkeypatch):
    monkeypatch.setattr(correction, "STEPS", 100)
    asked = problem(8)
    blind = asked._replace(base=3 * np.random.default_rng(0).normal(size=asked.base.shape))
    assert chosen_strength(blind)[0] == BOLD
    right = asked._replace(base=np.where(np.arange(8) == asked.target[:, None], 3.0, 0.0))
    assert chosen_strength(right)[0] == DEFAULT


def test_corrected_scores_are_as_confident_as_those_of_bayes():
    rng = np.random.default_rng(0)
    asked = problem(8)
    asked = asked._replace(base=rng.normal(size=asked.base.shape))
    for factor in (0.5, 1.0, 3.0):
        assert as_confident(factor * asked.base, asked) == pytest.approx(factor, rel=1e-3)


@pytest.mark.parametrize("classes", [5, 9])
def test_a_first_task_too_small_to_choose_on_is_that_of_bayes(classes):
    """Five classes, or nine classes with fewer samples than features."""
    X, y = blobs(classes, 12, width=200 if classes == 9 else 8)
    one, other = (kind().fit(X, y) for kind in (taer.Bayes, taer.BayesReplay))
    assert np.array_equal(one.scores(X), other.scores(X))
    _, of_each = np.unique(y, return_index=True)
    one, other = (each.unlearn(X[of_each], y[of_each]) for each in (one, other))
    assert np.array_equal(one.scores(X), other.scores(X))


def test_with_new_classes_of_one_example_it_is_as_calibrated_as_bayes(curved):
    train, (X, y) = curved
    one = [np.flatnonzero(train[1] == c)[0] for c in range(10, 14)]
    found = []
    for kind in (taer.Bayes, taer.BayesReplay):
        head = kind().partial_fit(*some(train, range(10))).partial_fit(train[0][one], train[1][one])
        found.append(-np.log(head.predict_proba(X)[np.arange(len(y)), y]).mean())
    assert found[1] < found[0] + 0.01
