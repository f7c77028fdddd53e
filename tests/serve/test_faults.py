"""Every write fails once: what was answered, what is on disk and what is in memory agree, and it starts again."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import subprocess
import sys
import tarfile

import numpy as np
import pytest

from taer.serve.database import UNLESS_KILLED
from taer.serve.many.folder import Folder
from taer.serve.service import Service
from tests.faults import KINDS, Faults
from tests.serve.conftest import vectors
from tests.serve.disk import stored, whole

LONG = os.environ.get("TAER_TESTS") == "long"
ERRORS = {errno.EIO: "the disk failed to read or write", errno.ENOSPC: "the disk is full"}
# SQLite does not tell why these calls failed. If it may not open a file for writing, it opens it for reading.
VAGUE = {
    "shared": ("the disk failed to read or write", "the system failed"),
    "sync": ("the disk failed to read or write",),
    "truncate": ("the disk failed to read or write",),
    "unlink": ("the disk failed to read or write",),
    "open": ("the system failed",),
}


def names_cause(message, error, kinds):
    """Whether a message says why something failed, as far as calls of these kinds allow."""
    vague = [cause for kind in kinds for cause in VAGUE.get(kind, ())]
    return any(cause in message for cause in (ERRORS[error], os.strerror(error), *vague))


class Shaky:
    """A server in whose folder calls fail."""

    def __init__(self, serve, work, *options):
        self.folder = work / "service"
        self.faults = Faults(work, self.folder)
        self.server = serve(self.folder, "--inbox", "20", *options, environment=self.faults.environment)
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

    def kept(self):
        """The number of an input in the inbox that looks like no class."""
        strange = [[50.0 + next(self.counter)] * len(vectors(0, 1)[0])]
        assert self.ask("POST", "/predict", json={"vectors": strange})["predictions"][0]["unknown"]
        return max(one["id"] for one in self.ask("GET", "/inbox")["inputs"])

    def has_candidate(self):
        return self.http.get("/versions/candidate").status_code == 200

    def on_disk(self):
        return stored(self.folder)

    def check(self, before, answer, nth, error, kinds):
        """The answer, the disk and the memory agree, and a copy of the folder, as after a kill, starts."""
        after = self.on_disk()
        where = f"call {nth}, {answer.status_code}: {answer.text[:200]}"
        if answer.status_code != 200:
            assert answer.status_code == 503, where
            assert names_cause(answer.json()["detail"], error, kinds), where
            assert after == before, where
        ((current,),) = after["current"]
        waiting = sum(version is None for _, _, _, version, *_ in after["examples"])
        assert self.ask("GET", "/health")["version"] == current, where
        assert sum(row["waiting"] for row in self.ask("GET", "/classes")["classes"]) == waiting, where
        assert f"taer_waiting_examples {waiting}.0" in self.http.get("/metrics").text
        assert {one["id"] for one in self.ask("GET", "/inbox")["inputs"]} == {
            number for number, *_ in after["inbox"]
        }, where
        assert [one["version"] for one in self.ask("GET", "/history")["versions"] if one["candidate"]] == [
            number for (number,) in after["candidate"]
        ], where
        copy = shutil.copytree(self.folder, self.folder.with_name(f"copy{nth}"))
        service = Service(copy)
        assert whole(copy), where
        if UNLESS_KILLED not in answer.text:
            assert (service.serving.version, service.n_pending) == (current, waiting), where
            row = vectors(0, 1)
            found = self.ask("POST", "/predict", json={"vectors": row})["predictions"][0]["label"]
            assert str(service.serving.head.predict(row)[0]) == found, where
        assert not any("cannot be loaded" in notice for notice in service.notices), where
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
    return "POST", "/purge", {"ids": tested.taught(2)}  # all of a task: one alone may be held back


def name_input(tested):
    return "POST", f"/inbox/{tested.kept()}", {"label": "2"}


def dismiss(tested):
    return "DELETE", f"/inbox/{tested.kept()}", None


def dismiss_inputs(tested):
    return "POST", "/inbox/dismiss", {"ids": [tested.kept(), tested.kept()]}


def dismiss_all(tested):
    tested.kept()
    return "DELETE", "/inbox", None


def stage(tested):
    """Learn a candidate."""
    if tested.has_candidate():
        tested.ask("POST", "/versions/candidate/reject")
    return learn(tested)


def promote(tested):
    if not tested.has_candidate():
        tested.taught(next(tested.counter) % 5)
    return "POST", "/versions/candidate/promote", None


def reject(tested):
    promote(tested)
    return "POST", "/versions/candidate/reject", None


STAGED = [stage, promote, reject]
OPERATIONS = [
    learn, add, relabel, relabel_waiting, delete, discard, rename, forget, rollback, purge, name_input, dismiss,
    dismiss_inputs, dismiss_all, *STAGED,
]  # fmt: skip
# In ``make test-all`` each fails with one error, in turn; in ``make test-long`` with both.
FAILURES = [
    pytest.param(operation, error, id=f"{errno.errorcode[error]}-{operation.__name__}")
    for number, operation in enumerate(OPERATIONS)
    for place, error in enumerate(ERRORS)
    if LONG or number % 2 == place
]


def effect(before, after):
    """How many rows each table has won or lost, of those that changed; of a server of many heads, how many heads."""
    if "examples" not in after:
        return len(after) - len(before), sum(after[name] != before.get(name) for name in after)
    return {name: len(after[name]) - len(before[name]) for name in after if after[name] != before[name]}


def sweep(tested, operation, *kinds, error=errno.EIO, **how):
    """Let each call of an operation fail, until none is left; returns the answers' status codes.

    What was answered with 200 did what the operation does when no call fails.
    """
    codes, effects = [], []
    for nth in range(1, 1000):
        method, path, body = operation(tested)
        before = tested.on_disk()
        with tested.faults.failing(nth, *kinds, error=error, **how) as seen:
            answer = tested.http.request(method, path, json=body)
        if answer.status_code == 200:
            effects.append(effect(before, tested.on_disk()))
        if not seen.failed:
            assert answer.status_code == 200, answer.text
            break
        tested.check(before, answer, nth, error, seen.kinds)
        codes.append(answer.status_code)
        if answer.status_code != 200:  # what was refused is done as soon as storage works
            assert tested.http.request(method, path, json=body).status_code == 200
    else:
        pytest.fail("each time it takes more calls")
    assert effects[-1]
    assert all(each == effects[-1] for each in effects), effects
    return codes


@pytest.fixture
def tested(request, serve, tmp_path):
    operation = request.node.callspec.params["operation"] if hasattr(request.node, "callspec") else None
    return Shaky(serve, tmp_path, *(["--promote", "ask"] if operation in STAGED else []))


@pytest.mark.system
def test_a_sync_an_unlink_or_a_rename_that_fails_is_a_refusal_or_makes_no_difference(tested):
    tested.taught(2)
    assert set(sweep(tested, learn, "sync", "rename", "unlink")) == {503, 200}
    assert 200 in sweep(tested, purge, "unlink", error=errno.ENOSPC)


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "error"), FAILURES)
def test_every_call_of_every_operation_fails_once(tested, operation, error, record_property):
    tested.taught(2)
    codes = sweep(tested, operation, error=error)
    record_property("calls of the service that failed once", len(codes))
    print(f"{operation.__name__}, {errno.errorcode[error]}: {codes.count(503)} of {len(codes)} were refused")
    assert codes.count(503) > 1


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_every_write_of_every_operation_is_cut_short_once(tested, operation, record_property):
    tested.taught(2)
    codes = sweep(tested, operation, "write", short=True)
    record_property("writes of the service that were cut short", len(codes))
    assert set(codes) == {200}


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_the_disk_is_full_from_any_call_on(tested, operation, record_property):
    """A commit that failed may then be found after a kill, which the answer says."""
    tested.taught(2)
    codes = sweep(tested, operation, *(set(KINDS) - {"unlink"}), error=errno.ENOSPC, from_then_on=True)
    record_property("moments at which the service's disk became full", len(codes))


class ManyHeads(Shaky):
    """A server of many heads in whose folder calls fail."""

    def __init__(self, serve, work):
        self.folder = work / "heads"
        self.faults = Faults(work, self.folder)
        self.server = serve(self.folder, "--many", environment=self.faults.environment)
        self.http = self.server.http
        self.counter = itertools.count(1)
        self.ask("POST", "/heads", json={"name": "first"})
        for label in (0, 1):
            self.ask("POST", "/heads/first/examples", json={"label": str(label), "vectors": vectors(label, 4)})
        self.ask("POST", "/heads/first/learn")

    def made(self):
        """A head beside the first one, and none of those that were made before."""
        for one in self.ask("GET", "/heads")["heads"]:
            if one["name"] != "first":
                self.ask("DELETE", f"/heads/{one['name']}")
        name = f"head{next(self.counter)}"
        self.ask("POST", "/heads", json={"name": name})
        return name

    def on_disk(self):
        folder = Folder(self.folder)
        return {name: {**folder.entry(name), "loaded": None} for name in folder.names()}

    def check(self, before, answer, nth, error, kinds):
        after = self.on_disk()
        where = f"call {nth}, {answer.status_code}: {answer.text[:200]}"
        if answer.status_code != 200:
            assert answer.status_code == 503, where
            assert names_cause(answer.json()["detail"], error, kinds), where
            assert str(self.folder) not in answer.text, where
            assert after == before, where
        assert [{**one, "loaded": None} for one in self.ask("GET", "/heads")["heads"]] == [*after.values()], where
        row = vectors(0, 1)
        found = self.ask("POST", "/heads/first/predict", json={"vectors": row})["predictions"][0]["label"]
        copy = shutil.copytree(self.folder, self.folder.with_name(f"copy{nth}"))
        folder = Folder(copy)
        folder.tidy()
        assert sorted(os.listdir(copy)) == sorted([*after, "serve.lock"]), where
        for name, entry in after.items():
            service = Service(copy / name)
            if UNLESS_KILLED not in answer.text:
                assert (service.serving.version, service.n_pending) == (entry["version"], entry["waiting"]), where
            if entry["version"]:
                assert str(service.serving.head.predict(row)[0]) == found, where
            service.close()
        shutil.rmtree(copy)


def make_head(many):
    many.made()
    return "POST", "/heads", {"name": f"head{next(many.counter)}"}


def copy_head(many):
    many.made()
    return "POST", "/heads", {"name": f"head{next(many.counter)}", "copy_of": "first"}


def delete_head(many):
    return "DELETE", f"/heads/{many.made()}", None


def learn_in_head(many):
    label = next(many.counter) % 5
    many.ask("POST", "/heads/first/examples", json={"label": str(label), "vectors": vectors(label, 2)})
    return "POST", "/heads/first/learn", None


@pytest.mark.slow
@pytest.mark.parametrize(
    "operation", [make_head, copy_head, delete_head, learn_in_head], ids=lambda it: it.__name__
)
@pytest.mark.parametrize("error", ERRORS if LONG else [errno.ENOSPC], ids=errno.errorcode.get)
def test_every_call_fails_once_in_a_server_of_many_heads(serve, tmp_path, operation, error, record_property):
    codes = sweep(ManyHeads(serve, tmp_path), operation, error=error)
    record_property("calls of a server of many heads that failed once", len(codes))
    print(f"{operation.__name__}, {errno.errorcode[error]}: {codes.count(503)} of {len(codes)} were refused")
    assert codes.count(503) > 1


class Shaken:
    """A process that starts, teaches again or backs up services in folders below ``work``, while calls fail."""

    def __init__(self, work, operation):
        self.faults = Faults(work, work / "shaken")
        (work / "shaken").mkdir()
        self.folder = work / "shaken" / "service"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.serve.shaky", operation],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.faults.environment},
        )

    def ask(self):
        print(self.folder, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def sweep(self, healthy, *kinds, error, **how):
        """Let each call fail on a copy of a healthy folder; yields each answer, and last that without a failure."""
        for nth in range(1, 1000):
            for left in self.folder.parent.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            if healthy is not None:
                shutil.copytree(healthy, self.folder)
            with self.faults.failing(nth, *kinds, error=error, **how) as seen:
                answer = self.ask()
            self.kinds = seen.kinds
            yield nth, answer
            if not seen.failed:
                break

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


@pytest.fixture
def shaken(tmp_path):
    started = []

    def start(operation):
        started.append(Shaken(tmp_path, operation))
        return started[-1]

    yield start
    for process in started:
        process.close()


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """The folder of a service with two versions and eight waiting examples, most of them still in the log."""
    folder = tmp_path_factory.mktemp("healthy") / "service"
    service = Service(folder)
    for label in range(3):
        service.add_examples(str(label), np.array(vectors(label), np.float32))
        if label < 2:
            service.learn()
    copy = shutil.copytree(folder, folder.with_name("copy"))  # as it is after a kill
    service.close()
    return copy


def told(answer, error, kinds):
    """Whether an answer names the cause, and does not call a healthy database damaged."""
    message = answer["message"]
    assert "taer.db is damaged, or" not in message, message
    return names_cause(message, error, kinds)


@pytest.mark.system
@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
def test_a_start_with_a_call_that_fails_is_told_with_its_cause_and_loses_nothing(shaken, healthy, error):
    process = shaken("start")
    for nth, answer in process.sweep(healthy, error=error):
        assert answer.get("found") == [2, 8] or told(answer, error, process.kinds), (nth, answer)
        assert process.ask() == {"found": [2, 8]}, nth


@pytest.mark.system
@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
def test_a_start_in_a_new_folder_with_a_call_that_fails_can_be_repeated(shaken, error):
    process = shaken("start")
    for nth, answer in process.sweep(None, error=error, from_then_on=True):
        assert answer.get("found") == [0, 0] or told(answer, error, process.kinds), (nth, answer)
        assert process.ask() == {"found": [0, 0]}, nth


HOW = [
    pytest.param({"error": errno.ENOSPC}, id="ENOSPC"),
    pytest.param({"error": errno.EIO}, id="EIO", marks=pytest.mark.slow),
    pytest.param({"error": errno.EIO, "short": True}, id="short", marks=pytest.mark.slow),
]


@pytest.mark.system
@pytest.mark.parametrize("how", HOW)
def test_learning_again_with_a_call_that_fails_is_done_or_not(shaken, healthy, how):
    process = shaken("relearn")
    for nth, answer in process.sweep(healthy, *["write"] * ("short" in how), **how):
        if "raised" in answer:
            assert "short" not in how
            assert told(answer, how["error"], process.kinds), (nth, answer)
            service = Service(process.folder)
            assert (service.serving.version, service.n_pending) == (2, 8), nth
            service.close()
        else:
            assert answer == {"found": [3, 8]}, nth


@pytest.mark.system
@pytest.mark.parametrize("how", HOW)
def test_a_backup_with_a_call_that_fails_is_whole_or_not_there(shaken, healthy, how):
    process = shaken("backup")
    for nth, answer in process.sweep(healthy, *["write"] * ("short" in how), **how):
        archive = process.folder.with_suffix(".tar")
        assert archive.exists() == ("found" in answer), (nth, answer)
        if archive.exists():
            assert answer == {"found": [2, []]}, nth
            with tarfile.open(archive) as content:
                assert len(content.getnames()) == 3, nth
        else:
            assert "short" not in how
            assert told(answer, how["error"], process.kinds), (nth, answer)
