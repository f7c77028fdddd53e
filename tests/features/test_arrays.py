"""Feature sets from arrays and common file formats."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pyarrow")
import pyarrow
import pyarrow.parquet

import taer


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    names = np.array(["dog", "cat", "ant"])
    return (
        rng.normal(size=(6, 4)).astype(np.float32), names[[0, 1, 2, 0, 1, 2]],
        rng.normal(size=(3, 4)).astype(np.float32), names[[2, 0, 1]],
    )  # fmt: skip


def check(features, arrays):
    assert features.classes == ("ant", "cat", "dog")
    np.testing.assert_array_equal(features.train_x, arrays[0])
    np.testing.assert_array_equal(features.test_x, arrays[2])
    assert features.train_y.tolist() == [2, 1, 0, 2, 1, 0]
    assert features.test_y.tolist() == [0, 2, 1]


def test_arrays_to_a_feature_file(arrays, tmp_path):
    check(taer.features_from_arrays(*arrays, out=tmp_path / "pets.safetensors", backbone="mine"), arrays)
    loaded = taer.load_features(tmp_path / "pets.safetensors")
    check(loaded, arrays)
    assert loaded.meta["backbone"] == "mine"


def test_lists_and_integers_will_do():
    features = taer.features_from_arrays([[1, 2], [3, 4]], [10, 7], [[5, 6]], [7])
    assert features.classes == ("7", "10")
    assert features.train_y.tolist() == [1, 0]
    assert features.train_x.dtype == np.float32


def test_folder_of_npy_files(arrays, tmp_path):
    for name, array in zip(("X_train", "y_train", "X_test", "y_test"), arrays, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
    check(taer.load_features(tmp_path), arrays)
    features = taer.load_features(tmp_path / "X_train.npy")
    check(features, arrays)
    assert isinstance(features.train_x, np.memmap)
    (tmp_path / "y_test.npy").unlink()
    with pytest.raises(ValueError, match=r"lacks y_test\.npy"):
        taer.load_features(tmp_path)


@pytest.mark.parametrize("fixed", [True, False])
def test_parquet_with_embeddings(arrays, tmp_path, fixed):
    vectors = np.vstack([arrays[0], arrays[2]])
    kind = pyarrow.list_(pyarrow.float32(), 4) if fixed else pyarrow.list_(pyarrow.float32())
    table = pyarrow.table(
        {
            "embedding": pyarrow.array(list(vectors), kind),
            "label": [*arrays[1], *arrays[3]],
            "split": ["train"] * 6 + ["test"] * 3,
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "pets.parquet", row_group_size=4)
    check(taer.load_features(tmp_path / "pets.parquet"), arrays)
    pyarrow.parquet.write_table(table.drop(["split"]), tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match="no column split; a feature table has embedding, label, split"):
        taer.load_features(tmp_path / "bad.parquet")


def test_parquet_with_ragged_embeddings(tmp_path):
    table = pyarrow.table({"embedding": [[1.0, 2.0], [1.0]], "label": ["a", "a"], "split": ["train", "test"]})
    pyarrow.parquet.write_table(table, tmp_path / "ragged.parquet")
    with pytest.raises(ValueError, match="must all have the same length"):
        taer.load_features(tmp_path / "ragged.parquet")


@pytest.mark.parametrize(
    "column",
    [[1.0, 2.0], ["1 2", "3 4"], [{"x": 1.0}, {"x": 2.0}], [["1"], ["2"]], [[[1.0]], [[2.0]]], [None, None]],
    ids=["numbers", "texts", "structs", "lists of texts", "lists of lists", "nothing"],
)
def test_parquet_with_embeddings_that_are_no_vectors(tmp_path, column):
    table = pyarrow.table({"embedding": column, "label": ["a", "a"], "split": ["train", "test"]})
    pyarrow.parquet.write_table(table, tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match=r"bad.parquet: embedding must be a column of lists of numbers, got "):
        taer.load_features(tmp_path / "bad.parquet")


def test_parquet_with_a_split_that_says_nothing(tmp_path):
    table = pyarrow.table({"embedding": [[1.0], [2.0]], "label": ["a", "a"], "split": ["valid", None]})
    pyarrow.parquet.write_table(table, tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match="split must say train or test, got None, valid"):
        taer.load_features(tmp_path / "bad.parquet")


def test_labels_that_training_lacks():
    with pytest.raises(ValueError, match=r"test labels that the training part lacks: \['cow'\]"):
        taer.features_from_arrays(np.eye(2), ["a", "b"], np.eye(2), ["a", "cow"])
    with pytest.raises(ValueError, match="y_train must be a list of names or numbers"):
        taer.features_from_arrays(np.eye(2), [["a"], ["b"]], np.eye(2), ["a", "b"])
