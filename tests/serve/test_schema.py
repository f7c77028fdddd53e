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
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.slow
@pytest.mark.skipif(COMMAND is None, reason="needs schemathesis (pip install schemathesis)")
def test_no_request_makes_it_fail(serve, tmp_path):
    server = serve(program=("-m", "tests.serve.pixels_server"))
    for label in (0, 1):
        server.http.post("/examples", json={"label": str(label), "vectors": vectors(label)})
    assert server.http.post("/learn").status_code == 200
    done = subprocess.run(
        [
            COMMAND, "run", f"{server.url}/openapi.json", "-H", f"Authorization: Bearer {TOKEN}",
            "--checks", CHECKS,
            "--phases", "examples,coverage,fuzzing", "--max-examples", "60", "--generation-deterministic",
            "--no-color",
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=1200,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "SCHEMATHESIS_HOOKS": "tests.serve.schema_hooks",
            "TAER_TESTED": server.url,
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    print(done.stdout[-900:])
    counts = answered(server)
    print("\n".join(f"{route}: {found}" for route, found in sorted(counts.items())))
    for route in REACHED:
        assert counts[route].get(200, 0) >= 10, (route, counts[route])


def answered(server):
    """How often each route gave each status."""
    counts = {}
    for line in server.http.get("/metrics").text.splitlines():
        if found := re.fullmatch(r'taer_requests_total\{method="(.*)",path="(.*)",status="(\d+)"\} (.*)', line):
            method, path, status, number = found.groups()
            counts.setdefault(f"{method} {path}", {})[int(status)] = int(float(number))
    return counts
