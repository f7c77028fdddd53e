"""Inputs that were unknown or uncertain are kept, if the service is told to."""

from __future__ import annotations

import numpy as np
import pytest

from taer.serve import inbox
from taer.serve.backup import back_up
from taer.serve.inbox import Bounds
from tests.serve.backbones import Letters
from tests.serve.conftest import vectors

TEXTS = {"first": ["a", "aa", "aaa", "aab"], "second": ["b", "bb", "bbb", "bba"]}


def taught(client):
    for label, texts in TEXTS.items():
        client.post("/examples", json={"label": label, "texts": texts})
    client.post("/learn")
    return client


@pytest.fixture
def client(open_service):
    return taught(open_service(backbone=Letters(), inbox=Bounds(5)))


def ask(client, *texts, **more):
    return client.post("/predict", json={"texts": list(texts), **more}).json()["predictions"]


def kept(client):
    return [one["text"] for one in client.get("/inbox").json()["inputs"]]


STRANGE = "ffffffffffffffff"


def test_what_is_known_is_not_kept_and_what_is_not_is(client):
    assert [one["unknown"] for one in ask(client, "aa", STRANGE)] == [False, True]
    ask(client, "eeeeeeeeeeeeee", preview=True)
    (found,) = client.get("/inbox").json()["inputs"]
    assert (found["text"], found["kind"], found["unknown"]) == (STRANGE, "text", True)
    whole = client.get(f"/inbox/{found['id']}").json()
    assert whole["vector"] == Letters()([STRANGE])[0].tolist()
    assert client.get("/inbox", headers={"Authorization": "Bearer wrong"}).status_code == 401


def test_an_input_becomes_an_example_or_is_dismissed(client):
    ask(client, STRANGE, "e" * 20)
    ids = {one["text"]: one["id"] for one in client.get("/inbox").json()["inputs"]}
    added = client.post(f"/inbox/{ids[STRANGE]}", json={"label": "third"}).json()
    assert added["waiting"] == 1
    example = client.get(f"/examples/{added['ids'][0]}").json()
    assert (example["label"], example["text"], example["version"]) == ("third", STRANGE, None)
    assert client.post(f"/inbox/{ids[STRANGE]}", json={"label": "third"}).status_code == 404
    assert client.delete(f"/inbox/{ids['e' * 20]}").json() == {"discarded": 1}
    assert client.delete(f"/inbox/{ids['e' * 20]}").status_code == 404
    assert kept(client) == []
    assert client.post("/learn").json()["new_classes"] == ["third"]


def test_several_inputs_are_dismissed_or_none(client, tmp_path):
    ask(client, STRANGE, "e" * 20, "d" * 20)
    ids = {one["text"]: one["id"] for one in client.get("/inbox").json()["inputs"]}
    noise = [ids[STRANGE], ids["e" * 20]]
    refused = client.post("/inbox/dismiss", json={"ids": [*noise, 99, 98]})
    told = "there are no inputs 98, 99 in the inbox; nothing was deleted"
    assert (refused.status_code, refused.json()["detail"]) == (404, told)
    refused = client.post("/inbox/dismiss", json={"ids": [*noise, 99]})
    assert refused.json()["detail"] == "there is no input 99 in the inbox; nothing was deleted"
    for wrong in ({}, {"ids": []}, {"ids": [0]}, {"ids": ["a"]}, {"ids": noise, "label": "new"}):
        assert client.post("/inbox/dismiss", json=wrong).status_code == 422
    nobody = client.post("/inbox/dismiss", json={"ids": noise}, headers={"Authorization": "Bearer wrong"})
    assert nobody.status_code == 401
    assert len(kept(client)) == 3
    assert client.post("/inbox/dismiss", json={"ids": [*noise, *noise]}).json() == {"discarded": 2}  # each once
    assert kept(client) == ["d" * 20]
    assert all(STRANGE.encode() not in file.read_bytes() for file in (tmp_path / "service").glob("taer.db*"))


def test_it_is_bounded_in_number_and_age_and_has_each_input_once(client, monkeypatch):
    many = ["c" * n for n in range(20, 28)]
    ask(client, *many, *many)
    found = client.get("/inbox").json()
    assert (found["kept"], found["rows"], found["days"]) == (5, 5, 30)
    assert set(kept(client)) == set(many[-5:])  # the oldest made room
    now = inbox.time.time()
    monkeypatch.setattr(inbox.time, "time", lambda: now + 31 * 24 * 3600)
    assert kept(client) == []


def test_it_is_off_by_default_and_turning_it_off_deletes_it(client, open_service, tmp_path):
    ask(client, STRANGE)
    assert client.get("/classes").json()["inbox"] is True
    client.stop()
    again = open_service(backbone=Letters(), inbox=Bounds(5))
    assert kept(again) == [STRANGE]  # written when the service stopped
    back_up(tmp_path / "service", tmp_path / "backup.tar")
    assert STRANGE.encode() in (tmp_path / "backup.tar").read_bytes()
    again.stop()
    off = open_service(backbone=Letters())
    assert "1 inputs were deleted" in " ".join(off.service.notices)
    assert off.get("/classes").json()["inbox"] is False
    assert off.get("/inbox").status_code == 404
    ask(off, STRANGE)
    off.stop()
    assert all(STRANGE.encode() not in file.read_bytes() for file in (tmp_path / "service").glob("taer.db*"))


def test_a_purge_takes_the_same_input_with_it(client, tmp_path):
    added = client.post("/examples", json={"label": "third", "texts": [STRANGE]}).json()["ids"]
    ask(client, STRANGE)
    assert kept(client) == [STRANGE]
    client.post("/purge", json={"ids": added})
    assert kept(client) == []
    assert all(STRANGE.encode() not in file.read_bytes() for file in (tmp_path / "service").glob("taer.db*"))


def test_answers_do_not_wait_for_the_disk(open_service, monkeypatch):
    client = open_service(inbox=Bounds(50))
    for label in (0, 1):
        client.post("/examples", json={"label": f"class {label}", "vectors": vectors(label)})
    client.post("/learn")
    monkeypatch.setattr(client.service.store, "transaction", lambda: pytest.fail("an answer wrote to the disk"))
    found = client.post("/predict", json={"vectors": (100 * np.ones((2, len(vectors(0)[0])))).tolist()}).json()
    assert all(one["unknown"] for one in found["predictions"])
    monkeypatch.undo()
    assert client.get("/inbox").json()["kept"] == 1  # both are the same
