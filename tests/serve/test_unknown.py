"""Answers that say "none of these", and how many of them there are over time."""

from __future__ import annotations

import numpy as np
import pytest

import taer
from taer.serve import serving
from taer.serve.serving import Serving
from tests.conftest import blobs
from tests.serve.conftest import vectors
from tests.serve.test_app import taught


def asked(client, rows):
    return client.post("/predict", json={"vectors": rows}).json()


def test_a_sample_of_no_class_is_marked(client, tmp_path):
    taught(client, 0, 1, 2)
    head = taer.load(tmp_path / "service/versions/000001.safetensors")
    rows = [*vectors(0, 5, seed=9), *vectors(4, 5)]
    answer = asked(client, rows)
    assert answer["threshold"] == pytest.approx(head.novelty_threshold())
    np.testing.assert_allclose([one["novelty"] for one in answer["predictions"]], head.novelty(np.float32(rows)))
    assert [one["unknown"] for one in answer["predictions"]] == [False] * 5 + [True] * 5


def test_a_head_without_a_threshold_takes_it_from_what_is_held_back(open_service):
    X, y = blobs(5, 60)
    known = y < 3
    client = open_service(
        first=taer.NCM().partial_fit(X[known], y[known].astype(str)),
        held_back=(X[known][:60], y[known][:60].astype(str).tolist()),
    )
    answer = asked(client, X[y == 4][:40].tolist())
    assert answer["threshold"] is not None
    assert np.mean([one["unknown"] for one in answer["predictions"]]) > 0.5


def test_a_threshold_that_the_head_has_kept_is_used(open_service):
    X, y = blobs(5, 60, spread=4.0)
    head = taer.NCM().partial_fit(X[y < 4], y[y < 4].astype(str))
    head.novelty_threshold(X[y < 4], 0.3, per_class=True)
    assert head.class_thresholds_
    answer = asked(open_service(first=head), X.tolist())
    expected = head.predict(X.astype(np.float32), unknown="?") == "?"
    assert answer["threshold"] == head.threshold_
    assert [one["unknown"] for one in answer["predictions"]] == expected.tolist()
    assert 0.2 < expected.mean() < 0.8


def test_without_samples_to_compare_with_nothing_is_marked(open_service):
    X, y = blobs(5, 60)
    client = open_service(first=taer.NCM().partial_fit(X[y < 3], y[y < 3].astype(str)))
    answer = asked(client, X[y == 4].tolist())
    assert answer["threshold"] is None
    assert not any(one["unknown"] for one in answer["predictions"])


def test_drift_is_counted_by_the_hour_and_survives(client, open_service, monkeypatch):
    taught(client, 0, 1, 2)
    found = client.get("/drift").json()
    assert found.pop("alarm")["answered"] == 0
    assert found == {"answered": 0, "unknown": 0, "fraction": None, "expected": 0.05, "hours": []}
    now = serving.time.time()
    strange = [sum(one["unknown"] for one in asked(client, vectors(0, 6))["predictions"])]
    monkeypatch.setattr(serving.time, "time", lambda: now + 2 * 3600)
    strange += [sum(one["unknown"] for one in asked(client, [*vectors(1, 2), *vectors(4, 2)])["predictions"])]
    assert strange[1] >= 2
    found = client.get("/drift").json()
    assert (found["answered"], found["unknown"], found["fraction"]) == (10, sum(strange), sum(strange) / 10)
    assert [(hour["answered"], hour["unknown"]) for hour in found["hours"]] == [(6, strange[0]), (4, strange[1])]
    assert [hour["answered"] for hour in client.get("/drift", params={"hours": 1}).json()["hours"]] == [4]
    assert f"taer_unknown_samples_total {sum(strange):.1f}" in client.get("/metrics").text
    asked(client, vectors(4, 3))
    client.stop()
    assert open_service().get("/drift").json()["unknown"] == sum(strange) + 3


def test_a_preview_is_answered_and_not_counted(client):
    taught(client, 0, 1, 2)
    body = {"vectors": vectors(4, 3)}
    assert (
        client.post("/predict", json={**body, "preview": True}).json() == client.post("/predict", json=body).json()
    )
    assert client.get("/drift").json()["answered"] == 3
    assert "taer_unknown_samples_total 3.0" in client.get("/metrics").text


def test_a_novelty_that_is_no_number_is_unknown():
    X, y = np.random.default_rng(0).normal(size=(40, 6)), np.repeat(["a", "b"], 20)
    head = taer.SLDA().fit(X, y)
    limit = head.novelty_threshold(X)
    head._novelty = lambda rows, scores: np.full(len(rows), np.nan)
    answers = Serving(1, head, limit, np.array([limit, limit])).answer(X)
    assert answers.unknown.all()
    assert np.isfinite(answers.novelty).all()  # for JSON
