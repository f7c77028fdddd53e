"""Heads made from existing linear classifiers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import taer
from tests.conftest import blobs


@pytest.fixture(scope="module")
def problem():
    X, y = blobs(6, 60, spread=2.0)
    return X, np.array([f"class {c}" for c in (3, 5, 0, 4, 1, 2)])[y], y


@pytest.mark.parametrize("samples", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_are_those_of_the_classifier(problem, samples, dtype):
    X, y, codes = problem
    X, old = X.astype(dtype), codes < 4
    known = LogisticRegression().fit(X[old], y[old])
    few = (X[old][:40], y[old][:40]) if samples else ()
    head = taer.from_linear(known.coef_.astype(dtype), known.intercept_, known.classes_, *few, random_state=0)
    np.testing.assert_allclose(head.decision_function(X), known.decision_function(X), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(head.predict_proba(X), known.predict_proba(X), atol=1e-4)
    np.testing.assert_allclose(head.coef_, known.coef_, atol=1e-4)
    np.testing.assert_array_equal(head.predict(X), known.predict(X))
    assert head.decision_function(X).dtype == dtype
    assert len(head.memory_) == 40 * samples


def test_it_grows_and_old_scores_never_move(problem, tmp_path):
    X, y, codes = problem
    old, new = codes < 4, codes >= 4
    known = LogisticRegression().fit(X[old], y[old])
    few = X[old][:80], y[old][:80]
    head = taer.from_linear(known.coef_, known.intercept_, known.classes_, *few, epochs=50, random_state=0)
    before = head.scores(X, known.classes_)
    head.partial_fit(X[new], y[new])
    np.testing.assert_array_equal(head.scores(X, known.classes_), before)
    assert head.score(X[new], y[new]) > 0.8
    assert head.score(X[old], y[old]) > known.score(X[old], y[old]) - 0.1
    assert [task for _, task in head.learning_order_] == [1, 1, 1, 1, 2, 2]
    head.save(tmp_path / "grown")
    np.testing.assert_array_equal(taer.load(tmp_path / "grown").scores(X), head.scores(X))


def test_two_classes_have_one_row_in_scikit_learn(problem):
    X, y, codes = problem
    known = LogisticRegression().fit(X[codes < 2], y[codes < 2])
    head = taer.from_linear(known.coef_, known.intercept_, known.classes_)
    np.testing.assert_array_equal(head.predict(X), known.predict(X))
    np.testing.assert_allclose(head.predict_proba(X), known.predict_proba(X), atol=1e-6)


def test_labels_need_not_be_sorted_and_one_number_is_an_intercept():
    head = taer.from_linear(np.eye(3), 0, ["b", "c", "a"])
    assert head.predict(np.eye(3)).tolist() == ["b", "c", "a"]
    assert head.classes_.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.eye(3), 0, ["a", "b"]), "coef has 3 rows, but there are 2 classes"),
        ((np.eye(3), 0, ["a", "b", "a"]), "different from one another"),
        ((np.eye(3) * np.nan, 0, ["a", "b", "c"]), "coef must be finite numbers"),
        ((np.ones(3), 0, ["a", "b", "c"]), "of shape"),
        ((np.eye(3), np.inf, ["a", "b", "c"]), "intercept must be finite"),
        ((np.eye(3), [1, 2], ["a", "b", "c"]), "intercept must be finite numbers, one per class"),
        ((np.eye(3), 0, ["a", "b", "c"], np.eye(3), ["a", "b", "z"]), "'z' is not a known class"),
        ((np.eye(3), 0, ["a", "b", "c"], np.eye(4), ["a", "b", "c", "a"]), "expecting 3 features"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        taer.from_linear(*arguments)
    with pytest.raises(ValueError, match="standardize must be 'none' unless"):
        taer.from_linear(np.eye(2), 0, ["a", "b"], standardize="scale")
