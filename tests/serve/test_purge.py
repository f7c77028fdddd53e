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
    assert answer == {"examples": [secret], "versions": [2, 3], "current": 1, "waiting": 11, "notices": []}
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
        "examples": [1], "versions": [1, 2], "current": 0, "waiting": 23, "notices": [],
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


def test_examples_wait_again_as_they_were_corrected(client):
    taught(client, 0, 1)
    client.patch("/examples/2", json={"label": "class 1"})
    client.delete("/examples/3")
    purged = client.post("/purge", json={"ids": [1]}).json()
    assert (purged["versions"], purged["waiting"]) == ([1, 2, 3], 14)
    assert purged["examples"] == [1, 3]  # the one that was deleted before has no version left to go back to
    waiting = {example["id"]: example["label"] for example in listed(client)}
    assert waiting[2] == "class 1"
    assert 3 not in waiting


def test_examples_of_a_version_that_was_undone_wait_again_and_are_named(client):
    taught(client, 0)
    (asked, *others) = add(client, "class 1", vectors(1))["ids"]
    client.post("/learn")
    client.patch(f"/examples/{others[0]}", json={"label": "class 2"})
    client.delete(f"/examples/{others[1]}")
    client.post("/rollback/1")
    purged = client.post("/purge", json={"ids": [asked]}).json()
    assert (purged["examples"], purged["versions"], purged["current"]) == ([asked, others[1]], [2, 3, 4], 1)
    waiting = {example["id"]: example["label"] for example in listed(client) if example["version"] is None}
    assert waiting == dict.fromkeys(others[2:], "class 1") | {others[0]: "class 2"}
    (notice,) = purged["notices"]
    assert notice.startswith("6 examples that only the deleted versions had wait again: ")
    assert client.post("/learn").json()["new_classes"] == ["class 1", "class 2"]


def test_a_purge_that_would_lose_examples_of_another_width_is_refused_with_their_numbers(client):
    (asked, *others) = add(client, "long", vectors(0, 4))["ids"]
    client.post("/learn")
    client.post("/rollback/0")
    add(client, "short", [row[:3] for row in vectors(1)])
    client.post("/learn")
    refused = client.post("/purge", json={"ids": [asked]})
    assert refused.status_code == 409
    assert "3 examples would be lost" in refused.json()["detail"]
    assert ", ".join(map(str, others)) in refused.json()["detail"]
    purged = client.post("/purge", json={"ids": [asked, *others]}).json()
    assert (purged["versions"], purged["current"]) == ([1], 2)


def test_a_purge_that_would_leave_examples_of_two_widths_is_refused(client):
    taught(client, 0, 1)
    client.post("/rollback/0")
    short = add(client, "short", [row[:3] for row in vectors(1, 2)])["ids"]
    client.service.store.go_to(1)  # as an earlier release did
    refused = client.post("/purge", json={"ids": [1]})
    assert refused.status_code == 409
    assert "15 examples would be lost" in refused.json()["detail"]
    assert refused.json()["detail"].endswith("or discard what waits; nothing was deleted")
    assert len(listed(client)) == 18
    assert client.post("/purge", json={"ids": [1, *short]}).json()["waiting"] == 15
    assert client.post("/learn").status_code == 200


def test_what_is_left_may_have_another_width_than_the_current_version_if_that_goes(client):
    long = add(client, "long", vectors(0, 4))["ids"]
    client.post("/learn")
    client.post("/rollback/0")
    (asked, *others) = add(client, "short", [row[:3] for row in vectors(1)])["ids"]
    client.post("/learn")
    client.post("/rollback/1")
    purged = client.post("/purge", json={"ids": [*long, asked]}).json()
    assert (purged["versions"], purged["current"], purged["waiting"]) == ([1, 2], 0, len(others))
    assert client.post("/learn").json()["new_classes"] == ["short"]


def test_examples_that_no_version_learned_from_cost_no_version(client):
    taught(client, 0, 1)
    (waits,) = add(client, "class 2", vectors(2, 1))["ids"]
    assert client.post("/purge", json={"ids": [waits, 4]}).json() == {
        "examples": [4, waits], "versions": [], "current": 1, "waiting": 0, "notices": [],
    }  # fmt: skip
    assert counts(client)["class 0"] == (6, 1)


@pytest.mark.parametrize("ids", [[99], [1, 99], []])
def test_what_is_not_there_is_not_purged_and_nothing_else_is(client, ids):
    taught(client, 0, 1)
    answer = client.post("/purge", json={"ids": ids})
    assert answer.status_code == (404 if ids else 422)
    assert len(listed(client)) == 16


def test_a_file_that_cannot_be_deleted_is_told_and_deleted_at_the_next_start(client, monkeypatch, tmp_path):
    taught(client, 0, 1)
    taught(client, 2)
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.unlink", fails)
        purged = client.post("/purge", json={"ids": [17]})
    assert purged.status_code == 200
    assert "000002.safetensors could not be deleted" in purged.json()["notices"][0]
    assert client.get("/health").json()["version"] == 1
    assert set(labels_of(client, vectors(2, 3))) <= {"class 0", "class 1"}  # the purged version does not answer
    client.stop()
    assert (tmp_path / "service/versions/000002.safetensors").exists()
    service = Service(tmp_path / "service")
    assert not (tmp_path / "service/versions/000002.safetensors").exists()
    assert service.serving.version == 1
    assert service.notices == []
    service.close()


def fails(*_, **__):
    raise PermissionError(13, "Permission denied")
