"""The Open Inference Protocol: by plain JSON, and by Triton's own client."""

from __future__ import annotations

import json
import os
import struct
import subprocess

import numpy as np
import pytest

from tests.serve.backbones import Letters
from tests.serve.conftest import vectors
from tests.serve.test_app import taught

INFER = "/v2/models/service/infer"


def tensor(rows, **more):
    rows = np.asarray(rows, np.float32)
    found = {"name": "vectors", "datatype": "FP32", "shape": [*rows.shape], "data": rows.ravel().tolist()}
    return {"inputs": [found | more]}


def values(answer):
    assert answer.status_code == 200, answer.text
    return {output["name"]: output["data"] for output in answer.json()["outputs"]}


def test_health_and_metadata(client):
    assert client.get("/v2/health/live").json() == {"live": True}
    for path in ("/v2/health/ready", "/v2/models/service/ready"):
        refused = client.get(path)
        assert (refused.status_code, refused.json()["error"][:19]) == (503, "nothing was learned")
    taught(client, 0, 1)
    assert client.get("/v2/health/ready").status_code == 200
    assert client.get("/v2/models/service/ready").json() == {"name": "service", "ready": True}
    assert client.get("/v2/models/service/versions/1/ready").status_code == 200
    assert client.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    found = client.get("/v2/models/service").json()
    width = len(vectors(0)[0])
    assert (found["name"], found["versions"], found["platform"]) == ("service", ["1"], "taer_Bayes")
    assert found["inputs"] == [{"name": "vectors", "datatype": "FP32", "shape": [-1, width]}]
    assert [output["name"] for output in found["outputs"]] == ["label", "probability", "novelty", "unknown"]


def test_answers_are_those_of_predict(client):
    taught(client, 0, 1, 2)
    rows = np.array(
        [vectors(label, 1, seed=7)[0] for label in (2, 0, 1)] + [[50.0] * len(vectors(0)[0])], np.float32
    )
    expected = client.post("/predict", json={"vectors": rows.tolist()}).json()["predictions"]
    answer = client.post(INFER, json=tensor(rows) | {"id": "seven"})
    found = values(answer)
    assert (answer.json()["id"], answer.json()["model_name"], answer.json()["model_version"]) == (
        "seven",
        "service",
        "1",
    )
    assert found["label"] == [one["label"] for one in expected]
    assert found["probability"] == [one["probabilities"][0]["probability"] for one in expected]
    assert found["novelty"] == [one["novelty"] for one in expected]
    assert found["unknown"] == [one["unknown"] for one in expected]
    nested = client.post("/v2/models/service/versions/1/infer", json=tensor(rows, data=rows.tolist()))
    assert values(nested) == found
    only = client.post(INFER, json=tensor(rows) | {"outputs": [{"name": "novelty"}]})
    assert values(only) == {"novelty": found["novelty"]}
    metrics = client.get("/metrics").text
    assert "taer_predicted_samples_total 16.0" in metrics


def test_tensors_as_bytes_have_the_same_answers(client):
    taught(client, 0, 1)
    rows = np.array(vectors(1, 3, seed=7), np.float32)
    expected = values(client.post(INFER, json=tensor(rows)))
    head = tensor(rows, parameters={"binary_data_size": rows.nbytes})
    del head["inputs"][0]["data"]
    head["outputs"] = [
        {"name": "label", "parameters": {"binary_data": True}},
        {"name": "probability"},
        {"name": "novelty", "parameters": {"binary_data": True}},
    ]
    text = json.dumps(head).encode()
    answer = client.post(
        INFER, content=text + rows.tobytes(), headers={"Inference-Header-Content-Length": str(len(text))}
    )
    assert answer.status_code == 200, answer.text
    size = int(answer.headers["Inference-Header-Content-Length"])
    outputs = {one["name"]: one for one in json.loads(answer.content[:size])["outputs"]}
    rest = answer.content[size:]
    labels = b"".join(struct.pack("<I", 7) + b"class 1" for _ in rows)
    assert rest[: len(labels)] == labels
    assert outputs["label"]["parameters"] == {"binary_data_size": len(labels)}
    assert np.frombuffer(rest[len(labels) :], "<f8").tolist() == expected["novelty"]
    assert outputs["probability"]["data"] == expected["probability"]


def test_texts(open_service):
    client = open_service(backbone=Letters())
    for label, word in (("a", "aaa"), ("b", "bbb")):
        client.post("/examples", json={"label": label, "texts": [word + "c" * i for i in range(1, 7)]})
    assert client.post("/learn").status_code == 200
    assert client.get("/v2/models/service").json()["inputs"] == [
        {"name": "texts", "datatype": "BYTES", "shape": [-1]}
    ]
    asked = {"name": "texts", "datatype": "BYTES", "shape": [2, 1], "data": [["aaacc"], ["bbbcc"]]}
    assert values(client.post(INFER, json={"inputs": [asked]}))["label"] == ["a", "b"]


