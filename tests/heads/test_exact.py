"""Exact products: an entry has the same bits in any company and by any way of computing it."""

import numpy as np
import pytest

from taer.heads import exact


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
    assert np.array_equal(exact.triangular_products(rows, triangle), exact.products(rows, triangle))
