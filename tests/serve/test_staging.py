"""Candidates: learned versions that wait to be promoted."""

from __future__ import annotations

import numpy as np
import pytest

import taer
from tests.serve.conftest import vectors


def teach(client, *labels, count=16, seed=0):
    for label in labels:
        client.post("/examples", json={"label": f"class {label}", "vectors": vectors(label, count, seed)})
    return client.post("/learn")


def answer(client, label):
    found = client.post("/predict", json={"vectors": vectors(label, 4, seed=9)}).json()
    return found["version"], {one["label"] for one in found["predictions"]}


@pytest.fixture
def asking(open_service):
    client = open_service(promote="ask")
    assert teach(client, 0, 1).json()["candidate"] is False  # there was nothing to compare the first one with
    return client


def test_a_candidate_answers_only_when_it_is_promoted(asking):
    assert asking.get("/versions/candidate").status_code == 404
    made = teach(asking, 2).json()
    assert (made["version"], made["candidate"]) == (2, True)
    assert answer(asking, 2)[0] == 1
    history = asking.get("/history").json()
    assert (history["current"], [one["candidate"] for one in history["versions"]]) == (1, [False, True])
    found = asking.get("/versions/candidate").json()
    assert (found["version"], found["current"], found["compared"], found["new_compared"]) == (2, 1, 8, 4)
    assert (found["before"], found["after"], found["new_accuracy"]) == (1.0, 1.0, 1.0)
    assert found["not_worse"] is None
    assert found["only_new_classes_win"]
    assert {one["after"] for one in found["examples"]} == {"class 2"}
    assert found["differing"] == 4
    assert asking.post("/versions/candidate/promote").json()["current"] == 2
    assert answer(asking, 2) == (2, {"class 2"})
    assert asking.get("/versions/candidate").status_code == 404
    assert asking.post("/versions/candidate/promote").status_code == 404


def test_a_rejected_candidate_is_gone_and_its_examples_wait(asking, open_service):
    teach(asking, 2)
    assert asking.post("/versions/candidate/reject").json() == {"waiting": 16}
    assert asking.post("/versions/candidate/reject").status_code == 404
    assert [one["version"] for one in asking.get("/history").json()["versions"]] == [1]
    assert asking.post("/learn").json()["version"] == 3  # a number is not used again
    asking.stop()
    again = open_service(promote="ask")  # the candidate survives
    assert again.get("/versions/candidate").json()["version"] == 3
    assert answer(again, 2)[0] == 1
    assert again.post("/versions/candidate/promote").json()["current"] == 3


def test_nothing_else_changes_the_version_while_a_candidate_waits(asking):
    teach(asking, 2)
    for method, path in (
        ("POST", "/learn"),
        ("POST", "/rollback/1"),
        ("DELETE", "/examples/1"),
        ("DELETE", "/classes/class 0"),
    ):
        told = asking.request(method, path)
        assert told.status_code == 409, path
        assert "version 2 waits to be promoted" in told.json()["detail"]
    assert asking.get("/health").json()["version"] == 1


def test_a_purge_takes_the_candidate_that_learned_an_example_with_it(asking):
    ids = [33]
    teach(asking, 2)
    gone = asking.post("/purge", json={"ids": ids}).json()
    assert (gone["versions"], gone["current"], gone["waiting"]) == ([2], 1, 15)
    assert asking.get("/versions/candidate").status_code == 404
    assert asking.post("/learn").json()["version"] == 3


def test_the_candidate_answers_in_the_shadow(asking):
    teach(asking, 2)
    answer(asking, 0)
    answer(asking, 2)
    asking.post("/predict", json={"vectors": vectors(2, 3), "preview": True})
    assert asking.get("/versions/candidate").json()["shadow"] == {"answered": 8, "differ": 4}


def test_with_few_comparisons_it_asks_and_with_many_it_promotes(open_service, monkeypatch):
    client = open_service(promote="if-not-worse")
    teach(client, 0, 1, count=60)
    assert teach(client, 2).json()["candidate"] is True  # 30 comparisons without a loss do not exclude a point
    assert client.get("/versions/candidate").json()["not_worse"] is False
    client.post("/versions/candidate/promote")
    monkeypatch.setattr("taer.loop.compare.TOLERANCE", 0.1)
    assert teach(client, 3).json()["candidate"] is False
    assert client.get("/health").json()["version"] == 3


def test_the_text_of_examples_needs_the_token(asking):
    assert asking.get("/versions/candidate", headers={"Authorization": "Bearer wrong"}).status_code == 401


def loaded():
    """A head that was learned elsewhere."""
    rows = [row for label in (0, 1) for row in vectors(label)]
    return taer.Bayes().fit(np.array(rows), np.repeat(["class 0", "class 1"], 8))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"promote": "if-not-worse"}, "so --promote if-not-worse asks each time; teach"),
        ({"errors": 0.1}, "so --errors-at-most promises nothing; teach"),
        (
            {"promote": "if-not-worse", "errors": 0.1},
            "so --promote if-not-worse asks each time and --errors-at-most promises nothing; teach",
        ),
    ],
)
def test_who_needs_held_out_examples_is_told_at_the_start_that_there_are_none(open_service, options, told):
    client = open_service(first=loaded(), **options)
    (notice,) = client.service.notices
    assert notice.startswith(
        f"version 1 has no held-out examples, {told} the service at least 8 examples per class"
    )
    teach(client, 0, 1, count=32, seed=1)  # as the notice says
    if client.service.has_candidate:
        assert client.get("/versions/candidate").json()["compared"] == 16
        client.post("/versions/candidate/promote")
    client.stop()
    assert open_service(**options).service.notices == []


@pytest.mark.parametrize("options", [{}, {"promote": "ask"}])
def test_who_needs_no_held_out_examples_is_told_nothing(open_service, options):
    assert open_service(first=loaded(), **options).service.notices == []


def test_an_empty_folder_has_no_notice(open_service):
    assert open_service(promote="if-not-worse", errors=0.1).service.notices == []
