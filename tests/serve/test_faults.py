"""Every write fails once: what was answered, what is on disk and what is in memory agree, and it starts again."""

from __future__ import annotations

import errno
import itertools
import shutil
import sqlite3
from contextlib import closing

import pytest

from taer.serve.service import Service
from tests.faults import KINDS, Faults
from tests.serve.conftest import vectors

ERRORS = {errno.EIO: "the disk failed to read or write", errno.ENOSPC: "the disk is full"}


class Shaky:
    """A server in whose folder calls fail."""

    def __init__(self, serve, work):
        self.folder = work / "service"
        self.faults = Faults(work, self.folder)
        self.server = serve(self.folder, environment=self.faults.environment)
        self.http = self.server.http
        self.counter = itertools.count(1)
        for label in (0, 1):
            self.add(label)
        self.ask("POST", "/learn")

    def ask(self, method, path, **options):
        answer = self.http.request(method, path, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def add(self, label, count=4):
        seed = next(self.counter)
        rows = vectors(label, count, seed=seed)
        return self.ask("POST", "/examples", json={"label": str(label), "vectors": rows})["ids"]

    def taught(self, label):
        ids = self.add(label)
        self.ask("POST", "/learn")
        return ids

    def on_disk(self):
        """What the database says: the current version, all versions, all examples and edits."""
        with closing(sqlite3.connect(self.folder / "taer.db")) as database:
            queries = (
                "SELECT version FROM current",
                "SELECT version, parent FROM versions",
                "SELECT id, label, version FROM examples",
                "SELECT example, version, label FROM edits",
            )
            return [
                database.execute(f"{query} ORDER BY 1, 2" if "," in query else query).fetchall()
                for query in queries
            ]

    def check(self, before, answer, nth, error):
        """The answer, the disk and the memory agree, and a copy of the folder, as after a kill, starts."""
        after = self.on_disk()
        where = f"call {nth}, {answer.status_code}: {answer.text[:200]}"
        if answer.status_code == 200:
            assert after != before, where
        else:
            assert answer.status_code == 503, where
            assert ERRORS[error] in answer.json()["detail"] or "system failed" in answer.json()["detail"], where
            assert after == before, where
        ((current,),), _, examples, _ = after
        waiting = sum(version is None for _, _, version in examples)
        assert self.ask("GET", "/health")["version"] == current, where
        assert sum(row["waiting"] for row in self.ask("GET", "/classes")["classes"]) == waiting, where
        assert f"taer_waiting_examples {waiting}.0" in self.http.get("/metrics").text
        copy = shutil.copytree(self.folder, self.folder.with_name(f"copy{nth}"))
        service = Service(copy)
        assert (service.serving.version, service.n_pending) == (current, waiting), where
        row = vectors(0, 1)
        found = self.ask("POST", "/predict", json={"vectors": row})["predictions"][0]["label"]
        assert str(service.serving.head.predict(row)[0]) == found, where
        service.close()
        shutil.rmtree(copy)


def learn(tested):
    tested.add(next(tested.counter) % 5)
    return "POST", "/learn", None


def add(tested):
    return "POST", "/examples", {"label": "2", "vectors": vectors(2, 2)}


def relabel(tested):
    (number, *_) = tested.taught(0)
    return "PATCH", f"/examples/{number}", {"label": "1"}


def relabel_waiting(tested):
    (number, *_) = tested.add(0)
    return "PATCH", f"/examples/{number}", {"label": "1"}


def delete(tested):
    (number, *_) = tested.taught(0)
    return "DELETE", f"/examples/{number}", None


def discard(tested):
    tested.add(0)
    return "DELETE", "/examples", None


def rename(tested):
    old = next(row["label"] for row in tested.ask("GET", "/classes")["classes"] if row["label"] != "0")
    return "PATCH", f"/classes/{old}", {"label": f"name {next(tested.counter)}"}


def forget(tested):
    tested.taught(4)
    return "DELETE", "/classes/4", None


def rollback(tested):
    history = tested.ask("GET", "/history")
    (other, *_) = {version["version"] for version in history["versions"]} - {history["current"]}
    return "POST", f"/rollback/{other}", None


def purge(tested):
    (number, *_) = tested.taught(2)
    return "POST", "/purge", {"ids": [number]}


OPERATIONS = [learn, add, relabel, relabel_waiting, delete, discard, rename, forget, rollback, purge]


def sweep(tested, operation, *kinds, error=errno.EIO, **how):
    """Let each call of an operation fail, until none is left; returns the answers' status codes."""
    codes = []
    for nth in range(1, 1000):
        method, path, body = operation(tested)
        before = tested.on_disk()
        with tested.faults.failing(nth, *kinds, error=error, **how) as seen:
            answer = tested.http.request(method, path, json=body)
        if not seen.failed:
            assert answer.status_code == 200, answer.text
            break
        tested.check(before, answer, nth, error)
        codes.append(answer.status_code)
        if answer.status_code != 200:  # what was refused is done as soon as storage works
            assert tested.http.request(method, path, json=body).status_code == 200
    return codes


@pytest.fixture
def tested(serve, tmp_path):
    return Shaky(serve, tmp_path)


@pytest.mark.system
def test_a_sync_an_unlink_or_a_rename_that_fails_is_a_refusal_or_makes_no_difference(tested):
    tested.taught(2)
    assert set(sweep(tested, learn, "sync", "rename", "unlink")) == {503, 200}
    assert 200 in sweep(tested, purge, "unlink", error=errno.ENOSPC)


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
def test_every_call_of_every_operation_fails_once(tested, operation, error):
    tested.taught(2)
    codes = sweep(tested, operation, error=error)
    print(f"{operation.__name__}, {errno.errorcode[error]}: {codes.count(503)} of {len(codes)} were refused")
    assert codes.count(503) > 1


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_every_write_of_every_operation_is_cut_short_once(tested, operation):
    tested.taught(2)
    assert set(sweep(tested, operation, "write", short=True)) == {200}


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_the_disk_is_full_from_any_call_on(tested, operation):
    tested.taught(2)
    sweep(tested, operation, *(set(KINDS) - {"unlink"}), error=errno.ENOSPC, from_then_on=True)
