"""``unlearn`` and ``merge`` equal heads that learned the resulting samples directly."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taer
from tests.conftest import blobs, everyday, heads_with, small_head

pytestmark = pytest.mark.filterwarnings("ignore::taer.heads.few.FewSamplesWarning")
ON_SUMS = heads_with(sums=True)
OTHERS = heads_with(corrects=False)
on_sums = pytest.mark.parametrize("name", ON_SUMS)
# Heads whose first task fixes nothing but the origin of the features.
FREE = ["ncm", "slda", "ridge", "ranpac", "rgda", "fecam"]


def centered(scores):
    """Scores up to a number that all classes of a sample share."""
    return scores - scores.mean(axis=1, keepdims=True)


def assert_same_answers(one, other, X):
    assert one.classes_.tolist() == other.classes_.tolist()
    wanted = one.classes_
    first, second = centered(one.scores(X, wanted)), centered(other.scores(X, wanted))
    rounding = 1e-3 if type(one) is taer.Bayes else 1e-6  # whose directions are kept in integers
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=rounding * (1 + np.abs(second).max()))


def base_head(name, X, y):
    return small_head(name, random_state=0).fit(X, y)


@on_sums
@settings(parent=everyday, max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_unlearning_is_never_having_learned(name, seed):
    """Two heads with the same first task, one of which learned more than it should."""
    X, y = blobs(6, 30, seed=seed, spread=2.0)
    rng = np.random.default_rng(seed)
    first = np.flatnonzero(y < 4)
    base = base_head(name, X[first], y[first])
    new = rng.permutation(np.flatnonzero(y > 0))
    wanted, mistaken = np.split(new, [len(new) // 2])
    head = copy.deepcopy(base).partial_fit(X[new], y[new])
    never = copy.deepcopy(base).partial_fit(X[wanted], y[wanted])
    half = len(mistaken) // 2
    head.unlearn(X[mistaken[:half]], y[mistaken[:half]]).unlearn(X[mistaken[half:]], y[mistaken[half:]])
    assert_same_answers(head, never, X)


@on_sums
def test_a_class_without_samples_is_forgotten(name, tasks):
    head, never = (small_head(name, random_state=0).partial_fit(*tasks[0]) for _ in range(2))
    X, y = tasks[1]
    head.partial_fit(X, y).unlearn(X[y == 5], y[y == 5])
    never.partial_fit(X[y == 0], y[y == 0])
    assert head.classes_.tolist() == [0, 1, 4]
    assert [label for label, _ in head.learning_order_] == [1, 4, 0]
    assert_same_answers(head, never, X)
    assert_same_answers(head.partial_fit(*tasks[2]), never.partial_fit(*tasks[2]), X)


@on_sums
def test_a_wrong_label_is_corrected(name, tasks):
    X, y = tasks[1]
    wrong = np.where(np.arange(len(y)) < 10, 5 - y, y)  # 0 for 5 and 5 for 0
    base = small_head(name, random_state=0).partial_fit(*tasks[0])
    head = copy.deepcopy(base).partial_fit(X, wrong)
    head.unlearn(X[:10], wrong[:10]).partial_fit(X[:10], y[:10])
    assert_same_answers(head, base.partial_fit(X, y), X)


@on_sums
def test_weights_are_taken_back(name, tasks):
    X, y = tasks[1]
    weight = np.random.default_rng(0).uniform(0.1, 3, len(y))
    weight = weight if taer.HEADS[name].weighs else np.ceil(weight)
    base = small_head(name, random_state=0).partial_fit(*tasks[0])
    head = copy.deepcopy(base).partial_fit(X, y, sample_weight=weight)
    head.unlearn(X[:10], y[:10], sample_weight=weight[:10])
    assert_same_answers(head, base.partial_fit(X[10:], y[10:], sample_weight=weight[10:]), X)


@on_sums
def test_what_cannot_be_unlearned_changes_nothing(name, tasks):
    X, y = tasks[0]
    head = small_head(name, random_state=0).partial_fit(X, y)
    before = head.scores(X)
    n, samples = int((y == 1).sum()), X[y == 1]
    for bad, labels, message in (
        (np.concatenate([samples, samples[:1]]), [1] * (n + 1), f"{n + 1} samples of 1 .* only {n} were learned"),
        (samples[:1], [7], "7 is not a known class"),
        (samples[:1], ["a"], "never converted"),
        (samples[:1] * np.nan, [1], "NaN"),
        (X, y, "no sample of any class would be left"),
        (samples[:2] * 100 + 1000 * np.arange(12), [1, 1], "not part"),
    ):
        if (
            message == "not part"
            and getattr(head, "embedding_", None) is not None
            and head.embedding_.how != "none"
        ):
            continue  # at unit length no sample is far away
        with pytest.raises(ValueError, match=message):
            head.unlearn(bad, labels)
        np.testing.assert_array_equal(head.scores(X), before)


@pytest.mark.parametrize("name", OTHERS)
def test_other_heads_refuse_with_a_reason(name, tasks):
    head = small_head(name, random_state=0).partial_fit(*tasks[0])
    reason = "fixed by all samples" if head.card.keeps == "statistics" else "trained on all samples"
    with pytest.raises(ValueError, match=f"cannot unlearn single samples.*{reason} .*; heads on sums can: .*ncm, "):
        head.unlearn(*tasks[0])
    with pytest.raises(ValueError, match=f"cannot be merged: .*{reason}"):
        head + head


@pytest.mark.parametrize("name", FREE)
@settings(parent=everyday, max_examples=10)
@given(seed=st.integers(0, 10_000), overlap=st.booleans())
def test_merged_heads_know_what_one_would_that_saw_everything(name, seed, overlap):
    """Two sites: the same classes, or different ones."""
    X, y = blobs(6, 30, seed=seed, spread=2.0)
    here = np.random.default_rng(seed).random(len(y)) < 0.5 if overlap else y < 3
    params = {"normalize": "l2"} if "normalize" in small_head(name).get_params() else {}
    one, other, whole = (small_head(name, random_state=0, **params) for _ in range(3))
    both = one.fit(X[here], y[here]) + other.fit(X[~here], y[~here])
    assert_same_answers(both, whole.fit(X, y), X)
    assert both.n_tasks_ == 2
    assert {task for _, task in both.learning_order_} == ({1} if overlap else {1, 2})
    assert one.classes_.tolist() == sorted(set(y[here].tolist()))  # as it was


@on_sums
@settings(parent=everyday, max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_copies_of_one_head_merge(name, seed):
    """Also where both have learned more of a class of their base, if they are told which head that was."""
    X, y = blobs(7, 30, seed=seed, spread=2.0)
    parts = np.random.default_rng(seed).permutation(len(y)) % 3
    first, here, there = (y < 4) & (parts == 0), (y < 6) & (parts == 1), (y > 1) & (parts == 2)
    base = base_head(name, X[first], y[first])
    one, other, whole = (copy.deepcopy(base) for _ in range(3))
    one.partial_fit(X[here], y[here])
    other.partial_fit(X[there], y[there])
    both = one.merge(other, base=base)
    whole.partial_fit(X[here], y[here]).partial_fit(X[there], y[there])
    assert_same_answers(both, whole, X)
    assert both.n_tasks_ == 3
    assert both.learning_order_ == whole.learning_order_
    with pytest.raises(ValueError, match="would count twice; give the head they were copied from as base"):
        one + other


@on_sums
def test_unchanged_classes_of_copies_count_once(name, tasks):
    params = {"forgettable": True} if "forgettable" in small_head(name).get_params() else {}
    base = small_head(name, random_state=0, **params).partial_fit(*tasks[0])
    one, other = copy.deepcopy(base).partial_fit(*tasks[1]), copy.deepcopy(base).partial_fit(*tasks[2])
    if not (params or name in ("rgda", "fecam", "hycal", "bayes")):  # one scatter of all classes
        with pytest.raises(ValueError, match="would count twice"):
            one + other
        return
    whole = copy.deepcopy(one).partial_fit(*tasks[2])
    assert_same_answers(one + other, whole, tasks[0][0])
    assert (one + other).learning_order_ == whole.learning_order_
    assert_same_answers(one + base, one, tasks[0][0])


@on_sums
def test_merged_heads_are_saved_and_go_on(name, tasks, tmp_path):
    base = small_head(name, random_state=0).partial_fit(*tasks[0])
    other = copy.deepcopy(base).partial_fit(*tasks[2])
    both = copy.deepcopy(base).partial_fit(*tasks[1]).merge(other, base=base)
    both.save(tmp_path / "both")
    X = tasks[0][0]
    loaded = taer.load(tmp_path / "both")
    np.testing.assert_array_equal(loaded.predict_proba(X), both.predict_proba(X))
    np.testing.assert_allclose(both.predict_proba(X).sum(axis=1), 1, rtol=1e-5)
    assert loaded.partial_fit(X + 20, np.full(len(X), 9)).classes_.tolist() == [0, 1, 2, 3, 4, 5, 9]


def test_heads_that_do_not_fit_are_not_merged(tasks):
    X, y = tasks[0]
    head = taer.SLDA().fit(X, y)
    for other, message in (
        (taer.NCM().fit(X, y), "SLDA and NCM are different methods"),
        (taer.SLDA().fit(X[:, :5], y), "width 12 and 5"),
        (taer.SLDA(shrinkage=0.2).fit(X, y), "shrinkage is 0.1 and 0.2"),
        (taer.SLDA().fit(X, y.astype(str)), "never converted"),
    ):
        with pytest.raises(ValueError, match=message):
            head + other
    one, other = (taer.LDAFrozen().fit(X[part], y[part]) for part in (np.s_[:40], np.s_[40:]))
    with pytest.raises(ValueError, match=r"fixed covariance_, and they differ\. Let one head learn a first task"):
        one + other
    base = taer.SLDA().fit(X + 1, y)
    with pytest.raises(ValueError, match="base is not a head that both were copied from"):
        head.merge(copy.deepcopy(head).partial_fit(*tasks[1]), base=base)
