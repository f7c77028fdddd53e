"""Replicas: a version is taken over whole or not at all, and nothing is learned there."""

from __future__ import annotations

import json
import shutil
import threading

import numpy as np
import pytest
from starlette.testclient import TestClient

from taer.serve import published
from taer.serve import replica as replicas
from taer.serve.app import create_app
from taer.serve.learner import Learner
from taer.serve.many.folder import Folder
from taer.serve.replica import Replica
from taer.serve.service import Service
from taer.serve.store import Store
from taer.serve.tasks import TASKS
from tests.conftest import wait_until
from tests.serve.backbones import Letters
from tests.serve.conftest import AUTH, TOKEN, vectors
from tests.serve.test_app import taught


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Learning in this process: to start another one takes longer than these tests."""
    monkeypatch.setattr(Learner, "start", lambda learner: None)
    monkeypatch.setattr(
        Learner, "do", lambda learner, task, **options: TASKS[task](Store(learner._folder), **options)
    )


@pytest.fixture
def follow(tmp_path):
    """Replicas of the service in ``tmp_path / "service"`` or another source, without the thread that looks again."""
    opened = []

    def start(source=tmp_path / "service", folder="replica", **options):
        opened.append(Replica(tmp_path / folder, str(source), **options))
        return opened[-1]

    yield start
    for replica in opened:
        replica.close()


def answers(service, seed=5):
    found = service.predict(np.array([vectors(label, 1, seed)[0] for label in range(4)], np.float32))
    return found.version, found.classes.tolist(), found.scores.tolist(), found.threshold, found.unknown.tolist()


def test_a_replica_follows_learning_corrections_and_rollback(client, follow):
    taught(client, 0, 1)
    replica = follow()
    assert answers(replica) == answers(client.service)
    taught(client, 2)
    assert answers(replica)[0] == 1
    replica.look()
    assert answers(replica) == answers(client.service)
    assert replica.serving.version == 2
    client.delete("/examples/1")
    replica.look()
    assert answers(replica) == answers(client.service)
    client.post("/rollback/1")
    replica.look()
    assert answers(replica) == answers(client.service)
    client.post("/rollback/0")
    replica.look()
    assert (replica.serving.version, replica.serving.head) == (0, None)
    client.post("/rollback/2")
    replica.look()
    assert answers(replica) == answers(client.service)
    assert replica.following() == {"version": 2, "seconds": pytest.approx(0, abs=1), "problem": None}


def test_replicas_have_the_name_of_the_service_that_learns(client, follow, tmp_path):
    """A program behind a proxy asks for one model, whichever replica answers."""
    taught(client, 0, 1)
    first = follow()
    for replica in (first, follow(tmp_path / "replica", "second")):
        with TestClient(create_app(replica, TOKEN), base_url="http://127.0.0.1") as http:
            asked = {"name": "vectors", "datatype": "FP32", "shape": [1, 12], "data": vectors(0, 1)}
            answer = http.post("/v2/models/service/infer", json={"inputs": [asked]})
            assert (answer.status_code, answer.json()["model_name"]) == (200, "service")
            assert http.get("/v2/health/ready").json() == {"name": "service", "ready": True}
            refused = http.get("/v2/models/replica")
            assert (refused.status_code, refused.json()["error"]) == (
                404,
                "there is no model replica; this service has service",
            )


def test_what_is_purged_is_gone_from_replicas(client, follow, tmp_path):
    taught(client, 0, 1)
    replica = follow()
    taught(client, 2)
    replica.look()
    assert [file.name for file in (tmp_path / "replica/versions").iterdir()] == ["000002.safetensors"]
    client.post("/purge", json={"ids": [1]})
    replica.look()
    assert replica.serving.version == client.service.serving.version == 0
    assert list((tmp_path / "replica/versions").iterdir()) == []


def _cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def _flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _forge(path):
    """A file that is not a head, with a pointer that says it is."""
    path.write_bytes(b"not a head")
    pointer = path.parents[1] / "current.json"
    found = json.loads(pointer.read_bytes())
    found["sha256"], found["bytes"] = replicas.published.hash_of(path)
    pointer.write_text(json.dumps(found))


BROKEN = {
    "half-copied version": (lambda at: _cut(at / "versions/000002.safetensors"), "not whole yet"),
    "changed bit": (lambda at: _flip(at / "versions/000002.safetensors"), "not whole yet, or damaged"),
    "missing version": (
        lambda at: (at / "versions/000002.safetensors").unlink(),
        "cannot be copied (no such file)",
    ),
    "half-copied pointer": (lambda at: _cut(at / "current.json"), "current.json is damaged, or not whole yet"),
    "empty pointer": (lambda at: (at / "current.json").write_bytes(b""), "current.json is damaged"),
    "another format": (lambda at: (at / "current.json").write_text('{"format": "x", "version": 3}'), "damaged"),
    "no head": (lambda at: _forge(at / "versions/000002.safetensors"), "version 2: not a saved head"),
    "source away": (shutil.rmtree, "the source cannot be read (no such file)"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_whole_or_not_at_all(client, follow, tmp_path, name):
    damage, told = BROKEN[name]
    copy = tmp_path / "copy"
    taught(client, 0, 1)
    shutil.copytree(tmp_path / "service", copy)
    replica = follow(copy)
    before, files = answers(replica), sorted((tmp_path / "replica").rglob("*.*"))
    taught(client, 2)
    shutil.rmtree(copy)
    shutil.copytree(tmp_path / "service", copy)
    damage(copy)
    for _ in range(2):
        replica.look()
        assert answers(replica) == before
        assert told in replica.following()["problem"]
    assert sorted((tmp_path / "replica").rglob("*.*")) == files
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(tmp_path / "service", copy)  # the source is back, and whole
    replica.look()
    assert answers(replica) == answers(client.service)
    assert replica.following()["problem"] is None


def test_a_full_disk_leaves_the_old_version(client, follow, monkeypatch):
    taught(client, 0, 1)
    replica = follow()
    before = answers(replica)
    taught(client, 2)
    with monkeypatch.context() as broken:
        broken.setattr(replica.store, "become", lambda version: (_ for _ in ()).throw(OSError("the disk is full")))
        replica.look()
    assert answers(replica) == before
    assert "the disk is full" in replica.following()["problem"]
    replica.look()
    assert answers(replica) == answers(client.service)


def test_a_replica_starts_again_without_its_source(client, follow, tmp_path):
    taught(client, 0, 1)
    first = follow()
    before = answers(first)
    first.close()
    again = follow(tmp_path / "nowhere")
    assert answers(again) == before
    assert "version 1 answers: the source cannot be read" in again.notices[-1]


def test_a_start_that_fails_says_why_and_leaves_nothing(client, follow, tmp_path, caplog):
    taught(client, 0, 1)
    shutil.copytree(tmp_path / "service", tmp_path / "damaged")
    _cut(tmp_path / "damaged/versions/000001.safetensors")
    before = sorted(tmp_path.rglob("*"))
    for source, told in {
        "nowhere": r"nowhere: the source cannot be read.*Expected the folder of a taer serve",
        "damaged": "the file of version 1 is not whole yet, or damaged",
        "new": "is the replica's own folder; give it another one",
        ".": "has many heads; name one of its heads, such as damaged",
    }.items():
        with pytest.raises(ValueError, match=told):
            follow(tmp_path / source, "new")
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").put(f"{tmp_path}/service", "/many/billing", recursive=True)
    with pytest.raises(ValueError, match="name one of its heads, such as billing"):
        follow("memory://many", "new")
    assert sorted(tmp_path.rglob("*")) == before
    assert "goes on answering" not in caplog.text


def test_heads_that_nobody_asked_yet_can_be_followed(client, follow, tmp_path):
    taught(client, 0, 1)
    heads = Folder(tmp_path / "heads")
    heads.make("fresh")
    heads.make("copy", tmp_path / "service", client.service.serving)
    copied = follow(tmp_path / "heads" / "copy", "first")
    assert (copied.name, answers(copied)) == ("copy", answers(client.service))
    empty = follow(tmp_path / "heads" / "fresh", "second")
    assert (empty.name, empty.serving.version, empty.problem) == ("fresh", 0, None)


def test_who_follows_a_service_that_published_nothing_is_told_to_start_it(client, follow, tmp_path):
    (tmp_path / "service" / "current.json").unlink()
    with pytest.raises(ValueError, match=r"no such file.*current\.json.*start or ask it once"):
        follow(folder="new")


def test_an_older_version_is_not_published_after_a_newer_one(client, monkeypatch, tmp_path):
    """While the version is being published again, as once a minute, another one becomes the current one."""
    taught(client, 0, 1)
    taught(client, 2)
    inside, changed, pointer = threading.Event(), threading.Event(), published._pointer

    def slow(*arguments):
        found = pointer(*arguments)
        if threading.current_thread().name == "saver":
            inside.set()
            changed.wait(0.5)
        return found

    monkeypatch.setattr(published, "_pointer", slow)
    saver = threading.Thread(target=client.service.save, name="saver")
    saver.start()
    assert inside.wait(10)
    client.service.go_to(1)
    changed.set()
    saver.join(10)
    assert published.read((tmp_path / "service" / "current.json").read_bytes()).version == 1


def test_the_folder_of_a_service_does_not_become_a_replica(client, follow, tmp_path):
    taught(client, 0, 1)
    client.stop()
    with pytest.raises(ValueError, match="has versions of its own"):
        follow(tmp_path / "elsewhere", "service")


def test_the_folder_of_a_replica_can_go_on_learning_but_no_longer_follow(client, follow, tmp_path):
    taught(client, 0, 1)
    follow().close()
    service = Service(tmp_path / "replica")
    service.add_examples("class 2", np.array(vectors(2), np.float32))
    assert service.learn().version == 2
    service.close()
    with pytest.raises(ValueError, match="has versions of its own"):
        follow()


def test_a_version_made_again_under_the_same_number_is_taken_over(client, follow, tmp_path):
    taught(client, 0, 1)
    shutil.copytree(tmp_path / "service", tmp_path / "backup")
    taught(client, 2)
    replica = follow()
    client.stop()
    service = Service(tmp_path / "backup")  # restored, and taught something else
    service.add_examples("class 3", np.array(vectors(3), np.float32))
    assert service.learn().version == 2
    service.close()
    shutil.rmtree(tmp_path / "service")
    shutil.copytree(tmp_path / "backup", tmp_path / "service")
    replica.look()
    assert "class 3" in answers(replica)[1]


def test_the_threshold_of_unknown_comes_from_the_source(open_service, follow):
    """A head without a threshold of its own gets it from held-out examples, which a replica does not have."""
    client = open_service(method="er")
    for label in range(4):
        client.post("/examples", json={"label": f"class {label}", "vectors": vectors(label, 40)})
    assert client.post("/learn").status_code == 200
    replica = follow()
    assert answers(replica) == answers(client.service)
    assert answers(replica)[3] is not None
    replica.close()
    assert answers(follow()) == answers(client.service)


def test_a_url_is_followed(client, follow, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    taught(client, 0, 1)
    files = fsspec.filesystem("memory")
    files.put(f"{tmp_path}/service", "/heads", recursive=True)
    replica = follow("memory://heads")
    assert answers(replica) == answers(client.service)
    taught(client, 2)
    files.put(f"{tmp_path}/service/current.json", "/heads/current.json")  # before the version
    replica.look()
    assert replica.serving.version == 1
    files.put(f"{tmp_path}/service/versions/000002.safetensors", "/heads/versions/000002.safetensors")
    replica.look()
    assert answers(replica) == answers(client.service)


def test_a_replica_of_a_replica(client, follow, tmp_path):
    taught(client, 0, 1)
    first = follow()
    second = follow(tmp_path / "replica", "second")
    taught(client, 2)
    first.look()
    second.look()
    assert answers(second) == answers(client.service)


def test_the_backbone_is_found_and_another_one_refused(open_service, follow):
    client = open_service(backbone=Letters())
    for label in ("a", "b"):
        client.post("/examples", json={"label": label, "texts": [label * 3 + "c" * i for i in range(1, 7)]})
    client.post("/learn")
    names = []
    replica = follow(find=lambda name, head: names.append(name) or Letters())
    assert names == ["letters"]
    assert replica.backbone.name == "letters"

    class Other(Letters):
        origin = Letters.origin._replace(weights="sha256:0dd")

    with pytest.raises(ValueError, match="features of another backbone"):
        follow(folder="other", backbone=Other())


def test_over_http_a_replica_answers_and_refuses_to_learn(client, follow, monkeypatch):
    monkeypatch.setattr(replicas, "EVERY", 0.05)
    taught(client, 0, 1)
    replica = follow()
    with TestClient(create_app(replica, TOKEN), base_url="http://127.0.0.1", headers=AUTH) as http:
        rows = {"vectors": vectors(0, 2)}
        assert http.post("/predict", json=rows).json() == client.post("/predict", json=rows).json()
        paths = http.get("/openapi.json").json()["paths"]
        changing = [
            (method, path)
            for path, methods in paths.items()
            for method, found in methods.items()
            if method != "get" and found.get("security", [{"token": ["read"]}]) != [{"token": ["read"]}]
        ]
        assert len(changing) >= 14
        for method, path in changing:
            refused = http.request(method, path.replace("{number}", "1").replace("{version}", "1"))
            assert (refused.status_code, refused.json()) == (403, {"detail": replicas.REFUSAL}), path
        taught(client, 2)
        wait_until(lambda: http.get("/health").json()["version"] == 2)
        assert http.post("/predict", json=rows).json()["version"] == 2
        assert http.get("/replica").json()["problem"] is None
        assert "taer_source_seconds" in http.get("/metrics").text
        assert [one["version"] for one in http.get("/history").json()["versions"]] == [2]
        assert len(http.get("/classes").json()["classes"]) == 3


def test_publishing_fails_without_harm_and_is_made_up_for(client, follow, monkeypatch, caplog):
    taught(client, 0, 1)
    replica = follow()
    with monkeypatch.context() as broken:
        broken.setattr("taer.serve.published.write", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        taught(client, 2)
    assert "version 2 was not published" in caplog.text
    replica.look()
    assert replica.serving.version == 1
    client.service.save()
    replica.look()
    assert replica.serving.version == 2
