"""Spans of OpenTelemetry: what reaches a collector, what never does, and that nothing happens unless it is asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

pytest.importorskip("starlette")
from taer.serve import traces
from tests.serve.conftest import TOKEN, vectors

VARIABLES = ("OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", *traces._ENDPOINTS, *traces._PROTOCOLS)
LOADED = """
import sys
import taer.serve.learner, taer.serve.many.run, taer.serve.run
from taer.serve import traces
traces.start()
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


@pytest.fixture(autouse=True)
def nothing_asked_for(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.system
@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
        {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9"},
    ],
)
def test_nothing_is_imported_unless_it_is_asked_for(environment):
    done = subprocess.run(
        [sys.executable, "-c", LOADED], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_every_span_is_the_same_nothing_unless_it_is_asked_for():
    traces.start()
    nothing = traces.span("answer", samples=1)
    assert nothing is traces.span("task")
    assert nothing is traces.request({}, {})
    assert nothing is traces.under({"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"})
    assert traces.carry() is None
    assert traces.flush() is None


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_a_missing_extra_is_told_before_the_folder_is_touched(name, cli, tmp_path, monkeypatch):
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    code, _, told = cli("serve", tmp_path / "heads", "--port", 0)
    assert code != 0
    assert "pip install 'taer[otel]'" in told
    assert not (tmp_path / "heads").exists()


@pytest.mark.parametrize(
    ("value", "found"), [("otlp", ["otlp"]), ("console, otlp", ["console", "otlp"]), ("none", []), ("", [])]
)
def test_the_standard_variable_names_the_exporters(value, found, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", value)
    assert traces._exporters() == found


def test_an_exporter_that_is_not_offered_is_refused(monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp,zipkin")
    with pytest.raises(ValueError, match="expected otlp, console or none, got zipkin"):
        traces.start()


# The real SDK and its real exporter, in an environment of their own

DECODE = """
import json, sys
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

def plain(attributes):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}

found = []
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        message = ExportTraceServiceRequest.FromString(file.read())
    for resource in message.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                found.append({
                    "service": plain(resource.resource.attributes)["service.name"],
                    "name": span.name, "kind": span.kind, "trace": span.trace_id.hex(), "id": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(), "status": span.status.code, "words": span.status.message,
                    "events": len(span.events), "attributes": plain(span.attributes),
                    "start": span.start_time_unix_nano, "end": span.end_time_unix_nano,
                })
print(json.dumps(found))
"""


@pytest.fixture
def python():
    if not (found := os.environ.get("OTEL_PYTHON")):
        pytest.skip("OTEL_PYTHON is not set: make test-all sets it")
    return found


@pytest.fixture
def collector(tmp_path, python):
    """What a collector gets over OTLP/HTTP; ``spans()`` decodes it with the published messages."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    def spans():
        for number, body in enumerate(bodies):
            (tmp_path / f"{number}.otlp").write_bytes(body)
        files = [str(tmp_path / f"{number}.otlp") for number in range(len(bodies))]
        return json.loads(subprocess.run([python, "-c", DECODE, *files], capture_output=True, check=True).stdout)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
        yield SimpleNamespace(bodies=bodies, environment=environment, spans=spans)
        server.shutdown()


def client_of(number: int) -> tuple[str, str, dict[str, str]]:
    """The ids of a client's trace and span, and the header that carries them."""
    trace, span = f"{number:032x}", f"{number:016x}"
    return trace, span, {"traceparent": f"00-{trace}-{span}-01"}


@pytest.mark.slow
def test_a_trace_goes_from_the_client_to_the_learner_s_process(serve, tmp_path, collector, python):
    program = ("-m", "tests.serve.letters_server")
    server = serve(tmp_path / "desk", program=program, environment=collector.environment, python=python)
    post = server.http.post
    private = ["cafe babe", "bead deaf", "fade face", "acidic-label", "bladed-label", TOKEN, "Bearer", "aged-query"]
    for label, text in (("acidic-label", "cafe babe"), ("bladed-label", "bead deaf")):
        assert post("/examples", json={"label": label, "texts": [text] * 9}).status_code == 200
    (learned, caller, header), (asked, asker, other) = client_of(0xA1), client_of(0xB2)
    assert post("/learn", headers=header).status_code == 200
    assert post("/predict", json={"texts": ["fade face"]}, headers=other).status_code == 200
    refused, _, third = client_of(0xC3)
    assert server.http.patch("/examples/1", json={"label": "acidic-label"}, headers=third).status_code == 409
    assert server.http.patch("/classes/bladed-label", json={"label": "faced-label"}).status_code == 200
    assert server.http.get("/examples", params={"label": "aged-query"}).status_code == 200
    assert server.http.get("/nothing/aged-query").status_code == 404
    server.close()

    spans = collector.spans()
    assert {span["service"] for span in spans} == {"taer"}
    assert [span["events"] for span in spans if span["events"] or span["words"]] == []
    by_name = {span["name"]: span for span in spans if span["trace"] == learned}
    request, learning, task = (by_name.pop(name) for name in ("POST /learn", "learning", "task"))
    assert by_name == {}
    assert [request["parent"], learning["parent"], task["parent"]] == [caller, request["id"], learning["id"]]
    assert request["kind"] == 2  # a server's
    assert request["attributes"] == {
        "http.request.method": "POST",
        "http.route": "/learn",
        "http.response.status_code": 200,
        "url.scheme": "http",
    }
    assert task["attributes"] == {"taer.head": "desk", "taer.task": "learn"}
    assert (
        request["start"] <= learning["start"] <= task["start"] <= task["end"] <= learning["end"] <= request["end"]
    )

    by_name = {span["name"]: span for span in spans if span["trace"] == asked}
    request = by_name.pop("POST /predict")
    assert request["parent"] == asker
    assert {name: (span["parent"], span["attributes"]) for name, span in by_name.items()} == {
        "features": (request["id"], {"taer.backbone": "letters", "taer.samples": 1}),
        "answer": (request["id"], {"taer.head": "desk", "taer.version": 1, "taer.samples": 1}),
    }
    (refusal,) = (span for span in spans if span["trace"] == refused)
    assert refusal["attributes"]["http.response.status_code"] == 409
    assert {"PATCH /classes/{label:path}", "GET /examples", "GET"} <= {span["name"] for span in spans}

    everything = b"".join(collector.bodies)
    assert b"taer.head" in everything  # texts are in it as they are
    assert [word for word in [*private, "faced-label"] if word.encode() in everything] == []


@pytest.mark.slow
def test_a_refused_task_is_an_error_without_its_words(serve, collector, python):
    server = serve(environment=collector.environment, python=python)
    trace, _, header = client_of(0xD4)
    assert server.http.post("/learn", headers=header).status_code == 409
    server.close()
    found = {span["name"]: span for span in collector.spans() if span["trace"] == trace}
    for name in ("learning", "task"):
        assert found[name]["status"] == 2
        told = found[name]["attributes"]["error.type"], found[name]["words"], found[name]["events"]
        assert told == ("Refused", "", 0)
    assert found["POST /learn"]["status"] == 0  # the client's mistake


@pytest.mark.slow
def test_heads_of_one_server_are_told_apart_and_loading_is_a_part_of_the_request(
    serve, tmp_path, collector, python
):
    server = serve(tmp_path / "heads", "--many", environment=collector.environment, python=python)
    for name in ("billing", "sales"):
        assert server.http.post("/heads", json={"name": name}).status_code == 200
        for label in (0, 1):
            body = {"label": str(label), "vectors": vectors(label)}
            assert server.http.post(f"/heads/{name}/examples", json=body).status_code == 200
    trace, caller, header = client_of(0xE5)
    assert server.http.post("/heads/sales/learn", headers=header).status_code == 200
    server.close()
    spans = collector.spans()
    found = {span["name"]: span for span in spans if span["trace"] == trace}
    assert found["POST /learn"]["parent"] == caller
    assert found["task"]["parent"] == found["learning"]["id"]
    assert found["task"]["attributes"] == {"taer.head": "sales", "taer.task": "learn"}


@pytest.mark.slow
def test_spans_on_the_console_do_not_disturb_the_learner(serve, python, capfd):
    server = serve(environment={"OTEL_TRACES_EXPORTER": "console"}, python=python)
    for label in (0, 1):
        server.http.post("/examples", json={"label": str(label), "vectors": vectors(label)})
    assert server.http.post("/learn").status_code == 200
    server.close()
    told = capfd.readouterr().err
    assert '"name": "POST /learn"' in told
    assert '"name": "task"' in told
