"""What was answered, the database and the memory agree, whatever happens between and after a commit."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest

from tests.conftest import wait_until
from tests.serve.conftest import vectors
from tests.serve.test_app import add, taught
from tests.serve.test_edits import listed


def fails(*_, **__):
    raise OSError(5, "Input/output error")


@contextmanager
def locked(client, folder):
    """Inside, the service finds its database locked by another program, and does not wait."""
    client.service.store.rows("PRAGMA busy_timeout = 0")
    with closing(sqlite3.connect(folder / "taer.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def test_storage_that_fails_before_the_commit_is_a_503_with_its_cause(client, tmp_path):
    taught(client, 0, 1)
    with locked(client, tmp_path / "service"):
        refused = [
            client.post("/examples", json={"label": "a", "vectors": vectors(2)}),
            client.post("/rollback/0"),
            client.post("/purge", json={"ids": [1]}),
        ]
    for answer in refused:
        assert answer.status_code == 503
        assert answer.json()["detail"].startswith("another program keeps the database locked")
        assert answer.json()["detail"].endswith("nothing was changed")
    assert client.get("/health").json()["version"] == 1
    assert len(listed(client)) == 16
    assert add(client, "a", vectors(2, 1))["waiting"] == 1


def test_a_version_that_cannot_be_read_after_its_commit_is_read_when_it_can_be(client, monkeypatch):
    taught(client, 0, 1)
    add(client, "class 2", vectors(2))
    with monkeypatch.context() as patch:
        patch.setattr("taer.serve.store.load", fails)
        learned = client.post("/learn")
        asked = client.post("/predict", json={"vectors": vectors(0, 1)})
    assert (learned.status_code, learned.json()["version"]) == (200, 2)
    assert asked.status_code == 503
    assert "the disk failed to read or write (Input/output error)" in asked.json()["detail"]
    assert client.post("/predict", json={"vectors": vectors(0, 1)}).json()["version"] == 2


def test_a_task_whose_answer_was_lost_after_its_commit_is_done(client, monkeypatch):
    add(client, "class 0", vectors(0))
    with monkeypatch.context() as patch:
        garbled = SimpleNamespace(dumps=json.dumps, loads=lambda line: json.loads(line[1:]))
        patch.setattr("taer.serve.learner.json", garbled)
        answer = client.post("/learn")
    assert (answer.status_code, answer.json()["version"]) == (200, 1)
    assert client.get("/health").json()["version"] == 1
    taught(client, 1)


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_a_correction_that_lost_the_race_with_a_task_corrects_what_was_learned(client, monkeypatch, method):
    taught(client, 0, 1)
    (number, *_) = add(client, "class 0", vectors(1, 4))["ids"]
    take_turn = client.service.learner.exclusively

    def after_a_task():
        monkeypatch.undo()
        client.service.learn()
        return take_turn()

    monkeypatch.setattr(client.service.learner, "exclusively", after_a_task)
    body = {"label": "class 1"} if method == "PATCH" else None
    assert client.request(method, f"/examples/{number}", json=body).json() == {"version": 3}
    labels = {example["id"]: example["label"] for example in listed(client)}
    assert labels.get(number) == (body or {}).get("label")


def test_a_purge_does_not_come_between_a_task_and_the_look_at_its_version(client, monkeypatch):
    taught(client, 0, 1)
    (number, *_) = add(client, "class 2", vectors(2))["ids"]
    do, purged = client.service.learner.do, []

    def then_purge(*task, **options):
        done = do(*task, **options)
        purged.append(client.post("/purge", json={"ids": [number]}))
        return done

    monkeypatch.setattr(client.service.learner, "do", then_purge)
    learned = client.post("/learn")
    assert (learned.status_code, learned.json().get("version")) == (200, 2)
    assert purged[0].status_code == 409
    assert client.post("/purge", json={"ids": [number]}).json()["versions"] == [2]


def test_examples_are_acknowledged_even_if_no_process_can_be_started(open_service, monkeypatch):
    client = open_service(learner=None)  # a process of its own
    monkeypatch.setattr("subprocess.Popen", fails)
    assert add(client, "class 0", vectors(0))["waiting"] == 8
    answer = client.post("/learn")
    assert (answer.status_code, answer.json()["detail"][-19:]) == (503, "nothing was changed")


def test_saving_goes_on_after_a_failure(open_service, monkeypatch, caplog):
    monkeypatch.setattr("taer.serve.app._SAVE_SECONDS", 0.01)
    client, tries = open_service(), []

    def fails():
        tries.append(1)
        raise RuntimeError("nobody expected this")

    with monkeypatch.context() as broken:
        broken.setattr(client.service, "save", fails)
        wait_until(lambda: len(tries) >= 3)
    assert "nobody expected this" in caplog.text


def test_counts_of_answers_that_cannot_be_saved_are_kept_and_saved_later(
    open_service, monkeypatch, tmp_path, caplog
):
    monkeypatch.setattr("taer.serve.app._SAVE_SECONDS", 0.01)
    client = open_service()
    taught(client, 0, 1)
    with locked(client, tmp_path / "service"):
        client.post("/predict", json={"vectors": vectors(0, 3)})
        wait_until(lambda: "were not saved" in caplog.text)
        assert client.get("/drift").json()["answered"] == 3
    client.post("/predict", json={"vectors": vectors(0, 2)})
    with closing(sqlite3.connect(tmp_path / "service" / "taer.db")) as database:
        wait_until(lambda: database.execute("SELECT sum(answered) FROM answers").fetchone() == (5,))
    assert client.get("/drift").json()["answered"] == 5
