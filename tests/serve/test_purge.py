"""Examples that are deleted for good, and every version that was learned from them."""

from __future__ import annotations

import numpy as np
import pytest

from taer.serve.service import Service
from tests.serve.conftest import vectors
from tests.serve.test_app import add, labels_of, taught
from tests.serve.test_edits import counts, listed


def on_disk(folder):
    """Everything that is in the folder, byte by byte."""
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


def test_nothing_of_a_purged_example_is_left(client, tmp_path):
    taught(client, 0, 1)
    (secret, *_) = add(client, "class 2", vectors(2, 4))["ids"]
    client.post("/learn")
    taught(client, 3)
    client.post("/rollback/3")
    trace = np.array(vectors(2, 4)[0], np.float32).tobytes()
    assert trace in on_disk(tmp_path)
    answer = client.post("/purge", json={"ids": [secret]}).json()
    assert answer == {"examples": [secret], "versions": [2, 3], "current": 1, "waiting": 11}
    assert trace not in on_disk(tmp_path)
    assert [file.name for file in (tmp_path / "service" / "versions").iterdir()] == ["000001.safetensors"]
    assert [entry["version"] for entry in client.get("/history").json()["versions"]] == [1]
    assert client.get(f"/examples/{secret}").status_code == 404
    assert labels_of(client, vectors(0, 1)) == ["class 0"]
    learned = client.post("/learn").json()  # what the purged versions knew besides
    assert (learned["version"], learned["new_classes"]) == (4, ["class 2", "class 3"])
    assert client.post("/rollback/2").status_code == 404


def test_a_purge_of_what_the_first_task_learned_starts_over_from_the_rest(client):
    taught(client, 0, 1)
    taught(client, 2)
    assert client.post("/purge", json={"ids": [1]}).json() == {
        "examples": [1], "versions": [1, 2], "current": 0, "waiting": 23,
    }  # fmt: skip
    assert client.post("/predict", json={"vectors": vectors(0, 1)}).status_code == 409
    assert client.post("/learn").json()["version"] == 3
    assert sum(map(sum, counts(client).values())) == 23


def test_a_version_that_took_the_example_back_goes_as_well(client):
    taught(client, 0, 1)
    add(client, "class 2", vectors(2, 4))
    client.post("/learn")
    client.delete("/examples/17")
    assert client.post("/purge", json={"ids": [17]}).json()["versions"] == [2, 3]


def test_what_was_undone_does_not_come_back(client):
    taught(client, 0, 1)
    taught(client, 2)
    client.post("/rollback/1")
    client.patch("/examples/2", json={"label": "class 1"})
    client.delete("/examples/3")
    purged = client.post("/purge", json={"ids": [1]}).json()
    assert (purged["versions"], purged["waiting"]) == ([1, 2, 3, 4], 14)
    waiting = {example["id"]: example["label"] for example in listed(client)}
    assert waiting[2] == "class 1"
    assert set(waiting.values()) == {"class 0", "class 1"}
    assert 3 not in waiting


def test_examples_that_no_version_learned_from_cost_no_version(client):
    taught(client, 0, 1)
    (waits,) = add(client, "class 2", vectors(2, 1))["ids"]
    assert client.post("/purge", json={"ids": [waits, 4]}).json() == {
        "examples": [4, waits], "versions": [], "current": 1, "waiting": 0,
    }  # fmt: skip
    assert counts(client)["class 0"] == (6, 1)


@pytest.mark.parametrize("ids", [[99], [1, 99], []])
def test_what_is_not_there_is_not_purged_and_nothing_else_is(client, ids):
    taught(client, 0, 1)
    answer = client.post("/purge", json={"ids": ids})
    assert answer.status_code == (404 if ids else 422)
    assert len(listed(client)) == 16


def test_a_purge_that_was_killed_is_finished_at_the_next_start(client, monkeypatch, tmp_path):
    taught(client, 0, 1)
    taught(client, 2)
    monkeypatch.setattr("taer.serve.store.Store.tidy", lambda self: 1 / 0)
    assert client.post("/purge", json={"ids": [17]}).status_code == 500
    client.stop()
    monkeypatch.undo()
    assert (tmp_path / "service/versions/000002.safetensors").exists()
    service = Service(tmp_path / "service")
    assert not (tmp_path / "service/versions/000002.safetensors").exists()
    assert service.serving.version == 1
    assert service.notices == []
    service.close()
