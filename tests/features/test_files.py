"""Feature files: round trips, memory mapping, and everything that can be wrong with one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

import taer
from taer.features import save_features


@pytest.fixture
def path(features, tmp_path):
    save_features(features, tmp_path / "set.safetensors")
    return tmp_path / "set.safetensors"


def write(path, meta=None, **changes):
    """A valid file, except for the given changes."""
    X, y = np.zeros((4, 3), np.float16), np.array([0, 0, 1, 1])
    tensors = {"train.x": X, "train.y": y, "test.x": X, "test.y": y}
    for name, value in changes.items():
        key = name.replace("_", ".")
        if value is None:
            del tensors[key]
        else:
            tensors[key] = value
    header = {"format": "taer-features/1", "classes": json.dumps(["a", "b"])}
    save_file(tensors, path, metadata={**header, **(meta or {})})
    return path


def test_round_trip_is_exact_and_memory_mapped(features, path):
    loaded = taer.load_features(path)
    for name in ("train_x", "train_y", "test_x", "test_y"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(features, name))
    assert isinstance(loaded.train_x, np.memmap)
    assert loaded.classes == features.classes
    assert loaded.fingerprint == features.fingerprint
    assert loaded.name == "set"
    assert not list(path.parent.glob("*.partial"))


def test_fingerprint_follows_the_data_not_the_file(features, path):
    renamed = path.rename(path.with_name("other.safetensors"))
    assert taer.load_features(renamed).fingerprint == features.fingerprint
    changed = features.train_x.copy()
    changed[0, 0] += 1
    assert taer.FeatureSet(
        changed, features.train_y, features.test_x, features.test_y, features.classes
    ).fingerprint != features.fingerprint  # fmt: skip


def test_npz_with_names_as_labels(features, tmp_path):
    names = np.array(features.classes)
    np.savez(tmp_path / "set.npz", X_train=features.train_x, y_train=names[features.train_y],
             X_test=features.test_x, y_test=names[features.test_y])  # fmt: skip
    loaded = taer.load_features(tmp_path / "set.npz")
    assert loaded.classes == features.classes
    np.testing.assert_array_equal(loaded.test_y, features.test_y)


ROWS = np.zeros((4, 3), np.float16)


@pytest.mark.parametrize(
    ("changes", "meta", "message"),
    [
        ({"train_y": np.array([0, 0, 1, 2])}, {}, r"labels must lie in 0 … 1 \(2 classes\), got 0 … 2"),
        ({"test_y": np.array([0, -1, 1, 1])}, {}, "labels must lie in"),
        ({"test_x": np.zeros((4, 2), np.float16)}, {}, "differ in width, 3 and 2"),
        ({"train_x": np.full((4, 3), np.nan, np.float32)}, {}, "NaN or infinite"),
        ({"test_x": np.full((4, 3), np.inf, np.float16)}, {}, "NaN or infinite"),
        ({"train_y": np.array([0, 1])}, {}, "n labels"),
        ({"train_x": np.zeros((4, 3), np.uint8)}, {}, "has type U8"),
        ({"train_x": np.zeros((4, 3), np.int64)}, {}, "must be floating point"),
        ({"train_x": np.zeros((0, 3), np.float16), "train_y": np.zeros(0, int)}, {}, "empty"),
        ({"test_y": None}, {}, "lacks test.y"),
        ({}, {"format": "something"}, "lacks format = taer-features/1"),
        ({}, {"classes": "not json"}, "no JSON list of class names"),
        ({}, {"classes": "[" * 200_000}, "no JSON list of class names"),
        ({}, {"classes": "[" * 900 + "]" * 900}, "no JSON list of class names"),
        ({}, {"classes": '[["a"], ["b"]]'}, "no JSON list of class names"),
        ({}, {"classes": '"ab"'}, "no JSON list of class names"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, changes, meta, message):
    path = write(tmp_path / "bad.safetensors", meta, **changes)
    with pytest.raises(ValueError, match=message):
        taer.load_features(path)


@pytest.mark.parametrize("kept", [0, 4, 8, 100, 2000])
def test_truncated_files(path, kept):
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match="not a feature file, or truncated"):
        taer.load_features(path)


def test_files_of_another_kind(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(np.random.default_rng(0).bytes(5000))
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 rubbish")
    (tmp_path / "a.txt").write_text("hello")
    np.savez(tmp_path / "b.npz", X_train=ROWS)
    for name, message in [
        ("a.safetensors", "not a feature file"),
        ("a.npz", "not a readable .npz"),
        ("a.txt", "ends in .safetensors or .npz"),
        ("b.npz", "lacks y_train; expected X_train"),
        ("missing.npz", "no such file"),
        (".", "a.safetensors: not a feature file"),
    ]:
        with pytest.raises(ValueError, match=message):
            taer.load_features(tmp_path / name)


def test_a_folder_with_nothing_of_ours(tmp_path):
    with pytest.raises(ValueError, match=r"lacks X_train\.npy"):
        taer.load_features(tmp_path)


def test_npz_never_unpickles(tmp_path):
    np.savez(tmp_path / "a.npz", X_train=np.array([{}], object), y_train=ROWS, X_test=ROWS, y_test=ROWS)
    with pytest.raises(ValueError, match=r"not a readable \.npz"):
        taer.load_features(tmp_path / "a.npz")
