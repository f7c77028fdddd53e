"""The recommended head: from one example to thousands, and its promises."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from scipy.stats import multivariate_t

import taer
from taer.heads.bayes import held_out, state, trial
from taer.heads.bayes.constants import STRENGTHS
from taer.heads.bayes.density import (
    Classes,
    Space,
    Spread,
    Summary,
    log_densities,
    merged,
    nothing,
    summarize,
    view_of,
)
from taer.heads.bayes.held_out import left_out_scores
from tests.conftest import blobs


@pytest.fixture
def many():
    """Thirty classes of forty samples, overlapping."""
    return blobs(30, 40, width=20, spread=2.0)


def learned(X, y, *tasks, **params):
    head = taer.Bayes(**params)
    for classes in tasks:
        head.partial_fit(X[np.isin(y, classes)], y[np.isin(y, classes)])
    return head


def test_growing_a_class_equals_all_at_once(many):
    X, y = many
    base, late = np.arange(25), np.flatnonzero(y == 27)
    at_once = learned(X, y, base).partial_fit(X[late], y[late])
    for sizes in ([5, 35], [1] * 40, [20, 1, 19]):
        grown = learned(X, y, base)
        for part in np.split(late, np.cumsum(sizes)[:-1]):
            grown.partial_fit(X[part], y[part])
        np.testing.assert_allclose(grown.scores(X), at_once.scores(X), rtol=0.02, atol=0.1)
        assert (grown.predict(X) == at_once.predict(X)).mean() > 0.995
        np.testing.assert_array_equal(grown.scores(X, base), at_once.scores(X, base))


def test_a_class_that_returns_moves_alone(many):
    X, y = many
    head = learned(X, y, np.arange(20), np.arange(20, 30))
    before = head.scores(X)
    head.partial_fit(X[y == 22] + 0.5, y[y == 22])
    after = head.scores(X)
    moved = (before != after).any(axis=0)
    assert head.classes_[moved].tolist() == [22]


def test_a_class_of_one_is_found_beside_classes_of_hundreds():
    X, y = blobs(20, 320, width=24, spread=1.5)
    test = np.zeros(len(y), bool)
    for label in range(20):
        test[np.flatnonzero(y == label)[:20]] = True
    head = taer.Bayes().partial_fit(X[~test & (y < 15)], y[~test & (y < 15)])
    one = [np.flatnonzero(~test & (y == label))[0] for label in range(15, 20)]
    head.partial_fit(X[one], y[one])
    new = test & (y >= 15)
    assert head.score(X[new], y[new]) > 0.8
    assert head.score(X[test & (y < 15)], y[test & (y < 15)]) > 0.9


@pytest.mark.parametrize("first", ["one class", "two classes", "one sample", "copies"])
def test_a_small_first_task_is_no_collapse(first, many):
    X, y = many
    start = {
        "one class": np.flatnonzero(y == 0),
        "two classes": np.flatnonzero(y < 2),
        "one sample": np.flatnonzero(y == 0)[:1],
        "copies": np.repeat(np.flatnonzero(y == 0)[:1], 5),
    }[first]
    head = taer.Bayes().partial_fit(X[start], y[start])
    rest = np.flatnonzero((y >= 2) & (y < 8))
    held, seen = rest[::4], np.setdiff1d(rest, rest[::4])
    head.partial_fit(X[seen], y[seen])
    assert head.score(X[held], y[held]) > 0.75
    assert np.isfinite(head.predict_proba(X)).all()


def test_the_predictive_is_the_student_t_that_it_says():
    """Against scipy's density, with every direction kept, up to a number that all classes share."""
    rng = np.random.default_rng(0)
    psi, nu, d = rng.uniform(0.1, 3, 6), 9.0, 6
    spread = Spread(np.eye(d)[:4], psi[:4], psi[4], d)  # one variance for the last two
    psi[5] = psi[4]
    rows, found, expected = rng.normal(size=(50, d)), [], []
    space = Space(rows, np.square(rows).sum(axis=1), rows[:, :4])
    for n in (1, 2, 7, 400):
        samples = rng.normal(size=(n, d)) * rng.uniform(0.5, 2, d)
        known = Classes.of(d, summarize(samples, d))
        found.append(log_densities(space, view_of(space, known, spread), nu, spread)[:, 0])
        centered = samples - samples.mean(axis=0)
        shape = (centered.T @ centered + nu * np.eye(d)) / (n + nu) + np.diag(psi / (n * psi + 1))
        student = multivariate_t(n * psi / (n * psi + 1) * samples.mean(axis=0), shape, df=d)
        half = 0.5 * np.linalg.slogdet(shape)[1]
        expected.append(student.logpdf(rows) + 0.5 * half)  # half of the log-determinant counts
    apart = np.array(found) - np.array(expected)
    np.testing.assert_allclose(apart, apart[0, 0], atol=1e-6)


