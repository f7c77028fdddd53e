"""The inbox by group, and what to name next."""

from __future__ import annotations

import numpy as np
import pytest

import taer
from taer.serve.inbox import Bounds
from taer.serve.store import Store
from tests.conftest import blobs
from tests.loop.test_discover import KNOWN, WIDTH, centers, samples
from tests.serve.test_tokens import bearer, made


def rows(label, count, seed=5):
    return np.float32(samples([label], count, seed)[0]).tolist()


def ask(client, vectors):
    return client.post("/predict", json={"vectors": vectors}).raise_for_status()


@pytest.fixture(scope="module")
def head():
    X, y = samples(range(KNOWN), 20)
    return taer.Bayes().fit(X, np.char.add("class ", y.astype(str)))


@pytest.fixture
def client(open_service, head):
    return open_service(first=head, inbox=Bounds(500))


def test_inputs_of_two_new_kinds_are_two_groups_which_are_named_and_learned(client):
    first, second = rows(KNOWN, 12), rows(KNOWN + 1, 8)
    ask(client, [*first, *second, *rows(0, 8)])
    found = client.get("/inbox/groups").json()
    assert [len(group["ids"]) for group in found["groups"]] == [12, 8]
    assert (found["version"], found["compared"]) == (1, client.get("/inbox").json()["kept"])
    assert found["known"] <= found["compared"] - 20
    of_first = [client.get(f"/inbox/{number}").json()["vector"] for number in found["groups"][0]["ids"]]
    assert sorted(of_first) == sorted(first)
    for group in found["groups"]:
        assert 0.9 < group["sure"] <= 1
        assert len(group["typical"]) == 3
        assert {one["id"] for one in group["typical"]} <= set(group["ids"])
        assert group["words"] == []
    added = client.post("/inbox", json={"ids": found["groups"][0]["ids"], "label": "new"}).json()
    assert added["waiting"] == 12
    assert client.get("/inbox").json()["kept"] == found["compared"] - 12
    assert len(client.get("/inbox/groups").json()["groups"]) == 1
    assert client.post("/learn").json()["new_classes"] == ["new"]
    assert {one["label"] for one in ask(client, rows(KNOWN, 5, seed=6)).json()["predictions"]} == {"new"}


class Topics:
    """A text backbone for texts such as ``12 lost card``: a sample of the class with that number."""

    name, kind, origin = "topics", "text", None

    def __call__(self, items):
        return np.stack([self._one(text) for text in items]).astype(np.float32)

    def _one(self, text):
        label, _, rest = text.partition(" ")
        return centers()[int(label)] + np.random.default_rng(list(rest.encode())).normal(size=WIDTH)


def test_groups_of_texts_have_the_words_that_set_them_apart(open_service, head):
    client = open_service(first=head, backbone=Topics(), inbox=Bounds(50))
    said = {KNOWN: "lost card", KNOWN + 1: "exchange rate"}
    texts = [f"{label} my {words} {letter}" for label, words in said.items() for letter in "abcdef"]
    client.post("/predict", json={"texts": texts[1:]}).raise_for_status()
    groups = client.get("/inbox/groups").json()["groups"]
    assert [set(group["words"][:2]) for group in groups] == [{"exchange", "rate"}, {"lost", "card"}]
    assert all("exchange rate" in one["text"] for one in groups[0]["typical"])


def test_what_to_name_next_is_typical_and_different(client):
    ask(client, [*rows(KNOWN, 12), *rows(KNOWN + 1, 12)])
    ids, others = (set(group["ids"]) for group in client.get("/inbox/groups").json()["groups"])
    found = client.get("/inbox/next?count=2").json()
    assert found["version"] == 1
    assert [len({one["id"] for one in found["inputs"]} & part) for part in (ids, others)] == [1, 1]
    assert len(client.get("/inbox/next?count=1000").json()["inputs"]) == 24
    assert client.get("/inbox/next?count=0").status_code == 422


def test_groups_are_found_again_only_when_something_changed(client, monkeypatch):
    ask(client, rows(KNOWN, 12))
    calls = []
    monkeypatch.setattr(
        taer.Bayes, "discover", lambda known, X, real=taer.Bayes.discover: calls.append(len(X)) or real(known, X)
    )
    first = client.get("/inbox/groups").json()
    assert client.get("/inbox/groups").json() == first
    assert calls == [12]
    ask(client, rows(KNOWN + 5, 1))
    client.get("/inbox/groups")
    client.patch("/classes/class 0", json={"label": "zero"}).raise_for_status()
    assert client.get("/inbox/groups").json()["version"] == 2
    assert calls == [12, 13, 13]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_few_inputs_are_no_group(client, count):
    if count:
        ask(client, rows(KNOWN, count))
    assert client.get("/inbox/groups").json()["groups"] == []
    assert len(client.get("/inbox/next").json()["inputs"]) == count


