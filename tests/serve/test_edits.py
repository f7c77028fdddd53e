"""Corrections over HTTP: each is a new version, and going back undoes it."""

from __future__ import annotations

import numpy as np
import pytest

import taer
from tests.conftest import blobs
from tests.serve.backbones import Letters
from tests.serve.conftest import vectors
from tests.serve.test_app import add, labels_of, taught


def listed(client, **options):
    return client.get("/examples", params=options).json()["examples"]


def counts(client):
    return {row["label"]: (row["examples"], row["held_back"]) for row in client.get("/classes").json()["classes"]}


def scores(client, folder, version):
    X = np.array([row for label in range(3) for row in vectors(label, 5, seed=3)], np.float32)
    return taer.load(folder / "versions" / f"{version:06d}.safetensors").scores(X)


def test_examples_are_listed_one_by_one(client):
    taught(client, 0, 1)
    (waiting,) = add(client, "class 1", vectors(1, 1))["ids"]
    found = listed(client)
    assert [example["id"] for example in found] == list(range(1, 18))
    assert [example["held_back"] for example in found[:8]] == [False, False, False, True] * 2
    assert found[-1] == {
        "id": waiting, "label": "class 1", "version": None, "held_back": False, "kind": "vector", "text": None,
        "added": found[-1]["added"],
    }  # fmt: skip
    assert {example["label"] for example in listed(client, label="class 0")} == {"class 0"}
    first = client.get("/examples", params={"limit": 10}).json()
    assert first["next"] == 10
    assert client.get("/examples", params={"after": 10}).json()["next"] is None
    assert [example["id"] for example in listed(client, after=10)] == list(range(11, 18))
    one = client.get("/examples/3").json()
    assert one["vector"] == pytest.approx(vectors(0)[2])
    assert client.get("/examples/99").status_code == 404


def test_a_text_is_kept_with_its_example(open_service):
    client = open_service(backbone=Letters())
    client.post("/examples", json={"label": "first", "texts": ["a cab", "ab"]})
    assert [example["text"] for example in listed(client)] == ["a cab", "ab"]
    assert client.get("/examples/2").json()["kind"] == "text"


def test_an_example_that_waits_is_corrected_in_place(client):
    ids = add(client, "a", vectors(0, 3))["ids"]
    assert client.patch(f"/examples/{ids[0]}", json={"label": "b"}).json() == {"version": None}
    assert client.delete(f"/examples/{ids[1]}").json() == {"version": None}
    assert [(example["id"], example["label"]) for example in listed(client)] == [(ids[0], "b"), (ids[2], "a")]
    assert client.get("/health").json()["version"] == 0
    assert client.service.n_pending == 2
    assert add(client, "a", vectors(0, 1))["ids"] == [ids[2] + 1]


def test_a_head_that_keeps_samples_is_served_and_gives_one_back(open_service):
    client = open_service(method="bayes-replay")
    X, y = blobs(10, 30, spread=2.0)  # enough classes, near enough to each other, that a correction helps
    for label in range(10):
        add(client, f"class {label}", X[y == label].tolist())
    client.post("/learn")
    before = client.service.serving.head
    assert before.corrections_.weights.any()
    rows = X[y == 1]
    assert np.mean(np.array(labels_of(client, rows.tolist())) == "class 1") > 0.8
    gone = listed(client, label="class 2")[0]["id"]
    assert client.delete(f"/examples/{gone}").json() == {"version": 2}
    after = client.service.serving.head
    assert len(after.kept_) == len(before.kept_) - 1
    others = ["class 0", "class 1"]
    rows = X[:5].astype(np.float32)
    assert np.array_equal(before.scores(rows, others), after.scores(rows, others))