def test_with_many_samples_and_a_strong_prior_it_is_discriminant_analysis():
    """The center becomes the mean and the shape the shared one: the nearest mean in the space of the prior wins."""
    rng = np.random.default_rng(0)
    spread, rows = Spread(np.zeros((0, 5)), np.zeros(0), 2.0, 5), rng.normal(size=(200, 5))
    means = rng.normal(size=(4, 5))
    space = Space(rows, np.square(rows).sum(axis=1), np.zeros((200, 0)))
    known = Classes.of(5, *(Summary(1e9, mean, np.zeros((0, 5)), 1e9 * 5) for mean in means))
    scores = log_densities(space, view_of(space, known, spread), 1e12, spread)
    nearest = np.square(rows[:, None] - means).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(np.argmax(scores, axis=1), nearest)


def test_summaries_add_up():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 40))
    parts = [summarize(part, 40) for part in np.split(rows, [1, 4, 20])]
    total = parts[0]
    for part in parts[1:]:
        total = merged(total, part, 40)
    whole = summarize(rows, 40)
    assert total.n == 30
    np.testing.assert_allclose(total.mean, whole.mean)
    np.testing.assert_allclose(total.trace, whole.trace)
    np.testing.assert_allclose(total.root.T @ total.root, whole.root.T @ whole.root, atol=1e-9)


def test_classes_of_samples_are_those_of_their_summaries():
    rng = np.random.default_rng(0)
    spread = Spread(np.linalg.qr(rng.normal(size=(12, 3)))[0].T, rng.uniform(0.1, 3, 3), 0.4, 12)
    rows, samples = rng.normal(size=(30, 12)), rng.normal(size=(18, 12))
    space = Space(rows, np.square(rows).sum(axis=1), rows @ spread.directions.T)
    parts = [samples[:14], samples[4:], samples[:1], samples[:2]]
    several = (Classes.of(12, *(summarize(part, 12) for part in parts)), Classes.shown(parts, 12, 64, 12))
    expected, shown = (log_densities(space, view_of(space, each, spread), 9.0, spread) for each in several)
    np.testing.assert_allclose(shown, expected, atol=1e-9)


