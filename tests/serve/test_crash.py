"""``kill -9`` at any moment: nothing that was acknowledged is lost, and the last complete version answers."""

from __future__ import annotations

import random
import sqlite3
import threading
import time

import httpx2 as httpx
import pytest

import taer
from tests.serve.conftest import vectors


def stream(server, acknowledged, stop):
    """Add examples and learn them until the server is gone; note only what it said yes to."""
    number = 0
    while not stop.is_set():
        number += 1
        try:
            label = number % 5
            answer = server.http.post("/examples", json={"label": str(label), "vectors": vectors(label, 2)})
            if answer.status_code == 200:
                acknowledged["ids"] |= set(answer.json()["ids"])
            if number % 7 == 0:
                acknowledged["asked"] += 1
                learned = server.http.post("/learn")
                acknowledged["answered"] += 1
                if learned.status_code == 200:
                    acknowledged["version"] = max(acknowledged["version"], learned.json()["version"])
        except (httpx.HTTPError, OSError, RuntimeError):
            return


def check(folder, server, acknowledged):
    database = sqlite3.connect(folder / "taer.db")
    stored = {row[0] for row in database.execute("SELECT id FROM examples")}
    ((current,),) = database.execute("SELECT version FROM current")
    known = [row[0] for row in database.execute("SELECT version FROM versions ORDER BY version")]
    learned = {row[0] for row in database.execute("SELECT DISTINCT version FROM examples WHERE version NOT NULL")}
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
    assert acknowledged["ids"] <= stored
    assert current == max([0, *known]) >= acknowledged["version"]
    assert learned <= set(known)
    assert server.http.get("/health").json()["version"] == current
    for version in known[-3:]:
        assert taer.load(folder / "versions" / f"{version:06d}.safetensors").n_tasks_ == version
    if current:
        assert server.http.post("/predict", json={"vectors": vectors(0, 3)}).status_code == 200


def crash(serve, folder, times, patience):
    acknowledged = {"ids": set(), "version": 0, "asked": 0, "answered": 0}
    chance = random.Random(0)
    for _ in range(times):
        server = serve(folder)
        check(folder, server, acknowledged)
        stop = threading.Event()
        client = threading.Thread(target=stream, args=(server, acknowledged, stop))
        client.start()
        time.sleep(chance.uniform(0, patience))
        server.process.kill()
        stop.set()
        client.join()
        server.close()
    check(folder, serve(folder), acknowledged)
    return acknowledged


def test_a_crash(serve, tmp_path):
    assert crash(serve, tmp_path / "service", 1, patience=3)["ids"]


@pytest.mark.slow
def test_fifty_crashes(serve, tmp_path):
    acknowledged = crash(serve, tmp_path / "service", 50, patience=6)
    assert len(acknowledged["ids"]) > 200
    assert acknowledged["version"] > 5
    interrupted = acknowledged["asked"] - acknowledged["answered"]
    assert interrupted > 3
    kept = f"{len(acknowledged['ids'])} examples and {acknowledged['version']} versions acknowledged and kept"
    print(f"{kept}; {interrupted} of 50 kills came while a task was being learned")


def test_a_second_server_in_the_same_folder_is_refused(serve, tmp_path):
    import subprocess
    import sys

    serve(tmp_path / "service")
    command = [sys.executable, "-m", "taer", "serve", str(tmp_path / "service"), "--port", "0"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert second.returncode == 2
    assert "another taer serve is at work in this folder" in second.stderr
    assert second.stderr.count("\n") == 1


def test_a_folder_of_something_else_is_refused(tmp_path):
    from taer.serve.service import Service

    (tmp_path / "taer.db").write_bytes(b"this is not a database, whatever its name says" * 100)
    with pytest.raises(ValueError, match="not a database of this service"):
        Service(tmp_path)