@pytest.mark.parametrize("method", ["bayes", "slda"])  # one that teaches the rest again, one that subtracts
def test_a_deleted_example_is_as_if_it_had_never_been_learned(open_service, tmp_path, method):
    client = open_service(method=method)
    taught(client, 0, 1)
    taught(client, 2)
    before = client.post("/predict", json={"vectors": vectors(0, 3, seed=2)}).json()["predictions"]
    gone = listed(client, label="class 2")[1]["id"]
    assert client.delete(f"/examples/{gone}").json() == {"version": 3}
    head, first = (taer.load(tmp_path / f"service/versions/00000{version}.safetensors") for version in (3, 1))
    rows = [row for number, row in enumerate(vectors(2)) if number not in (1, 3, 7)]  # those held back, too
    first.partial_fit(np.array(rows, np.float32), ["class 2"] * len(rows))
    X = np.array([*vectors(0, 5, seed=3), *vectors(2, 5, seed=3)], np.float32)
    np.testing.assert_allclose(head.scores(X), first.scores(X), rtol=1e-4, atol=1e-4)
    assert counts(client) == {"class 0": (6, 2), "class 1": (6, 2), "class 2": (5, 2)}
    assert gone not in [example["id"] for example in listed(client)]
    assert client.get(f"/examples/{gone}").status_code == 404
    entry = client.get("/history").json()["versions"][-1]
    assert entry["edit"] == f"example {gone} of class 2 deleted"
    client.post("/rollback/2")
    assert client.get(f"/examples/{gone}").json()["label"] == "class 2"
    assert counts(client)["class 2"] == (6, 2)
    assert client.post("/predict", json={"vectors": vectors(0, 3, seed=2)}).json()["predictions"] == before


def test_a_class_of_which_nothing_is_left_is_gone(client):
    taught(client, 0, 1)
    (only,) = add(client, "class 2", vectors(2, 1))["ids"]
    client.post("/learn")
    assert client.delete(f"/examples/{only}").json() == {"version": 3}
    assert set(counts(client)) == {"class 0", "class 1"}


@pytest.mark.parametrize(("method", "status"), [("bayes", 200), ("gauss-frozen", 409)])
def test_an_example_of_a_class_that_came_with_the_head_is_taken_back_if_the_head_can(open_service, method, status):
    X, y = blobs(5, 60)
    first = taer.make_head(method, random_state=0).partial_fit(X[y < 2], y[y < 2].astype(str))
    client = open_service(first=first)
    (number, *_) = add(client, "1", vectors(1))["ids"]
    client.post("/learn")
    answer = client.delete(f"/examples/{number}")
    assert answer.status_code == status
    assert status == 200 or "GaussFrozen cannot unlearn" in answer.json()["detail"]


def test_a_wrong_label_is_corrected(client):
    taught(client, 0, 1)
    (wrong, *_) = add(client, "class 0", vectors(1, 4, seed=4))["ids"]
    client.post("/learn")
    assert client.patch(f"/examples/{wrong}", json={"label": "class 1"}).json() == {"version": 3}
    assert client.get(f"/examples/{wrong}").json()["label"] == "class 1"
    assert counts(client) == {"class 0": (8, 3), "class 1": (7, 2)}
    assert client.get("/history").json()["versions"][-1]["edit"] == f"example {wrong} of class 0 is now class 1"
    again = client.patch(f"/examples/{wrong}", json={"label": "class 1"})
    assert (again.status_code, again.json()["detail"]) == (409, f"example {wrong} is of class 1 already")
    assert client.patch(f"/examples/{wrong}", json={"label": "another"}).json() == {"version": 4}
    assert counts(client) == {"class 0": (8, 3), "class 1": (6, 2), "another": (1, 0)}
    client.post("/rollback/3")
    assert client.get(f"/examples/{wrong}").json()["label"] == "class 1"
    client.post("/rollback/2")
    assert client.get(f"/examples/{wrong}").json()["label"] == "class 0"


def test_an_example_held_back_is_corrected_in_what_is_measured(client, tmp_path):
    taught(client, 0, 1)
    assert client.patch("/examples/4", json={"label": "class 1"}).json() == {"version": 2}
    entry = client.get("/history").json()["versions"][-1]
    assert entry["accuracy"] == 0.75
    assert client.get("/confusion").json()["cells"][1] == {"truth": "class 1", "answer": "class 0", "count": 1}
    np.testing.assert_array_equal(scores(client, tmp_path / "service", 2), scores(client, tmp_path / "service", 1))
    client.delete("/examples/4")
    assert client.get("/history").json()["versions"][-1]["held_back"] == 3


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_a_head_that_cannot_take_a_sample_back_says_so(open_service, method):
    X, y = blobs(5, 60)
    client = open_service(first=taer.TaER(random_state=0).partial_fit(X[y < 2], y[y < 2].astype(str)))
    (number, *_) = add(client, "2", vectors(2))["ids"]
    client.post("/learn")
    answer = client.request(method, f"/examples/{number}", json={"label": "1"} if method == "PATCH" else None)
    assert answer.status_code == 409
    assert "TaER" in answer.json()["detail"]
    assert "nothing was changed" in answer.json()["detail"]
    assert client.get("/health").json()["version"] == 2


