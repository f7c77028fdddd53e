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

from taer.serve.store import Store
from tests.serve.conftest import vectors

KILLS = 50 if os.environ.get("TAER_TESTS") == "long" else 20


@dataclass
class Told:
    """What the client was told before the kills, and when."""

    ids: set[int] = field(default_factory=set)
    versions: set[int] = field(default_factory=set)
    edits: dict[tuple[int, int], str | None] = field(default_factory=dict)  # by example and version: its label
    refused: list[str] = field(default_factory=list)  # edits that should have been done
    asked: int = 0
    answered: int = 0
    last: float = 0.0  # when a version was last acknowledged
    learned: threading.Event = field(default_factory=threading.Event)
    editing: threading.Event = field(default_factory=threading.Event)  # while an edit is not answered


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
                    edit(server, told, number)
        except (httpx.HTTPError, OSError, RuntimeError):
            return


def edit(server, told, number):
    """Correct an example that was just learned, delete it, or rename its class."""
    example, label = max(told.ids), number % 5
    kind = ("relabel", "delete", "rename")[number // 3 % 3]
    changed = {"relabel": str((label + 1) % 5), "delete": None, "rename": f"{label} until {example}"}[kind]
    told.editing.set()
    if kind == "delete":
        answer = server.http.delete(f"/examples/{example}")
    else:
        path = f"/examples/{example}" if kind == "relabel" else f"/classes/{label}"
        answer = server.http.patch(path, json={"label": changed})
    if answer.status_code != 200:
        told.refused.append(answer.text)
        return
    version = answer.json()["version"]
    told.last = time.perf_counter()
    told.versions.add(version)
    told.edits[example, version] = changed
    told.editing.clear()


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
    assert not told.refused
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
    with closing(Store(folder)) as store:
        for version in known[0 if every else -3 :]:  # each head has learned just what the database says
            head, learned = store.load(version), store.learned(version)
            found = {label: head.densities_.counts[at] for at, (label, _) in enumerate(head.learning_order_)}
            assert found == {label: used for label, (used, _) in learned.items() if used}
    if current:
        assert server.http.post("/predict", json={"vectors": vectors(0, 3)}).status_code == 200


def wait_for_a_file(folder, seconds=30):
    """Until a task has begun to write its version."""
    before = set(folder.iterdir())
    end = time.perf_counter() + seconds
    while set(folder.iterdir()) <= before and time.perf_counter() < end:
        time.sleep(0.0005)


def crash(serve, folder, times, most, enough):
    """Kill the server and its learner again and again: at any moment, while a task finishes, and right after it did.

    Which moment a kill meets depends on the machine, so there are more, up to ``most``, until all were met often enough.
    """
    told, chance, kills = Told(), random.Random(0), Counter()
    versions = folder / "versions"
    for number in range(most):
        if number >= times and enough(kills):
            break
        server = serve(folder)
        check(folder, server, told)
        before, stop = set(versions.iterdir()), threading.Event()
        told.learned.clear()
        told.editing.clear()
        client = threading.Thread(target=stream, args=(server, told, stop))
        client.start()
        if number % 4 == 0:
            wait_for_a_file(versions)
            # It is killed while it is written, committed or answered for.
            time.sleep(chance.choice((0, 0, chance.uniform(0, 0.03))))
        elif number % 4 == 1:
            told.learned.wait(30)
            time.sleep(chance.uniform(0, 0.005))
        elif number % 4 == 2:
            told.editing.wait(30)
            time.sleep(chance.uniform(0, 0.1))  # an edit takes about as long
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
        kills["edit"] += told.editing.is_set()
        kills["saved"] += bool(written - counted) or any(file.name.startswith(".") for file in new)
        kills["committed"] += bool(written & counted - told.versions)
        kills["acknowledged"] += bool(written & told.versions) and killed - told.last < 0.05
        told.asked = told.answered
        kills["all"] += 1
    check(folder, serve(folder), told, every=True)
    assert not list(versions.glob(".*")), "what a kill left half written was not removed"
    print(
        f"{kills['all']} kills, {kills['task']} of them during a task and {kills['edit']} during an edit: {kills['saved']} "
        f"while a version was written, {kills['committed']} when it counted and was not acknowledged yet, "
        f"{kills['acknowledged']} less than 50 ms after it was acknowledged; {len(told.ids)} examples, "
        f"{len(told.versions)} versions, {len(told.edits)} of them edits, were acknowledged, and none was lost"
    )
    assert enough(kills)
    return told, kills["all"]


def test_three_crashes(serve, tmp_path):
    def enough(kills):
        return kills["edit"] and kills["saved"] + kills["committed"] + kills["acknowledged"]

    assert crash(serve, tmp_path / "service", 3, 8, enough)[0].ids


@pytest.mark.slow
def test_many_crashes(serve, tmp_path, record_property):
    """At least twenty in ``make test-all``, fifty in ``make test-long``."""

    def enough(kills):
        moments = kills["edit"], kills["saved"] + kills["committed"], kills["acknowledged"]
        return min(moments) >= 0.16 * KILLS - 1

    told, kills = crash(serve, tmp_path / "service", KILLS, 3 * KILLS, enough)
    record_property("kills at any moment", kills)
    assert len(told.ids) > 4 * KILLS
    assert len(told.versions) > 0.6 * KILLS
    assert len(told.edits) > 0.2 * KILLS


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
