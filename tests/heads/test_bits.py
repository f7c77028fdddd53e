"""Scores, probabilities and novelty of a sample have the same bits alone and among any others, on every BLAS kernel."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import taer
from tests.conftest import blobs, small_head

ASKED = ("scores", "predict_proba", "novelty")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", list(taer.HEADS))
def test_a_sample_has_the_same_bits_alone_and_among_others(name, dtype):
    X, y = blobs(10, 12, width=72, seed=3, spread=3.0)
    head = small_head(name, random_state=0)
    for task in (y < 6, y >= 6):
        head.partial_fit(X[task].astype(dtype), y[task])
    rows = X[:43].astype(dtype)
    parts = {"one by one": np.split(rows, 43), "in unequal parts": np.split(rows, [1, 3, 8, 24])}
    for asked in ASKED:
        ask = getattr(head, asked)
        whole = ask(rows)
        for number in (1, 2):
            with threadpool_limits(number, user_api="blas"):
                for how, split in parts.items():
                    found = np.concatenate([ask(part) for part in split])
                    np.testing.assert_array_equal(found, whole, err_msg=f"{asked} {how}, {number} threads")
