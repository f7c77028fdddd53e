"""The life of a service over HTTP."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from contextlib import closing

import msgspec
import numpy as np
import pytest
from PIL import Image
from starlette.requests import Request

import taer
from taer import answers
from taer.serve import inputs
from taer.serve.store import Store
from taer.serve.tasks import learn
from tests.conftest import blobs, small_head
from tests.serve.backbones import Letters, Pixels
from tests.serve.conftest import AUTH, png, vectors
from tests.walks import follow, traced


def add(client, label, rows):
    answer = client.post("/examples", json={"label": label, "vectors": rows})
    assert answer.status_code == 200, answer.text
    return answer.json()


def taught(client, *labels):
    for label in labels:
        add(client, f"class {label}", vectors(label))
    answer = client.post("/learn")
    assert answer.status_code == 200, answer.text
    return answer.json()


def labels_of(client, rows):
    answer = client.post("/predict", json={"vectors": rows})
    assert answer.status_code == 200, answer.text
    return [prediction["label"] for prediction in answer.json()["predictions"]]


def test_examples_tasks_predictions_and_going_back(client):
    assert client.get("/classes").json() == {
        "version": 0, "width": None, "backbone": None, "learning": False, "inbox": False, "automation": False,
        "classes": [],
    }  # fmt: skip
    assert client.post("/predict", json={"vectors": [[1, 2]]}).status_code == 409
    first = taught(client, 1, 0)
    assert (first["version"], first["parent"], first["new_classes"]) == (1, 0, ["class 0", "class 1"])
    assert (first["examples"], first["held_back"], first["accuracy"], first["changes"]) == (12, 4, 1.0, None)
    second = taught(client, 2)
    assert second["new_classes"] == ["class 2"]
    assert second["changes"]["moved"] == []
    assert (second["changes"]["compared"], second["changes"]["changed"]) == (6, 0)
    rows = [vectors(label, 1, seed=5)[0] for label in (2, 1, 0)]
    assert labels_of(client, rows) == ["class 2", "class 1", "class 0"]
    assert [row["label"] for row in client.get("/classes").json()["classes"]] == ["class 0", "class 1", "class 2"]
    history = client.post("/rollback/1").json()
    assert history["current"] == 1
    assert [version["version"] for version in history["versions"]] == [1, 2]
    assert "class 2" not in labels_of(client, rows)
    third = taught(client, 3)
    assert (third["version"], third["parent"], third["held_back"]) == (3, 1, 6)  # nothing of version 2
    assert client.post("/rollback/2").json()["current"] == 2  # forward again, on the other branch
    assert labels_of(client, rows) == ["class 2", "class 1", "class 0"]
    assert client.post("/rollback/0").json()["current"] == 0
    assert client.post("/predict", json={"vectors": rows}).status_code == 409
    assert client.post("/rollback/9").status_code == 404


def test_the_answer_is_that_of_the_saved_head(client, tmp_path):
    taught(client, 0, 1, 2)
    head = taer.load(tmp_path / "service" / "versions" / "000001.safetensors")
    X = np.array(vectors(1, 5), np.float32)
    answer = client.post("/predict", json={"vectors": X.tolist(), "top": 2}).json()
    for row, prediction in zip(head.predict_proba(X), answer["predictions"], strict=True):
        listed = {entry["label"]: entry["probability"] for entry in prediction["probabilities"]}
        order = np.argsort(-row)[:2]
        assert listed == {head.classes_[i]: pytest.approx(row[i], abs=1e-6) for i in order}


@pytest.mark.parametrize("name", list(taer.HEADS))
def test_served_probabilities_are_those_of_the_head(open_service, name):
    X, y = blobs(5, 40, spread=6.0)  # classes that overlap, so that probabilities are far from 0 and 1
    head = small_head(name, random_state=0)
    for known in ([3, 0, 4], [2, 1]):
        head.partial_fit(X[np.isin(y, known)], y[np.isin(y, known)].astype(str))
    client = open_service(first=head)
    rows = X[:30].astype(np.float32)
    expected = head.predict_proba(rows)
    assert 0.2 < np.median(expected.max(axis=1)) < 0.999
    answers = client.post("/predict", json={"vectors": rows.tolist(), "top": 5}).json()["predictions"]
    assert [answer["label"] for answer in answers] == head.predict(rows).tolist()
    for row, answer in zip(expected.tolist(), answers, strict=True):
        listed = {entry["label"]: entry["probability"] for entry in answer["probabilities"]}
        assert listed == pytest.approx(dict(zip(head.classes_.tolist(), row, strict=True)), abs=1e-6)


def test_a_near_tie_is_decided_by_the_scores(open_service):
    X, y = blobs(3, 20)
    head = taer.NCM().partial_fit(X, y.astype(str))
    head.temperature_ = 1e20  # all probabilities round to the same number
    client = open_service(first=head)
    rows = X.astype(np.float32)
    answers = client.post("/predict", json={"vectors": rows.tolist()}).json()["predictions"]
    assert [answer["label"] for answer in answers] == head.predict(rows).tolist()
    assert all(answer["label"] == answer["probabilities"][0]["label"] for answer in answers)


@pytest.mark.parametrize(("counts", "held_out"), [([7], 0), ([8], 2), ([4, 4], 1), ([5, 2, 1, 4], 2)])
def test_a_quarter_of_a_class_is_held_out_from_eight_examples_on(client, counts, held_out):
    rows = vectors(0, sum(counts))
    for count in counts:
        add(client, "a", rows[:count])
        del rows[:count]
        version = client.post("/learn").json()
    assert version["held_back"] == held_out
    assert (version["accuracy"] is None) == (held_out == 0)


def test_confusion_is_in_order_of_learning(client):
    taught(client, 3, 1)
    taught(client, 0)
    confusion = client.get("/confusion").json()
    assert confusion["classes"] == ["class 1", "class 3", "class 0"]
    assert sum(cell["count"] for cell in confusion["cells"]) == 6
    assert all(cell["truth"] == cell["answer"] for cell in confusion["cells"])


def test_waiting_examples_can_be_discarded(client):
    add(client, "a", vectors(0))
    assert client.get("/classes").json()["classes"][0]["waiting"] == 8
    assert client.delete("/examples").json() == {"discarded": 8}
    assert client.get("/classes").json()["classes"] == []
    answer = client.post("/learn")
    assert answer.status_code == 409
    assert "no examples" in answer.json()["detail"]


def test_a_known_class_may_return(client):
    taught(client, 0, 1)
    again = taught(client, 1)
    assert again["new_classes"] == []
    assert again["changes"]["moved"] == ["class 1"]
    assert "the scores of 1 of the 2 classes it knew changed" in again["changes"]["sentence"]


def test_a_version_that_cannot_learn_what_waits_is_not_gone_to(client):
    taught(client, 0, 1)
    client.post("/rollback/0")
    add(client, "class 2", [[1.0, 2.0], [3.0, 1.0]])
    refused = client.post("/rollback/1")
    assert refused.status_code == 409
    assert refused.json()["detail"] == (
        "2 waiting examples have 2 features and version 1 takes 12; learn or discard them first; nothing was changed"
    )
    assert client.get("/health").json()["version"] == 0
    client.delete("/examples")
    assert client.post("/rollback/1").status_code == 200
    assert taught(client, 2)["version"] == 2


def test_the_answer_warns_of_classes_with_too_few_samples(open_service):
    X, y = blobs(5, 60)
    client = open_service(first=taer.zoo.GaussFrozen().partial_fit(X[y < 2], y[y < 2]))
    add(client, "2", vectors(2, 40))
    assert client.post("/learn").json()["warnings"] == []
    add(client, "3", vectors(3, 4))
    (warning,) = client.post("/learn").json()["warnings"]
    assert warning.startswith(
        "gauss-frozen: 1 new class has fewer than 20 samples (3: 4) beside known classes of 60"
    )
    assert [entry["warnings"] for entry in client.get("/history").json()["versions"]] == [[], [], [warning]]


def test_it_starts_from_a_saved_head_and_comes_back(open_service):
    X, y = blobs(5, 60)
    head = taer.ER(random_state=0).partial_fit(X[y < 2], y[y < 2])
    client = open_service(first=head, held_back=(X[y < 2][:20], [str(label) for label in y[y < 2][:20]]))
    entry = client.get("/history").json()["versions"][0]
    assert (entry["method"], entry["held_back"], entry["accuracy"]) == ("ER", 20, 1.0)
    assert client.post("/examples", json={"label": "cat", "vectors": vectors(2)}).status_code == 422
    add(client, "2", vectors(2))
    assert client.post("/learn").json()["new_classes"] == ["2"]
    assert labels_of(client, vectors(2, 3, seed=9)) == ["2", "2", "2"]
    add(client, "3", vectors(3))
    client.stop()
    again = open_service(first=head)  # the folder is not empty, so the head is not taken again
    assert again.get("/health").json()["version"] == 2
    assert labels_of(again, vectors(2, 3, seed=9)) == ["2", "2", "2"]
    assert again.get("/classes").json()["classes"][-1] == {
        "label": "3", "task": None, "examples": 0, "held_back": 0, "waiting": 8,
    }  # fmt: skip


def test_images_and_texts(open_service):
    client = open_service(backbone=Pixels())
    dark, light = png(Image.new("RGB", (30, 20), "black")), png(Image.new("L", (20, 20), "white"), "JPEG")
    for label, image in (("dark", dark), ("light", f"data:image/jpeg;base64,{light}")):
        added = client.post("/examples", json={"label": label, "images": [image] * 4})
        assert added.status_code == 200, added.text
    client.post("/learn")
    transparent = png(Image.new("RGBA", (10, 10), (0, 0, 0, 0)))
    found = client.post("/predict", json={"images": [dark, light, transparent]}).json()["predictions"]
    assert [prediction["label"] for prediction in found] == ["dark", "light", "light"]
    assert client.get("/classes").json()["backbone"] == {"name": "pixels", "kind": "image", "drawings": False}
    assert "no text backbone" in client.post("/predict", json={"texts": ["a"]}).json()["detail"]


def test_texts(open_service):
    client = open_service(backbone=Letters())
    for label, text in (("first", "aaa"), ("last", "fff")):
        client.post("/examples", json={"label": label, "texts": [text] * 4})
    client.post("/learn")
    found = client.post("/predict", json={"texts": ["a a", "f"]}).json()["predictions"]
    assert [prediction["label"] for prediction in found] == ["first", "last"]


def bomb():
    """A picture of 9,000 × 9,000 pixels in a few hundred bytes of header and nothing else."""
    import struct
    import zlib

    def chunk(kind, content):
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 9000, 9000, 8, 2, 0, 0, 0)
    import base64

    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(10_000)))
    return base64.b64encode(content + chunk(b"IEND", b"")).decode()


BAD = {
    "no body": ("/predict", None, "required"),
    "not JSON": ("/predict", b"{", "JSON"),
    "not an object": ("/predict", [1], "an object"),
    "nothing": ("/predict", {}, "exactly one"),
    "two kinds": ("/predict", {"vectors": [[1.0]], "texts": ["a"]}, "exactly one"),
    "empty": ("/predict", {"vectors": []}, "at least 1"),
    "empty vector": ("/predict", {"vectors": [[]]}, "at least 1"),
    "not numbers": ("/predict", {"vectors": [["a"] * 12]}, "vectors.0.0: expected a number, got a string"),
    "ragged": ("/predict", {"vectors": [[1.0] * 12, [1.0] * 11]}, "same length"),
    "wrong width": ("/predict", {"vectors": [[1.0] * 11]}, "expected 12 numbers in each, got 11"),
    "NaN": ("/predict", b'{"vectors": [[NaN' + b", 1.0" * 11 + b"]]}", "JSON"),
    "too large a number": ("/predict", {"vectors": [[1e39] * 12]}, "fit in 32 bits"),
    "too many": ("/predict", {"vectors": [[1.0] * 12] * 1025}, "at most 1024"),
    "unknown field": ("/predict", {"vectors": [[1.0] * 12], "wings": 2}, "no field wings"),
    "top": ("/predict", {"vectors": [[1.0] * 12], "top": 0}, "1 or more"),
    "deep": ("/predict", b"[" * 100_000, ""),
    "huge integer": ("/predict", b'{"vectors": [[' + b"9" * 10_000 + b"]]}", ""),
    "not base64": ("/predict", {"images": ["**"]}, "base64"),
    "not an image": ("/predict", {"images": ["aGVsbG8="]}, "not a readable"),
    "bomb": ("/predict", {"images": [bomb()]}, "81 megapixels (9000 × 9000)"),
    "no label": ("/examples", {"vectors": [[1.0] * 12]}, "label is missing"),
    "blank label": ("/examples", {"label": "  ", "vectors": [[1.0] * 12]}, "printable"),
    "a label that is no address": (
        "/examples",
        {"label": "..", "vectors": [[1.0] * 12]},
        "cannot be the name of a",
    ),
    "invisible label": ("/examples", {"label": "a\u0000b", "vectors": [[1.0] * 12]}, "printable"),
    "half a character": ("/examples", b'{"label": "\\ud800", "vectors": [[1.0]]}', ""),
    "long label": ("/examples", {"label": "a" * 101, "vectors": [[1.0] * 12]}, "at most 100"),
    "example width": ("/examples", {"label": "a", "vectors": [[1.0] * 3]}, "expected 12"),
    "version": ("/rollback/-1", None, "version: expected a whole number, 0 or more"),
    "no number": ("/rollback/first", None, "version: expected a whole number, got a string"),
    "many texts": ("/predict", {"texts": ["a"] * 65}, "texts: at most 64 are taken at once"),
    "form": ("/predict", {"vectors": [[True] * 12]}, "expected a number, got true or false"),
    "address": ("/nowhere", {}, "this URL"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_is_refused_in_a_sentence(open_service, case):
    X, y = blobs(3, 20)
    client = open_service(first=taer.TaER(random_state=0).partial_fit(X, y.astype(str)), backbone=Pixels())
    client.headers["Content-Type"] = "application/json"
    path, body, words = BAD[case]
    form = {"content": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
    answer = client.post(path, **form)
    assert 400 <= answer.status_code < 500, answer.text
    detail = answer.json()["detail"]
    assert words in detail
    assert len(detail) < 400
    assert "Traceback" not in answer.text
    assert "/tmp" not in answer.text
    assert client.get("/classes").json()["classes"][-1]["waiting"] == 0


def test_requests_are_bounded(client, monkeypatch):
    answer = client.post("/predict", content=b" " * (inputs.MAX_BODY + 1))
    assert answer.status_code == 413
    assert "16 MiB" in answer.json()["detail"]

    def endless():
        for _ in range(20):
            yield b" " * (1 << 20)

    # no length announced
    answer = client.post("/predict", content=endless(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    monkeypatch.setattr("taer.serve.service.MAX_PENDING", 10)
    add(client, "a", vectors(0))
    assert client.post("/examples", json={"label": "a", "vectors": vectors(0)}).status_code == 409


def test_changes_need_the_token_and_predictions_do_not(client):
    taught(client, 0, 1)
    for header in ({"Authorization": ""}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic c2VjcmV0"}):
        for method, path in (
            ("POST", "/examples"), ("DELETE", "/examples"), ("POST", "/learn"), ("POST", "/rollback/0"),
        ):  # fmt: skip
            answer = client.request(method, path, headers=header)
            assert answer.status_code == 401
            assert "token" in answer.json()["detail"]
        assert client.post("/predict", json={"vectors": vectors(0)}, headers=header).status_code == 200
        assert client.get("/history", headers=header).status_code == 200


@pytest.mark.parametrize("path", ["/examples", "/examples/1", "/examples?limit=1", "/%65xamples"])
def test_samples_are_read_with_the_token_alone(client, path):
    taught(client, 0, 1)
    for header in ({"Authorization": ""}, {"Authorization": "Bearer wrong"}):
        assert client.get(path, headers=header).status_code == 401
        assert client.head(path, headers=header).status_code == 401
    assert client.get(path).status_code == 200


def test_a_body_without_a_content_type_is_refused(client):
    """A page of another origin may send one without asking the service first."""
    taught(client, 0, 1)
    content = msgspec.json.encode({"vectors": vectors(0)})
    for kind in ({}, {"Content-Type": ""}, {"Content-Type": "text/plain"}):
        answer = client.post("/predict", content=content, headers=kind | {"Origin": "http://evil.example"})
        assert answer.status_code == 415
        assert answer.json()["detail"].startswith(
            "Content-Type: expected application/json or application/x-npy, got"
        )


def test_a_public_address_needs_the_token_for_everything(tmp_path):
    from starlette.testclient import TestClient

    from taer.serve.app import create_app
    from taer.serve.service import Service
    from tests.serve.conftest import AUTH, TOKEN

    with TestClient(
        create_app(Service(tmp_path), TOKEN, public=True, hosts=None), base_url="http://any.example"
    ) as client:
        for path in ("/classes", "/history", "/confusion", "/metrics"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers=AUTH).status_code == 200
        assert client.post("/predict", json={"vectors": [[1.0]]}).status_code == 401
        assert client.get("/health").status_code == 200


def asked(client, method, path, receive, **headers):
    """The status of a request whose body comes from ``receive``."""
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": [(b"host", b"localhost"), *((k.encode(), v.encode()) for k, v in headers.items())],
    }  # fmt: skip
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(client.app(scope, receive, send))
    return sent[0]["status"]


@pytest.mark.parametrize("path", ["/examples", "/learn", "/rollback/0", "/nowhere"])
def test_without_the_token_nothing_is_read(client, path):
    async def receive():
        raise AssertionError("the body was asked for before the token was checked")

    assert asked(client, "POST", path, receive) == 401
    assert asked(client, "POST", path, receive, authorization="Bearer wrong") == 401


def test_a_public_address_tells_nothing_by_way_of_odd_paths(tmp_path):
    from starlette.testclient import TestClient

    from taer.serve.app import create_app
    from taer.serve.service import Service

    with TestClient(
        create_app(Service(tmp_path), "secret", public=True, hosts=None), base_url="http://any.example"
    ) as client:
        for path in (
            "/classes%0a",
            "/classes/",
            "/./classes",
            "/history?/health",
            "/health/../classes",
        ):
            assert client.get(path, follow_redirects=False).status_code == 401, path
        for path in ("/", "/main.js", "/docs", "/openapi.json", "/health"):
            assert client.get(path).status_code == 200, path


def test_large_bodies_are_parsed_beside_the_loop_and_small_ones_at_once(client, monkeypatch):
    taught(client, 0, 1)
    threads = []

    class Noting(bytes):  # counted where it is parsed
        def count(self, sub):
            threads.append(threading.current_thread().name)
            return super().count(sub)

    read = Request.body

    async def body(self):
        return Noting(await read(self))

    monkeypatch.setattr(Request, "body", body)
    assert labels_of(client, vectors(0, 2)) == ["class 0"] * 2
    assert labels_of(client, vectors(0, 2) * 500) == ["class 0"] * 1000
    assert "AnyIO worker" not in threads[0]
    assert "AnyIO worker" in threads[-1]


@pytest.mark.parametrize(
    "body", [b"[" + b"[]," * 2_000_000 + b"[]]", b'{"a": [' + b'{"":{}},' * 1_000_000 + b"{}]}"]
)
def test_a_body_of_nothing_but_brackets_is_not_parsed(client, body):
    answer = client.post("/predict", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert "brackets" in answer.json()["detail"]


def test_a_foreign_name_for_our_address_is_refused(client):
    assert client.get("/classes", headers={"Host": "evil.example"}).status_code == 400
    assert client.get("/classes", headers={"Host": "localhost:8000"}).status_code == 200
    assert client.get("/classes", headers={"Host": "[::1]:8000"}).status_code == 200


def test_a_list_of_examples_loads_neither_images_nor_vectors(client):
    image = b"\xff\xd8" + bytes(100_000)
    client.service.add_examples("a", np.zeros((100, 1000), np.float32), [image] * 100)
    client.service.add_examples("b", np.zeros((1, 1000), np.float32), ["a text"])
    tracemalloc.start()
    listed = client.get("/examples?limit=1000").json()["examples"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [example["kind"] for example in listed] == ["image"] * 100 + ["text"]
    assert listed[-1] == {
        "id": 101, "label": "b", "version": None, "held_back": False, "added": listed[-1]["added"], "kind": "text",
        "text": "a text",
    }  # fmt: skip
    assert peak < 3e6  # they have 10 MB


ANSWERS = {
    "/examples": answers.Examples, "/examples/1": answers.OneExample, "/classes": answers.Classes,
    "/history": answers.History, "/confusion": answers.Confusion, "/drift": answers.Drift, "/health": answers.Health,
}  # fmt: skip


def test_answers_are_of_the_types_that_are_described(client):
    taught(client, 0, 1)
    for path, kind in ANSWERS.items():
        msgspec.convert(client.get(path).json(), kind)  # raises if something is missing or of another type
    described = client.get("/openapi.json").json()
    words = {
        f"{name}.{field}": part.get("description")
        for name, schema in described["components"]["schemas"].items()
        for field, part in schema.get("properties", {}).items()
    }
    assert words["Prediction.unknown"] == "Whether its novelty is above the threshold: something new?"
    assert words["OneExample.image"].startswith("A small copy")
    assert words["PredictRequest.top"].startswith("How many classes")
    examples = {part["name"]: part for part in described["paths"]["/examples"]["get"]["parameters"]}
    assert examples["limit"]["schema"] == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
    assert all(one["description"] for methods in described["paths"].values() for one in methods.values())
    assert "security" not in described["paths"]["/predict"]["post"]
    assert described["paths"]["/purge"]["post"]["security"] == [{"token": ["admin"]}]


def test_methods_that_somebody_makes_up_are_counted_as_one(client):
    for number in range(50):
        assert client.request(f"X{number}", "/predict").status_code == 405
    text = client.get("/metrics").text
    assert "X1" not in text
    assert 'taer_requests_total{method="",path="/predict",status="405"} 50.0' in text


def test_metrics_and_headers(client):
    taught(client, 0, 1)
    labels_of(client, vectors(0, 3))
    client.get("/some/where")
    answer = client.get("/metrics")
    for line in (
        'taer_requests_total{method="POST",path="/predict",status="200"} 1.0',
        "taer_predicted_samples_total 3.0",
        "taer_learned_tasks_total 1.0",
        "taer_version 1.0",
        "taer_classes 2.0",
        "taer_waiting_examples 0.0",
        "taer_learning 0.0",
    ):
        assert line in answer.text
    assert "/some/where" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_the_page_and_its_docs_need_nothing_from_elsewhere(client):
    from taer.serve.app import PAGE

    assert client.get("/").headers["content-type"].startswith("text/html")
    assert client.get("/docs").status_code == 200
    assert client.get("/openapi.json").json()["info"]["title"] == "taer serve"
    for file in PAGE.iterdir():
        assert client.get(f"/{file.name}").status_code == 200
        text = file.read_text()
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text
    assert client.get("/../store.py").status_code == 404
    assert client.get("/%2e%2e/store.py").status_code == 404


def test_one_learner_at_a_time_and_predictions_go_on(client):
    taught(client, 0, 1)
    add(client, "class 2", vectors(2))
    with client.service.learner.exclusively():
        assert client.get("/health").json()["learning"]
        for method, path in (("POST", "/learn"), ("POST", "/rollback/0"), ("DELETE", "/examples")):
            answer = client.request(method, path)
            assert answer.status_code == 409
            assert "a task is being learned" in answer.json()["detail"]
        assert labels_of(client, vectors(1, 2)) == ["class 1", "class 1"]
        add(client, "class 2", vectors(2))
    assert client.post("/learn").json()["examples"] == 12


def test_a_learner_that_dies_changes_nothing_and_is_replaced(open_service):
    client = open_service(learner=None)  # a process of its own
    add(client, "class 0", vectors(0))
    client.service.learner._process.kill()
    client.service.learner._process.wait()
    assert client.post("/learn").json()["version"] == 1
    add(client, "class 1", vectors(1))
    process = client.service.learner._process
    process.stdout.close()  # as if it died in the middle
    assert client.post("/learn").status_code == 409
    process.kill()
    process.wait()
    assert client.post("/learn").status_code in (200, 409)
    assert client.get("/classes").json()["classes"][0]["label"] == "class 0"


def test_the_learner_runs_nothing_that_lies_in_the_working_directory(open_service, tmp_path, monkeypatch):
    client = open_service(learner=None)  # which starts now
    (tmp_path / "queue.py").write_text("open('executed', 'w').close()\nraise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    assert taught(client, 0, 1)["version"] == 1
    assert not (tmp_path / "executed").exists()


def test_an_unforeseen_failure_tells_nothing(client, monkeypatch):
    monkeypatch.setattr("taer.serve.service.Service.classes", lambda self: 1 / 0)
    answer = client.get("/classes")
    assert answer.status_code == 500
    assert answer.json() == {"detail": "something failed inside the service; its log says what"}


def test_a_client_that_goes_away_in_the_middle_of_its_body_is_no_error(client):
    parts = iter(
        [{"type": "http.request", "body": b'{"vectors": [[', "more_body": True}, {"type": "http.disconnect"}]
    )
    sent = []

    async def receive():
        return next(parts)

    async def send(message):
        sent.append(message)

    headers = {"host": "127.0.0.1", "content-type": "application/json", "content-length": "1000"} | AUTH
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": "/predict",
        "raw_path": b"/predict", "query_string": b"", "root_path": "", "client": ("127.0.0.1", 5),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    client.portal.call(client.app, scope, receive, send)  # raises what the application raises
    assert sent == []


def test_the_walk_of_a_request_is_walked(open_service, tmp_path):
    def ask():
        client = open_service()
        client.post("/examples", json={"label": "a", "vectors": vectors(0)})
        client.post("/examples", json={"label": "b", "vectors": vectors(1)})
        assert client.post("/learn").status_code == 200
        assert client.post("/predict", json={"vectors": vectors(1)}).status_code == 200
        client.post("/examples", json={"label": "c", "vectors": vectors(2)})
        client.stop()
        with closing(Store(tmp_path / "service")) as store:  # as the process that learns does
            learn(store, "bayes", None, None)

    follow("A request to the service", traced(ask))
