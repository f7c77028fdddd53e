"""Many heads behind one server: each has its own examples, versions, inbox and tokens."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shutil
import signal
import socket
import threading
import time
import weakref
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

import taer
from taer.cli import main
from taer.client import Client, ServiceError
from taer.serve import tokens as tokens_module
from taer.serve.collector import set_aside
from taer.serve.inbox import Bounds
from taer.serve.learner import Ended
from taer.serve.many import heads as heads_module
from taer.serve.many.app import create_many
from taer.serve.many.folder import Folder
from taer.serve.many.queue import Queue
from taer.serve.many.run import Opener, size_of
from taer.serve.many.turns import Turns
from taer.serve.service import Service
from tests.conftest import wait_until
from tests.serve.conftest import AUTH, TOKEN, vectors
from tests.serve.test_tokens import bearer
from tests.serve.test_tokens import made as token_command

ROLES = ("none", "read", "teach", "admin")


@pytest.fixture
def many(tmp_path):
    """A client of a server of many heads in this process, with the token for all."""
    with ExitStack() as everything:

        def start(folder=tmp_path / "heads", public=False, **options):
            opener = Opener(
                **{
                    name: options.pop(name)
                    for name in ("backbone", "inbox", "promote", "errors")
                    if name in options
                }
            )
            app = create_many(folder, TOKEN, opener, public=public, **options)
            client = TestClient(app, base_url="http://127.0.0.1", headers=AUTH, raise_server_exceptions=False)
            running = everything.enter_context(ExitStack())
            running.enter_context(client)
            client.heads, client.stop = app.heads, running.close
            return client

        yield start


def made(client, *names):
    for name in names:
        answer = client.post("/heads", json={"name": name})
        assert answer.status_code == 200, answer.text
    return client


def teach(client, head, *labels):
    for label in labels:
        body = {"label": f"{head} {label}", "vectors": vectors(label)}
        assert client.post(f"/heads/{head}/examples", json=body).status_code == 200
    answer = client.post(f"/heads/{head}/learn")
    assert answer.status_code == 200, answer.text


def learned(folder, head, *labels):
    """Make a head that has learned, without a learning process."""
    X = np.concatenate([vectors(label) for label in labels])
    names = np.repeat([f"{head} {label}" for label in labels], 8)
    Service(folder / head, first=taer.Bayes(random_state=0).partial_fit(X, names)).close()


def best(client, head, label):
    answer = client.post(f"/heads/{head}/predict", json={"vectors": vectors(label, 1, seed=9)})
    assert answer.status_code == 200, answer.text
    return answer.json()["predictions"][0]["label"]


def test_heads_learn_and_answer_apart_from_each_other(many):
    client = made(many(), "cats", "dogs")
    teach(client, "cats", 0, 1)
    teach(client, "dogs", 1, 2)
    assert (best(client, "cats", 1), best(client, "dogs", 1)) == ("cats 1", "dogs 1")
    assert {one["label"] for one in client.get("/heads/dogs/examples").json()["examples"]} == {"dogs 1", "dogs 2"}
    listed = client.get("/heads").json()
    assert listed["next"] is None
    assert [(one["name"], one["version"], one["classes"], one["loaded"]) for one in listed["heads"]] == [
        ("cats", 1, 2, True),
        ("dogs", 1, 2, True),
    ]
    page = client.get("/heads?limit=1").json()
    assert (page["next"], [one["name"] for one in client.get("/heads?after=cats").json()["heads"]]) == (
        "cats",
        ["dogs"],
    )
    client.stop()
    again = many()
    assert [one["loaded"] for one in again.get("/heads").json()["heads"]] == [False, False]
    assert best(again, "cats", 0) == "cats 0"
    assert again.heads.n_loaded == 1


def test_a_head_is_made_copied_and_deleted(many, tmp_path):
    client = made(many(inbox=Bounds(10)), "cats")
    teach(client, "cats", 0, 1)
    client.post("/heads/cats/predict", json={"vectors": [[50.0] * len(vectors(0)[0])]})
    assert client.get("/heads/cats/inbox").json()["kept"] == 1
    assert client.post("/heads", json={"name": "more", "copy_of": "cats"}).json()["classes"] == 2
    teach(client, "more", 2)
    assert (best(client, "more", 0), best(client, "more", 2)) == ("cats 0", "more 2")
    assert client.get("/heads/more/inbox").json()["kept"] == 0
    assert len(client.get("/heads/more/history").json()["versions"]) == 2
    assert len(client.get("/heads/cats/history").json()["versions"]) == 1
    assert client.delete("/heads/cats").json() == {"deleted": "cats"}
    assert client.post("/heads/cats/predict", json={"vectors": vectors(0)}).status_code == 404
    assert sorted(os.listdir(tmp_path / "heads")) == ["more", "serve.lock"]
    assert best(client, "more", 0) == "cats 0"
    made(client, "cats")
    assert client.get("/heads/cats/classes").json()["classes"] == []


BAD_NAMES = ("..", ".", "", "a b", "a/b", "../more", "-a", "_a", ".a", "ä", "a" * 65, "a.b", "a\x00", "tokens.json")


def test_bad_names_lead_nowhere(many, tmp_path):
    client = made(many(), "cats")
    (tmp_path / "secret").mkdir()
    (tmp_path / "heads" / "file").write_text("")
    os.symlink(tmp_path / "heads" / "cats", tmp_path / "heads" / "link")
    for name in BAD_NAMES:
        assert client.post("/heads", json={"name": name}).status_code == 422, name
        assert client.post("/heads", json={"name": "fine", "copy_of": name}).status_code in (404, 422), name
    for name in ("file", "link"):
        assert client.post("/heads", json={"name": name}).status_code == 409, name
    for path in (
        "%2e%2e",
        "..%2fsecret",
        "%2e%2e%2fsecret",
        "cats%2f..%2fcats",
        "link",
        "file",
        "cats%00",
        "x",
    ):
        for tail in ("classes", "examples", "v2", "../cats/classes/../../secret"):
            status = client.get(f"/heads/{path}/{tail}", follow_redirects=False).status_code
            assert status in (307, 404, 405), (path, tail)  # 307 to the page, which is the same for every name
        assert client.delete(f"/heads/{path}").status_code in (404, 405, 422), path
    assert client.get("/heads/cats%2f..%2f/api.js").status_code == 404
    assert sorted(os.listdir(tmp_path / "heads")) == ["cats", "file", "link", "serve.lock"]
    assert sorted(os.listdir(tmp_path)) == ["heads", "secret"]
    assert os.listdir(tmp_path / "secret") == []
    assert client.post("/heads", json={"name": "cats"}).json()["detail"] == "there is a head cats already"


def test_a_token_opens_no_route_of_another_head(many, tmp_path, capsys):
    """All routes × roles × heads, from the description: a token of one head opens nothing of another."""
    folder = tmp_path / "heads"
    for head in ("cats", "dogs"):
        learned(folder, head, 0, 1)
    keys = {
        head: {
            role: bearer(token_command(capsys, folder / head, "add", role, "--role", role)) for role in ROLES[1:]
        }
        for head in ("cats", "dogs")
    }
    everywhere = {role: bearer(token_command(capsys, folder, "add", role, "--role", role)) for role in ROLES[1:]}
    client = many(public=True, inbox=Bounds(5))
    client.headers.clear()
    described = client.get("/openapi.json").json()["paths"]
    of_heads = {
        path: methods for path, methods in described.items() if path.startswith(("/heads/{name}/", "/v2/models"))
    }
    kept = {path for path in folder.rglob("*") if path.suffix in (".safetensors", ".db")}
    checked = 0
    for path, methods in of_heads.items():
        url = re.sub(r"{(number|version)}", "999", path).replace("{label}", "nothing").replace("{name}", "dogs")
        url = url.replace("{model}", "dogs")
        for method, endpoint in methods.items():
            needed = endpoint["security"][0]["token"][0]
            for role in ROLES[1:]:
                stranger = client.request(method, url, headers=keys["cats"][role])
                assert stranger.status_code == 401, (method, path, role)
                assert "dogs" not in stranger.text
                for own in (keys["dogs"][role], everywhere[role]):
                    status = client.request(method, url, headers=own).status_code
                    if ROLES.index(role) >= ROLES.index(needed):
                        assert status not in (401, 403, 500), (method, path, role, status)
                    else:
                        assert status == 403, (method, path, role)
                    checked += 1
            assert client.request(method, url).status_code == 401, (method, path)
    assert checked >= 6 * 40
    for method, path in {(m, p) for p, found in described.items() for m in found} - {
        (m, p) for p, found in of_heads.items() for m in found
    }:
        needed = described[path][method].get("security", [{"token": ["none"]}])[0]["token"][0]
        for role in ROLES[1:]:  # outside of all heads, a token of one head is none
            status = client.request(method, path.replace("{name}", "dogs"), headers=keys["cats"][role]).status_code
            assert status == (200 if needed == "none" else 401), (method, path, role)
    assert {path for path in folder.rglob("*") if path.suffix in (".safetensors", ".db")} == kept
    assert client.get("/heads/cats/examples", headers=keys["cats"]["teach"]).status_code == 200
    assert client.get("/heads", headers=everywhere["read"]).status_code == 200
    assert client.post("/heads", json={"name": "b"}, headers=everywhere["teach"]).status_code == 403


SECRETS = {"cats": "c4f1e6", "dogs": "d09b73"}  # in every label, text and image name of a head
WORDS = ("aaab", "bbbc", "cccd")


@pytest.fixture
def stocked(many, backbones, tmp_path):
    """The folders of two heads, each with learned, held-out and waiting examples, an inbox and a candidate."""
    client, kept = many(backbone="letters", inbox=Bounds(20), promote="ask"), tmp_path / "kept"
    for head, secret in SECRETS.items():
        made(client, head)
        for turn in range(3):  # a version, a candidate, and examples that wait
            for word in WORDS[: 2 + turn]:
                body = {"label": f"{word} {secret}", "texts": [word + "aef" * n + secret for n in range(9)]}
                assert client.post(f"/heads/{head}/examples", json=body).status_code == 200
            if turn < 2:
                assert client.post(f"/heads/{head}/learn").status_code == 200
            if turn == 0:
                client.post(f"/heads/{head}/versions/candidate/promote")
        unknown = {"texts": ["f" * n + secret for n in range(30, 35)]}
        assert client.post(f"/heads/{head}/predict", json=unknown).status_code == 200
        assert client.get(f"/heads/{head}/inbox").json()["kept"] > 0
        for role in ROLES[1:]:
            tokens_module.add(tmp_path / "heads" / head, role, role, {})
    client.stop()
    shutil.copytree(tmp_path / "heads", kept)
    return kept


def request_for(client, head, path, method):
    """A request that the head would do for whoever may: with ids, labels and versions that it has."""
    of_head = f"/heads/{head}"
    if "candidate" not in path:  # which would have to be decided first
        client.post(f"{of_head}/versions/candidate/reject", headers=AUTH)
    if "classes" in path:  # one with examples that wait is not edited
        client.delete(f"{of_head}/examples", headers=AUTH)
    examples = client.get(f"{of_head}/examples?limit=1000", headers=AUTH).json()["examples"]
    learned_one = next(one for one in examples if one["version"])
    label = learned_one["label"] if "classes" in path else examples[-1]["label"]
    waits = client.get(f"{of_head}/inbox", headers=AUTH).json()["inputs"]
    number = waits[0]["id"] if "inbox" in path else learned_one["id"]
    url = path.replace("{name}", head).replace("{model}", head).replace("{version}", "1")
    url = url.replace("{number}", str(number)).replace("{label}", label)
    texts = {"inputs": [{"name": "texts", "datatype": "BYTES", "shape": [1], "data": ["aaab"]}]}
    inner = path.removeprefix("/heads/{name}")
    bodies = {
        "/predict": {"texts": ["aaab"], "why": True},
        "/examples": {"label": "new", "texts": ["aaab"]},
        "/classes": {"labels": ["new"], "texts": ["dddf"]},
        "/purge": {"ids": [number]},
        "/inbox": {"ids": [number], "label": "named"},
        "/inbox/dismiss": {"ids": [number]},
    }
    body = texts if inner.endswith("/infer") else bodies.get(inner, {"label": "other"})
    return url, {"json": body} if method in ("post", "patch") else {}


def state_of(folder):
    """Everything that a head has on disk, to the bit; requests to other heads must not even touch it."""
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_no_request_reaches_another_heads_data(many, stocked, tmp_path):
    """All routes × roles × heads, from the description, with ids that both heads have and bodies that are right."""
    folder = tmp_path / "heads"
    client = many(backbone="letters", inbox=Bounds(20), promote="ask", errors=0.5, public=True)
    client.headers.clear()
    senders = {("nobody", "none"): {}}
    for owner, place in (("cats", folder / "cats"), ("dogs", folder / "dogs"), ("all", folder)):
        for role in ROLES[1:]:
            senders[owner, role] = bearer(tokens_module.add(place, f"{role}-again", role, {}))
    for head in SECRETS:
        shutil.copyfile(folder / head / "tokens.json", stocked / head / "tokens.json")
    described = client.get("/openapi.json").json()["paths"]
    asked = {
        (method, path): endpoint["security"][0]["token"][0]
        for path, methods in described.items()
        for method, endpoint in methods.items()
        if path.startswith(("/heads/{name}/", "/v2/models"))
    }
    done, showed = Counter(), set()

    def refill(head):
        assert client.delete(f"/heads/{head}", headers=AUTH).status_code == 200
        shutil.copytree(stocked / head, folder / head)

    for (method, path), needed in asked.items():
        for target, other in (("cats", "dogs"), ("dogs", "cats")):
            refill(target)
            url, options = request_for(client, target, path, method)
            for (owner, role), token in senders.items():
                before = state_of(folder / other)
                answer = client.request(method, url, headers=token, **options)
                case = method, path, owner, role, target, answer.status_code, answer.text[:200]
                assert SECRETS[other] not in answer.text, case
                assert state_of(folder / other) == before, case
                if owner not in (target, "all"):
                    assert answer.status_code == 401, case
                    assert SECRETS[target] not in answer.text, case
                elif ROLES.index(role) < ROLES.index(needed):
                    assert answer.status_code == 403, case
                else:
                    assert answer.status_code in (200, 409, 404), case
                    done[method, path] += answer.status_code == 200
                    if SECRETS[target] in answer.text:
                        showed.add(path.removeprefix("/heads/{name}"))
                    if method != "get" and "predict" not in path and "infer" not in path:
                        refill(target)
                        url, options = request_for(client, target, path, method)
    assert [case for case in asked if not done[case]] == []  # each was answered, and not refused for another reason
    assert {"/predict", "/classes", "/examples", "/examples.csv", "/examples/{number}", "/inbox"} <= showed
    for method, path in {(m, p) for p, found in described.items() for m in found} - asked.keys():
        needed = described[path][method].get("security", [{"token": ["none"]}])[0]["token"][0]
        for (owner, role), token in senders.items():  # outside of all heads, a token of one head is none
            if owner in SECRETS:
                answer = client.request(method, path.replace("{name}", "dogs"), headers=token)
                assert answer.status_code == (200 if needed == "none" else 401), (method, path, owner, role)
    everywhere = senders["all", "teach"]
    assert client.post("/heads", json={"name": "b"}, headers=everywhere).status_code == 403
    assert client.delete("/heads/dogs", headers=everywhere).status_code == 403


def test_the_client_makes_heads_and_teaches_them(serve, tmp_path):
    server = serve(tmp_path / "heads", "--many")
    with Client(server.url, TOKEN) as all_heads:
        assert all_heads.make_head("cats")["classes"] == 0
        with Client(f"{server.url}/heads/cats", TOKEN) as cats:
            for label in (0, 1):
                cats.add(f"class {label}", vectors(label))
            cats.learn()
            assert cats.predict(vectors(1, 1, seed=9))["predictions"][0]["label"] == "class 1"
        assert all_heads.make_head("more", copy_of="cats")["classes"] == 2
        assert [head["name"] for head in all_heads.heads(after="cats")["heads"]] == ["more"]
        all_heads.delete_head("cats")
        assert [head["name"] for head in all_heads.heads()["heads"]] == ["more"]
        with pytest.raises(ServiceError, match="there is no head cats"):
            all_heads.delete_head("cats")


def test_strangers_load_no_head_and_are_not_told_which_there_are(many):
    made(many(), "cats").stop()
    client = many(public=True)
    client.headers.clear()
    for name in ("cats", "nobody"):
        for path in (
            f"/heads/{name}/classes",
            f"/heads/{name}/health",
            f"/v2/models/{name}",
            f"/heads/{name}/nothing",
        ):
            assert client.get(path).status_code == 401, path
            assert client.get(path, headers=bearer("wrong")).status_code == 401, path
        assert client.get(f"/heads/{name}/").status_code == 200  # the page, on which a token can be entered
        assert client.get(f"/heads/{name}/main.js").status_code == 200
    assert client.heads.n_loaded == 0
    assert client.get("/health").json() == {"status": "ok", "heads": 1, "loaded": 0, "learning": 0}
    assert client.get("/heads/cats/classes", headers={"Host": "evil.example", **AUTH}).status_code == 400
    assert client.get("/heads/nobody/classes", headers=AUTH).json()["detail"] == "there is no head nobody"


def test_the_address_of_a_head_leads_to_its_page(many):
    client = made(many(), "cats")
    assert client.get("/heads/cats", follow_redirects=False).headers["location"] == "cats/"
    for name in ("https:evil.example", "javascript:alert(1)", "..", "cats%5c"):
        assert client.get(f"/heads/{name}", follow_redirects=False).status_code in (200, 401, 404), name
        assert "location" not in client.get(f"/heads/{name}", follow_redirects=False).headers, name
    assert client.put("/heads/cats").status_code == 405
    assert client.get("/heads/cats/").status_code == client.get("/heads/cats/main.js").status_code == 200
    for path in ("/heads/nobody/", "/heads/nobody/main.js"):
        refused = client.get(path)
        assert (refused.status_code, refused.json()["detail"]) == (404, "there is no head nobody"), path


def test_the_model_of_the_protocol_is_the_head(many, tmp_path):
    learned(tmp_path / "heads", "cats", 0, 1)
    client = made(many(), "dogs")
    assert client.get("/v2/health/ready").json() == {"ready": True}
    assert client.get("/v2/models/cats/ready").json() == {"name": "cats", "ready": True}
    assert client.get("/v2/models/dogs/ready").status_code == 503
    assert client.get("/v2/models/birds/ready").json() == {"error": "there is no head birds"}
    rows = np.array(vectors(1, 2, seed=9), np.float32)
    asked = {
        "inputs": [{"name": "vectors", "datatype": "FP32", "shape": [*rows.shape], "data": rows.ravel().tolist()}]
    }
    for path in ("/v2/models/cats/infer", "/heads/cats/v2/models/cats/infer", "/v2/models/cats/versions/1/infer"):
        found = client.post(path, json=asked).json()
        assert (found["model_name"], found["outputs"][0]["data"]) == ("cats", ["cats 1", "cats 1"])
    assert client.post("/heads/cats/v2/models/dogs/infer", json=asked).status_code == 404


def test_heads_leave_memory_when_it_is_short_and_come_back(many, monkeypatch, tmp_path):
    learned(tmp_path / "heads", "a", 0, 1)
    client = made(many(memory=10), *"bcd")
    room = {"heads": 2}
    monkeypatch.setattr(heads_module, "used_memory", lambda: 11 if client.heads.n_loaded >= room["heads"] else 9)
    for head in "abcd":
        assert client.get(f"/heads/{head}/classes").status_code == 200
        assert client.heads.n_loaded <= 2
    assert best(client, "a", 1) == "a 1"
    assert client.get("/heads/a/drift").json()["answered"] == 1
    assert [one["name"] for one in client.get("/heads").json()["heads"] if one["loaded"]] == ["a", "d"]
    client.get("/heads/b/classes")
    client.get("/heads/c/classes")
    assert client.get("/heads/a/drift").json()["answered"] == 1  # counts were written when it left
    room["heads"] = 0
    assert client.get("/heads/d/classes").status_code == 200  # one is loaded, however short memory is


def test_a_head_that_leaves_memory_is_freed_also_if_it_was_set_aside(many, monkeypatch):
    client = made(many(memory=10), "a", "b")
    client.get("/heads/a/classes")
    left = weakref.ref(client.heads._loaded["a"].service)
    monkeypatch.setattr(heads_module, "used_memory", lambda: 11 if client.heads.n_loaded else 9)
    try:
        set_aside()  # as after a backbone was loaded
        client.get("/heads/b/classes")
        assert client.heads.n_loaded == 1
        assert left() is None
    finally:
        gc.unfreeze()


def test_a_request_at_the_moment_when_a_head_is_loaded_finds_it(many, monkeypatch):
    """Between the end of loading and its being told to who waits, others may ask."""
    client = made(many(), "a")
    heads, load, others = client.heads, client.heads._load, []

    async def ask():
        async with heads.lease("a") as loaded:
            return loaded.service.serving.version

    async def and_others(name):
        await load(name)
        others.append(asyncio.create_task(ask()))  # runs before who waits for this

    def too_long(*_):
        raise TimeoutError("it turns on the spot")

    monkeypatch.setattr(heads, "_load", and_others)
    usual = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(60)
    try:

        async def both():
            return [await ask(), await others[0]]

        assert asyncio.run(both()) == [0, 0]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, usual)


@pytest.mark.parametrize("leaves", ["dropped", "deleted"])
def test_a_head_that_leaves_while_others_are_saved_is_not_saved(many, monkeypatch, tmp_path, caplog, leaves):
    client = made(many(), "a", "b")
    for head in "ab":
        client.get(f"/heads/{head}/classes")
    heads, gone = client.heads, client.heads._loaded["b"].service
    inside, go_on, saved = threading.Event(), threading.Event(), []

    def slow():
        inside.set()
        go_on.wait(10)

    monkeypatch.setattr(heads._loaded["a"].service, "save", slow)

    async def leave():
        saving = asyncio.create_task(heads.save())
        await asyncio.to_thread(inside.wait, 10)
        await (heads._change("b", heads._drop("b")) if leaves == "dropped" else heads.delete("b"))
        monkeypatch.setattr(gone, "save", lambda: saved.append("b"))
        go_on.set()
        await saving

    asyncio.run(leave())
    assert saved == []
    assert "not everything was saved" not in caplog.text
    assert (tmp_path / "heads" / "b").exists() == (leaves == "dropped")


def test_saving_goes_on_after_a_failure(many, monkeypatch, caplog):
    monkeypatch.setattr("taer.serve.app._SAVE_SECONDS", 0.01)
    client = made(many(), "a", "b")
    for head in "ab":
        client.get(f"/heads/{head}/classes")
    saved = Counter()

    def fails():
        saved["a"] += 1
        raise RuntimeError("nobody expected this")

    monkeypatch.setattr(client.heads._loaded["a"].service, "save", fails)
    monkeypatch.setattr(client.heads._loaded["b"].service, "save", lambda: saved.update("b"))
    monkeypatch.setattr(heads_module, "used_memory", fails)
    client.heads._memory = 1
    end = time.monotonic() + 10
    while min(saved["a"] // 2, saved["b"]) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    monkeypatch.undo()
    assert min(saved["a"] // 2, saved["b"]) >= 3
    assert "nobody expected this" in caplog.text


def test_a_limit_of_a_token_outlives_its_head_in_memory(many, monkeypatch, tmp_path, capsys):
    client = made(many(memory=10), "a", "b")
    monkeypatch.setattr(heads_module, "used_memory", lambda: 11)
    own = bearer(token_command(capsys, tmp_path / "heads" / "a", "add", "x", "--role", "teach", "--requests", 2))
    statuses = []
    for _ in range(3):
        statuses.append(client.get("/heads/a/classes", headers=own).status_code)
        client.get("/heads/b/classes")
    assert statuses == [200, 200, 429]


def test_a_head_that_cannot_be_opened_leaves_the_others_alone(many, tmp_path, caplog):
    learned(tmp_path / "heads", "good", 0, 1)
    client = made(many(), "bad")
    (tmp_path / "heads" / "bad" / "taer.db").write_bytes(b"not a database" * 300)
    refused = client.get("/heads/bad/classes")
    assert refused.status_code == 503
    assert refused.json()["detail"] == "the head bad cannot be opened; the log of the service says why"
    assert "taer.db is damaged" in caplog.text
    assert client.get("/heads").json()["heads"][0] == {
        "name": "bad", "version": None, "classes": None, "waiting": None, "loaded": False,
    }  # fmt: skip
    assert best(client, "good", 1) == "good 1"
    assert client.delete("/heads/bad").status_code == 200


def test_a_damaged_file_of_tokens_keeps_only_its_tokens_out(many, tmp_path, caplog, capsys):
    folder = tmp_path / "heads"
    for head in ("cats", "dogs"):
        learned(folder, head, 0, 1)
    own = bearer(token_command(capsys, folder / "cats", "add", "anna"))
    whole = (folder / "cats" / "tokens.json").read_bytes()
    (folder / "cats" / "tokens.json").write_text("{")
    for public in (False, True):
        client = many(public=public)
        assert best(client, "cats", 0) == "cats 0"
        for name in ("cats", "dogs", "nobody"):  # strangers are not told which there are
            for headers in (own, {"Authorization": ""}):
                status = client.get(f"/heads/{name}/examples", headers=headers).status_code
                assert status == (404 if name == "nobody" and not public else 401), (name, public)
        client.stop()
    assert "cats/tokens.json: cannot be read as tokens" in caplog.text
    client = many(public=True)
    assert client.get("/heads/cats/classes", headers=own).status_code == 401
    (folder / "cats" / "tokens.json").write_bytes(whole)
    assert client.get("/heads/cats/classes", headers=own).status_code == 200
    (folder / "dogs" / "tokens.json").write_text("{")
    (folder / "dogs" / "tokens.json").unlink()
    assert best(client, "dogs", 0) == "dogs 0"


@pytest.mark.parametrize("how", ["another folder", "another database"])
def test_a_head_that_is_replaced_on_disk_is_loaded_again(many, tmp_path, how):
    folder = tmp_path / "heads"
    learned(folder, "cats", 0, 1)
    shutil.copytree(folder / "cats", tmp_path / "backup")
    client = many()
    teach(client, "cats", 2)
    assert client.get("/heads/cats/health").json()["version"] == 2
    if how == "another folder":
        shutil.rmtree(folder / "cats")
        assert client.get("/heads/cats/classes").status_code == 404
        assert client.heads.n_loaded == 0
        shutil.copytree(tmp_path / "backup", folder / "cats")
    else:
        (folder / "cats" / "taer.db").unlink()
        shutil.copyfile(tmp_path / "backup" / "taer.db", folder / "cats" / "taer.db")
    assert client.get("/heads/cats/health").json()["version"] == 1
    body = {"label": "new", "vectors": vectors(3)}
    assert client.post("/heads/cats/examples", json=body).status_code == 200
    client.stop()
    assert Folder(folder).entry("cats")["waiting"] == 8


def test_a_head_that_is_removed_on_disk_is_neither_saved_nor_kept(many, tmp_path, caplog):
    client = made(many(), "cats")
    client.get("/heads/cats/classes")
    shutil.rmtree(tmp_path / "heads" / "cats")
    asyncio.run(client.heads.save())
    assert "was not published" not in caplog.text
    made(client, "cats")
    body = {"label": "new", "vectors": vectors(3)}
    assert client.post("/heads/cats/examples", json=body).status_code == 200
    assert Folder(tmp_path / "heads").entry("cats")["waiting"] == 8


def test_a_head_is_deleted_while_it_learns(many, monkeypatch, tmp_path):
    learned(tmp_path / "heads", "dogs", 0, 1)
    client = made(many(), "cats")
    client.post("/heads/cats/examples", json={"label": "a", "vectors": vectors(0)})
    asked, answered = threading.Event(), []
    process = client.heads.queue._process
    ask = process.ask

    def slow(order):
        asked.set()
        process.start()
        os.kill(process._process.pid, 19)  # it stops where it is
        return ask(order)

    monkeypatch.setattr(process, "ask", slow)
    thread = threading.Thread(target=lambda: answered.append(client.post("/heads/cats/learn")))
    thread.start()
    assert asked.wait(60)
    assert client.delete("/heads/cats").status_code == 200
    thread.join(60)
    assert answered[0].status_code == 409
    monkeypatch.setattr(process, "ask", ask)
    made(client, "cats")
    assert client.get("/heads/cats/history").json()["versions"] == []
    teach(client, "dogs", 2)
    assert sorted(os.listdir(tmp_path / "heads")) == ["cats", "dogs", "serve.lock"]


def test_a_head_that_is_being_asked_is_not_deleted_under_the_request(many, monkeypatch, tmp_path):
    learned(tmp_path / "heads", "cats", 0, 1)
    client = many()
    assert best(client, "cats", 0) == "cats 0"
    monkeypatch.setattr(heads_module, "DELETE_SECONDS", 0.1)
    service = client.heads._loaded["cats"].service
    inside, go_on, answered = threading.Event(), threading.Event(), []
    classes = service.classes

    def waits():
        inside.set()
        go_on.wait(60)
        return classes()

    monkeypatch.setattr(service, "classes", waits)
    thread = threading.Thread(target=lambda: answered.append(client.get("/heads/cats/classes")))
    thread.start()
    assert inside.wait(60)
    refused = client.delete("/heads/cats")
    assert (refused.status_code, "still being asked; nothing was changed" in refused.text) == (409, True)
    go_on.set()
    thread.join(60)
    assert answered[0].status_code == 200
    assert best(client, "cats", 1) == "cats 1"
    assert client.delete("/heads/cats").status_code == 200


def test_a_body_that_does_not_end_keeps_no_head_from_being_deleted(serve, tmp_path):
    server = serve(tmp_path / "heads", "--many")
    made(server.http, "cats")
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as slow:
        start = "POST /heads/cats/predict HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n"
        slow.sendall((start.format(host) + "Content-Length: 99\r\n\r\n{").encode())
        wait_until(lambda: server.http.get("/health").json()["loaded"] == 1)
        time.sleep(0.3)
        assert server.http.delete("/heads/cats").status_code == 200
        told = slow.recv(10_000)
    assert b" 503 " in told
    assert b"the head is being deleted or replaced" in told
    assert server.http.get("/heads/cats/classes").status_code == 404


def test_a_crash_leaves_whole_heads(many, monkeypatch, tmp_path):
    folder = tmp_path / "heads"
    made(many(), "new").stop()  # and never used before the restart
    learned(folder, "cats", 0, 1)

    class Crash(BaseException):
        pass

    def crash(*_, **__):
        raise Crash

    replace = os.replace

    def crash_at_its_place(source, target):
        if Path(target) == folder / "half":
            raise Crash
        replace(source, target)

    heads = Folder(folder)
    with monkeypatch.context() as patch:
        patch.setattr("taer.files.os.replace", crash_at_its_place)  # right before the head would be there
        patch.setattr("taer.files._remove", lambda _: None)
        with pytest.raises(Crash):
            heads.make("half", folder / "cats")
    shutil.copytree(folder / "cats", folder / "old")
    with monkeypatch.context() as patch:
        patch.setattr("taer.serve.many.folder.shutil.rmtree", crash)
        with pytest.raises(Crash):
            heads.remove("old")
    assert heads.names() == ["cats", "new"]
    assert len(os.listdir(folder)) == 5
    client = many()
    assert sorted(os.listdir(folder)) == ["cats", "new", "serve.lock"]
    assert client.get("/heads/new/classes").json()["classes"] == []
    assert best(client, "cats", 1) == "cats 1"


def answered(names, during=None):
    """The order in which requests begin that arrive together, each of which takes a millisecond of the event loop."""
    order, turns = [], Turns()

    async def ask(name):
        async with turns.of(name):
            order.append(name)
            time.sleep(0.001)

    async def all_of_them():
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(ask(name))
            if during:
                await during(turns, order)

    asyncio.run(all_of_them())
    return order


def test_answers_are_fair_between_heads():
    """A head with one request waits for one of a head with many, wherever it came in line."""
    assert answered(["loud"] * 9 + ["quiet"] * 2 + ["third"]).index("third") <= 3
    assert answered(["loud"] * 9 + ["quiet"] * 2)[:4] == ["loud", "quiet", "loud", "quiet"]


def test_a_head_leaves_half_of_the_time_to_the_threads_of_others():
    begun = []

    async def other(turns, order):
        async with turns.of("quiet"):
            start = time.perf_counter()
            while len(order) < 10:
                await asyncio.sleep(0)
            begun.append(time.perf_counter() - start)

    answered(["loud"] * 20, other)
    assert begun[0] >= 1.8 * 0.009  # ten turns, and as long after each as it took


def test_who_leaves_the_line_holds_up_nobody():
    async def leave(turns, order):
        gone = asyncio.create_task(turns.of("gone").__aenter__())
        await asyncio.sleep(0)
        gone.cancel()

    assert answered(["loud"] * 3 + ["quiet"], leave).count("loud") == 3


def test_learning_is_fair_between_heads():
    """A head that wants to learn all the time lets each other one go first once."""
    queue, order, begun = Queue(), [], threading.Event()

    def slow(task):
        begun.set()
        if not order:
            wait_until(lambda: len(queue) == 4)  # all have asked
        order.append(task["folder"])
        time.sleep(0.02)
        return {}

    queue._process.ask = slow

    def learn(name, times):
        for _ in range(times):
            queue.ask(Path(name), {})

    greedy = threading.Thread(target=learn, args=("greedy", 6))
    greedy.start()
    begun.wait(60)
    others = [threading.Thread(target=learn, args=(name, 1)) for name in "abc"]
    for thread in others:
        thread.start()
    for thread in [greedy, *others]:
        thread.join(60)
    assert len(order) == 9
    assert {"a", "b", "c"} <= set(order[:6])
    queue.close()


def test_a_task_that_waits_can_be_canceled():
    queue, ended, running, go_on = Queue(), [], threading.Event(), threading.Event()

    def slow(_):
        running.set()
        go_on.wait(60)
        return {}

    queue._process.ask = slow
    first = threading.Thread(target=queue.ask, args=(Path("a"), {}))
    first.start()
    assert running.wait(60)

    def wait():
        try:
            queue.ask(Path("b"), {})
        except Ended:
            ended.append("b")

    second = threading.Thread(target=wait)
    second.start()
    while len(queue) < 2:
        time.sleep(0.001)
    queue.cancel(Path("b"))
    second.join(60)
    assert ended == ["b"]
    go_on.set()
    first.join(60)
    assert len(queue) == 0


def test_a_backbone_is_loaded_once_for_all(many, backbones, monkeypatch):
    from taer.serve.many import run as run_module

    found, find = [], run_module.find
    monkeypatch.setattr(run_module, "find", lambda name: found.append(name) or find(name))
    client = made(many(backbone="letters"), "a", "b", "c")
    for head in "abc":
        for label, word in (("x", "aaa"), ("y", "bbb")):
            body = {"label": label, "texts": [word + "c" * i for i in range(1, 7)]}
            assert client.post(f"/heads/{head}/examples", json=body).status_code == 200
        assert client.post(f"/heads/{head}/learn").status_code == 200
    client.stop()
    again = many()
    for head in "abc":
        answer = again.post(f"/heads/{head}/predict", json={"texts": ["bbbcc"]}).json()
        assert answer["predictions"][0]["label"] == "y"
    assert len({id(one.service.backbone) for one in again.heads._loaded.values()}) == 1
    assert found == ["letters", "letters"]  # once per server


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--many", "--demo"], "leave out --demo, --model, --relearn and --follow"),
        (["--memory", "2G"], "--memory is for --many"),
        (["--many", "--memory", "0G"], "expected a size such as 500M or 2G, got 0G"),
        (["--many", "--memory", "much"], "expected a size such as 500M or 2G, got much"),
        (["--many", "--method", "nothing"], "nothing"),
    ],
)
def test_mistakes_at_the_start_are_told(tmp_path, capsys, arguments, told):
    with pytest.raises(SystemExit) as ended:
        main(["serve", str(tmp_path / "heads"), *arguments])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_the_folder_of_one_head_is_not_one_of_many(many, tmp_path):
    made(many(), "cats")
    with pytest.raises(ValueError, match="another taer serve is at work in this folder"):
        many()
    with pytest.raises(ValueError, match="is the folder of one head"):
        many(tmp_path / "heads" / "cats")
    assert size_of("500M") == 500 << 20


@pytest.mark.slow
def test_a_real_server(serve, tmp_path):
    server = serve(tmp_path / "heads", "--many", "--memory", "1G")
    client = made(server.http, "cats")
    teach(client, "cats", 0, 1)
    server.kill()
    again = serve(tmp_path / "heads", "--many")
    assert best(again.http, "cats", 1) == "cats 1"
