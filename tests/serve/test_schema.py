"""Everything the OpenAPI description allows, and much that it does not, sent to a real server: never a 500."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.conftest import TOKEN, vectors

COMMAND = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
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
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    print(done.stdout[-900:])
    assert server.http.get("/health").status_code == 200
