"""Class statistics: exact, in any order, in any chunks, added and taken away."""

from __future__ import annotations

import numpy as np
import pytest

from taer.statistics import ClassStatistics


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, 400)
    return rng.normal(size=(400, 5)) + 3 * y[:, None] + 100, y


def collect(X, y, per_class=False, chunk=None):
    statistics = ClassStatistics(X.shape[1], per_class=per_class)
    for start in range(0, len(X), chunk or len(X)):
        statistics.update(X[start : start + (chunk or len(X))], y[start : start + (chunk or len(X))])
    return statistics


def assert_same(a, b, tolerance=1e-8):
    assert a.to_arrays().keys() == b.to_arrays().keys()
    for name, array in a.to_arrays().items():
        np.testing.assert_allclose(array, b.to_arrays()[name], atol=tolerance, rtol=1e-10, err_msg=name)


def test_against_the_definitions(data):
    X, y = data
    statistics = collect(X, y, per_class=True)
    for label in range(6):
        rows = X[y == label]
        np.testing.assert_allclose(statistics.means[label], rows.mean(0))
        np.testing.assert_allclose(statistics.scatters[label], (len(rows) - 1) * np.cov(rows.T), atol=1e-8)
    np.testing.assert_allclose(statistics.scatter, sum(statistics.scatters.values()))
    np.testing.assert_allclose(statistics.cross_moments, np.eye(6)[y].T @ X, rtol=1e-12)


@pytest.mark.parametrize("per_class", [False, True])
def test_chunks_order_sums_and_differences(data, per_class):
    X, y = data
    whole = collect(X, y, per_class)
    assert_same(collect(X, y, per_class, chunk=7), whole)
    order = np.random.default_rng(1).permutation(len(X))
    assert_same(collect(X[order], y[order], per_class, chunk=33), whole)
    a, b = collect(X[:150], y[:150], per_class), collect(X[150:], y[150:], per_class)
    assert_same(a + b, whole)
    assert_same(whole - b, a)
    assert_same(b + a, whole)


@pytest.mark.parametrize("per_class", [False, True])
def test_statistics_of_chunks(data, per_class):
    X, y = data
    chunks = [(X[start : start + 33], y[start : start + 33]) for start in range(0, len(X), 33)]
    assert_same(ClassStatistics.of_chunks(chunks, y, per_class=per_class), collect(X, y, per_class))
    with pytest.raises(ValueError, match="no rows"):
        ClassStatistics.of_chunks([], y)


def test_what_a_sum_does_not_touch_stays_bit_identical(data):
    X, y = data
    statistics = collect(X, y)
    others = statistics + collect(X[y == 2], y[y == 2])
    np.testing.assert_array_equal(np.delete(others.means, 2, axis=0), np.delete(statistics.means, 2, axis=0))


def test_forgetting_is_as_if_never_seen(data):
    X, y = data
    assert_same(collect(X, y, per_class=True).forget(3), collect(X[y != 3], y[y != 3], per_class=True))
    with pytest.raises(ValueError, match="per_class=True"):
        collect(X, y).forget(3)
    with pytest.raises(ValueError, match="not known"):
        collect(X, y, per_class=True).forget(9)


def test_a_sum_changes_neither_part(data):
    X, y = data
    a, b = collect(X[:150], y[:150]), collect(X[150:], y[150:])
    before = {name: array.copy() for name, array in a.to_arrays().items()}
    _ = a + b
    for name, array in a.to_arrays().items():
        np.testing.assert_array_equal(array, before[name])


def test_what_does_not_fit_is_refused(data):
    X, y = data
    with pytest.raises(ValueError, match="same width"):
        collect(X, y) + collect(X[:, :3], y)
    for rows, labels in ((X, y[:-1]), (X[:-1], y), (X[:, :3], y), (X[0], y[:1])):
        with pytest.raises(ValueError, match="a label for each"):
            collect(X, y).update(rows, labels)
    with pytest.raises(ValueError, match="must be integers"):
        collect(X, y).update(X, y.astype(str))
    with pytest.raises(ValueError, match="NaN"):
        collect(X, y).update(X * np.nan, y)
    assert_same(collect(X, y).update(X[:0], y[:0].astype(int)), collect(X, y))
    with pytest.raises(ValueError, match="99 is not known"):
        collect(X, y).without(99)
    with pytest.raises(ValueError, match="more samples are taken away"):
        collect(X[:10], y[:10]) - collect(X, y)


@pytest.mark.parametrize("per_class", [False, True])
def test_arrays_restore_the_statistics(data, per_class):
    statistics = collect(*data, per_class)
    assert_same(ClassStatistics.from_arrays(statistics.to_arrays()), statistics)


def test_float16_rows_are_counted_exactly(data):
    X, y = data
    assert_same(collect(X.astype(np.float16), y), collect(X.astype(np.float16).astype(np.float64), y))
