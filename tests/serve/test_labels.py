"""A service whose samples have several labels, or none."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from starlette.testclient import TestClient

import taer
from taer.serve.app import create_app
from taer.serve.label_studio.run import run_label_studio
from taer.serve.label_tasks import _held_apart, labels_of
from taer.serve.labels import LabelService
from taer.serve.run import open_service as opened
from taer.serve.store import Example
from tests.serve.backbones import Letters
from tests.serve.conftest import AUTH, TOKEN

LETTERS = "abcd"


def text_of(labels: str) -> str:
    return "".join(letter * 9 for letter in labels) + "f" * 6


def taught(client, count=60, letters=LETTERS, judged=None, seed=0):
    """Texts whose letters are their labels, some without any."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        inside = [letter for letter in letters if rng.random() < 0.4]
        text = "".join(letter * rng.integers(8, 12) for letter in inside) + "f" * 6
        label = ";".join(inside if judged is None else [each for each in inside if each in judged]) or ";"
        label += "" if judged is None else "|" + ";".join(judged)
        assert client.post("/examples", json={"label": label, "texts": [text]}).status_code == 200
    return client.post("/learn").json()


@pytest.fixture
def start(tmp_path):
    running = []

    def start(folder=tmp_path / "service", **options):
        service = LabelService(folder, **{"backbone": Letters(), **options})
        client = TestClient(create_app(service, TOKEN), base_url="http://127.0.0.1", headers=AUTH)
        client.__enter__()
        client.service = service
        running.append(client)
        return client

    yield start
    for client in running:
        client.__exit__()


def answer(client, text):
    found = client.post("/predict", json={"texts": [text]}).json()["predictions"][0]
    return found["labels"]


def test_teach_learn_predict(start):
    client = start()
    assert client.post("/predict", json={"texts": ["aaa"]}).status_code == 409
    made = taught(client)
    assert (made["version"], made["new_classes"], made["method"]) == (1, list(LETTERS), "MultiLabel")
    assert made["held_back"] > 5
    assert made["f1_micro"] > 0.8
    assert answer(client, text_of("ac")) == ["a", "c"]
    assert answer(client, text_of("")) == []
    found = client.post("/predict", json={"texts": [text_of("b")], "top": 2}).json()["predictions"][0]
    assert found["probabilities"][0]["label"] == "b"
    assert len(found["probabilities"]) == 2
    listed = client.get("/classes").json()
    assert listed["several_labels"] is True
    counts = {each["label"]: each["examples"] + each["held_back"] for each in listed["classes"]}
    rows = list(csv.DictReader(io.StringIO(client.get("/examples.csv").text)))
    assert counts == {letter: sum(letter in row["label"] for row in rows) for letter in LETTERS}


def test_a_label_that_is_added_moves_no_other_and_a_rollback_takes_it_back(start):
    client = start()
    taught(client)
    asked = Letters()([text_of("ab"), text_of("ce"), text_of("e")])
    before = client.service.model.scores(asked)
    made = taught(client, 20, "abcde", judged=["e"], seed=1)
    assert (made["new_classes"], made["f1_micro"]) == (["e"], pytest.approx(made["f1_micro"]))
    assert (client.service.model.scores(asked)[:, :4] == before).all()
    assert answer(client, text_of("ae")) == ["a", "e"]
    assert client.post("/rollback/1").json()["current"] == 1
    assert answer(client, text_of("ae")) == ["a"]


def test_what_was_judged_is_remembered_when_examples_wait_again(start):
    client = start()
    taught(client)
    taught(client, 20, "abcde", judged=["e"], seed=1)
    last = client.get("/examples", params={"limit": 1000}).json()["examples"][-1]
    assert last["label"].endswith("|e")
    learned = next(
        each for each in client.get("/examples", params={"limit": 1000}).json()["examples"] if each["version"] == 2
    )
    gone = client.post("/purge", json={"ids": [learned["id"]]}).json()
    assert (gone["current"], gone["waiting"]) == (1, 19)
    before = client.service.model.scores(Letters()([text_of("ab")]))
    client.post("/learn")
    assert (client.service.model.scores(Letters()([text_of("ab")]))[:, :4] == before).all()


def test_labels_as_they_are_sent(start):
    client = start()

    def add(label):
        return client.post("/examples", json={"label": label, "texts": ["aa"]})

    for label, stored in (("b; a ;b", "b;a"), (";", ";"), ("a|b;a", "a|b;a"), ("|a", ";|a"), ("a", "a")):
        number = add(label).json()["ids"][0]
        assert client.get(f"/examples/{number}").json()["label"] == stored
    for label, words in (
        ("  ", "labels with ; between them"),
        ("a|", "that were judged after |"),
        ("a|b", "a is given, and not among those that were judged"),
        ("a;" + "x" * 101, "1 to 100 printable characters"),
    ):
        assert words in add(label).json()["detail"]
    assert client.get("/classes").json()["classes"][0] == {
        "label": "b", "task": None, "examples": 0, "held_back": 0, "waiting": 1,
    }  # fmt: skip
    assert client.delete("/examples").json() == {"discarded": 5}


