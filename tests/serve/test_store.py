"""Folders that were damaged, lost in part, or copied: what is there is used, nothing is written over."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

import taer
from taer.serve.service import Service
from tests.serve.conftest import vectors


def teach(client, *labels):
    for label in labels:
        assert (
            client.post("/examples", json={"label": f"class {label}", "vectors": vectors(label)}).status_code == 200
        )
    answer = client.post("/learn")
    assert answer.status_code == 200, answer.text
    return answer.json()["version"]


def answers(client):
    rows = [row for label in range(4) for row in vectors(label, 3, seed=7)]
    return client.post("/predict", json={"vectors": rows}).json()


def version_file(folder, version):
    return folder / "versions" / f"{version:06d}.safetensors"


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learned") / "service"
    service = Service(folder)
    for labels in ((0, 1), (2,), (3,)):
        for label in labels:
            service.add_examples(f"class {label}", np.array(vectors(label), np.float32))
        service.learn()
    service.close()
    return folder


@pytest.fixture
def folder(learned, tmp_path):
    """The folder of a service that learned three tasks."""
    return shutil.copytree(learned, tmp_path / "service")


def damage(file):
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("harm", [damage, lambda file: file.unlink()], ids=["damaged", "missing"])
def test_going_to_a_version_that_cannot_be_loaded_changes_nothing(folder, open_service, harm):
    harm(version_file(folder, 1))
    client = open_service()
    before = answers(client)
    refused = client.post("/rollback/1")
    assert refused.status_code == 409
    assert "version 1 is missing or damaged; nothing was changed" in refused.json()["detail"]
    assert answers(client) == before
    client.stop()
    again = open_service()
    assert again.get("/health").json()["version"] == 3
    assert answers(again) == before


@pytest.mark.parametrize("harm", [damage, lambda file: file.unlink()], ids=["damaged", "missing"])
def test_it_starts_on_the_newest_version_that_loads_and_says_so(folder, open_service, harm):
    harm(version_file(folder, 3))
    client = open_service()
    assert client.get("/health").json()["version"] == 2
    (notice,) = client.service.notices
    assert "version 3 cannot be loaded" in notice
    assert "version 2 answers" in notice
    assert teach(client, 4) == 4
    assert client.get("/history").json()["versions"][-1]["parent"] == 2


def test_a_folder_without_a_version_that_loads_is_refused_in_words(folder):
    for version in (1, 2, 3):
        version_file(folder, version).write_bytes(b"gone")
    with pytest.raises(ValueError, match=r"none of the versions can be loaded.* taer backup"):
        Service(folder)


def test_a_task_on_a_version_that_was_lost_meanwhile_is_refused(folder, open_service):
    client = open_service()
    version_file(folder, 3).unlink()
    client.post("/examples", json={"label": "class 4", "vectors": vectors(4)})
    answer = client.post("/learn")
    assert answer.status_code == 409
    assert "go to another version" in answer.json()["detail"]
    client.post("/rollback/2")
    assert client.post("/learn").json()["version"] == 4


def lose_all(folder):
    for file in folder.glob("taer.db*"):
        file.unlink()


def lose_contents(folder):
    """As in a copy of ``taer.db`` alone, made while everything was still in the write-ahead log."""
    with sqlite3.connect(folder / "taer.db") as database:
        for table in ("examples", "versions"):
            database.execute(f"DELETE FROM {table}")
        database.execute("UPDATE current SET version = 0")
    database.close()


@pytest.mark.parametrize("lose", [lose_all, lose_contents])
def test_a_lost_database_is_rebuilt_from_the_versions_which_stay_as_they_are(folder, open_service, lose):
    client = open_service()
    client.post("/rollback/1")
    teach(client, 4)  # version 4, on another branch
    before, history = answers(client), client.get("/history").json()["versions"]
    client.stop()
    files = {file.name: file.read_bytes() for file in (folder / "versions").iterdir()}
    lose(folder)
    again = open_service(first=taer.load(version_file(folder, 1)))  # not taken: the folder is not new
    assert any("rebuilt from 4 files" in notice for notice in again.service.notices)
    assert answers(again) == before
    rebuilt = again.get("/history").json()
    assert rebuilt["current"] == 4
    for key in ("version", "parent", "method", "classes", "new_classes"):
        assert [entry[key] for entry in rebuilt["versions"]] == [entry[key] for entry in history]
    assert again.get("/confusion").status_code == 200
    assert again.get("/classes").status_code == 200
    assert teach(again, 2) == 5
    assert {
        file.name: file.read_bytes() for file in (folder / "versions").iterdir() if file.stem < "000005"
    } == files


def test_a_file_that_no_row_knows_is_never_written_over(folder, open_service):
    stray = version_file(folder, 4)
    shutil.copy(version_file(folder, 1), stray)
    content = stray.read_bytes()
    client = open_service()
    assert any("left alone: 4" in notice for notice in client.service.notices)
    assert client.get("/health").json()["version"] == 3
    assert teach(client, 4) == 5
    assert stray.read_bytes() == content


def test_a_lost_database_beside_damaged_versions_is_refused_in_words(folder):
    lose_all(folder)
    for version in (1, 2, 3):
        version_file(folder, version).write_bytes(b"gone")
    with pytest.raises(ValueError, match=r"taer.db is missing, and no file in versions/ can be loaded"):
        Service(folder)
    assert version_file(folder, 1).read_bytes() == b"gone"


def test_the_database_alone_has_what_was_learned_while_the_service_runs(client, tmp_path):
    teach(client, 0, 1)
    shutil.copy(tmp_path / "service" / "taer.db", tmp_path / "copy.db")  # without the write-ahead log
    database = sqlite3.connect(tmp_path / "copy.db")
    assert database.execute("SELECT version FROM versions").fetchall() == [(1,)]
    assert database.execute("SELECT count(*) FROM examples WHERE version = 1").fetchone() == (16,)
    database.close()


def test_a_damaged_database_is_one_sentence_or_harmless(folder):
    file, chance, refused = folder / "taer.db", random.Random(0), 0
    whole = file.read_bytes()
    for number in range(60):
        content = bytearray(whole)
        if number % 3 == 0:
            content = content[: chance.randrange(1, len(content))]
        else:
            for _ in range(chance.choice((1, 50))):
                start = chance.randrange(100, len(content) - 64)
                content[start : start + 64] = chance.randbytes(64)
        for left in folder.glob("taer.db-*"):
            left.unlink()
        file.write_bytes(content)
        try:
            Service(folder).close()
        except ValueError:
            refused += 1
    assert refused > 20


def test_the_command_says_in_one_line_that_a_database_is_damaged(folder):
    content = bytearray((folder / "taer.db").read_bytes())
    content[4096:8192] = bytes(4096)
    (folder / "taer.db").write_bytes(content)
    command = [sys.executable, "-m", "taer", "serve", str(folder), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "taer backup" in done.stderr


def test_another_program_s_database_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "taer.db") as database:
        database.execute("CREATE TABLE songs (title TEXT)")
        database.execute("PRAGMA user_version = 4")
    database.close()
    with pytest.raises(ValueError, match="not a database of this service"):
        Service(tmp_path)
