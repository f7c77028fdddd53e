"""Class statistics: exact, in any order and any chunks, added and subtracted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taer.statistics import ClassStatistics
from tests.conftest import everyday


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
    chunks = [(X[start : start + 33], y[start : start + 33], None) for start in range(0, len(X), 33)]
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


@st.composite
def parts(draw):
    """Labelled rows, some far from zero, cut into a few parts; whether each class keeps a scatter of its own."""
    width, n = draw(st.integers(1, 4)), draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    X = rng.normal(size=(n, width)) * draw(st.sampled_from([1e-6, 1.0, 1e3])) + draw(st.sampled_from([0.0, 1e3]))
    y = rng.integers(-2, draw(st.integers(-1, 4)), n)
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=4)))
    return X, y, np.split(np.arange(n), cuts), draw(st.booleans()), rng.permutation(n)


def assert_close(one, other, X):
    """Equal up to the rounding of numbers of this size."""
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_array_equal(one.counts, other.counts)
    size = np.abs(X).max(initial=0)
    np.testing.assert_allclose(one.means, other.means, rtol=0, atol=1e-12 * size)
    square = 1e-12 * len(X) * size * (np.ptp(X, axis=0).max(initial=0) + 1e-3 * size)
    np.testing.assert_allclose(one.scatter, other.scatter, rtol=0, atol=square)
    assert one.scatters.keys() == other.scatters.keys()
    for label, scatter in one.scatters.items():
        np.testing.assert_allclose(scatter, other.scatters[label], rtol=0, atol=square)


@everyday
@given(parts())
def test_parts_add_up_and_can_be_taken_away(case):
    X, y, pieces, per_class, order = case

    def of(rows):
        return ClassStatistics(X.shape[1], per_class=per_class).update(X[rows], y[rows])

    whole, each = of(np.arange(len(y))), [of(piece) for piece in pieces]
    assert_close(whole, of(order), X)
    empty = ClassStatistics(X.shape[1], per_class=per_class)
    assert_close(sum(each, empty), whole, X)
    assert_close(sum(reversed(each), empty), whole, X)
    chunked = empty
    for piece in pieces:
        chunked.update(X[piece], y[piece])
    assert_close(chunked, whole, X)
    stream = ((X[piece], y[piece], None) for piece in pieces if len(piece))
    assert_close(ClassStatistics.of_chunks(stream, y, per_class=per_class), whole, X)
    rest = of(np.concatenate(pieces[1:]) if len(pieces) > 1 else np.arange(0))
    assert_close(whole - each[0], rest, X)
    assert_close((rest + each[0]) - each[0], rest, X)
    assert not (whole - whole).n_samples
    if per_class:
        label = int(y[0])
        assert_close(whole.forget(label), of(np.flatnonzero(y != label)), X)
    restored = ClassStatistics.from_arrays(whole.to_arrays())
    np.testing.assert_array_equal(restored.scatter, whole.scatter)
