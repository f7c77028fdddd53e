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
    """Labeled rows, some far from zero, cut into a few parts; whether each class keeps a scatter of its own."""
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


def weighted(X, y, weight, **kind):
    return ClassStatistics(X.shape[1], **kind).update(X, y, weight)


@pytest.mark.parametrize(
    "kind", [{}, {"per_class": True}, {"diagonal": True}], ids=["pooled", "per class", "diagonal"]
)
def test_a_weight_is_a_number_of_equal_rows(data, kind):
    X, y = data
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    often = np.repeat(np.arange(len(y)), weight)
    assert_same(weighted(X, y, weight, **kind), weighted(X[often], y[often], None, **kind))
    chunks = [(X[:99], y[:99], weight[:99].astype(float)), (X[99:], y[99:], weight[99:].astype(float))]
    assert_same(ClassStatistics.of_chunks(chunks, y, **kind), weighted(X, y, weight, **kind))
    assert ClassStatistics.of_chunks(chunks, y).per_class is False


@pytest.mark.parametrize("weight", [[1.0], [1.0, 0.0], [1.0, -1.0], [1.0, np.inf], [1.0, np.nan], [[1.0, 1.0]]])
def test_weights_that_are_none_are_refused(weight):
    statistics = ClassStatistics(1)
    with pytest.raises(ValueError, match=r"^weights must be finite numbers above 0, one for each row$"):
        statistics.update(np.ones((2, 1)), [0, 1], weight)
    assert weighted(np.ones((2, 1)), [0, 1], [0.5, 1]).n_samples == 1.5


def test_labels_of_any_whole_number_type():
    X = np.ones((2, 1))
    for labels in (np.array([False, True]), np.array([0, 1], np.uint8), np.array([0, 2**63 - 1], np.uint64)):
        assert weighted(X, labels, None).labels.tolist() == labels.tolist()
    with pytest.raises(ValueError, match=r"between -2\*\*63 and 2\*\*63 - 1, got 9223372036854775808$"):
        weighted(X, np.array([0, 2**63], np.uint64), None)
    with pytest.raises(ValueError, match=r"^labels must be integers, got float64$"):
        weighted(X, [0.0, 1.0], None)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"^the rows contain NaN or infinity$"):
            weighted(X * bad, [0, 1], None)
    with pytest.raises(ValueError, match=r"^there are no rows$"):
        ClassStatistics.of_chunks([], np.arange(2))


def test_the_covariance_has_the_unbiased_divisor(data):
    X, y = data
    centered = X - np.array([X[y == label].mean(axis=0) for label in range(6)])[y]
    np.testing.assert_allclose(collect(X, y).covariance(), centered.T @ centered / (len(X) - 6), rtol=1e-9)
    two = np.array([[0.0], [2.0]])
    np.testing.assert_allclose(collect(two, np.zeros(2, int)).covariance(), 2.0)  # one degree of freedom
    # of small weights: their mean
    np.testing.assert_allclose(weighted(two, [0, 0], [0.05, 0.05]).covariance(), 1.0)
    np.testing.assert_allclose(weighted(two, [0, 0], [0.75, 0.75]).covariance(), 1.5)
    same = np.repeat([[0.1, 1e8]], 7, axis=0)
    np.testing.assert_array_equal(collect(same, np.zeros(7, int)).covariance(), np.zeros((2, 2)))
    np.testing.assert_array_equal(ClassStatistics(2).covariance(), np.zeros((2, 2)))


def test_without_a_class_the_others_move_up(data):
    X, y = data
    exact, pooled = collect(X, y, per_class=True), collect(X, y)
    moved = np.where(y > 2, y - 1, y)
    assert_same(exact.without(2), collect(X[y != 2], moved[y != 2], per_class=True))
    left = pooled.without(2)
    assert left.labels.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(left.means, np.delete(pooled.means, 2, axis=0))
    np.testing.assert_array_equal(left.counts, np.delete(pooled.counts, 2))
    np.testing.assert_allclose(left.covariance(), pooled.covariance(), rtol=1e-12)
    assert pooled.labels.tolist() == [0, 1, 2, 3, 4, 5]
    two = collect(np.array([[0.0], [2.0], [5.0]]), np.array([0, 0, 1]))
    np.testing.assert_allclose(two.without(0).scatter, two.scatter)  # at least one degree of freedom on both sides
    np.testing.assert_allclose(two.without(1).scatter, two.scatter)
    with pytest.raises(ValueError, match=r"^forgetting a class exactly needs statistics with per_class=True$"):
        pooled.forget(2)