BAD = {
    "nothing": ({}, "inputs is missing"),
    "two tensors": ({"inputs": tensor([[1]])["inputs"] * 2}, "inputs: at most 1 are taken at once"),
    "another name": (tensor([[1]], name="x"), "expected vectors or texts, got x"),
    "another type": (tensor([[1]], datatype="INT8"), "expected the datatype FP32 or FP64, got INT8"),
    "another shape": (tensor([[1]], shape=[2, 1]), "a tensor of shape [2, 1] has 2 values, got 1"),
    "a negative shape": (tensor([[1]], shape=[-1, 1]), "inputs.0.shape.0: expected a whole number, 0 or more"),
    "a text": (tensor([[1]], data=["1"]), "every value must be a number"),
    "not finite": (tensor([[1] * 12], data=[1e300] * 12), "must be finite"),
    "a width": (tensor([[1, 2]]), "numbers in each, got 2"),
    "no data": ({"inputs": [{"name": "vectors", "datatype": "FP32", "shape": [1, 1]}]}, "data is missing"),
    "no bytes": (tensor([[1]], parameters={"binary_data_size": 4}), "binary_data_size is 4, and 0 bytes came"),
    "shared memory": (tensor([[1]], parameters={"shared_memory_region": "a"}), "shared memory is not offered"),
    "an output": (tensor([[1]]) | {"outputs": [{"name": "x"}]}, "got x"),
    "no backbone": ({"inputs": [{"name": "texts", "datatype": "BYTES", "shape": [1], "data": ["a"]}]}, "no text backbone"),
}  # fmt: skip


def test_mistakes_are_told_in_the_form_of_the_protocol(client):
    taught(client, 0, 1)
    for name, (body, told) in BAD.items():
        refused = client.post(INFER, json=body)
        assert refused.status_code == 422, name
        assert list(refused.json()) == ["error"], name
        assert told in refused.json()["error"], (name, refused.json())
    rows = tensor(vectors(0, 1))
    for path, told in {
        "/v2/models/other/infer": "there is no model other; this service has service",
        "/v2/models/service/versions/3/infer": "version 3 of service does not answer; version 1 does",
    }.items():
        refused = client.post(path, json=rows)
        assert (refused.status_code, refused.json()) == (404, {"error": told})
    assert client.get("/v2/nothing").json() == {"error": "there is nothing at this URL"}
    foreign = client.post(INFER, content=json.dumps(rows).encode(), headers={"Origin": "http://evil.example"})
    assert foreign.status_code == 415


TRITON = """
import importlib.metadata, json, sys
import numpy as np, tritonclient.http as triton

client = triton.InferenceServerClient(sys.argv[1])
rows = np.load(sys.argv[2])
assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("service")
assert client.is_model_ready("service", "1") and not client.is_model_ready("service", "2")
assert client.get_server_metadata()["name"] == "taer"
(takes,) = client.get_model_metadata("service")["inputs"]
asked = triton.InferInput(takes["name"], rows.shape, takes["datatype"])
found = []
for binary in (True, False):
    asked.set_data_from_numpy(rows, binary_data=binary)
    for outputs in (None, [triton.InferRequestedOutput(name, binary) for name in ("label", "probability", "novelty")]):
        answer = client.infer("service", [asked], outputs=outputs, request_id="7", model_version="1")
        assert answer.get_response()["id"] == "7"
        labels = [label.decode() if isinstance(label, bytes) else label for label in answer.as_numpy("label").tolist()]
        found.append([labels, *(answer.as_numpy(name).tolist() for name in ("probability", "novelty"))])
try:
    client.infer("other", [asked])
except triton.InferenceServerException as error:
    assert "there is no model other" in str(error), error
else:
    raise AssertionError("a model that is not there answered")
assert all(one == found[0] for one in found), found
print(json.dumps([*found[0], importlib.metadata.version("tritonclient"), len(found)]))
"""


@pytest.mark.slow
def test_the_client_of_triton_gets_the_same_answers(serve, tmp_path):
    python = os.environ.get("TRITON_PYTHON")
    if not python:
        pytest.skip("TRITON_PYTHON is not set: make test-all sets it")
    server = serve()
    for label in (0, 1, 2):
        server.http.post("/examples", json={"label": f"class {label}", "vectors": vectors(label)})
    assert server.http.post("/learn").status_code == 200
    rows = np.array([row for label in (0, 1, 2) for row in vectors(label, 4, seed=9)], np.float32)
    np.save(tmp_path / "rows.npy", rows)
    command = [python, "-c", TRITON, server.url.removeprefix("http://"), str(tmp_path / "rows.npy")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    labels, probabilities, novelty, version, times = json.loads(done.stdout)
    expected = server.http.post("/predict", json={"vectors": rows.tolist()}).json()["predictions"]
    assert labels == [one["label"] for one in expected]
    assert probabilities == [one["probabilities"][0]["probability"] for one in expected]
    assert novelty == [one["novelty"] for one in expected]
    print(f"tritonclient {version}: {len(rows)} rows, sent {times} times, have the bits of POST /predict")
