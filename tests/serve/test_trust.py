"""What a service promises about answers without a person, and the alarm when the data change."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import taer
from taer import answers
from taer.loop.alarm import Alarm
from taer.serve import serving
from taer.serve.replica import Replica
from tests.conftest import blobs

X, Y = blobs(5, 400, seed=1)


def teach(client, *labels, count=120, first=0):
    for label in labels:
        rows = X[label == Y][first : first + count].tolist()
        client.post("/examples", json={"label": f"c{label}", "vectors": rows})
    return client.post("/learn").json()


def ask(client, rows, **more):
    return client.post("/predict", json={"vectors": np.asarray(rows).tolist(), **more}).json()["predictions"]


@pytest.fixture
def client(open_service):
    client = open_service(errors=0.1)
    teach(client, 0, 1, 2)
    return client


def test_answers_that_need_no_person_are_marked_as_the_head_itself_would(client):
    found = client.get("/automation").json()
    msgspec.convert(found, answers.Automation)
    held_out = client.service.store.held_back(1)
    assert (found["held_out"], found["problem"], found["version"]) == (len(held_out), None, 1)
    assert found["coverage"] > 0.5
    assert [cut["coverage"] for cut in found["curve"]] == sorted(cut["coverage"] for cut in found["curve"])

    head = client.service.store.load(1)
    assert not hasattr(head, "automation_")  # the file of a version is not changed
    head.novelty_threshold(false_alarms=serving.FALSE_ALARMS)
    alone = head.automate(np.stack([one.x for one in held_out]), [one.label for one in held_out], 0.1)
    assert alone.coverage == found["coverage"]
    rows = X[:600:3].astype(np.float32)
    marked = [one["automatic"] for one in ask(client, rows)]
    assert marked == head.automatic(rows).tolist()
    assert 0.1 < np.mean(marked) < 0.9
    assert f"taer_automatic_samples_total {sum(marked):.1f}" in client.get("/metrics").text
    tensor = {"name": "vectors", "datatype": "FP32", "shape": [*rows.shape], "data": rows.ravel().tolist()}
    assert client.post("/v2/models/service/infer", json={"inputs": [tensor]}).status_code == 200
    assert f"taer_automatic_samples_total {2 * sum(marked):.1f}" in client.get("/metrics").text


def test_a_version_that_learns_is_judged_again_and_the_old_one_after_a_rollback(client):
    first = client.get("/automation").json()
    teach(client, 3)
    second = client.get("/automation").json()
    assert (second["version"], second["held_out"] > first["held_out"]) == (2, True)
    client.post("/rollback/1")
    assert client.get("/automation").json() == first


def test_too_few_examples_promise_nothing_and_say_so(open_service):
    client = open_service(errors=0.02)
    assert client.get("/automation").status_code == 404
    teach(client, 0, 1, count=6)
    assert "eight examples" in client.get("/automation").json()["problem"]
    teach(client, 0, 1, count=20, first=6)
    found = client.get("/automation").json()
    assert "at least 149 are needed" in found["problem"]
    assert (found["coverage"], found["confidence"], found["curve"]) == (0, None, [])
    assert "automatic" not in ask(client, X[:1])[0]


def test_without_the_option_nothing_is_promised_unless_the_head_came_with_a_promise(open_service):
    known = Y < 3
    head = taer.Bayes().fit(X[known][::2], [f"c{label}" for label in Y[known][::2]])
    head.automate(X[known][1::2], [f"c{label}" for label in Y[known][1::2]], errors=0.1)
    client = open_service(first=head)
    found = client.get("/automation").json()
    assert (found["errors"], found["held_out"]) == (0.1, None)
    assert [one["automatic"] for one in ask(client, X[:50])] == head.automatic(X[:50].astype(np.float32)).tolist()
    teach(client, 3)
    refused = client.get("/automation")
    assert refused.status_code == 404
    assert "--errors-at-most" in refused.json()["detail"]
    assert "automatic" not in ask(client, X[:1])[0]


def test_a_head_that_cannot_promise_is_named(open_service):
    client = open_service(errors=0.1, method="ncm")
    teach(client, 0, 1)
    assert "the head ncm cannot promise" in client.get("/automation").json()["problem"]


def test_a_replica_marks_the_same_answers(client, tmp_path):
    replica = Replica(tmp_path / "replica", str(client.service.store.folder))
    try:
        rows = X[:90].astype(np.float32)
        marked = replica.predict(rows).automatic
        assert marked.tolist() == [one["automatic"] for one in ask(client, rows)]
        assert replica.serving.promise.described(1, replica.serving.head)["errors"] == 0.1
    finally:
        replica.close()


# The alarm


def test_the_alarm_is_raised_when_more_is_unknown_and_begins_again_with_a_new_version(client, open_service):
    quiet = client.get("/drift").json()["alarm"]
    assert (quiet["raised"], quiet["answered"], quiet["false_alarms"]) == (False, 0, 0.01)
    ask(client, np.concatenate([X[label == Y][200:230] for label in range(3)]))
    assert client.get("/drift").json()["alarm"]["raised"] is False
    assert "taer_drift_alarm 0.0" in client.get("/metrics").text
    ask(client, X[Y == 4][:150])
    found = client.get("/drift").json()["alarm"]
    assert (found["raised"], found["raised_after"], found["answered"]) == (True, 240, 240)
    assert "taer_drift_alarm 1.0" in client.get("/metrics").text
    client.stop()
    again = open_service(errors=0.1)
    assert again.get("/drift").json()["alarm"] == found  # counts are on disk
    teach(again, 4)
    assert again.get("/drift").json()["alarm"]["answered"] == 0
    again.post("/rollback/1")
    assert again.get("/drift").json()["alarm"] == found


def test_each_hour_is_a_batch_and_the_reference_is_that_of_held_out_examples(client, monkeypatch):
    held_out = client.service.store.held_back(1)
    strange = client.service.predict(np.stack([one.x for one in held_out]), preview=True).unknown.sum()
    expected = Alarm.against(int(strange), len(held_out), 0.01)
    now = serving.time.time()
    for hour in range(4):
        monkeypatch.setattr(serving.time, "time", lambda at=hour: now + at * 3600)
        rows = np.concatenate([X[Y == 0][200 + 20 * hour :][:20], X[Y == 4][10 * hour :][: 2 * hour]])
        expected.update(len(rows), sum(one["unknown"] for one in ask(client, rows)))
    found = client.get("/drift").json()["alarm"]
    assert (found["answered"], found["unknown"]) == (expected.answered, expected.unknown)
    assert (found["reference"], found["held_out"]) == (expected.rate, len(held_out))
    assert (found["raised"], found["raised_after"]) == (expected.raised, expected.raised_after)


def test_without_held_out_examples_there_is_no_alarm(open_service):
    client = open_service()
    assert client.get("/drift").json()["alarm"] is None
    teach(client, 0, 1, count=5)
    assert client.get("/drift").json()["alarm"] is None
