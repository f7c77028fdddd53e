"""Three replicas behind nginx, with the configuration of docs/guides/replicas.md."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest

from tests.conftest import wait_until
from tests.serve.conftest import on_free_port, vectors

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "replicas.md"
ROWS = [vectors(label, 1, seed=9)[0] for label in range(3)]
FEW = {"json": {"vectors": ROWS}}
_array = io.BytesIO()
np.save(_array, np.array(ROWS * 300, np.float32))
MANY = {
    "content": _array.getvalue(),
    "headers": {"Content-Type": "application/x-npy"},
}  # the client has little to do


ROWS_AS_TENSOR = {
    "name": "vectors",
    "datatype": "FP32",
    "shape": [3, len(ROWS[0])],
    "data": [value for row in ROWS for value in row],
}


@pytest.fixture
def front(tmp_path):
    """Start nginx in front of some services; returns its URL."""
    if shutil.which("nginx") is None:
        pytest.skip("needs nginx (Debian: apt-get install nginx)")
    processes = []

    def start(*urls: str) -> str:
        folder = tmp_path / f"nginx{len(urls)}"
        folder.mkdir()
        (found,) = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(), re.S)
        servers = "".join(f"    server {url.removeprefix('http://')};\n" for url in urls)
        found = re.sub(r"(    server 127.*?;\n)+", servers, found, count=1)
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)

        def nginx(port: int) -> subprocess.Popen:
            server = found.replace("listen 127.0.0.1:8080", f"listen 127.0.0.1:{port}")
            (folder / "nginx.conf").write_text(
                f"daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n"
                f"events {{}}\nhttp {{\naccess_log off;\n{paths}{server}}}\n"
            )
            return subprocess.Popen(["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")])

        process, port = on_free_port(nginx)
        processes.append(process)
        return f"http://127.0.0.1:{port}"

    yield start
    for process in processes:
        process.terminate()
        process.wait(20)


class Load:
    """Clients that predict without pause; every answer is kept."""

    def __init__(self, url: str, asked: dict[str, Any] = FEW, clients: int = 8) -> None:
        self._asked = asked
        self.answers: list[tuple[int, str]] = []
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(url,)) for _ in range(clients)]

    def _ask(self, url: str) -> None:
        with httpx.Client(base_url=url, timeout=30) as http:
            while not self._end.is_set():
                try:
                    answer = http.post("/predict", **self._asked)
                    self.answers.append((answer.status_code, answer.text))
                except httpx.TransportError as error:
                    self.answers.append((0, repr(error)))

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def during(self, seconds: float) -> float:
        """Answers per second."""
        before, start = len(self.answers), time.perf_counter()
        time.sleep(seconds)
        return (len(self.answers) - before) / (time.perf_counter() - start)


def teach(server, label: int) -> int:
    server.http.post("/examples", json={"label": f"class {label}", "vectors": vectors(label, 20)})
    answer = server.http.post("/learn")
    assert answer.status_code == 200, answer.text
    return answer.json()["version"]


def wait_for(servers, version: int) -> float:
    start = time.perf_counter()
    wait_until(lambda: all(server.http.get("/health").json()["version"] == version for server in servers))
    return time.perf_counter() - start


def test_a_version_changes_under_load_and_a_replica_stops_without_a_failed_request(serve, front, tmp_path, capsys):
    learner = serve(tmp_path / "heads")
    for label in (0, 1):
        teach(learner, label)
    replicas = [serve(tmp_path / f"replica{n}", "--follow", str(tmp_path / "heads")) for n in range(3)]
    expected = {2: learner.http.post("/predict", json={"vectors": ROWS}).text}
    one, three = front(replicas[0].url), front(*(replica.url for replica in replicas))
    rates = {}
    for asked in ("few", "many"):
        for url in (one, three):
            with Load(url, FEW if asked == "few" else MANY) as load:
                load.during(0.5)
                rates[asked, url] = load.during(3)
            assert {status for status, _ in load.answers} == {200}
    for _ in range(9):  # each of the three replicas, by the one name
        found = httpx.post(f"{three}/v2/models/heads/infer", json={"inputs": [ROWS_AS_TENSOR]})
        assert (found.status_code, found.json()["model_name"]) == (200, "heads")
    with Load(three) as load:
        seconds = []
        for label in (2, 3):
            version = teach(learner, label)
            seconds.append(wait_for(replicas, version))
            expected[version] = learner.http.post("/predict", json={"vectors": ROWS}).text
            wait_until(lambda version=version: any(text == expected[version] for _, text in [*load.answers]))
        learner.http.post("/rollback/3")
        seconds.append(wait_for(replicas, 3))
        replicas[2].process.terminate()
        replicas[2].process.wait(60)
        load.during(1)
    failed = [answer for answer in load.answers if answer[0] != 200]
    assert failed == []
    assert {text for _, text in load.answers} == set(expected.values())  # bit for bit those of one version
    with capsys.disabled():
        for asked, rows in (("few", 3), ("many", 900)):
            print(f"\n{rows} vectors: one {rates[asked, one]:.0f}/s, three {rates[asked, three]:.0f}/s", end="")
        print(f"\n{len(load.answers)} answers, none failed; taken over after {[round(s, 1) for s in seconds]} s")
