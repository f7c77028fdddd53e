"""The class summaries of ``bayes`` after unlearning."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taer.heads.bayes.density import summarize
from taer.heads.bayes.sums import parted
from tests.conftest import everyday


@everyday
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 12))
def test_what_is_left_is_the_summary_of_the_rest(seed, kept, taken):
    rows = np.random.default_rng(seed).normal(size=(kept + taken, 5)) * 3 + 2
    left = parted(summarize(rows, 5), summarize(rows[kept:], 5), 5)
    rest = summarize(rows[:kept], 5)
    assert left.n == kept
    np.testing.assert_allclose(left.mean, rest.mean, atol=1e-9)
    np.testing.assert_allclose(left.trace, rest.trace, atol=1e-7)
    np.testing.assert_allclose(left.root.T @ left.root, rest.root.T @ rest.root, atol=1e-3)


def test_nothing_more_than_there_is_can_be_taken():
    rows = np.random.default_rng(0).normal(size=(6, 3))
    whole = summarize(rows, 3)
    assert parted(whole, whole, 3) is None
    with pytest.raises(ValueError, match="more samples are taken away"):
        parted(summarize(rows[:3], 3), whole, 3)
    with pytest.raises(ValueError, match="not part of what there is"):
        parted(whole, summarize(100 + 50 * rows[:2], 3), 3)