def forged(statistics, **arrays):
    return ClassStatistics.from_arrays({**statistics.to_arrays(), **arrays})


def test_statistics_that_cannot_be_are_refused(data):
    X, y = data
    good = collect(X, y, per_class=True)
    good.check(5, 6)
    one = collect(X[:6], np.arange(6))
    one.check(5, 6)  # a sample of each class, and no scatter
    collect(X * 1e-9, y).check(5, 6)
    ClassStatistics(5).update(X, y).check(5, 6)
    scatter, scatters = good.scatter, good.to_arrays()["scatters"]
    largest = np.abs(scatter).max()
    tilted, negative, rounding = (np.zeros((5, 5)) for _ in range(3))
    tilted[0, 1], negative[0, 0], rounding[0, 1] = 1e-3 * largest, -scatter[0, 0] - 1e-3 * largest, 1e-9 * largest
    forged(good, scatter=scatter + rounding).check(5, 6)
    refused = {
        r"^expected the labels 0 to 5$": [
            forged(good, labels=good.labels + 1),
            forged(good, labels=good.labels.astype(np.int32)),
        ],
        r"^expected finite numbers of the shape \(": [
            forged(good, counts=good.counts.astype(np.float32)),
            forged(good, means=good.means[:, :4]),
            forged(good, means=good.means * np.nan),
            forged(good, scatter=scatter[:4]),
            forged(good, scatters=scatters * np.inf),
            forged(good, counts=good.counts[:, None]),
        ],
        r"^expected samples of every label$": [forged(good, counts=good.counts * [1, 1, 0, 1, 1, 1])],
        r"^expected scatters, symmetric and without negative variances$": [
            forged(good, scatter=scatter + tilted),
            forged(good, scatter=scatter + negative),
            forged(good, scatters=scatters + tilted),
            forged(collect(X * 1e-9, y), scatter=1e-18 * (scatter + tilted)),
        ],
    }
    for message, wrong in refused.items():
        for statistics in wrong:
            with pytest.raises(ValueError, match=message):
                statistics.check(5, 6)
    with pytest.raises(ValueError, match="expected the labels 0 to 6"):
        good.check(5, 7)
    with pytest.raises(ValueError, match=r"zip\(\)"):
        forged(good, scatters=scatters[:5])


def test_statistics_of_nothing_are_restored():
    empty = ClassStatistics(3, per_class=True)
    assert ClassStatistics.from_arrays(empty.to_arrays()).to_arrays()["scatters"].shape == (0, 3, 3)


def test_the_diagonal_is_that_of_the_whole(data):
    X, y = data
    found, whole = weighted(X, y, None, diagonal=True), weighted(X, y, None)
    assert found.scatter.shape == (5,)
    np.testing.assert_allclose(found.scatter, np.diagonal(whole.scatter))
    np.testing.assert_allclose(found.covariance(), np.diagonal(whole.covariance()))
    half = weighted(X[:150], y[:150], None, diagonal=True)
    assert_same(found - half, weighted(X[150:], y[150:], None, diagonal=True))
    same = np.repeat([[0.1, 1e8]], 7, axis=0)
    assert weighted(same, np.zeros(7, int), None, diagonal=True).covariance().shape == (2,)
    assert collect(same, np.zeros(7, int)).covariance().shape == (2, 2)


def test_half_precision_is_added_up_in_double():
    X = np.random.default_rng(0).normal(size=(5000, 2)) * np.geomspace(1e-3, 1e3, 5000)[:, None]
    half = X.astype(np.float16)
    np.testing.assert_allclose(
        collect(half, np.zeros(5000, int)).means[0], half.astype(np.float64).mean(axis=0), rtol=1e-12
    )


def test_weights_may_be_truth_values():
    found = weighted(np.array([[1.0], [3.0], [5.0]]), [0, 0, 1], [True, True, True])
    assert found.counts.tolist() == [2.0, 1.0]
    assert found.means.ravel().tolist() == [2.0, 5.0]


def test_what_is_no_table_is_told_by_its_name():
    for name, X, y in (("X", {"a": 1}, [0]), ("y", [[1.0]], {"a": 1})):
        with pytest.raises(ValueError, match=rf"^{name}: expected a list"):
            ClassStatistics(1).update(X, y)


