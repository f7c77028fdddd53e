"""What rounding leaves of variances and weights is nothing, and not a class of its own."""

from __future__ import annotations

import numpy as np
import pytest

import taer
from taer.statistics import ClassStatistics
from tests.conftest import blobs, heads_with, small_head


@pytest.mark.parametrize("name", heads_with(sums=True))
def test_equal_rows_are_left_after_unlearning_the_others(name, tmp_path):
    """Their variance is zero. Rounding would leave a little, above or below."""
    X, y = blobs(3, 20, seed=5)
    same, others = np.repeat(X[:1], 7, axis=0), X[:9] + 0.1
    head = small_head(name, random_state=0).fit(X, y)
    head.partial_fit(np.concatenate([same, others]), np.full(16, 9)).unlearn(others, np.full(9, 9))
    assert np.isfinite(head.scores(X)).all()
    assert (head.predict(same) == 9).all()
    head.save(tmp_path / "head")
    np.testing.assert_array_equal(taer.load(tmp_path / "head").scores(X), head.scores(X))


def test_no_variance_is_negative_after_a_subtraction():
    rng = np.random.default_rng(0)
    for _ in range(50):
        same, others = np.repeat(rng.normal(size=(1, 6)), 5, axis=0) + 3, rng.normal(size=(8, 6))
        every = ClassStatistics(6, per_class=True).update(np.concatenate([same, others]), np.zeros(13, int))
        left = every - ClassStatistics(6, per_class=True).update(others, np.zeros(8, int))
        np.testing.assert_array_equal(left.scatters[0], 0)
        np.testing.assert_array_equal(left.scatter, 0)


@pytest.mark.parametrize("weight", [1e-300, 1e-30, 1e30])
@pytest.mark.parametrize("name", [name for name, kind in taer.HEADS.items() if kind.weighs])
def test_weights_of_any_size_give_scores(name, weight):
    X, y = blobs(4, 12)
    head = small_head(name, random_state=0)
    for task in (y < 2, y >= 2):
        head.partial_fit(X[task], y[task], sample_weight=np.full(task.sum(), weight))
    assert np.isfinite(head.scores(X)).all()
    if weight < 1:  # with more, as many equal samples as that leave nothing of the shrinkage
        assert head.score(X, y) > 0.9


def test_ncm_keeps_no_square_matrix():
    """With 20,000 features it would take gigabytes; its novelty needs only the variances."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 20_000)).astype(np.float32), np.repeat([0, 1], 20)
    X[y == 1] += 1
    head = taer.NCM().partial_fit(X[:20], y[:20]).partial_fit(X[20:], y[20:])
    sizes = [np.asarray(value).nbytes for value in head.statistics_.to_arrays().values()]
    assert max(sizes) <= 2 * 20_000 * 8
    assert head.score(X, y) == 1
    assert head.novelty(-5 * X).min() > head.novelty(X).max()