def test_all_inputs_are_named_or_none(client, monkeypatch):
    ask(client, rows(KNOWN, 5))
    ids = [one["id"] for one in client.get("/inbox").json()["inputs"]]
    refused = client.post("/inbox", json={"ids": [*ids, 99], "label": "new"})
    assert (refused.status_code, refused.json()["detail"]) == (404, "there is no input 99 in the inbox")
    assert client.post("/inbox", json={"ids": [], "label": "new"}).status_code == 422
    assert client.post("/inbox", json={"ids": ids, "label": " "}).status_code == 422
    monkeypatch.setattr("taer.serve.service.MAX_PENDING", 4)
    assert client.post("/inbox", json={"ids": ids, "label": "new"}).status_code == 409
    assert (client.get("/inbox").json()["kept"], client.service.n_pending) == (5, 0)
    monkeypatch.undo()
    assert client.post("/inbox", json={"ids": [*ids, *ids], "label": "new"}).json()["waiting"] == 5  # each once


def test_a_storage_failure_leaves_the_inputs_where_they_are(client, monkeypatch):
    ask(client, rows(KNOWN, 5))
    ids = [one["id"] for one in client.get("/inbox").json()["inputs"]]
    real = Store.rows

    def failing(store, query, *values):
        if "length(x)" in query:
            raise OSError(5, "Input/output error")
        return real(store, query, *values)

    monkeypatch.setattr(Store, "rows", failing)
    assert client.get("/inbox/groups").status_code >= 500
    assert client.post("/inbox", json={"ids": ids, "label": "new"}).status_code >= 500
    monkeypatch.undo()
    assert len(client.get("/inbox/groups").json()["groups"]) == 1


def test_inputs_of_another_width_are_left_out(client):
    ask(client, rows(KNOWN, 5))
    ids = [one["id"] for one in client.get("/inbox").json()["inputs"]]
    client.post("/rollback/0")
    refused = client.get("/inbox/groups")
    assert (refused.status_code, "nothing was learned yet" in refused.json()["detail"]) == (409, True)
    for label in "ab":
        client.post("/examples", json={"label": label, "vectors": [[ord(label), n] for n in range(4)]})
    client.post("/learn").raise_for_status()
    assert client.get("/inbox/groups").json()["compared"] == 0
    assert client.get("/inbox/next").json()["inputs"] == []
    refused = client.post("/inbox", json={"ids": ids, "label": "new"})
    assert (refused.status_code, "and 2 were expected" in refused.json()["detail"]) == (409, True)


def test_inputs_of_two_widths_do_not_wait_together(client):
    ask(client, rows(KNOWN, 5))
    client.post("/rollback/0")
    for label in "ab":
        client.post("/examples", json={"label": label, "vectors": [[ord(label), n] for n in range(4)]})
    client.post("/learn").raise_for_status()
    ask(client, [[-1e9, 1e9]])
    client.post("/rollback/0")  # where any width is taken
    inputs = client.get("/inbox").json()["inputs"]
    long, short = (
        [one["id"] for one in inputs if (len(client.get(f"/inbox/{one['id']}").json()["vector"]) == 2) == short]
        for short in (False, True)
    )
    assert long
    assert short
    refused = client.post("/inbox", json={"ids": [*long, *short], "label": "new"})
    assert (refused.status_code, "has 2 features, and" in refused.json()["detail"]) == (409, True)
    assert len(client.get("/inbox").json()["inputs"]) == len(inputs)
    assert client.post("/inbox", json={"ids": long, "label": "new"}).status_code == 200


def test_without_an_inbox_or_with_another_head_it_says_so(open_service):
    client = open_service()
    for path in ("/inbox/groups", "/inbox/next"):
        assert client.get(path).status_code == 404
    assert client.post("/inbox", json={"ids": [1], "label": "new"}).status_code == 404
    assert client.post("/inbox/dismiss", json={"ids": [1]}).status_code == 404
    client.stop()
    X, y = blobs(3, 20)
    client = open_service(first=taer.NCM().partial_fit(X, y), inbox=Bounds(9))
    for path, verb in (("/inbox/groups", "discover"), ("/inbox/next", "suggest")):
        refused = client.get(path)
        assert (refused.status_code, f"the head ncm cannot {verb}" in refused.json()["detail"]) == (409, True)


def test_inputs_that_are_named_count_as_examples_of_the_token(client, tmp_path, capsys):
    ask(client, rows(KNOWN, 8))
    ids = [one["id"] for one in client.get("/inbox").json()["inputs"]]
    few = bearer(made(capsys, tmp_path / "service", "add", "few", "--role", "teach", "--examples", 5))
    assert client.post("/inbox", json={"ids": ids, "label": "new"}, headers=few).status_code == 413
    assert client.post("/inbox", json={"ids": ids[:5], "label": "new"}, headers=few).json()["waiting"] == 5
