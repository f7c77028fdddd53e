"""Feature sets in shards, and behind URLs."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("fsspec")
import fsspec

import taer
from taer.features import save_features
from taer.features.files import write_feature_file


@pytest.fixture
def shards(features, tmp_path):
    save_features(features, tmp_path / "set", shard_rows=50)
    return tmp_path / "set"


@pytest.fixture
def store(monkeypatch, tmp_path):
    """A file system that fsspec opens by URL, and a separate cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = fsspec.filesystem("memory")
    yield files
    files.rm("/", recursive=True)


def test_shards_are_the_set_that_was_cut(features, shards):
    loaded = taer.load_features(shards)
    assert len(list(shards.iterdir())) == -(-len(features.train_y) // 50) + -(-len(features.test_y) // 50)
    for name in ("train_x", "train_y", "test_x", "test_y"):
        np.testing.assert_array_equal(np.asarray(getattr(loaded, name)), getattr(features, name))
    assert (loaded.classes, loaded.meta, loaded.name) == (features.classes, features.meta, "set")
    assert loaded.fingerprint == features.fingerprint


def test_a_run_on_shards_is_the_run_on_the_file(features, shards, cli, tmp_path):
    save_features(features, tmp_path / "set.safetensors")
    options = ("--methods", "taer,slda", "--tasks", "2", "--seeds", "1", "--format", "json")
    whole = json.loads(cli("run", tmp_path / "set.safetensors", *options, "--out", tmp_path / "a")[1])
    parts = json.loads(cli("run", shards, *options, "--out", tmp_path / "b")[1])
    assert [row["A_T"] for row in whole["rows"]] == [row["A_T"] for row in parts["rows"]]
    # … and it is found again whichever way the same data are stored
    again = cli("run", shards, *options[:-2], "--out", tmp_path / "a")
    assert "2 of them from disk" in " ".join(again[1].split())


def test_shards_that_do_not_belong_together(features, shards):
    def add(classes=features.classes, width=features.n_features, dtype=features.train_x.dtype, **meta):
        tensors = {f"{part}.x": ((1, width), dtype, [np.zeros((1, width), dtype)]) for part in ("train", "test")}
        tensors |= {f"{part}.y": ((1,), np.dtype(np.int64), [np.zeros(1, np.int64)]) for part in ("train", "test")}
        write_feature_file(shards / "zz.safetensors", {**features.meta, **meta}, classes, tensors)

    for changes, message in [
        ({"classes": features.classes[::-1]}, "another classes than"),
        ({"dataset": "another"}, "another dataset than"),
        ({"width": features.n_features + 1}, "zz.safetensors: features of"),
        ({"dtype": np.dtype(np.float64)}, "float64"),
    ]:
        add(**changes)
        with pytest.raises(ValueError, match=message):
            taer.load_features(shards)
    add()
    assert len(taer.load_features(shards).train_y) == len(features.train_y) + 1


def test_shards_without_training_samples_are_no_set(features, shards):
    for path in sorted(shards.iterdir())[: -(-len(features.train_y) // 50)]:
        path.unlink()
    with pytest.raises(ValueError, match="the train part is empty"):
        taer.load_features(shards)


def test_nothing_is_overwritten_and_a_failed_write_leaves_nothing(features, shards, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="exists already"):
        save_features(features, shards, shard_rows=10)
    with pytest.raises(ValueError, match="at least one row"):
        save_features(features, tmp_path / "other", shard_rows=0)

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("taer.features.shards.write_rows", full)
    with pytest.raises(OSError, match="no space"):
        save_features(features, tmp_path / "other", shard_rows=10)
    assert sorted(path.name for path in tmp_path.iterdir() if "other" in path.name) == []


def test_a_file_behind_an_address_is_copied_once(features, store, tmp_path, monkeypatch):
    save_features(features, tmp_path / "set.safetensors")
    store.put_file(tmp_path / "set.safetensors", "/bucket/set.safetensors")
    loaded = taer.load_features("memory://bucket/set.safetensors")
    assert (loaded.fingerprint, loaded.name) == (features.fingerprint, "set")
    monkeypatch.setattr(type(store), "get_file", None)  # a second copy would fail
    assert taer.load_features("memory://bucket/set.safetensors").fingerprint == features.fingerprint


def test_a_file_that_changed_behind_its_address_is_copied_again(features, store, tmp_path):
    for scale in (1, 2):
        changed = taer.FeatureSet(
            scale * features.train_x, features.train_y, features.test_x, features.test_y, features.classes
        )
        save_features(changed, tmp_path / "set.safetensors")
        store.put_file(tmp_path / "set.safetensors", "/bucket/set.safetensors")
        loaded = taer.load_features("memory://bucket/set.safetensors")
        np.testing.assert_array_equal(loaded.train_x, changed.train_x)


def test_shards_behind_an_address(features, shards, store, cli):
    store.put(str(shards), "/bucket/set", recursive=True)
    assert taer.load_features("memory://bucket/set").fingerprint == features.fingerprint
    assert features.fingerprint in cli("info", "memory://bucket/set")[1]


def test_addresses_that_lead_nowhere(store):
    store.mkdir("/bucket/empty")
    for address, message in [
        ("memory://bucket/none.safetensors", "no such file"),
        ("memory://bucket/empty", "without .safetensors files"),
        ("nowhere://a/b.safetensors", "Protocol not known"),
    ]:
        with pytest.raises(ValueError, match=message):
            taer.load_features(address)
