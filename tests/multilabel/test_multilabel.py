"""Several labels per sample: what users of ``MultiLabel`` rely on."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

import taer
from taer.metrics import f1_macro, f1_micro
from taer.multilabel import thresholds
from taer.multilabel.forms import taught

N_LABELS, WIDTH = 12, 24


def _samples(rng, means, n):
    """Samples with zero to three labels: the sum of the means of these, and noise."""
    Y = np.zeros((n, len(means)), np.int64)
    for row in Y:
        row[rng.choice(len(means), rng.integers(0, 4), replace=False)] = 1
    return (Y @ means + 0.5 * rng.normal(size=(n, means.shape[1]))).astype(np.float32), Y


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    means = rng.normal(size=(N_LABELS, WIDTH))
    return *_samples(rng, means, 240), *_samples(rng, means, 200)


@pytest.fixture(scope="module")
def _first(data):
    return taer.MultiLabel(taer.Bayes(normalize="none")).partial_fit(data[0], data[1])


@pytest.fixture
def model(_first):
    return copy.copy(_first)


def _lists(Y, names="abcdefghijkl"):
    return [[names[at] for at in np.flatnonzero(row)] for row in Y]


def test_finds_several_labels_and_none(model, data):
    _, _, X, Y = data
    found = model.predict(X)
    assert f1_micro(Y, found) > 0.85
    assert f1_macro(Y, found) > 0.85
    assert (found[Y.sum(axis=1) == 0].sum(axis=1) == 0).mean() > 0.7  # samples without labels get none
    assert (found.sum(axis=1) > 1).any()


def test_a_new_label_moves_no_other_score_threshold_or_probability(model, data):
    X, Y, asked, _ = data
    before = [model.scores(asked), model.predict_proba(asked), model.decision_function(asked)]
    model.partial_fit(X[:30], Y[:30, :1], classes=[99])
    assert model.classes_ == [*range(N_LABELS), 99]
    for old, new in zip(
        before, [model.scores(asked), model.predict_proba(asked), model.decision_function(asked)], strict=True
    ):
        assert new.shape == (len(asked), N_LABELS + 1)
        np.testing.assert_array_equal(new[:, :-1], old)


def test_a_label_that_is_not_listed_is_left_alone_and_a_listed_one_learns(model, data):
    X, Y, asked, _ = data
    before = model.scores(asked)
    model.partial_fit(X[:50], Y[:50, [3]], classes=[3])
    moved = (model.scores(asked) != before).any(axis=0)
    assert moved.tolist() == [label == 3 for label in range(N_LABELS)]


def test_without_classes_all_labels_are_judged(model, data):
    X, Y, _, _ = data
    seen = model.labels_.outside.sum(axis=1)
    model.partial_fit(X[:50], Y[:50])
    more = model.labels_.outside.sum(axis=1) - seen
    np.testing.assert_array_equal(more, 50 - Y[:50].sum(axis=0))


def test_a_score_has_the_same_bits_alone_and_in_a_batch(model, data):
    np.testing.assert_array_equal(
        np.concatenate([model.scores(row[None]) for row in data[2][:20]]), model.scores(data[2][:20])
    )


def test_in_several_calls_as_in_one(model, data):
    X, Y, asked, _ = data
    parts, whole = copy.copy(model), model.partial_fit(X[:60], Y[:60, :2], classes=[50, 51])
    for rows in (slice(0, 25), slice(25, 60)):
        parts.partial_fit(X[rows], Y[rows, :2], classes=[50, 51])
    np.testing.assert_allclose(parts.scores(asked)[:, -2:], whole.scores(asked)[:, -2:], atol=1e-4)


def test_one_example_of_a_label_is_enough_to_rank_its_samples_first(model, data):
    X, _, asked, truth = data
    rng = np.random.default_rng(1)
    fresh = rng.normal(size=WIDTH) * 1.5
    model.partial_fit((X[:1] * 0 + fresh).astype(np.float32), np.ones((1, 1)), classes=[77])
    with_it = (asked[truth.sum(axis=1) == 1] + fresh).astype(np.float32)
    assert model.scores(with_it)[:, -1].min() > np.quantile(model.scores(asked)[:, -1], 0.95)
    assert (model.predict(with_it)[:, -1] == 1).mean() > 0.8


def test_lists_are_answered_with_lists(data, model):
    X, Y, asked, _ = data
    found = taer.MultiLabel(taer.Bayes(normalize="none")).fit(X, _lists(Y)).predict(asked)
    assert all(isinstance(row, list) for row in found)
    assert found == _lists(model.predict(asked))


@pytest.mark.parametrize("form", [tuple, set, np.array])
def test_any_collection_is_a_list_of_labels(form):
    found = taught([form(row) for row in (["b", "a"], ["b"])], 2, None, ["c"])
    assert (found.labels, found.inside.tolist()) == (["c", "a", "b"], [[False, True, True], [False, False, True]])


def test_a_sparse_indicator_is_answered_with_a_sparse_one(data, model):
    X, Y, asked, _ = data
    found = taer.MultiLabel(taer.Bayes(normalize="none")).fit(X, sparse.csr_matrix(Y)).predict(asked)
    assert sparse.issparse(found)
    np.testing.assert_array_equal(found.toarray(), model.predict(asked))


def test_columns_of_a_data_frame_are_labels(data):
    pandas = pytest.importorskip("pandas")
    X, Y, asked, _ = data
    table = pandas.DataFrame(Y, columns=list("lkjihgfedcba"), index=np.arange(len(Y))[::-1])
    model = taer.MultiLabel(taer.Bayes(normalize="none")).fit(X, table)
    assert model.classes_ == list("lkjihgfedcba")  # the columns of answers are those of Y
    assert model.predict(asked).shape == (len(asked), N_LABELS)


@pytest.mark.parametrize(
    ("Y", "classes", "words"),
    [
        ([[0], [1]], [0], r"labels that classes lacks: \[1\]"),
        ([[0], []], ["a"], "labels were integers so far and are strings now"),
        ([[0], [1], []], None, "inconsistent numbers of samples: 2 and 3"),
        ([0, 1], None, "a list of labels for each sample"),
        (["ab", "c"], None, "a list of labels for each sample"),
        (np.array([[0, 2]] * 2), [0, 1], "other values"),
        (np.zeros((2, 3)), [0, 1], "3 columns and classes names 2"),
        (np.zeros((2, 5)), None, "5 columns, and 12 labels are known"),
        ([[0], []], [0, 0], "twice"),
        ([["a", 1], []], None, "Unknown label type"),
        (None, None, "target y is None"),
    ],
)
def test_bad_labels_are_refused_and_change_nothing(model, data, Y, classes, words):
    before = model.scores(data[2]), list(model.classes_), model.form_
    with pytest.raises(ValueError, match=words):
        model.partial_fit(data[0][:2], Y, classes)
    np.testing.assert_array_equal(model.scores(data[2]), before[0])
    assert (model.classes_, model.form_) == before[1:]


@pytest.mark.parametrize(("Y", "words"), [([[], []], "no label to learn"), (np.zeros((2, 3)), "nothing to learn")])
def test_a_first_task_without_labels_is_refused(data, Y, words):
    model = taer.MultiLabel()
    with pytest.raises(ValueError, match=words):
        model.partial_fit(data[0][:2], Y, classes=range(3) if isinstance(Y, np.ndarray) else None)
    with pytest.raises(Exception, match="not fitted"):
        model.predict(data[2])


def test_other_heads_and_features_are_refused(model, data):
    with pytest.raises(ValueError, match=r"OneVsRestClassifier takes any head"):
        taer.MultiLabel(taer.NCM()).fit(data[0], data[1])
    with pytest.raises(ValueError, match="24 features"):
        model.scores(data[2][:, :5])
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(np.full((1, WIDTH), np.nan), [[0]])


def test_a_label_without_a_sample_is_never_predicted_until_it_has_one(model, data):
    X, Y, asked, _ = data
    model.partial_fit(X[:20], np.zeros((20, 1)), classes=[50])
    assert not model.predict(asked)[:, -1].any()
    model.partial_fit(X[:20], Y[:20, [2]], classes=[50])
    assert model.predict(asked)[:, -1].any()


def test_thresholds_maximize_f1_of_the_samples_seen():
    inside, outside = (
        thresholds.counted(np.array([3.05, 4.05, 5.05])),
        thresholds.counted(np.array([-1.0, 0.0, 3.55])),
    )
    nothing = np.zeros((2, thresholds.BINS))
    best = thresholds.threshold(inside, outside, nothing)
    assert 0.05 < best <= 3.05  # one wrong of four is better than one of three missed
    assert thresholds.threshold(nothing[0], nothing[1], nothing) == thresholds.DEFAULT
    pool = np.stack([thresholds.counted(np.full(9, 6.05)), thresholds.counted(np.full(90, 5.55))])
    assert thresholds.threshold(inside, outside, pool) > 3.55  # three samples give way to what all labels show


def test_probabilities_are_a_half_at_the_threshold(model, data):
    found, inside = model.predict_proba(data[2]), model.predict(data[2]).astype(bool)
    assert (found[inside] >= 0.5).all()
    assert (found[~inside] < 0.5).all()
    assert ((found > 0) & (found < 1)).any()


def test_saved_and_loaded_it_answers_the_same_and_learns_on(model, data, tmp_path):
    X, Y, asked, _ = data
    model.save(tmp_path / "labels.safetensors")
    loaded = taer.load(tmp_path / "labels.safetensors")
    assert isinstance(loaded, taer.MultiLabel)
    np.testing.assert_array_equal(loaded.scores(asked), model.scores(asked))
    np.testing.assert_array_equal(loaded.predict_proba(asked), model.predict_proba(asked))
    for each in (model, loaded):
        each.partial_fit(X[:30], Y[:30, :1], classes=[99])
    np.testing.assert_array_equal(loaded.decision_function(asked), model.decision_function(asked))


def test_an_inconsistent_file_is_refused(model, tmp_path):
    model.labels_ = replace(model.labels_, thresholds=model.labels_.thresholds[:-1])
    model.save(tmp_path / "labels.safetensors")
    with pytest.raises(ValueError, match="thresholds: expected finite numbers"):
        taer.load(tmp_path / "labels.safetensors")
    with pytest.raises(ValueError, match="nothing to save"):
        taer.MultiLabel().save(tmp_path / "none.safetensors")


def test_in_a_pipeline(data, tmp_path):
    X, Y, asked, _ = data
    pipe = taer.make_pipeline(StandardScaler(), taer.MultiLabel(taer.Bayes(normalize="none"))).partial_fit(X, Y)
    pipe.save(tmp_path / "pipe.safetensors")
    np.testing.assert_array_equal(taer.load(tmp_path / "pipe.safetensors").predict(asked), pipe.predict(asked))
    assert pipe.score(asked, data[3]) > 0.85
    assert not hasattr(clone(pipe)[-1], "classes_")


def test_fit_forgets(model, data):
    X, Y, _, _ = data
    assert model.fit(X, _lists(Y)).classes_ == list("abcdefghijkl")
