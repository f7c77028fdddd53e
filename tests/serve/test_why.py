"""The reasons for an answer."""

from __future__ import annotations

import numpy as np
import pytest
from starlette.testclient import TestClient

import taer
from taer.serve.app import create_app
from tests.conftest import blobs
from tests.serve.conftest import TOKEN, vectors
from tests.serve.test_app import add, taught


def asked(client, rows, **more):
    return client.post("/predict", json={"vectors": rows, "why": True, **more})


def test_reasons_are_the_runner_up_and_stored_examples_of_both_classes(client, tmp_path):
    taught(client, 0, 1)
    taught(client, 2)
    copy = vectors(1, 8)[5]  # of an example that was stored: the nearest
    rows = [copy, *vectors(4, 1)]
    answer = asked(client, rows).json()
    plain = client.post("/predict", json={"vectors": rows}).json()
    head = taer.load(tmp_path / "service/versions/000002.safetensors")
    scores = head.decision_function(np.float32(rows))
    for place, (one, without) in enumerate(zip(answer["predictions"], plain["predictions"], strict=True)):
        why = one.pop("why")
        assert one == without
        first, second = np.argsort(-scores[place])[:2]
        assert [why["answer"]["label"], why["runner_up"]["label"]] == head.classes_[[first, second]].tolist()
        assert why["ahead"] == pytest.approx(scores[place, first] - scores[place, second], rel=1e-5)
        assert (one["novelty"] > why["limit"]) == one["unknown"]
        for considered in (why["answer"], why["runner_up"]):
            near = [client.get(f"/examples/{example['id']}").json() for example in considered["examples"]]
            assert [example["label"] for example in near] == [considered["label"]] * 3
            distances = [example["distance"] for example in considered["examples"]]
            assert distances == sorted(distances)
    (nearest, *_) = asked(client, rows).json()["predictions"][0]["why"]["answer"]["examples"]
    assert client.get(f"/examples/{nearest['id']}").json()["vector"] == np.float32(copy).tolist()
    assert nearest["distance"] == pytest.approx(0, abs=1e-4)


def test_examples_are_those_of_the_current_version_with_its_corrections(client):
    taught(client, 0, 1)
    row = vectors(1, 8)[0]

    def named():
        found = asked(client, [row]).json()["predictions"][0]["why"]["answer"]["examples"]
        return [near["id"] for near in found]

    first, *_ = named()
    client.delete(f"/examples/{first}")
    assert first not in named()
    client.post("/rollback/1")
    assert named()[0] == first
    waiting = add(client, "class 1", [row])["ids"]
    assert not set(waiting) & set(named())


def test_without_the_token_reasons_hold_no_sample(client):
    taught(client, 0, 1)
    with TestClient(create_app(client.service, TOKEN), base_url="http://127.0.0.1") as stranger:
        why = asked(stranger, vectors(0, 1)).json()["predictions"][0]["why"]
        assert {key for near in why["answer"]["examples"] for key in near} == {"id", "distance"}
        assert stranger.get(f"/examples/{why['answer']['examples'][0]['id']}").status_code == 401


def test_a_head_that_came_from_elsewhere_has_no_examples_to_name(open_service):
    X, y = blobs(3, 20)
    client = open_service(first=taer.BayesReplay().partial_fit(X, y))
    why = asked(client, X[:1].tolist()).json()["predictions"][0]["why"]
    assert (why["answer"]["label"], why["answer"]["examples"]) == (str(y[0]), [])


@pytest.mark.parametrize("rows", [1, 17])
def test_what_cannot_be_explained_is_refused_and_not_counted(open_service, rows):
    X, y = blobs(3, 20)
    client = open_service(first=(taer.NCM() if rows == 1 else taer.Bayes()).partial_fit(X, y))
    answer = asked(client, X[:rows].tolist())
    words = "the head ncm gives no reasons" if rows == 1 else "at most 16 answers"
    assert (answer.status_code, words in answer.json()["detail"]) == (409 if rows == 1 else 422, True)
    assert client.get("/drift").json()["answered"] == 0
