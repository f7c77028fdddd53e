"""Everything the OpenAPI description allows, and much that it does not, sent to a real server: never a 500."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.conftest import TOKEN, vectors

COMMAND = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
ROOT = Path(__file__).parents[2]
REACHED = (
    "PATCH /examples/{number}", "DELETE /examples/{number}", "PATCH /classes/{label:path}",
    "DELETE /classes/{label:path}", "POST /purge", "POST /predict", "POST /rollback/{version}",
)  # fmt: skip
OF_HEADS = (
    *(route for route in REACHED if "label" not in route),
    "GET /examples", "GET /inbox", "POST /inbox/{number}", "POST /inbox/dismiss", "DELETE /inbox/{number}",
    "POST /v2/models/{model}/infer",
    "POST /v2/models/{model}/versions/{version}/infer",
)  # fmt: skip
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.slow
@pytest.mark.skipif(COMMAND is None, reason="needs schemathesis (pip install schemathesis)")
def test_no_request_makes_it_fail(serve, tmp_path):
    server = serve(program=("-m", "tests.serve.pixels_server"))
    for label in (0, 1):
        server.http.post("/examples", json={"label": str(label), "vectors": vectors(label)})
    assert server.http.post("/learn").status_code == 200
    run(server, tmp_path, "tests.serve.schema_hooks", 60)
    counts = answered(server)
    print("\n".join(f"{route}: {found}" for route, found in sorted(counts.items())))
    for route in REACHED:
        assert counts[route].get(200, 0) >= 10, (route, counts[route])


@pytest.mark.slow
@pytest.mark.skipif(COMMAND is None, reason="needs schemathesis (pip install schemathesis)")
def test_no_request_of_several_labels_makes_it_fail(serve, tmp_path):
    server = serve(tmp_path / "service", "--multi-label")
    for label in (0, 1):
        server.http.post("/examples", json={"label": f"{label};both", "vectors": vectors(label)})
    assert server.http.post("/learn").status_code == 200
    run(server, tmp_path, "tests.serve.schema_hooks", 12)
    counts = answered(server)
    for route in ("POST /examples", "POST /purge", "POST /predict", "POST /rollback/{version}"):
        assert counts[route].get(200, 0) >= 3, (route, counts[route])


LABEL_STUDIO = """
import sys
import taer.serve.run
from taer.cli import main
from tests.serve.backbones import Letters

taer.serve.run.find = lambda name, head: Letters()
main(["label-studio", *sys.argv[1:], "--backbone", "letters"])
"""


@pytest.mark.slow
@pytest.mark.skipif(COMMAND is None, reason="needs schemathesis (pip install schemathesis)")
def test_no_request_of_a_labeling_tool_makes_it_fail(serve, tmp_path):
    server = serve(program=("-c", LABEL_STUDIO))
    run(server, tmp_path, None, 60, "--include-path-regex", "^/label-studio/")
    counts = answered(server)
    assert counts["POST /label-studio/webhook"].get(200, 0) >= 10, counts
    for route in ("setup", "predict"):  # with the example of a labeling interface, which no random string is
        assert counts[f"POST /label-studio/{route}"].get(200, 0) >= 1, (route, counts)
        assert counts[f"POST /label-studio/{route}"].get(422, 0) >= 10, (route, counts)


@pytest.mark.slow
@pytest.mark.skipif(COMMAND is None, reason="needs schemathesis (pip install schemathesis)")
def test_no_request_makes_many_heads_fail(serve, tmp_path):
    server = serve(tmp_path / "heads", "--many", "--inbox", "50")
    assert server.http.post("/heads", json={"name": "cats"}).status_code == 200
    run(server, tmp_path, "tests.serve.schema_hooks_many", 12)
    counts = answered(server, "/heads/cats")
    print("\n".join(f"{route}: {found}" for route, found in sorted(counts.items())))
    for route in OF_HEADS:
        assert counts[route].get(200, 0) >= 3, (route, counts[route])
    outside = answered(server)
    print(outside)
    for route in ("GET /heads", "POST /heads", "DELETE /heads/{name}"):
        assert outside[route].get(200, 0) >= 3, (route, outside[route])


def run(server, folder, hooks, count, *options):
    """Let schemathesis send what it makes up from the description."""
    done = subprocess.run(
        [
            COMMAND, "run", f"{server.url}/openapi.json", "-H", f"Authorization: Bearer {TOKEN}",
            "--checks", CHECKS,
            "--phases", "examples,coverage,fuzzing", "--max-examples", str(count), "--generation-deterministic",
            "--no-color", *options,
        ],
        cwd=folder, capture_output=True, text=True, timeout=1200,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            **({"SCHEMATHESIS_HOOKS": hooks} if hooks else {}),
            "TAER_TESTED": server.url,
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    print(done.stdout[-900:])


def answered(server, head=""):
    """How often each route gave each status."""
    counts = {}
    for line in server.http.get(f"{head}/metrics").text.splitlines():
        if found := re.fullmatch(r'taer_requests_total\{method="(.*)",path="(.*)",status="(\d+)"\} (.*)', line):
            method, path, status, number = found.groups()
            counts.setdefault(f"{method} {path}", {})[int(status)] = int(float(number))
    return counts
