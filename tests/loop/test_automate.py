"""Risk control: which answers need no person."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

import taer
from taer.loop.automate import controlled, corrected_level, needed, upper_bound
from tests.conftest import blobs


@pytest.fixture(scope="module")
def halves():
    """Overlapping classes, in two halves."""
    X, y = blobs(5, 800, width=6, spread=2.0)
    return (X[::2], y[::2]), (X[1::2], y[1::2])


@pytest.fixture
def head(halves):
    (X, y), _ = halves
    return taer.Bayes().fit(X[::4], y[::4])


def broken(share_wrong, threshold_allowed, runs=400, n=400):
    """How often the promise is broken. Confidence is uniform; answers below ``threshold_allowed`` break it."""
    rng, count = np.random.default_rng(0), 0
    for _ in range(runs):
        trust = rng.random(n)
        right = rng.random(n) >= share_wrong(trust)
        found = controlled(trust, right, 0.05, 0.9)
        count += found.coverage > 0 and found.threshold < threshold_allowed
    return count


@pytest.mark.parametrize(
    ("share_wrong", "threshold_allowed"),
    [
        (lambda trust: np.full(len(trust), 0.0501), 1.1),  # every set breaks the promise
        (lambda trust: np.where(trust > 0.5, 0.05, 0.2), 0.499),
        (lambda trust: 0.2 * (1 - trust), 0.5),  # the mean above 0.5 is 0.05
    ],
)
def test_the_promise_is_kept_as_often_as_it_says(share_wrong, threshold_allowed):
    assert broken(share_wrong, threshold_allowed) <= binom.ppf(0.999, 400, 0.1)


def test_looking_at_many_cuts_without_correction_would_break_it(monkeypatch):
    monkeypatch.setattr("taer.loop.automate.corrected_level", lambda sizes, rate, level: level)
    assert broken(lambda trust: np.full(len(trust), 0.0501), 1.1) > binom.ppf(0.999, 400, 0.1)


def test_the_level_is_exact():
    sizes, rng = (60, 90, 140, 200), np.random.default_rng(0)
    level = corrected_level(sizes, 0.1, 0.1)
    assert 0.1 / 4 < level < 0.1
    walks = np.cumsum(rng.random((40_000, 200)) < 0.1, axis=1)[:, np.array(sizes) - 1]
    passes = np.mean((binom.cdf(walks, sizes, 0.1) <= level).any(axis=1))
    assert 0.08 < passes < 0.105  # the number of errors is whole, so the level is not reached exactly
    assert corrected_level((60,), 0.1, 0.1) == 0.1


def test_more_samples_promise_more():
    rng = np.random.default_rng(0)
    coverages = []
    for n in (300, 1000, 10_000):
        trust = rng.random(n)
        coverages.append(controlled(trust, rng.random(n) >= 0.2 * (1 - trust) ** 3, 0.02, 0.95).coverage)
    assert coverages[0] < coverages[1] < coverages[2] < 0.8  # where the mean of the errors is 0.02


def test_the_curve_bounds_errors(halves, head):
    _, (X, y) = halves
    found = head.automate(X, y, errors=0.05)
    assert found.samples == len(X)
    assert 0.3 < found.coverage < 1
    chosen = [cut for cut in found.curve if cut.coverage == found.coverage]
    assert [cut.threshold for cut in chosen] == [found.threshold]
    assert chosen[0].wrong < chosen[0].at_most <= 0.05
    assert all(cut.at_most > 0.05 for cut in found.curve if cut.coverage > found.coverage)
    answers = head.predict(X)
    for cut in found.curve[::10]:
        alone = np.array(head.predict_proba(X).max(axis=1)) > 1 / (1 + np.exp(-cut.threshold))
        alone &= head.novelty(X) <= head.threshold_
        count = round(cut.coverage * len(X))
        assert abs(alone.sum() - count) <= 1  # rounding decides on the sample at the threshold
        assert abs(np.sum(answers[alone] != y[alone]) - round(cut.wrong * count)) <= 1
    assert upper_bound(0, 100, 0.05) == pytest.approx(1 - 0.05 ** (1 / 100))


def test_the_threshold_is_kept_saved_and_dropped(halves, head, tmp_path):
    _, (X, y) = halves
    with pytest.raises(ValueError, match=r"automate\(X, y\) finds one"):
        head.automatic(X)
    found = head.automate(X, y, errors=0.05)
    alone = head.automatic(X)
    assert alone.mean() == found.coverage
    head.save(tmp_path / "head")
    loaded = taer.load(tmp_path / "head")
    np.testing.assert_array_equal(loaded.automatic(X), alone)
    assert loaded.automation_ == {
        "errors": 0.05,
        "confidence": 0.95,
        "threshold": found.threshold,
        "coverage": found.coverage,
    }
    loaded.partial_fit(X[:20] + 50, np.full(20, 77))
    assert not hasattr(loaded, "automation_")
    head.novelty_threshold(false_alarms=0.2)  # others are unknown now than when it was measured
    assert not hasattr(head, "automation_")


def test_unknown_answers_are_for_a_person(halves, head):
    _, (X, y) = halves
    head.novelty_threshold(false_alarms=0.3)
    found = head.automate(X, y, errors=0.3)
    unknown = head.predict(X, unknown=-1) == -1
    assert found.unknown == unknown.sum() > 100
    assert not head.automatic(X)[unknown].any()


def test_answers_to_samples_of_no_class_are_wrong(halves, head):
    _, (X, y) = halves
    strange = X[:300] + 9
    everything = np.concatenate([X, strange])
    labels = [*y.tolist(), *["?"] * 300]
    with pytest.raises(ValueError, match="labels must all be strings"):
        head.automate(everything, labels)
    found = head.automate(everything, labels, errors=0.05, unknown="?")
    alone = head.automatic(everything)
    wrong = np.concatenate([head.predict(X) != y, np.ones(300, bool)])
    assert wrong[alone].mean() < 0.05
    assert found.curve[-1].wrong == pytest.approx(wrong[head.predict(everything, unknown=-1) != -1].mean())


def test_nothing_is_promised_that_cannot_be(halves, head):
    _, (X, y) = halves
    found = head.automate(X, (y + 1) % 5, errors=0.05)
    assert found.coverage == 0
    assert not head.automatic(X).any()
    assert found.best.at_most > 0.9


def test_ties_are_answered_together_or_not_at_all():
    trust = np.repeat([np.inf, 2.0, 1.0, -np.inf], 100)  # the last are unknown
    found = controlled(trust, trust > 1, 0.1, 0.9)
    assert (found.threshold, found.coverage, found.unknown) == (1.0, 0.5, 100)
    assert [(cut.coverage, cut.wrong) for cut in found.curve] == [(0.25, 0), (0.5, 0), (0.75, 1 / 3)]
    nothing = controlled(trust[-100:], np.ones(100, bool), 0.1, 0.9)
    assert (nothing.coverage, nothing.curve, nothing.best) == (0, (), None)


def test_all_answers_are_promised_in_words(halves, head):
    _, (X, y) = halves
    found = head.automate(X, head.predict(X), errors=0.05)  # every answer is right
    assert found.coverage == (found.samples - found.unknown) / found.samples
    assert (
        " need no person; at most 5 % of these answers are wrong, with a confidence of 95 %. They are all that are"
        in (repr(found))
    )
    assert "a probability above 0." in repr(head.automate(X, y, errors=0.05))


def test_bad_input_changes_nothing(halves, head):
    _, (X, y) = halves
    before = head.automate(X, y, errors=0.05)
    fewest = needed(0.05, 0.95)
    assert fewest == 59  # 0.95 ** 59 < 0.05
    for arguments, options, message in (
        ((X[:58], y[:58]), {}, f"nothing can be automated with this many samples: at least {fewest} are needed"),
        ((X, y + 3), {}, "5 is not a known class; leave its samples out"),
        ((X, y[:-1]), {}, "inconsistent numbers of samples"),
        ((X, y[:-1]), {"unknown": 9}, "inconsistent numbers of samples"),
        ((X, y), {"unknown": 3}, "unknown must not be one of the classes, and 3 is"),
        ((X, y), {"confidence": 1.0}, "confidence must be above 0 and below 1, got 1.0"),
        ((X, y), {"errors": 0}, "errors must be above 0 and below 1, got 0"),
        ((X[:, 1:], y), {}, "features"),
        ((X, y), {"errors": np.float32(np.nan)}, "errors must be above 0 and below 1, got nan"),
    ):
        with pytest.raises(ValueError, match=message):
            head.automate(*arguments, **({"errors": 0.05} | options))
    assert head.automation_["threshold"] == before.threshold
    head.automate(X[:59], y[:59], errors=0.05)  # the fewest are accepted, whatever they show
    assert head.automate(X, y, errors=np.float32(0.25)) == head.automate(X, y, errors=0.25)


def test_a_head_of_one_class_and_a_head_of_single_samples():
    X, y = blobs(4, 200, width=6, spread=1.0)
    one = taer.Bayes().fit(X[y == 0], y[y == 0])
    assert one.automate(X[y == 0], y[y == 0], errors=0.1).coverage > 0.8
    first = [np.flatnonzero(y == label)[0] for label in range(4)]
    single = taer.Bayes().fit(X[first], y[first])  # which stores no novelty of its samples
    assert single.automate(X, y, errors=0.1).unknown == 0
    single.partial_fit(X[:1] + 50, [9])  # there is no threshold of novelty that would be renewed
    assert not hasattr(single, "automation_")


def test_the_sibling_has_it_too(halves):
    (X, y), (held, truth) = halves
    head = taer.BayesReplay().fit(X, y)
    assert head.automate(held, truth, errors=0.05).coverage > 0.3
    assert np.mean((head.predict(held) != truth)[head.automatic(held)]) < 0.05
