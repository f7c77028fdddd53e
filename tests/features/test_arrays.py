"""Feature sets from arrays and common file formats."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

pytest.importorskip("pyarrow")
import pyarrow
import pyarrow.parquet

import taer
from taer.features.sources import open_source


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
    everything = taer.load_features(tmp_path / "bad.parquet")  # without a split all are for training
    assert (len(everything.train_x), len(everything.test_x)) == (9, 0)
    pyarrow.parquet.write_table(table.drop(["label"]), tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match="no column label; a feature table has embedding, label and perhaps split"):
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


def test_a_test_part_is_not_demanded(arrays, tmp_path):
    X, y = arrays[:2]
    np.savez(tmp_path / "few.npz", X_train=X, y_train=y)
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "folder" / "X_train.npy", X)
    np.save(tmp_path / "folder" / "y_train.npy", y)
    taer.features_from_arrays(X, y, out=tmp_path / "few.safetensors")
    for name in ("few.npz", "folder", "few.safetensors"):
        features = taer.load_features(tmp_path / name)
        assert (features.train_x.shape, features.test_x.shape, features.test_y.tolist()) == ((6, 4), (0, 4), [])
    np.savez(tmp_path / "half.npz", X_train=X, y_train=y, X_test=X)
    with pytest.raises(ValueError, match=r"half.npz: lacks y_test; expected X_train, y_train, X_test, y_test"):
        taer.load_features(tmp_path / "half.npz")
    with pytest.raises(ValueError, match="X_test and y_test are given together"):
        taer.features_from_arrays(X, y, X)


@pytest.mark.parametrize("header", [b"{'descr': '<f4', 'shape': (3,", b"'" * 3, b"(" * 300, b"\x00" * 40, b"1e999"])
def test_a_header_that_is_no_python_is_a_readable_error(tmp_path, header):
    (tmp_path / "X_train.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    np.save(tmp_path / "y_train.npy", [0, 1, 2])
    with pytest.raises(ValueError, match=r"X_train\.npy: not a readable \.npy file \("):
        taer.load_features(tmp_path)


@pytest.fixture
def small_limit(monkeypatch):
    """As if a megabyte were a gigabyte, so that no test writes a large array."""
    monkeypatch.setattr("taer.features.limits._BYTES", 1 << 20)


def test_a_small_archive_of_huge_arrays_is_refused_before_it_is_unpacked(tmp_path, small_limit):
    zeros, y = np.zeros((20_000, 100), np.float32), np.zeros(20_000, np.int8)
    np.savez_compressed(tmp_path / "bomb.npz", X_train=zeros, y_train=y)
    with pytest.raises(ValueError, match=r"bomb.npz: .* bytes that would become 8,020,000 in memory"):
        taer.load_features(tmp_path / "bomb.npz")
    np.savez(tmp_path / "stored.npz", X_train=zeros, y_train=y)  # as large as its arrays
    assert len(taer.load_features(tmp_path / "stored.npz").train_x) == 20_000


def test_an_archive_that_cannot_be_measured_is_not_opened(tmp_path):
    """Of bzip2, which packs a gigabyte into a kilobyte, even the header of an array cannot be read alone."""
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("X_train.npy", bytes(10))
    with pytest.raises(ValueError, match=r"bomb\.npz: .*compressed in a way that numpy does not write"):
        taer.load_features(tmp_path / "bomb.npz")


def test_an_archive_whose_header_claims_more_than_it_has(tmp_path):
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 100)}\n"
    with zipfile.ZipFile(tmp_path / "liar.npz", "w") as archive:
        archive.writestr("X_train.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
    with pytest.raises(ValueError, match="claims 400,000,000,000,000 bytes"):
        taer.load_features(tmp_path / "liar.npz")


def test_a_small_parquet_file_of_huge_columns_is_refused(tmp_path, small_limit):
    same = pyarrow.array([[0.0] * 100] * 20_000, pyarrow.list_(pyarrow.float32()))
    table = pyarrow.table({"embedding": same, "label": ["a"] * 20_000, "split": ["train"] * 20_000})
    pyarrow.parquet.write_table(table, tmp_path / "bomb.parquet")
    with pytest.raises(ValueError, match=r"bomb.parquet: .* bytes that would become 16,"):
        taer.load_features(tmp_path / "bomb.parquet")
    texts = pyarrow.table({"text": ["word " * 2000] * 3000, "label": ["a"] * 3000})
    pyarrow.parquet.write_table(texts, tmp_path / "texts.parquet")
    with pytest.raises(ValueError, match=r"texts.parquet: .* bytes that would become 30,"):
        open_source(tmp_path / "texts.parquet")
