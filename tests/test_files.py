"""Atomic writes, and headers of safetensors files."""

import os

import numpy as np
import pytest
from safetensors.numpy import save_file

from taer.files import format_of, read_metadata, written_whole


def test_a_file_or_folder_appears_at_the_end(tmp_path):
    with written_whole(tmp_path / "file", sync=True) as partial:
        partial.write_text("all")
        assert not (tmp_path / "file").exists()
    with written_whole(tmp_path / "folder") as partial:
        partial.mkdir()
        (partial / "inside").write_text("all")
        assert not (tmp_path / "folder").exists()
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    assert (tmp_path / "folder" / "inside").read_text() == "all"


def test_after_an_error_nothing_is_left(tmp_path):
    def fail(path, folder=False):
        with written_whole(path) as partial:
            if folder:
                partial.mkdir()
            (partial / "inside" if folder else partial).write_text("half")
            raise OSError("full")

    (tmp_path / "old").write_text("kept")
    with pytest.raises(OSError, match="full"):
        fail(tmp_path / "old")
    with pytest.raises(OSError, match="full"):
        fail(tmp_path / "new", folder=True)
    assert os.listdir(tmp_path) == ["old"]
    assert (tmp_path / "old").read_text() == "kept"


def test_a_private_file_gets_the_usual_permissions(tmp_path):
    with written_whole(tmp_path / "file") as partial:
        partial.touch(mode=0o600)
    (tmp_path / "other").touch()
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_headers(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"x": np.zeros(3)}, path, metadata={"format": "mine/1"})
    assert read_metadata(path) == {"format": "mine/1"}
    assert format_of(path) == "mine/1"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"a\.safetensors: not a safetensors file, or truncated"):
        read_metadata(path)
    assert format_of(path) == ""
    assert format_of(__file__) == ""
