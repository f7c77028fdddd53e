"""``kill -9`` at any moment: nothing that was acknowledged is lost, and the last complete version answers."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field

import httpx2 as httpx
import pytest

import taer
from tests.serve.conftest import vectors


@dataclass
class Told:
    """What the client was told before the kills, and when."""

    ids: set[int] = field(default_factory=set)
    versions: set[int] = field(default_factory=set)
    edits: dict[tuple[int, int], str | None] = field(default_factory=dict)  # by example and version: its label
    asked: int = 0
    answered: int = 0
    last: float = 0.0  # when a version was last acknowledged
    learned: threading.Event = field(default_factory=threading.Event)


def stream(server, told, stop):
    """Add examples and learn them until the server is gone; note only what it said yes to."""
    number = 0
    while not stop.is_set():
        number += 1
        try:
            label = number % 5
            answer = server.http.post("/examples", json={"label": str(label), "vectors": vectors(label, 2)})
            if answer.status_code == 200:
                told.ids |= set(answer.json()["ids"])
            if number % 3 == 0:
                told.asked += 1
                learned = server.http.post("/learn")
                told.answered += 1
                if learned.status_code == 200:
                    told.last = time.perf_counter()
                    told.versions.add(learned.json()["version"])
                    told.learned.set()
                    edit(server, told, max(told.ids), str((label + 1) % 5) if number % 2 else None)
        except (httpx.HTTPError, OSError, RuntimeError):
            return


def edit(server, told, number, label):
    """Correct an example that was just learned, or delete it."""
    path = f"/examples/{number}"
    answer = server.http.patch(path, json={"label": label}) if label else server.http.delete(path)
    if answer.status_code == 200:
        version = answer.json()["version"]
        told.versions.add(version)
        told.edits[number, version] = label


def contents(folder):
    """The versions that count, which of them is the current one, and the examples."""
    database = sqlite3.connect(folder / "taer.db")
    stored = {row[0] for row in database.execute("SELECT id FROM examples")}
    ((current,),) = database.execute("SELECT version FROM current")
    known = [row[0] for row in database.execute("SELECT version FROM versions ORDER BY version")]
    learned = {row[0] for row in database.execute("SELECT DISTINCT version FROM examples WHERE version NOT NULL")}
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
    assert learned <= set(known)
    return known, current, stored


def check(folder, server, told, every=False):
    known, current, stored = contents(folder)
    assert told.ids <= stored
    assert told.versions <= set(known)
    with closing(sqlite3.connect(folder / "taer.db")) as database:
        edits = {
            (example, version): label
            for example, version, label in database.execute("SELECT example, version, label FROM edits")
        }
    assert told.edits.items() <= edits.items()
    assert {version for _, version in edits} <= set(known)
    assert current == max([0, *known])
    assert server.http.get("/health").json()["version"] == current
    for version in known[0 if every else -3 :]:
        assert taer.load(folder / "versions" / f"{version:06d}.safetensors").n_tasks_ >= 1
    if current:
        assert server.http.post("/predict", json={"vectors": vectors(0, 3)}).status_code == 200


def wait_for_a_file(folder, seconds=30):
    """Until a task has begun to write its version."""
    before = set(folder.iterdir())
    end = time.perf_counter() + seconds
    while set(folder.iterdir()) <= before and time.perf_counter() < end:
        time.sleep(0.0005)


def crash(serve, folder, times):
    """Kill the server and its learner again and again: at any moment, while a task finishes, and right after it did."""
    told, chance, kills = Told(), random.Random(0), Counter()
    versions = folder / "versions"
    for number in range(times):
        server = serve(folder)
        check(folder, server, told)
        before, stop = set(versions.iterdir()), threading.Event()
        told.learned.clear()
        client = threading.Thread(target=stream, args=(server, told, stop))
        client.start()
        if number % 3 == 0:
            wait_for_a_file(versions)
            time.sleep(
                chance.choice((0, 0, chance.uniform(0, 0.03)))
            )  # while it is written, committed, answered for
        elif number % 3 == 1:
            told.learned.wait(30)
            time.sleep(chance.uniform(0, 0.005))
        else:
            time.sleep(chance.uniform(0, 4))
        os.killpg(server.process.pid, signal.SIGKILL)
        killed = time.perf_counter()
        stop.set()
        client.join()
        server.close()
        new = set(versions.iterdir()) - before
        written = {int(file.stem) for file in new if file.stem.isdigit()}
        counted = set(contents(folder)[0])
        kills["task"] += told.asked > told.answered
        kills["saved"] += bool(written - counted) or any(file.name.startswith(".") for file in new)
        kills["committed"] += bool(written & counted - told.versions)
        kills["acknowledged"] += bool(written & told.versions) and killed - told.last < 0.05
        told.asked = told.answered
    check(folder, serve(folder), told, every=True)
    assert not list(versions.glob(".*")), "what a kill left half written was not removed"
    print(
        f"{times} kills, {kills['task']} of them during a task: {kills['saved']} while its version was written, "
        f"{kills['committed']} when it counted and was not acknowledged yet, {kills['acknowledged']} less than "
        f"50 ms after it was acknowledged; {len(told.ids)} examples, {len(told.versions)} versions and "
        f"{len(told.edits)} corrections were acknowledged, and none was lost"
    )
    return told, kills


def test_two_crashes(serve, tmp_path):
    told, kills = crash(serve, tmp_path / "service", 2)
    assert told.ids
    assert kills["saved"] + kills["committed"] + kills["acknowledged"] >= 1


@pytest.mark.slow
def test_fifty_crashes(serve, tmp_path):
    told, kills = crash(serve, tmp_path / "service", 50)
    assert len(told.ids) > 200
    assert len(told.versions) > 30
    assert len(told.edits) > 10
    assert kills["saved"] + kills["committed"] >= 8
    assert kills["acknowledged"] >= 8


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
