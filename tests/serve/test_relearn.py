"""Another backbone, or another head, for the examples that a folder keeps."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest
from PIL import Image

import taer
from taer.origin import Origin
from taer.serve.service import Service
from tests.conftest import blobs
from tests.serve.backbones import Letters, Pixels
from tests.serve.conftest import png, vectors
from tests.serve.test_app import add, labels_of, taught
from tests.serve.test_edits import counts


class Vowels:
    """Another text backbone, of another width."""

    name, kind, origin = "vowels", "text", Origin("vowels", "sha256:a0e1")

    def __call__(self, items):
        return np.array([[text.count(letter) for letter in "aeiou"] for text in items], np.float32)


def words(client, label, *texts):
    assert client.post("/examples", json={"label": label, "texts": list(texts)}).status_code == 200


def said(client, text):
    return client.post("/predict", json={"texts": [text]}).json()["predictions"][0]["label"]


@pytest.fixture
def taught_with_letters(open_service):
    client = open_service(backbone=Letters())
    words(client, "first", "abe", "bad", "cab", "dab", "ab", "abba", "dada", "baa")
    words(client, "last", "fed", "feed", "deer", "eff", "eel", "free", "fee", "reed")
    client.post("/learn")
    client.patch("/classes/first", json={"label": "start"})
    words(client, "last", "reef")  # which waits
    return client


def test_another_backbone_sees_all_that_is_kept(taught_with_letters, open_service):
    taught_with_letters.stop()
    client = open_service(backbone=Vowels(), relearn=True)
    assert client.service.notices == ["version 3: 12 examples learned again with vowels"]
    entry = client.get("/history").json()["versions"][-1]
    assert (entry["parent"], entry["edit"], entry["backbone"]) == (
        2,
        "12 examples learned again with vowels",
        "vowels",
    )
    assert entry["held_back"] == 4
    assert client.get("/classes").json()["width"] == 5
    assert client.service.store.load(1).feature_origin_ == Letters.origin
    assert client.service.serving.head.feature_origin_ == Vowels.origin
    assert (said(client, "ax"), said(client, "ere")) == ("start", "last")
    assert counts(client) == {"start": (6, 2), "last": (6, 2)}
    assert client.get("/examples/1").json()["vector"] == [1, 1, 0, 0, 0]
    assert client.post("/learn").json()["version"] == 4  # what waited is seen with the new backbone, too
    refused = client.post("/rollback/2")
    assert refused.status_code == 409
    assert "taught with the backbone letters, and this service has vowels" in refused.json()["detail"]


def test_a_wrong_backbone_is_refused_at_the_start(taught_with_letters, tmp_path):
    taught_with_letters.stop()
    with pytest.raises(
        ValueError, match="version 2 was taught with the backbone letters, and this service has vowels"
    ):
        Service(tmp_path / "service", Vowels())


def test_images_are_kept_to_be_seen_again(open_service):
    class Corner:
        name, kind, origin = "corner", "image", None

        def __call__(self, items):
            return np.stack([np.asarray(image.convert("L"), np.float32)[:3, :3].ravel() for image in items])

    client = open_service(backbone=Pixels())
    for label, color in (("dark", "black"), ("light", "white")):
        client.post("/examples", json={"label": label, "images": [png(Image.new("RGB", (30, 20), color))] * 4})
    client.post("/learn")
    client.stop()
    again = open_service(backbone=Corner(), relearn=True)
    found = again.post("/predict", json={"images": [png(Image.new("RGB", (30, 20), "white"))]}).json()
    assert found["predictions"][0]["label"] == "light"
    assert again.get("/examples/1").json()["kind"] == "image"


def test_another_head_learns_from_the_vectors_that_are_kept(client, open_service):
    taught(client, 0, 1)
    taught(client, 2)
    client.stop()
    again = open_service(relearn=True, method="slda")
    entry = again.get("/history").json()["versions"][-1]
    assert (entry["version"], entry["method"], entry["new_classes"]) == (
        3,
        "SLDA",
        ["class 0", "class 1", "class 2"],
    )
    assert (entry["examples"], entry["held_back"], entry["accuracy"]) == (18, 6, 1.0)
    assert again.post("/rollback/2").status_code == 200


def test_examples_that_came_as_vectors_cannot_be_seen_again(client, tmp_path):
    taught(client, 0, 1)
    client.stop()
    with pytest.raises(
        ValueError, match=r"12 of 12 examples were not sent as texts, so the backbone vowels cannot"
    ):
        Service(tmp_path / "service", Vowels(), relearn=True)
    assert Service(tmp_path / "service").serving.version == 1


def test_classes_of_the_first_head_that_kept_no_examples_are_named(open_service):
    X, y = blobs(5, 60)
    client = open_service(first=taer.NCM().partial_fit(X[y < 2], y[y < 2].astype(str)))
    add(client, "2", vectors(2))
    add(client, "3", vectors(3))
    client.post("/learn")
    client.stop()
    again = open_service(relearn=True)
    assert again.service.notices == [
        "version 3: 12 examples learned again; 2 classes came without examples and are not in it: 0, 1"
    ]
    assert labels_of(again, vectors(2, 1)) == ["2"]


def test_nothing_kept_is_nothing_to_relearn(tmp_path):
    with pytest.raises(ValueError, match="version 0 keeps no examples"):
        Service(tmp_path, relearn=True)


def test_a_method_for_a_new_folder(open_service):
    client = open_service(method="slda")
    assert taught(client, 0, 1)["method"] == "SLDA"
    with pytest.raises(ValueError, match="wings"):
        open_service(method="wings")


def test_a_folder_of_another_schema_is_refused_with_words_and_left_alone(client, open_service, tmp_path):
    taught(client, 0, 1)
    client.stop()
    file = tmp_path / "service" / "taer.db"
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA user_version = 1")
    database.close()
    with pytest.raises(
        ValueError, match=r"another version of taer \(its database has schema 1, this version reads 4\)"
    ):
        open_service()
    with sqlite3.connect(file) as database:
        assert database.execute("SELECT count(*) FROM examples").fetchone() == (16,)
    database.close()