def test_what_it_cannot_do_is_refused(start):
    client = start()
    taught(client)
    first = client.get("/examples").json()["examples"][0]["id"]
    for method, path, body in (
        ("PATCH", "/classes/a", {"label": "z"}),
        ("DELETE", "/classes/a", None),
        ("PATCH", f"/examples/{first}", {"label": "b"}),
        ("POST", "/classes", {"labels": ["x"], "texts": ["xx"]}),
        ("POST", "/predict", {"texts": ["aa"], "why": True}),
    ):
        refused = client.request(method, path, json=body)
        assert (refused.status_code, "several labels per sample" in refused.json()["detail"]) == (409, True), path
    assert client.get("/drift").status_code == 404


def test_a_folder_and_a_head_say_that_they_have_several_labels(start, tmp_path):
    client = start()
    taught(client)
    client.service.model.save(tmp_path / "m.safetensors")
    client.__exit__()
    again = opened(tmp_path / "service", None, None, finder=lambda name, head: Letters())
    try:
        assert isinstance(again, LabelService)
        assert again.labels(Letters()([text_of("bd")]), 5)["predictions"][0]["labels"] == ["b", "d"]
    finally:
        again.close()
    fresh = opened(
        tmp_path / "other", taer.load(tmp_path / "m.safetensors"), None, finder=lambda name, head: Letters()
    )
    try:
        assert isinstance(fresh, LabelService)
        assert fresh.labels(Letters()([text_of("bd")]), 5)["predictions"][0]["labels"] == ["b", "d"]
        assert fresh.backbone.name == "letters"  # which the head remembers
    finally:
        fresh.close()
    with pytest.raises(ValueError, match="are for one label per sample"):
        opened(tmp_path / "service", None, None, promote="ask")


def test_a_folder_without_a_version_remembers_it(tmp_path):
    LabelService(tmp_path / "new", Letters()).close()
    again = opened(tmp_path / "new", None, None)
    again.close()
    assert isinstance(again, LabelService)


def test_a_folder_of_one_label_is_not_taken(open_service, tmp_path):
    client = open_service(backbone=Letters())
    for label in "ab":
        client.post("/examples", json={"label": label, "texts": [label * n for n in range(1, 5)]})
    client.post("/learn")
    client.stop()
    with pytest.raises(ValueError, match="one label per sample; start it without --multi-label"):
        LabelService(tmp_path / "service", Letters())


def test_without_its_database_the_history_is_rebuilt(start, tmp_path):
    client = start()
    taught(client)
    taught(client, 20, "abcde", judged=["e"], seed=1)
    client.__exit__()
    (tmp_path / "service" / "taer.db").unlink()
    service = LabelService(tmp_path / "service", Letters())
    try:
        assert [version.report["new_classes"] for version in service.store.versions()] == [list(LETTERS), ["e"]]
        assert service.labels(Letters()([text_of("ae")]), 5)["predictions"][0]["labels"] == ["a", "e"]
    finally:
        service.close()


def test_no_more_than_a_quarter_of_a_label_is_held_out():
    rng = np.random.default_rng(0)
    cells = [";".join(rng.choice(list("abcdef"), rng.integers(0, 4), replace=False)) or ";" for _ in range(200)]
    cells += ["rare;a"] * 7 + ["b|b"] * 20
    examples = [Example(number, cell, np.zeros(1)) for number, cell in enumerate(cells)]
    learned, held = _held_apart(examples, {"a": (30, 10)})
    assert len(learned) + len(held) == len(examples)
    assert len(held) > 20
    assert not any("rare" in each.label or "|" in each.label for each in held)
    for label in "abcdef":
        kept, used = (sum(label in labels_of(each.label)[0] for each in part) for part in (held, learned))
        earlier = (10, 40) if label == "a" else (0, 0)
        assert kept + earlier[0] <= (kept + used + earlier[1]) / 4


def test_it_is_served_among_many_heads_and_not_to_label_studio(serve, tmp_path):
    service = LabelService(tmp_path / "heads" / "desk")
    for label, row in (("a", [9.0, 0, 1]), ("b", [0, 9.0, 1]), ("a;b", [9.0, 9.0, 1])):
        rows = np.array([row], np.float32) + np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
        service.add_examples(label, rows)
    service.learn()
    service.close()
    with pytest.raises(ValueError, match="which Label Studio cannot teach"):
        run_label_studio(tmp_path / "heads" / "desk", None, None, None, None)
    server = serve(tmp_path / "heads", "--many")
    found = server.http.post("/heads/desk/predict", json={"vectors": [[9, 9, 1]]}).json()
    assert found["predictions"][0]["labels"] == ["a", "b"]
    assert server.http.get("/heads/desk/labels.html").status_code == 200
