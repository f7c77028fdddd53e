"""``taer backup``: a copy taken while the service learns is whole, and answers as the service did."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import threading

import httpx2 as httpx
import numpy as np
from starlette.testclient import TestClient

from taer.serve.backup import back_up
from taer.serve.many.app import create_many
from taer.serve.many.run import Opener
from taer.serve.service import Service
from tests.serve.conftest import AUTH, TOKEN, vectors

ROWS = [row for label in range(5) for row in vectors(label, 4, seed=11)]


def stream(server, stop):
    """Add examples and learn them until told to stop."""
    number = 0
    while not stop.is_set():
        number += 1
        try:
            server.http.post("/examples", json={"label": str(number % 5), "vectors": vectors(number % 5, 4)})
            server.http.post("/learn")
        except httpx.HTTPError:
            return


def test_a_backup_taken_while_it_learns_serves_the_same_answers(serve, tmp_path):
    server, stop = serve(), threading.Event()
    server.http.post("/examples", json={"label": "0", "vectors": vectors(0, 4)})
    assert server.http.post("/learn").status_code == 200
    client = threading.Thread(target=stream, args=(server, stop))
    client.start()
    archives = [tmp_path / f"{number}.tar" for number in range(2)]
    for archive in archives:
        command = [sys.executable, "-m", "taer", "backup", str(tmp_path / "service"), str(archive)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert not done.stderr
        assert "to restore" in done.stdout
    stop.set()
    client.join()
    currents = []
    for archive in archives:
        restored = archive.with_suffix("")
        with tarfile.open(archive) as content:
            content.extractall(restored, filter="data")
        again = serve(restored)
        currents.append(again.http.get("/health").json()["version"])
        assert server.http.post(f"/rollback/{currents[-1]}").status_code == 200
        for path in ("/confusion", "/metrics"):
            assert again.http.get(path).status_code == 200
        answers = [
            service.http.post("/predict", json={"vectors": ROWS, "top": 5}).json() for service in (server, again)
        ]
        assert answers[0] == answers[1]
        known = again.http.get("/history").json()["versions"]
        assert known == server.http.get("/history").json()["versions"][: len(known)]
        again.http.post("/examples", json={"label": "0", "vectors": vectors(0, 4)})
        assert again.http.post("/learn").json()["version"] == len(known) + 1
    assert currents[-1] > currents[0] >= 1, "nothing was learned between the backups"


def test_a_backup_counts_what_is_acknowledged(client, tmp_path):
    for label in (0, 1):
        client.post("/examples", json={"label": str(label), "vectors": vectors(label)})
    client.post("/learn")
    client.post("/examples", json={"label": "2", "vectors": vectors(2)})
    back_up(tmp_path / "service", tmp_path / "copy.tar")
    with tarfile.open(tmp_path / "copy.tar") as content:
        assert content.getnames() == ["taer.db", "versions/000001.safetensors"]
        content.extractall(tmp_path / "copy", filter="data")
    service = Service(tmp_path / "copy")
    assert (service.n_pending, service.serving.version, service.notices) == (8, 1, [])
    service.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "copy.tar", "service"]


def test_what_cannot_be_backed_up_is_said_in_a_line(cli, tmp_path):
    code, _, error = cli("backup", "nowhere", "out.tar")
    assert (code, error) == (
        2,
        "taer: nowhere: not the folder of a service: it has no taer.db, and no head with one\n",
    )
    Service(tmp_path / "service").close()
    (tmp_path / "out.tar").write_bytes(b"precious")
    assert "never written over" in cli("backup", "service", "out.tar")[2]
    assert (tmp_path / "out.tar").read_bytes() == b"precious"
    assert cli("backup", "service", "missing/out.tar")[0] == 2
    (tmp_path / "service" / "taer.db").write_bytes(b"not a database" * 1000)
    assert "cannot be copied" in cli("backup", "service", "other.tar")[2]
    assert not (tmp_path / "other.tar").exists()


def test_a_version_without_its_file_is_named(client, cli, tmp_path):
    client.post("/examples", json={"label": "0", "vectors": vectors(0)})
    client.post("/learn")
    (tmp_path / "service" / "versions" / "000001.safetensors").unlink()
    code, out, error = cli("backup", "service", "out.tar")
    assert code == 0
    assert "version 1 is missing" in error
    assert "0 versions" in out


def test_a_backup_of_many_heads_is_served_again(cli, tmp_path):
    for head in ("cats", "dogs"):
        service = Service(tmp_path / "heads" / head)
        service.add_examples(f"{head} 0", np.array(vectors(0), np.float32))
        service.add_examples(f"{head} 1", np.array(vectors(1), np.float32))
        service.learn()
        service.close()
    (tmp_path / "heads" / ".half.0123.partial").mkdir()
    (tmp_path / "heads" / ".half.0123.partial" / "taer.db").write_bytes(b"")
    assert "2 databases and 2 versions" in cli("backup", "heads", "out.tar")[1]
    with tarfile.open(tmp_path / "out.tar") as content:
        content.extractall(tmp_path / "restored", filter="data")
    with TestClient(
        create_many(tmp_path / "restored", TOKEN, Opener()), base_url="http://127.0.0.1", headers=AUTH
    ) as client:
        assert [head["name"] for head in client.get("/heads").json()["heads"]] == ["cats", "dogs"]
        for head in ("cats", "dogs"):
            answer = client.post(f"/heads/{head}/predict", json={"vectors": vectors(1, 1, seed=9)})
            assert answer.json()["predictions"][0]["label"] == f"{head} 1"
            assert client.get(f"/heads/{head}/examples").json()["examples"][0]["label"] == f"{head} 0"
