"""Classes that a service learns from a description, without examples."""

from __future__ import annotations

import numpy as np
import pytest

from taer.serve.inbox import Bounds
from tests.serve.backbones import Letters
from tests.serve.conftest import vectors

KNOWN = {
    "first": ["a", "aa", "aaa", "aab"],
    "second": ["b", "bb", "bbb", "bba"],
    "third": ["c", "cc", "ccc", "cca"],
}


def taught(client):
    for label, texts in KNOWN.items():
        client.post("/examples", json={"label": label, "texts": texts})
    client.post("/learn")
    return client


@pytest.fixture
def client(open_service):
    return taught(open_service(backbone=Letters()))


def best(client, text):
    return client.post("/predict", json={"texts": [text]}).json()["predictions"][0]["label"]


def describe(client, **descriptions):
    return client.post("/classes", json={"labels": list(descriptions), "texts": list(descriptions.values())})


def test_a_described_class_is_predicted_and_examples_move_it(client):
    before = client.service.serving.head.scores(Letters()(["aab", "ddd"]))
    made = describe(client, first="aa", second="bb", fourth="ddd").json()
    assert (made["version"], made["new_classes"], made["edit"]) == (
        2,
        ["fourth"],
        "described: first, second, fourth",
    )
    head = client.service.serving.head
    assert (head.scores(Letters()(["aab", "ddd"]), ["first", "second", "third"]) == before).all()
    assert hasattr(head, "description_examples_")  # measured on the two known classes
    assert best(client, "dddd") == "fourth"
    (entry,) = [one for one in client.get("/classes").json()["classes"] if one["label"] == "fourth"]
    assert (entry["task"], entry["examples"], entry["waiting"]) == (2, 0, 0)
    client.post("/examples", json={"label": "fourth", "texts": ["de", "dde", "dee"]})
    made = client.post("/learn").json()
    assert (made["version"], made["new_classes"]) == (3, [])
    assert not np.array_equal(client.service.serving.head._class_state("fourth")[0], head._class_state("fourth")[0])
    client.post("/rollback/1")
    assert best(client, "dddd") != "fourth"


def test_with_promote_a_described_class_waits(open_service):
    client = taught(open_service(backbone=Letters(), promote="ask", inbox=Bounds(5)))
    made = describe(client, fourth="ddd").json()
    assert made["candidate"] is True
    assert best(client, "dddd") != "fourth"
    assert client.get("/versions/candidate").json()["new_classes"] == ["fourth"]
    assert describe(client, fifth="eee").status_code == 409
    client.post("/versions/candidate/promote")
    assert best(client, "dddd") == "fourth"


def test_vectors_are_descriptions_too(open_service):
    client = open_service()
    assert client.post("/classes", json={"labels": ["2"], "vectors": vectors(2, 1)}).status_code == 409
    for label in (0, 1):
        client.post("/examples", json={"label": label, "vectors": vectors(label)})
    client.post("/learn")
    client.post("/classes", json={"labels": [2], "vectors": [np.mean(vectors(2, 20), axis=0).tolist()]})
    found = client.post("/predict", json={"vectors": vectors(2, 4, seed=3)}).json()["predictions"]
    assert [one["label"] for one in found] == ["2"] * 4


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"labels": ["x", "y"], "texts": ["d"]}, "one for each description, got 2 and 1"),
        ({"labels": ["x", "x"], "texts": ["d", "e"]}, "x is described twice"),
        ({"labels": ["x"]}, "send exactly one of"),
        ({"labels": [], "texts": []}, "labels: at least 1 is needed"),
        ({"labels": ["x"], "vectors": [[1.0]]}, "expected 6 numbers"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_changed(client, body, said):
    refused = client.post("/classes", json=body)
    assert refused.status_code == 422
    assert said in refused.json()["detail"]
    assert client.get("/history").json()["current"] == 1


def test_a_head_that_takes_no_descriptions_is_named(open_service):
    client = taught(open_service(backbone=Letters(), method="ncm"))
    refused = describe(client, fourth="ddd")
    assert refused.status_code == 409
    assert "the head ncm takes no descriptions" in refused.json()["detail"]