@pytest.mark.parametrize("n_others", [0, 1, 9])
def test_a_class_without_a_sample_is_the_one_that_is_learned_without_it(n_others):
    rng = np.random.default_rng(0)
    spread = Spread(np.linalg.qr(rng.normal(size=(12, 3)))[0].T, rng.uniform(0.1, 3, 3), 0.4, 12)
    rows, others = rng.normal(size=(18, 12)) + 1, 2 * rng.normal(size=(n_others, 12))
    space = Space(rows, np.square(rows).sum(axis=1), rows @ spread.directions.T)
    expected = []
    for at in range(18):
        left = summarize(np.concatenate([np.delete(rows, at, axis=0), others]), 12)
        asked = space.at(slice(at, at + 1))
        expected += log_densities(asked, view_of(asked, Classes.of(12, left), spread), 9.0, spread)[0].tolist()
    known = summarize(others, 12) if n_others else nothing(12)
    np.testing.assert_allclose(left_out_scores(space, known, 9.0, spread), expected, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_shortlist_answers_as_all_scores_do(many, dtype):
    X, y = many
    head = learned(X.astype(dtype), y, np.arange(10), np.arange(10, 30), rank=10)
    rng = np.random.default_rng(0)
    between = (X[rng.permutation(len(X))] + X[rng.permutation(len(X))]).astype(dtype) / 2  # undecided
    for rows in (X.astype(dtype), between):
        np.testing.assert_array_equal(head.predict(rows), head.classes_[head.scores(rows).argmax(axis=1)])
        singly = np.concatenate([head.predict(rows[i : i + 1]) for i in range(100)])
        np.testing.assert_array_equal(singly, head.predict(rows)[:100])


def test_a_threshold_of_novelty_needs_no_held_out_samples(many):
    X, y = many
    test = np.zeros(len(y), bool)
    for label in range(30):
        test[np.flatnonzero(y == label)[:20]] = True
    head = learned(X[~test], y[~test], np.arange(15), np.arange(15, 20))
    known, new = X[test & (y < 20)], X[test & (y >= 20)]
    for false_alarms in (0.05, 0.2):
        threshold = head.novelty_threshold(false_alarms=false_alarms)
        assert abs(np.mean(head.novelty(known) > threshold) - false_alarms) < 0.08
    assert taer.metrics.novelty_auroc(head.novelty(known), head.novelty(new)) > 0.9
    with pytest.raises(ValueError, match="no class has two samples"):
        taer.Bayes().partial_fit(X[:1], y[:1]).novelty_threshold()
    with pytest.raises(ValueError, match="needs held-out samples"):
        taer.TaER().partial_fit(X, y).novelty_threshold()


def test_a_threshold_after_a_tiny_first_task_rejects_about_what_was_asked():
    """The prior has seen the samples of the first task, so they look less novel to it than others of their classes."""
    rejected = []
    for seed in range(10):
        X, y = blobs(6, 40, width=64, seed=seed)
        first = np.concatenate([np.flatnonzero(y == label)[:5] for label in range(4)])
        later = np.concatenate([np.flatnonzero(y == label)[:5] for label in (4, 5)])
        head = taer.Bayes().partial_fit(X[first], y[first]).partial_fit(X[later], y[later])
        head.novelty_threshold(false_alarms=0.1)
        rest = np.setdiff1d(np.arange(len(y)), np.concatenate([first, later]))
        rejected.append((head.predict(X[rest], unknown=-1) == -1).mean())
    assert np.mean(rejected) < 0.25  # 0.35 under the prior that has seen them


def test_thresholds_and_sets_after_a_first_task_of_some_hundred_samples_are_about_what_was_asked():
    """On random halves. Samples look less novel to a prior that has seen them, and more to one of fewer samples."""
    data, found = taer.load_features(), []
    X, y = (np.concatenate([getattr(data, f"{part}_{kind}") for part in ("train", "test")]) for kind in "xy")
    for seed in range(6):
        rng = np.random.default_rng(seed)
        members = [rng.permutation(np.flatnonzero(y == label))[:56] for label in rng.permutation(100)[:20]]
        learned, asked = (np.concatenate([each[half] for each in members]) for half in (slice(28), slice(28, None)))
        head, inside = taer.Bayes().partial_fit(X[learned], y[learned]), []
        for coverage in (0.8, 0.9):
            sets = head.predict_set(X[asked], coverage)
            inside.append(np.mean([label in each for label, each in zip(y[asked], sets, strict=True)]))
        limits = [head.novelty_threshold(false_alarms=share) for share in (0.05, 0.2)]
        found.append([*(np.mean(head.novelty(X[asked]) > limit) for limit in limits), *inside])
    np.testing.assert_allclose(np.mean(found, axis=0), [0.05, 0.2, 0.8, 0.9], atol=0.02)


def test_its_own_threshold_knows_that_classes_are_confused():
    """A third of these drawings look most like another known class; that must not make them novel."""
    data = taer.load_features()
    head = taer.Bayes().partial_fit(data.train_x[data.train_y < 50], data.train_y[data.train_y < 50])
    known = data.test_x[data.test_y < 50]
    assert 0.01 < np.mean(head.novelty(known) > head.novelty_threshold(false_alarms=0.05)) < 0.12


def test_probabilities_of_few_and_of_many_are_calibrated():
    X, y = blobs(40, 60, width=20, spread=2.5, seed=3)
    test = np.zeros(len(y), bool)
    for label in range(40):
        test[np.flatnonzero(y == label)[:20]] = True
    head = taer.Bayes().partial_fit(X[~test & (y < 25)], y[~test & (y < 25)])
    few = [number for label in range(25, 40) for number in np.flatnonzero(~test & (y == label))[:5]]
    head.partial_fit(X[few], y[few])
    for asked in (test, test & (y >= 25)):
        assert taer.metrics.expected_calibration_error(head.predict_proba(X[asked]), y[asked]) < 0.12


def test_unlabeled_samples_help_a_small_first_task():
    X, y = blobs(12, 60, width=30, spread=1.0, seed=5)
    stretch = np.linspace(0.1, 12, 30)
    X = X + np.random.default_rng(0).normal(size=X.shape) * stretch
    first, rest = np.flatnonzero(y == 0)[:3], np.flatnonzero(y > 0)
    held, seen = rest[::3], np.setdiff1d(rest, rest[::3])
    few = np.concatenate([seen[y[seen] == label][:3] for label in range(1, 12)])
    plain, helped = taer.Bayes(), taer.Bayes().fit_unlabeled(X[seen])
    scores = [
        head.partial_fit(X[first], y[first]).partial_fit(X[few], y[few]).score(X[held], y[held])
        for head in (plain, helped)
    ]
    assert scores[1] > scores[0]
    with pytest.raises(ValueError, match="must come before"):
        helped.fit_unlabeled(X)
    with pytest.raises(ValueError, match="saw 30 features, X has 4"):
        taer.Bayes().fit_unlabeled(X).partial_fit(X[:, :4], y)


def test_classes_of_a_small_first_task_are_not_crowded_out():
    """The prior fits them better than later classes, so later ones look wide and would win."""
    data = taer.load_features()
    X, y, X_test, y_test = data.train_x[:], data.train_y, data.test_x[:], data.test_y
    behind = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(100)[:38]
        head = learned(X, y, order[:2], *order[2:].reshape(-1, 4))
        asked, first = np.isin(y_test, order), np.isin(y_test, order[:2])
        right = head.predict(X_test) == y_test
        behind.append(right[asked & ~first].mean() - right[first].mean())
    assert np.mean(behind) < 0.08  # it was 0.15


@pytest.mark.parametrize("first", [2, 5])
def test_probabilities_are_calibrated_after_a_small_first_task_of_narrow_features(first):
    """Too few classes to measure a temperature: the default must suit 64 features as well as 512."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    learned, held = np.arange(len(y)) % 3 > 0, np.arange(len(y)) % 3 == 0
    head = taer.Bayes().partial_fit(X[learned & (y < first)], y[learned & (y < first)])
    head.partial_fit(X[learned & (y >= first)], y[learned & (y >= first)])
    assert taer.metrics.expected_calibration_error(head.predict_proba(X[held]), y[held]) < 0.05


def test_the_prior_is_shrunk_less_where_the_features_are_correlated(monkeypatch):
    """The one of two shrinkages whose held-out log loss is lower, as a head with that one alone shows."""

    def shrinkage_of(X, y):
        found = taer.Bayes(normalize="none").partial_fit(X, y).prior_.scale
        alone = {}
        for each in trial.SHRINKAGES:
            with monkeypatch.context() as patch:
                patch.setattr(trial, "SHRINKAGES", (each,))
                alone[each] = taer.Bayes(normalize="none").partial_fit(X, y).prior_.scale
        return [each for each, scale in alone.items() if scale == found]

    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(24), 60)
    centers, noise = rng.normal(size=(24, 20))[y], rng.normal(size=(len(y), 20))
    assert shrinkage_of(centers + noise, y) == [0.6]
    assert shrinkage_of(centers + noise * np.geomspace(10, 0.1, 20), y) == [0.4]


def test_classes_of_different_shapes_keep_their_own():
    """The prior weighs less where the covariances of classes differ, and the weight has an upper limit."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(24), 200)
    centers, noise = 0.5 * rng.normal(size=(24, 20))[y], rng.normal(size=(len(y), 20))
    different, test = np.exp(rng.normal(size=(24, 20)))[y], np.arange(len(y)) % 4 == 0
    equal = taer.Bayes(normalize="none").partial_fit(centers + noise, y)
    assert equal.prior_.strength == max(STRENGTHS)
    X = centers + different * noise
    head = taer.Bayes(normalize="none").partial_fit(X[~test], y[~test])
    assert head.prior_.strength == min(STRENGTHS)
    assert head.score(X[test], y[test]) > taer.SLDA().fit(X[~test], y[~test]).score(X[test], y[test]) + 0.2


def test_a_held_out_sample_is_compared_with_the_nearest_classes_alone(monkeypatch):
    """So that a task does not take longer with every class before it; the threshold hardly changes."""
    X, y = blobs(30, 12, width=60, spread=6.0)
    expected = learned(X, y, np.arange(20), np.arange(20, 30)).novelty_threshold()
    monkeypatch.setattr(held_out, "NEAREST", 5)
    head = learned(X, y, np.arange(20), np.arange(20, 30))
    assert head.novelty_threshold() == pytest.approx(expected, abs=0.5)


def test_a_class_takes_less_than_20_kilobytes_at_384_features(tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(40), 60)
    X = (rng.normal(size=(40, 384))[y] + rng.normal(size=(len(y), 384))).astype(np.float32)
    first, all_of_them = tmp_path / "first", tmp_path / "all"
    head = taer.Bayes().partial_fit(X[y < 20], y[y < 20])
    head.save(first)
    head.partial_fit(X[y >= 20], y[y >= 20]).save(all_of_them)
    assert (all_of_them.stat().st_size - first.stat().st_size) / 20 < 20_000


def test_wide_features_fit_into_a_small_file_and_score_well(tmp_path):
    """More features than samples: the map stays factored, and nothing has the size of features × features."""
    rng = np.random.default_rng(0)
    y, width = np.repeat(np.arange(20), 45), 4096
    deviations = np.arange(1, width + 1) ** -0.5  # they fall as those of embeddings do
    X = ((0.7 * rng.normal(size=(20, width))[y] + rng.normal(size=(len(y), width))) * deviations).astype(np.float32)
    test = np.arange(len(y)) % 4 == 0
    head = taer.Bayes().partial_fit(X[~test & (y < 15)], y[~test & (y < 15)])
    head.partial_fit(X[~test & (y >= 15)], y[~test & (y >= 15)])
    assert head.score(X[test], y[test]) > 0.95
    head.save(tmp_path / "head")
    assert (tmp_path / "head").stat().st_size < 5_000_000
    np.testing.assert_array_equal(taer.load(tmp_path / "head").scores(X[test]), head.scores(X[test]))


@pytest.mark.parametrize("samples", [5, 20])
def test_the_first_of_few_samples_are_not_crowded_out_by_later_ones(samples):
    """Two first classes lie around the center of the prior, towards which few samples are pulled."""
    data = taer.load_features()
    X, y, X_test, y_test = data.train_x[:], data.train_y, data.test_x[:], data.test_y
    behind = []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(100)[:30]
        rows = np.concatenate([np.flatnonzero(y == label)[:samples] for label in order])
        first = np.isin(y_test, order[:2])
        heads = learned(X[rows], y[rows], order[:2], order[2:]), taer.SLDA()
        for task in (order[:2], order[2:]):
            of_task = rows[np.isin(y[rows], task)]
            heads[1].partial_fit(X[of_task], y[of_task])
        ours, theirs = (np.mean(head.predict(X_test[first]) == y_test[first]) for head in heads)
        behind.append(theirs - ours)
    assert np.mean(behind) < 0.02


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e10, 1e19, 1e30])
def test_the_best_class_is_that_of_the_highest_score_at_every_scale(many, scale):
    X, y = many
    head = taer.Bayes(normalize="none").fit(X.astype(np.float32), y)
    rows = (X[:50] * scale).astype(np.float32)
    np.testing.assert_array_equal(head.predict(rows), head.classes_[head.scores(rows).argmax(axis=1)])