def test_what_is_not_there_is_not_taken_away():
    X, y = np.arange(12.0)[:, None], np.repeat([0, 5], 6)
    some = collect(X, y)
    told = r"^more samples are taken away than there are$"
    for rows, labels in (
        (X[:1], [3]),  # another class, with fewer samples than any
        (X[:1], [9]),
        (X[[0, 1, 2, 3, 4, 5, 0]], [0] * 7),
    ):
        with pytest.raises(ValueError, match=told):
            some - weighted(rows, labels, None)
    with pytest.raises(ValueError, match=r"^only statistics of the same width and kind can be combined$"):
        some - weighted(X, y, None, diagonal=True)


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e6])
@pytest.mark.parametrize("kind", [{}, {"per_class": True}, {"diagonal": True}])
def test_what_has_more_variance_is_no_part(size, kind):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)) * size, np.repeat([0, 1], 20)
    part = weighted(5 * X[:10], y[:10], None, **kind)
    with pytest.raises(
        ValueError,
        match=r"^what is taken away is not part of what there is: a variance would be negative$",
    ):
        weighted(X, y, None, **kind) - part


def test_weights_are_taken_away_up_to_rounding():
    X, y = np.array([[1.0], [4.0], [2.0]]), [0, 0, 1]
    some = weighted(X, y, [0.5, 0.25, 1.0])
    left = some - weighted(X[:1], [0], [0.5])
    np.testing.assert_allclose(left.counts, [0.25, 1.0])
    np.testing.assert_allclose(left.means, [[4.0], [2.0]])
    for almost in (1 - 1e-11, 1 + 1e-11):  # what is left of the class, or missing, is rounding
        assert (some - weighted(X[2:], [1], [almost])).labels.tolist() == [0]
    assert (some - weighted(X[2:], [1], [1 - 1e-6])).labels.tolist() == [0, 1]


@pytest.mark.parametrize("kind", [{}, {"per_class": True}, {"diagonal": True}])
def test_a_feature_that_is_constant_in_the_rest_has_no_variance_there(kind):
    """Only rounding is left of it, of either sign, and of its products with other features."""
    rng, rounding = np.random.default_rng(0), 0
    for _ in range(20):
        X, y = rng.normal(size=(30, 3)) + 1e6, np.zeros(30, int)
        X[:, 1] = 1e8 * rng.random()
        whole, part = (weighted(X[rows], y[rows], None, **kind) for rows in (slice(None), slice(11)))
        left = whole - part
        scatter = left.scatter if "diagonal" not in kind else np.diag(left.scatter)
        np.testing.assert_array_equal(scatter[1], 0)
        np.testing.assert_array_equal(scatter[:, 1], 0)
        np.testing.assert_allclose(
            np.diagonal(scatter)[[0, 2]], np.square(X[11:] - X[11:].mean(axis=0)).sum(axis=0)[[0, 2]], rtol=1e-3
        )
        rounding += (whole.means[0, 1] != X[0, 1]) + (part.means[0, 1] != X[0, 1])
    assert rounding > 5  # otherwise there was nothing to remove


def test_the_degrees_of_freedom_of_the_others_are_theirs():
    some = collect(np.array([[0.0], [1.0], [5.0], [7.0], [9.0]]), np.array([0, 0, 0, 1, 1]))
    np.testing.assert_allclose(some.without(0).scatter, some.scatter / 3)
    np.testing.assert_allclose(some.without(1).scatter, some.scatter * 2 / 3)


@pytest.mark.parametrize("per_class", [False, True])
def test_statistics_of_moved_and_of_relabeled_rows(data, per_class):
    X, y = data
    some = collect(X, y, per_class)
    by = np.arange(5.0)
    assert_same(some.moved(by), collect(X + by, y, per_class))
    new = np.array([3, 0, 5, 1, 9, 2])
    assert_same(some.relabeled(new), collect(X, new[y], per_class))
    assert_same(some, collect(X, y, per_class))
    with pytest.raises(ValueError, match="zip"):
        some.relabeled(new[:5])


def test_an_asymmetry_is_measured_by_the_largest_entry():
    x = np.arange(6.0)
    some = collect(np.column_stack([x, x, 1 - x]), np.zeros(6, int))
    largest = some.scatter.max()
    tilted = np.array([[0, 1, 0], [0, 0, 0], [0, 0, 0]]) * largest
    forged(some, scatter=some.scatter + 5e-7 * tilted).check(3, 1)
    with pytest.raises(ValueError, match="symmetric"):
        forged(some, scatter=some.scatter + 5e-6 * tilted).check(3, 1)
