"""Products that are exact, against arithmetic with fractions."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taer.heads import exact
from tests.conftest import everyday

WIDTHS = (1, 2, 3, 8, 9, 33, 64)


def bits(width):
    """As many as the module's text allows: ``2b + log2(width) <= 53``."""
    return (53 - int(np.ceil(np.log2(width)))) // 2


@st.composite
def factors(draw):
    """Rows and columns of one width: of any scale, with zeros, with large and small numbers beside each other."""
    width, rng = draw(st.sampled_from(WIDTHS)), np.random.default_rng(draw(st.integers(0, 10_000)))
    found = []
    for n, largest in ((draw(st.integers(1, 4)), 200), (draw(st.integers(1, 4)), 40)):
        array = rng.normal(size=(n, width)) * np.exp2(rng.integers(-30, 1, (n, width)))
        array[rng.random((n, width)) < draw(st.sampled_from([0.0, 0.3]))] = 0
        if draw(st.booleans()):
            array = np.sign(array) * np.exp2(np.round(np.log2(np.maximum(np.abs(array), 1e-9))))  # powers of two
        found.append(array * np.exp2(draw(st.integers(-largest, largest))))
    return found


def exactly(rows, columns):
    return [[sum(Fraction(a) * Fraction(b) for a, b in zip(x, w, strict=True)) for w in columns] for x in rows]


@everyday
@given(factors(), st.sampled_from(["float32", "float64"]))
def test_near_the_true_product(case, dtype):
    rows, columns = case
    stored = exact.rounded(columns, dtype)
    assert stored.dtype == dtype
    width, kept = rows.shape[1], bits(rows.shape[1])
    found, true = exact.products(rows, stored), exactly(rows.tolist(), columns.tolist())
    error = width * (4 * 2.0 ** -min(kept, 24) if dtype == "float32" else 8 * 2.0 ** (-2 * kept))
    sizes = np.abs(rows).max(axis=1)[:, None] * np.abs(columns).max(axis=1)
    pairs = zip(found.ravel().tolist(), (value for row in true for value in row), strict=True)
    off = np.array([float(abs(Fraction(ours) - theirs)) for ours, theirs in pairs]).reshape(found.shape)
    assert (off <= error * sizes + 1e-300).all()


@everyday
@given(factors())
def test_float32_columns_give_the_exact_product_of_rounded_rows(case):
    rows, columns = case
    stored = exact.rounded(columns, "float32")
    largest = np.frexp(np.abs(rows).max(axis=1, keepdims=True))[1]
    step = np.exp2(largest - float(bits(rows.shape[1])))
    rounded = np.round(rows / step) * step
    expected = exactly(rounded.tolist(), stored.astype(np.float64).tolist())
    found = exact.products(rows, stored)
    assert [[Fraction(value) for value in row] for row in found.tolist()] == expected


@everyday
@given(factors(), st.sampled_from(["float32", "float64"]), st.integers(0, 1000))
def test_the_same_bits_in_any_company(case, dtype, seed):
    rows, columns = case
    rng, stored = np.random.default_rng(seed), exact.rounded(columns, dtype)
    expected = exact.products(rows, stored)
    for i in range(len(rows)):
        for j in range(len(stored)):
            assert exact.products(rows[i : i + 1], stored[j : j + 1])[0, 0] == expected[i, j]
    order = rng.permutation(rows.shape[1])  # the sum has no order
    np.testing.assert_array_equal(exact.products(rows[:, order], stored[:, order]), expected)
    more = np.concatenate([rows, rng.normal(size=(70, rows.shape[1]))])
    others = np.concatenate([stored, exact.rounded(rng.normal(size=(90, rows.shape[1])), dtype)])
    np.testing.assert_array_equal(exact.products(more, others)[: len(rows), : len(stored)], expected)
    np.testing.assert_array_equal(exact.rounded(stored, dtype), stored)  # rounded once is rounded


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nothing_to_multiply(dtype):
    for rows, columns in (((0, 3), (2, 3)), ((2, 3), (0, 3)), ((2, 0), (3, 0))):
        found = exact.products(np.ones(rows), exact.rounded(np.ones(columns), dtype))
        np.testing.assert_array_equal(found, np.zeros((rows[0], columns[0])))
    np.testing.assert_array_equal(exact.products(np.zeros((2, 3)), exact.rounded(np.zeros((1, 3)), dtype)), 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_columns_have_the_type_that_is_asked_for_even_if_there_are_none(dtype):
    for shape in ((0, 3), (2, 3)):
        assert exact.rounded(np.ones(shape), dtype).dtype == dtype


def test_columns_too_large_for_float32_become_infinite_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isinf(exact.rounded(np.full((1, 3), 1e60), "float32")).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_any_type_and_layout_have_the_same_products(dtype):
    rng = np.random.default_rng(0)
    rows, columns = rng.normal(size=(6, 9)).astype(np.float32), exact.rounded(rng.normal(size=(4, 9)), dtype)
    expected = exact.products(rows.astype(np.float64), columns)
    triangle = exact.rounded(np.tril(rng.normal(size=(9, 9))), "float32")
    for same in (rows, np.asfortranarray(rows), np.repeat(rows, 2, axis=1)[:, ::2]):
        before = same.copy()
        np.testing.assert_array_equal(exact.products(same, columns), expected)
        np.testing.assert_array_equal(
            exact.triangular_products(same, triangle), exact.products(rows.astype(np.float64), triangle)
        )
        np.testing.assert_array_equal(same, before)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_product_has_the_same_bits_alone_and_among_thousands(dtype):
    rng = np.random.default_rng(0)
    rows, columns = rng.normal(size=(7, 300)), exact.rounded(rng.normal(size=(3000, 300)), dtype)
    together = exact.products(rows, columns)
    assert together == pytest.approx(rows @ columns.astype(np.float64).T, abs=1e-4)
    for number in (0, 1747, 1748, 2999):
        assert np.array_equal(exact.products(rows[2:3], columns[[number]])[0, 0], together[2, number])


def test_products_with_a_triangle_have_the_bits_of_any_product():
    rng = np.random.default_rng(0)
    rows, triangle = rng.normal(size=(50, 33)), exact.rounded(np.tril(rng.normal(size=(33, 33))), "float32")
    together = exact.products(rows, triangle)
    assert np.array_equal(exact.triangular_products(rows, triangle), together)
    assert np.array_equal(exact.triangular_products(rows[3:4], triangle), together[3:4])  # by another product


def test_widened_is_every_finite_half():
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    np.testing.assert_array_equal(exact.widened(halves).view(np.uint32), halves.astype(np.float32).view(np.uint32))
