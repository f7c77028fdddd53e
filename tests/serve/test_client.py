"""A service from Python, and ``taer teach``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import taer
import taer.client
from taer.cli import main
from taer.client import AsyncClient, Client, ServiceError
from taer.features import save_features
from taer.serve import inputs
from tests.conftest import blobs
from tests.serve.backbones import Letters, Pixels
from tests.serve.conftest import TOKEN, vectors


def test_both_clients_have_the_same_verbs():
    verbs = [{name for name in vars(kind) if not name.startswith("_")} for kind in (Client, AsyncClient)]
    assert verbs[0] == verbs[1]
    assert len(verbs[0]) > 15


def test_every_verb(serve, tmp_path):
    server = serve(tmp_path / "service", "--inbox", "10")
    with Client(server.url, TOKEN) as client:
        for label in (0, 1, 2):
            client.add(f"class {label}", np.array(vectors(label), np.float32))
        assert client.learn()["version"] == 1
        answer = client.predict(vectors(1, 2), top=2)
        assert [one["label"] for one in answer["predictions"]] == ["class 1", "class 1"]
        assert len(answer["predictions"][0]["probabilities"]) == 2
        client.predict((np.array(vectors(3, 1)) * 9).tolist())
        assert client.inbox_groups()["compared"] == client.inbox()["kept"] == 1
        (one,) = client.inbox_next(5)["inputs"]
        assert client.name_inputs([one["id"]], "new")["waiting"] == 1
        assert client.discard() == 1
        client.predict((np.array(vectors(3, 2)) * 9).tolist())
        assert client.dismiss_inputs([one["id"] for one in client.inbox()["inputs"]]) == 2
        assert client.rename("class 2", "a / b")["version"] == 2
        assert [example["id"] for example in client.examples("a / b", limit=2)["examples"]] == [17, 18]
        assert client.example(17)["label"] == "a / b"
        assert client.relabel(17, "class 1") == {"version": 3}
        assert client.delete(18) == {"version": 4}
        assert client.forget("a / b")["version"] == 5
        assert client.rollback(2)["current"] == 2
        client.add("new", [vectors(3, 1)[0]])
        assert client.discard() == 1
        assert client.purge([17])["versions"] == [1, 2, 3, 4, 5]
        assert len(client.classes()["classes"]) == 3
        assert client.history()["current"] == 0
        assert client.confusion()["cells"] == []
        assert client.drift()["answered"] == 5
        assert client.health()["status"] == "ok"
        with pytest.raises(ServiceError, match="nothing was learned yet") as error:
            client.predict(vectors(0, 1))
        assert error.value.status == 409
        with pytest.raises(ValueError, match="exactly one"):
            client.predict()


def test_without_waiting_in_line(serve, tmp_path):
    server = serve(program=("-m", "tests.serve.pixels_server"))

    async def ask():
        async with AsyncClient(server.url, TOKEN) as client:
            for label, color in (("dark", "black"), ("light", "white")):
                Image.new("RGB", (20, 10), color).save(tmp_path / f"{label}.png")
                await client.add(label, images=[tmp_path / f"{label}.png"] * 4)
            await client.learn()
            answers = await asyncio.gather(*(client.predict(np.full((1, 64), shade)) for shade in (0.0, 1.0)))
            return [answer["predictions"][0]["label"] for answer in answers]

    assert asyncio.run(ask()) == ["dark", "light"]


LIMITS = [
    ("VECTORS", "MAX_VECTORS"),
    ("IMAGES", "MAX_IMAGES"),
    ("TEXTS", "MAX_TEXTS"),
    ("WHY", "MAX_WHY"),
    ("BYTES", "MAX_IMAGE_BYTES"),
]


@pytest.mark.parametrize(("ours", "service"), LIMITS)
def test_requests_of_the_client_are_as_large_as_the_service_takes(ours, service):
    assert getattr(taer.client, f"_MAX_{ours}") == getattr(inputs, service)


@pytest.fixture
def at(open_service, monkeypatch):
    """A client of a service in this process, and the sizes of its requests."""

    def connect(backbone=None):
        service = open_service(backbone=backbone)
        monkeypatch.setattr("httpx2.Client", lambda **options: service)
        request, service.sent = service.request, []
        monkeypatch.setattr(
            service, "request", lambda *what, **more: service.sent.append(what) or request(*what, **more)
        )
        return Client("http://127.0.0.1", TOKEN), service

    return connect


@pytest.mark.parametrize(
    "items",
    [
        {"texts": "I lost"},
        {"images": "photo.jpg"},
        {"images": b"\\x89PNG"},
        {"images": Path("photo.jpg")},
        {"texts": {"a": 1}},
        {"texts": pd.DataFrame({"text": ["I lost my card"]})},
        {"texts": ["a", float("nan")]},
    ],
    ids=lambda items: f"{next(iter(items))} {type(next(iter(items.values()))).__name__}",
)
def test_what_is_no_list_is_refused_before_anything_is_sent(at, items):
    client, service = at(Letters())
    for verb in (client.predict, lambda **more: client.add("x", **more)):
        with pytest.raises(ValueError, match=r"^(texts|images): expected"):
            verb(**items)
    assert service.sent == []


def test_long_lists_are_sent_in_parts(at):
    client, service = at(Letters())
    texts = pd.Series(["aaa", "fff"] * 100, index=range(200, 0, -1))
    for label, letter in (("first", "a"), ("last", "f")):
        added = client.add(label, texts=texts[texts.str.startswith(letter)])
        assert len(added["ids"]) == 100
    assert added["waiting"] == 200
    client.learn()
    service.sent.clear()
    found = client.predict(texts=texts)["predictions"]
    assert [one["label"] for one in found] == ["first", "last"] * 100
    assert len(service.sent) == 4
    service.sent.clear()
    reasons = [one["why"] for one in client.predict(texts=texts[:20], why=True)["predictions"]]
    assert [why["runner_up"]["label"] for why in reasons] == ["last", "first"] * 10
    features = np.array([client.example(1)["vector"]] * 20)
    found = client.predict(features, why=True)["predictions"]
    assert [one["why"]["answer"]["label"] for one in found] == ["first"] * 20
    assert len(service.sent) == 5


def test_many_and_wide_vectors_are_sent_in_parts(at):
    client, service = at()
    client.add("a", np.zeros((3000, 2)))
    assert len(service.sent) == 3
    with pytest.raises(ServiceError, match="expected 2 numbers"):
        client.add("a", np.zeros((1000, 2000)))  # 16 MB
    assert len(service.sent) == 4


def test_images_that_are_large_together_are_sent_one_by_one(at, tmp_path):
    client, service = at(Pixels())
    noise = np.random.default_rng(0).integers(0, 256, (1300, 1600, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png", compress_level=0)  # 6 MB
    assert len(client.add("a", images=[tmp_path / "noise.png"] * 3)["ids"]) == 3
    assert len(service.sent) == 3


def test_what_was_added_before_a_failure_is_told(at):
    client, _ = at(Letters())
    with pytest.raises(ServiceError) as error:
        client.add("a", texts=["a"] * 64 + [""])
    assert error.value.status == 422
    assert error.value.__notes__ == ["64 examples were added before this and wait: ids 1 to 64"]


def test_one_version_answers_a_long_list(at, monkeypatch):
    client, service = at()
    for label in (0, 1):
        client.add(f"class {label}", vectors(label))
    client.learn()
    client.rename("class 1", "class one")
    answer, versions = service.request, iter([1])

    def request(method, path, **options):
        found = answer(method, path, **options)
        if path == "predict" and (version := next(versions, None)):
            service.post(f"/rollback/{version}")
        return found

    monkeypatch.setattr(service, "request", request)
    found = client.predict(np.repeat(vectors(1), 200, axis=0))
    assert found["version"] == 1
    assert {one["label"] for one in found["predictions"]} == {"class 1"}


@pytest.fixture
def teach(open_service, monkeypatch, capsys):
    """``taer teach`` at a service in this process: its exit code, what it printed, and how often it sent examples."""

    def run(backbone, examples):
        service, sent = open_service(backbone=backbone), []
        monkeypatch.setattr("httpx2.Client", lambda **options: service)
        monkeypatch.setattr(service, "close", lambda: None)
        request = service.request
        monkeypatch.setattr(service, "request", lambda *what, **more: sent.append(what) or request(*what, **more))
        with pytest.raises(SystemExit) as done:
            main(["teach", "http://127.0.0.1", str(examples), "--token", TOKEN])
        said = capsys.readouterr()
        return done.value.code, said.out or said.err, sent.count(("POST", "examples")), service

    return run


def test_teach_many_texts_at_once(teach, tmp_path):
    table = tmp_path / "examples.csv"
    table.write_text("text,label\n" + "".join(f"a{'b' * (n % 3)},first\nf,last\n" for n in range(70)))
    code, said, requests, _ = teach(Letters(), table)
    assert (code, said) == (0, "version 1: 140 examples of 2 classes; 2 classes in all\n")
    assert requests == 4


def test_rows_without_a_label_in_a_table_of_next_are_not_taught(teach, tmp_path):
    table = tmp_path / "next.csv"
    table.write_text("text;label;guess;row\na;first;;1\nf;last;;2\nff;;;3\n")
    code, said, _, _ = teach(Letters(), table)
    assert (code, said) == (0, "version 1: 2 examples of 2 classes; 2 classes in all\n")


def test_teach_a_folder_of_images(teach, tmp_path):
    for label, color in (("dark", "black"), ("light", "white")):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(20):
            Image.new("RGB", (20, 10), color).save(tmp_path / f"images/{label}/{number}.png")
    code, said, requests, service = teach(Pixels(), tmp_path / "images")
    assert (code, said) == (0, "version 1: 40 examples of 2 classes; 2 classes in all\n")
    assert requests == 4  # of 16 images or fewer
    answer = service.post("/predict", json={"vectors": [[1.0] * 64]}).json()
    assert answer["predictions"][0]["label"] == "light"


def test_large_images_are_sent_one_by_one(teach, tmp_path):
    (tmp_path / "photos" / "noise").mkdir(parents=True)
    noise = np.random.default_rng(0).integers(0, 256, (1300, 1600, 3), np.uint8)
    for number in range(2):  # 6 MB each, and a request takes 16 MiB with base64
        Image.fromarray(noise).save(tmp_path / f"photos/noise/{number}.png", compress_level=0)
    code, said, requests, _ = teach(Pixels(), tmp_path / "photos")
    assert (code, said, requests) == (0, "version 1: 2 examples of 1 class; 1 class in all\n", 2)


def test_teach_a_feature_file(teach, tmp_path):
    X, y = blobs(3, 60)
    save_features(taer.FeatureSet(X, y, X, y, ("a", "b", "c")), tmp_path / "blobs.safetensors")
    code, said, _, service = teach(None, tmp_path / "blobs.safetensors")
    assert (code, said) == (0, f"version 1: {len(X)} examples of 3 classes; 3 classes in all\n")
    answer = service.post("/predict", json={"vectors": X[y == 1][:1].tolist()}).json()
    assert answer["predictions"][0]["label"] == "b"


def test_features_of_another_backbone_are_not_taught(teach, tmp_path):
    X, y = blobs(3, 60)
    features = taer.FeatureSet(X, y, X, y, ("a", "b", "c"), meta={"backbone": "resnet18", "weights": "sha256:0"})
    save_features(features, tmp_path / "blobs.safetensors")
    code, said, requests, _ = teach(Pixels(), tmp_path / "blobs.safetensors")
    assert (code, requests) == (2, 0)
    assert "features by resnet18, and the service has pixels" in said


@pytest.mark.parametrize(
    ("content", "words"),
    [("question,label\na,b\n", "no column text"), ("text,label\n", "no rows"), (None, "no such file")],
)
def test_a_table_that_cannot_be_taught(tmp_path, capsys, content, words):
    table = tmp_path / "examples.csv"
    if content is not None:
        table.write_text(content)
    with pytest.raises(SystemExit) as done:
        main(["teach", "http://127.0.0.1:1", str(table), "--token", "x"])
    assert done.value.code == 2
    assert words in capsys.readouterr().err
