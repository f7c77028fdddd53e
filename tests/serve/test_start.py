"""A folder that cannot be opened: why is told, and only a damaged database is called damaged."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from taer.serve.database import StorageFailed
from taer.serve.service import Service
from tests.serve.conftest import vectors

NOBODY = 65534


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start") / "service"
    service = Service(folder)
    for label in range(2):
        service.add_examples(f"class {label}", np.array(vectors(label), np.float32))
        service.learn()
    service.close()
    return folder


@pytest.fixture
def folder(two_versions, tmp_path):
    return shutil.copytree(two_versions, tmp_path / "service")


@pytest.fixture
def open_to_all(two_versions):
    """A folder that any user may read and write."""
    with tempfile.TemporaryDirectory() as place:
        folder = shutil.copytree(two_versions, Path(place) / "service")
        for path in (place, folder, folder / "versions"):
            os.chmod(path, 0o777)
        for file in folder.rglob("*.*"):
            file.chmod(0o666)
        yield folder
        os.chmod(folder, 0o777)


@contextmanager
def without_privileges():
    """The superuser may do everything, so it becomes somebody else for a while."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize(
    ("name", "mode"),
    [("", 0o555), ("taer.db", 0o444), ("taer.db", 0), ("serve.lock", 0o444), ("versions/000002.safetensors", 0)],
)
def test_a_missing_permission_is_told_and_nothing_is_changed(open_to_all, name, mode):
    (open_to_all / "taer.db-wal").unlink(missing_ok=True)
    if not name:
        (open_to_all / "serve.lock").unlink()
    (open_to_all / name).chmod(mode)
    with without_privileges(), pytest.raises(StorageFailed, match="a permission is missing") as told:
        Service(open_to_all)
    assert "does not mean that taer.db is damaged" in str(told.value)
    (open_to_all / name).chmod(0o777)
    service = Service(open_to_all)
    assert service.serving.version == 2  # it did not go to one that could be read
    service.close()


def test_what_others_keep_in_versions_is_left_alone(folder, open_service):
    versions = folder / "versions"
    strange = [versions / name for name in (".snapshot", ".tmpFolder.partial", ".tmpabcdef")]
    for path in strange:
        path.mkdir()
    for name in ("².safetensors", f"{10**30}.safetensors", ".DS_Store", ".nfs0001"):
        strange.append(versions / name)
        strange[-1].write_bytes(b"")
    for name in (".000003.safetensors.17.partial", ".tmpAb12Cd"):
        (versions / name).write_bytes(b"half")
    client = open_service()
    assert client.service.notices == []
    assert all(path.exists() for path in strange)
    assert not (versions / ".tmpAb12Cd").exists()
    assert not list(versions.glob("*.17.partial"))
    client.post("/examples", json={"label": "class 2", "vectors": vectors(2)})
    assert client.post("/learn").json()["version"] == 3


def test_the_entries_of_a_new_folder_are_synced(tmp_path, monkeypatch):
    synced, sync = set(), os.fsync

    def noted(file):
        synced.add(os.readlink(f"/proc/self/fd/{file}"))
        sync(file)

    monkeypatch.setattr(os, "fsync", noted)
    Service(tmp_path / "new" / "service").close()
    assert {str(tmp_path), str(tmp_path / "new"), str(tmp_path / "new" / "service")} <= synced


def test_a_start_with_nothing_to_do_writes_nothing_into_the_database(tmp_path):
    """So that a full disk does not keep a service from answering."""
    Service(tmp_path).close()
    before = (tmp_path / "taer.db").read_bytes()
    again = Service(tmp_path)
    assert (tmp_path / "taer.db-wal").stat().st_size == 0
    again.close()
    assert (tmp_path / "taer.db").read_bytes() == before