def test_what_belongs_to_another_world_stays_unknown_beside_classes_of_few_samples():
    """Wide densities of few samples would take it in; its distance from the center of all classes gives it away."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(60), 30)
    world = rng.normal(size=(20, 64))  # all classes differ in 20 of 64 directions
    X = rng.normal(size=(60, 20))[y] @ world + 2 * rng.normal(size=(len(y), 64))
    strangers = 6 * rng.normal(size=(300, 64))
    few = np.concatenate([np.flatnonzero(y == label)[:3] for label in range(40, 60)])
    head = taer.Bayes(normalize="none").partial_fit(X[y < 40], y[y < 40]).partial_fit(X[few], y[few])
    known = X[y < 40][::5]
    with_distance = taer.metrics.novelty_auroc(head.novelty(known), head.novelty(strangers))
    assert with_distance > 0.99


def test_scores_in_small_parts_are_the_same(many, monkeypatch):
    X, y = many
    head = learned(X, y, np.arange(20), np.arange(20, 30))
    lone = X[:1]  # a class without directions
    head.partial_fit(lone, np.array([77]))
    expected = head.scores(X)
    monkeypatch.setattr(state, "_IN_CACHE", 1)
    np.testing.assert_array_equal(head.scores(X), expected)
    np.testing.assert_array_equal(head.scores(X, [7, 77, 3]), expected[:, [7, 30, 3]])


def test_corrections_of_wide_features_lose_little():
    """Directions in one byte are rounded with each correction."""
    X, y = blobs(12, 60, width=300, spread=4.0)
    base = learned(X, y, np.arange(10))
    new = np.concatenate([np.flatnonzero(y == label)[:30] for label in (10, 11)])
    wrong, right = new[::3][:16], np.setdiff1d(new, new[::3])
    expected = copy.deepcopy(base).partial_fit(X[right], y[right])
    found = copy.deepcopy(base).partial_fit(X[right], y[right]).partial_fit(X[wrong], y[wrong])
    for part in np.split(wrong, 8):
        found.unlearn(X[part], y[part])
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    np.testing.assert_allclose(found.scores(X), expected.scores(X), rtol=0.02, atol=1)


# A prior that waits


def in_batches(head, X, y, size=10):
    for start in range(0, len(y), size):
        head.partial_fit(X[start : start + size], y[start : start + size])
    return head


@pytest.mark.parametrize("name", ["bayes", "bayes-replay"])
def test_a_prior_that_waited_has_the_bits_of_one_task(many, name):
    """With classes by number of arrival, so that both heads number them alike. Then old scores never move."""
    X, y = many
    rows = np.flatnonzero(y < 10)[:395]
    rows = rows[np.argsort(y[rows], kind="stable")]
    at_once = taer.make_head(name).partial_fit(X[rows], y[rows])
    waiting = in_batches(taer.make_head(name, prior_samples=395), X[rows][:390], y[rows][:390])
    assert len(waiting.waiting_) == 390
    waiting.partial_fit(X[rows][390:], y[rows][390:])
    assert not hasattr(waiting, "waiting_")
    assert waiting.prior_task_ == 40
    before = waiting.scores(X)
    np.testing.assert_array_equal(before, at_once.scores(X))
    np.testing.assert_array_equal(waiting.novelty(X), at_once.novelty(X))
    waiting.partial_fit(X[y == 20], y[y == 20])
    np.testing.assert_array_equal(waiting.scores(X, range(10)), before)


def test_a_waiting_prior_is_fitted_again_when_its_samples_have_doubled(many, monkeypatch):
    X, y = many
    fitted, begin = [], taer.Bayes._begin
    monkeypatch.setattr(taer.Bayes, "_begin", lambda head, task: (fitted.append(len(task.y)), begin(head, task)))
    in_batches(taer.Bayes(prior_samples=500), X, y)
    assert fitted == [10, 20, 40, 80, 160, 320, 500]


def test_a_waiting_prior_makes_a_stream_of_small_batches_more_accurate():
    data = taer.load_features()
    rows = np.random.default_rng(0).permutation(np.flatnonzero(data.train_y < 40))[:1200]
    X, y, asked = data.train_x[rows], data.train_y[rows], data.test_y < 40
    found = {
        n: in_batches(taer.Bayes(prior_samples=n), X, y).score(data.test_x[asked], data.test_y[asked])
        for n in (0, 400)
    }
    assert found[400] > found[0] + 0.005


def test_what_a_waiting_prior_cannot_do_is_said(many, tmp_path):
    X, y = many
    head = taer.Bayes(prior_samples=100).partial_fit(X[y < 2][::2], y[y < 2][::2])
    one = np.flatnonzero(y == 0)[:1]
    for change in (
        lambda: head.unlearn(X[one], y[one]),
        lambda: head.merge(copy.deepcopy(head)),
        lambda: head.describe({77: X[0]}),
    ):
        with pytest.raises(ValueError, match=r"waits for 100 samples \(prior_samples\), of which 40 have come"):
            change()
    head.save(tmp_path / "head.safetensors")
    loaded = taer.load(tmp_path / "head.safetensors")
    loaded.forget(0)  # and its samples
    assert set(loaded.waiting_.y.tolist()) == {0}
    for each in (head, loaded):
        each.partial_fit(X[y > 20], y[y > 20])
    assert 0 in head.classes_
    assert 0 not in loaded.classes_
    assert not hasattr(loaded, "waiting_")
    assert head.unlearn(X[one], y[one]) is head
