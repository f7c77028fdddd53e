"""Rows that are read only when they are indexed."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from taer.rows import SelectedRows, StackedRows, select
from taer.storage import MappedArray

X = np.arange(60, dtype=np.float32).reshape(20, 3)
STORAGES = {
    "stacked": (StackedRows(X[:7], X[7:7], X[7:8], X[8:]), X),
    "selected": (SelectedRows(X, np.array([5, 3, 19, 0, 0])), X[[5, 3, 19, 0, 0]]),
    "selected of stacked": (SelectedRows(StackedRows(X[:7], X[7:]), np.arange(19, 4, -2)), X[np.arange(19, 4, -2)]),
}
INDICES = [
    slice(None), slice(1, 4), slice(2, 100), slice(4, 2), slice(None, None, 2), slice(None, None, -1), slice(-3, None),
    np.array([4, 0, 0]), np.array([-1, 1]), [2, 1], 3, -1, np.int64(2), np.array([], int),
]  # fmt: skip


@pytest.mark.parametrize("name", STORAGES)
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexed_like_an_array(name, index):
    rows, expected = STORAGES[name]
    found = rows[index]
    np.testing.assert_array_equal(found, expected[index])
    assert type(found) is np.ndarray
    assert found.dtype == expected.dtype


@pytest.mark.parametrize("name", STORAGES)
def test_like_an_array_otherwise(name):
    rows, expected = STORAGES[name]
    np.testing.assert_array_equal(rows[np.arange(len(rows)) % 2 == 0], expected[::2])
    np.testing.assert_array_equal(np.asarray(rows), expected)
    assert np.asarray(rows, np.float64).dtype == np.float64
    assert (len(rows), rows.shape, rows.ndim) == (len(expected), expected.shape, 2)
    with pytest.raises(IndexError):
        rows[np.array([len(rows)])]


def test_a_mapped_array_travels_as_its_address(tmp_path):
    path = tmp_path / "numbers"
    np.arange(100_000, dtype=np.float32).tofile(path)
    mapped = MappedArray.open(str(path), np.float32, 40, (9000, 10))
    sent = pickle.dumps(mapped)
    assert len(sent) < 1000
    np.testing.assert_array_equal(pickle.loads(sent), mapped)
    assert pickle.loads(sent)[0, 0] == 10
    part = mapped[100:200]  # is not what the address says
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(part)), part)


def test_only_what_lies_in_a_file_stays_there(tmp_path):
    np.save(tmp_path / "x.npy", X)
    numbers = np.array([3, 1])
    assert isinstance(select(X, numbers), np.ndarray)
    assert isinstance(select(np.load(tmp_path / "x.npy", mmap_mode="r"), numbers), SelectedRows)
    assert isinstance(select(StackedRows(X, X), numbers), SelectedRows)