def test_a_class_is_renamed(client):
    taught(client, 0, 1)
    entry = client.patch("/classes/class 1", json={"label": "a / b?"}).json()
    assert (entry["version"], entry["edit"]) == (2, "class 1 is now called a / b?")
    assert (entry["new_classes"], entry["accuracy"]) == ([], 1.0)
    assert labels_of(client, vectors(1, 2)) == ["a / b?"] * 2
    assert counts(client) == {"class 0": (6, 2), "a / b?": (6, 2)}
    assert client.patch("/classes/a %2F b%3F", json={"label": "class 1"}).json()["version"] == 3
    client.post("/rollback/1")
    assert labels_of(client, vectors(1, 2)) == ["class 1"] * 2
    assert client.patch("/classes/nobody", json={"label": "x"}).status_code == 404
    answer = client.patch("/classes/class 0", json={"label": "class 1"})
    assert answer.status_code == 409
    assert "another class already" in answer.json()["detail"]


def test_a_class_is_forgotten(client):
    taught(client, 0, 1)
    taught(client, 2)
    entry = client.delete("/classes/class 1").json()
    assert (entry["edit"], entry["changes"]["forgotten"]) == ("class 1 forgotten", ["class 1"])
    assert counts(client) == {"class 0": (6, 2), "class 2": (6, 2)}
    assert "class 1" not in labels_of(client, vectors(1, 5))
    client.post("/rollback/2")
    assert counts(client)["class 1"] == (6, 2)
    assert labels_of(client, vectors(1, 2)) == ["class 1"] * 2
    client.post("/rollback/3")
    taught(client, 1)  # it may return
    assert counts(client)["class 1"] == (6, 2)
    client.delete("/classes/class 0")
    client.delete("/classes/class 1")
    answer = client.delete("/classes/class 2")
    assert answer.status_code == 409
    assert "the only class" in answer.json()["detail"]


def test_a_class_with_examples_that_wait_is_neither_renamed_nor_forgotten(client):
    taught(client, 0, 1)
    add(client, "class 1", vectors(1, 2))
    for answer in (client.delete("/classes/class 1"), client.patch("/classes/class 1", json={"label": "x"})):
        assert answer.status_code == 409
        assert answer.json()["detail"] == "class 1: 2 examples of it wait to be learned; learn or discard first"


def test_a_head_with_numbers_for_labels_is_taught_and_corrected(open_service):
    X, y = blobs(5, 60)
    client = open_service(first=taer.Bayes(random_state=0).partial_fit(X[y < 2], y[y < 2]))
    client.post("/examples", json={"label": 2, "vectors": vectors(2, 4)})
    client.post("/examples", json={"label": "2", "vectors": vectors(2, 4)})
    assert client.post("/learn").json()["new_classes"] == ["2"]
    assert labels_of(client, vectors(2, 2, seed=9)) == ["2", "2"]
    number = listed(client, label="2")[0]["id"]
    assert client.patch(f"/examples/{number}", json={"label": 1}).json() == {"version": 3}
    assert client.patch("/classes/2", json={"label": 7}).json()["version"] == 4
    assert labels_of(client, vectors(2, 2, seed=9)) == ["7", "7"]
    assert client.delete("/classes/7").json()["version"] == 5
    for label in ("cat", 1.5, "1.0", 2**70, ""):
        answer = client.post("/examples", json={"label": label, "vectors": vectors(2, 1)})
        assert answer.status_code == 422, label


def test_each_edit_needs_the_token_and_waits_for_no_task(client):
    taught(client, 0, 1)
    edits = [
        ("PATCH", "/examples/1", {"label": "x"}),
        ("DELETE", "/examples/1", None),
        ("PATCH", "/classes/class 0", {"label": "x"}),
        ("DELETE", "/classes/class 0", None),
        ("POST", "/purge", {"ids": [1]}),
    ]
    for method, path, body in edits:
        refused = client.request(method, path, json=body, headers={"Authorization": ""})
        assert refused.status_code == 401
        with client.service.learner.exclusively():
            busy = client.request(method, path, json=body)
        assert busy.status_code == 409
        assert "a task is being learned" in busy.json()["detail"]
    assert client.get("/health").json()["version"] == 1
