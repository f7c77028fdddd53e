"""``taer label-studio`` with messages as Label Studio 1.23.2 sends them; the server itself is in the test beside this."""

from __future__ import annotations

import base64
import io
import json
import logging
import threading
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("starlette")
from PIL import Image
from starlette.testclient import TestClient

from taer.serve.app import create_app
from taer.serve.inputs import BadInput
from taer.serve.label_studio import backend
from taer.serve.label_studio import teacher as teaching
from taer.serve.label_studio import tool as tools
from taer.serve.label_studio.backend import Backend
from taer.serve.label_studio.interface import Interface
from taer.serve.label_studio.teacher import Teacher
from taer.serve.label_studio.tool import Tool, Unreachable
from taer.serve.learner import Learner
from taer.serve.learner import _answer as learner_answer
from taer.serve.service import Service
from taer.serve.store import Store
from tests.serve.backbones import Letters, Pixels
from tests.serve.conftest import TOKEN

CONFIG = (
    '<View><Text name="text" value="$text"/><Choices name="topic" toName="text" choice="single">'
    '<Choice value="a"/><Choice value="b"/><Choice value="c"/></Choices></View>'
)
PICTURES = CONFIG.replace("<Text", "<Image").replace("$text", "$image")
BASIC = {"Authorization": "Basic " + base64.b64encode(f"taer:{TOKEN}".encode()).decode()}
TEXTS = {
    "a": ["aaa", "aaac", "aaad", "aaae", "aaaf", "aaaa"],
    "b": ["bbb", "bbbc", "bbbd", "bbbe", "bbbf", "bbbb"],
}


def project(number=1, config=CONFIG):
    return {"id": number, "title": "topics", "label_config": config, "model_version": "taer", "token": "…"}


def task(number, text, field="text", annotations=0):
    return {
        "id": number, "data": {field: text}, "meta": {}, "is_labeled": False, "overlap": 1, "inner_id": number,
        "total_annotations": annotations, "cancelled_annotations": 0, "project": 1, "annotations": [],
    }  # fmt: skip


def annotated(number, text, label, minute=0, action="ANNOTATION_CREATED", field="text", **more):
    """The webhook of annotation ``number`` of the task with the same number."""
    result = [{"from_name": "topic", "to_name": "text", "type": "choices", "value": {"choices": [label]}}]
    said = {
        "id": number, "result": result if label else [], "was_cancelled": False, "ground_truth": False,
        "created_at": "2026-11-18T14:41:53.454900Z", "updated_at": f"2026-11-18T14:{minute:02d}:53.454933Z",
        "prediction": {}, "result_count": 1, "task": number, "project": 1, "completed_by": 1,
    }  # fmt: skip
    return {"action": action, "annotation": said | more, "project": project(), "task": task(number, text, field)}


class InThisProcess(Learner):
    """Learns without a process of its own, which takes seconds to start."""

    def start(self):
        pass

    def ask(self, order):
        with closing(Store(self._folder)) as store:
            return learner_answer(self._folder, lambda _: store, dict(order))


class Running:
    """A service with the endpoints, in this process; annotations are applied when :meth:`settle` is called."""

    def __init__(self, folder, backbone, tool, every, stack):
        self.service = Service(folder, backbone, learner=InThisProcess(folder))
        self.teacher = Teacher(self.service, tool, every)
        self.teacher.start = lambda: None
        backend = Backend(self.teacher)
        app = create_app(self.service, TOKEN, extend=backend.add_to)
        self.http = TestClient(backend.behind(app), base_url="http://127.0.0.1", headers=BASIC)
        self.stop = stack.enter_context(ExitStack()).close
        stack.enter_context(self.http)

    def send(self, *events):
        for event in events:
            answer = self.http.post("/label-studio/webhook", json=event)
            assert answer.status_code == 200, answer.text

    def settle(self, *events):
        self.send(*events)
        return self.teacher.settle()

    def predict(self, *tasks, config=CONFIG):
        body = {
            "tasks": list(tasks),
            "project": "1.1795012911",
            "label_config": config,
            "params": {"context": None},
        }
        answer = self.http.post("/label-studio/predict", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["results"]

    @property
    def examples(self):
        listed = self.service.store.listed(self.service.serving.version, None, 0, 1000)
        return [(one["text"], one["label"]) for one in listed]


@pytest.fixture
def start(tmp_path):
    with ExitStack() as stack:

        def started(backbone=None, tool=None, every=5, folder=tmp_path / "service"):
            return Running(folder, backbone or Letters(), tool or Tool("http://localhost:8080"), every, stack)

        yield started


@pytest.fixture
def taught(start):
    """Twelve annotations were learned as version 1."""
    running = start(every=12)
    for number, (text, label) in enumerate([(text, name) for name, texts in TEXTS.items() for text in texts], 1):
        running.send(annotated(number, text, label))
    assert running.settle()
    assert running.service.serving.version == 1
    return running


def test_setup_says_which_version_answers(taught):
    asked = {"project": "1.1795012911", "schema": CONFIG, "hostname": "http://localhost:8080", "access_token": "…"}
    assert taught.http.post("/label-studio/setup", json=asked).json() == {"model_version": "taer-1"}
    assert taught.http.get("/label-studio/health").json() == {"status": "UP"}
    assert taught.http.get("/label-studio/versions").json() == {"versions": ["taer-1"]}


def test_a_head_learns_from_one_project(taught, caplog):
    asked = {"project": "2.1795012999", "schema": CONFIG}
    refused = taught.http.post("/label-studio/setup", json=asked)
    assert (refused.status_code, refused.json()["detail"][:30]) == (409, "service learns from project 1,")
    assert "learns from project 1" in caplog.text  # Label Studio shows the status alone
    event = annotated(99, "ccc", "c") | {"project": project(2)}
    assert taught.http.post("/label-studio/webhook", json=event).status_code == 409
    taught.settle()
    assert len(taught.examples) == 12


def test_each_request_needs_the_token(start, caplog):
    running = start()
    for method, path in (("GET", "health"), ("POST", "setup"), ("POST", "predict"), ("POST", "webhook")):
        for header in ("", "Basic !", "Basic " + base64.b64encode(b"taer:wrong").decode(), "Bearer wrong"):
            answer = running.http.request(
                method, f"/label-studio/{path}", headers={"Authorization": header}, json={}
            )
            assert answer.status_code == 401, (path, header)
    assert "without a token" not in caplog.text
    bare = TestClient(running.http.app, base_url="http://127.0.0.1")
    assert bare.post("/label-studio/webhook", json=annotated(1, "aaa", "a")).status_code == 401
    assert "add the header Authorization" in caplog.text
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert bare.post("/label-studio/webhook", json=annotated(1, "aaa", "a"), headers=bearer).status_code == 200
    assert running.http.get("/history").status_code == 200  # the service itself takes Bearer only, here it is open
    assert running.http.post("/learn").status_code == 401


def test_predictions_have_a_choice_or_are_left_open(taught):
    a, strange, gone = taught.predict(task(1, "aaac"), task(2, "f" * 90), task(3, "", "other"))
    assert a[0]["model_version"] == "taer-1"
    (choice,) = a[0]["result"]
    assert 0.5 < choice.pop("score") <= 1
    assert choice == {"from_name": "topic", "to_name": "text", "type": "choices", "value": {"choices": ["a"]}}
    assert strange[0]["result"] == []  # unknown
    assert gone == []  # it has no text
    lacking = CONFIG.replace('<Choice value="a"/>', "")
    # the tool does not offer that choice
    assert taught.predict(task(1, "aaac"), config=lacking)[0][0]["result"] == []
    assert taught.service.drift.hours(1) == []  # predictions for labeling are not the service's traffic


def test_what_to_label_next_has_the_lowest_scores(taught):
    pool = [task(n, "aaa" + "cde"[n % 3]) for n in range(20)] + [task(n, "f" * (40 + n)) for n in range(20, 30)]
    scores = [found[0]["score"] for found in taught.predict(*pool)]
    lowest = sorted(range(30), key=scores.__getitem__)
    assert lowest[0] >= 20  # what it does not know
    suggested = [score for score in scores if score < 0.5]
    assert len(suggested) == len(set(suggested)) == 15  # half of the pool, each with its place
    labeled = taught.predict(*(one | {"total_annotations": 1} for one in pool))
    assert min(found[0]["score"] for found in labeled) >= 0.5  # no annotation is asked for again
    alone = taught.predict(pool[25])  # a single task, which someone opened, does not jump the queue
    assert alone[0][0]["score"] >= 0.5


def test_before_anything_is_learned_tasks_are_ordered_by_spread(start):
    running = start()
    found = running.predict(*(task(n, "ab"[n % 2] * (n + 1)) for n in range(10)))
    assert all(one[0]["result"] == [] and one[0]["model_version"] == "taer-0" for one in found)
    assert sorted(one[0]["score"] for one in found) == [0, 0.1, 0.2, 0.3, 0.4] + [0.5] * 5


def test_five_annotations_are_learned_as_one_task(start):
    running = start()
    for number, (text, label) in enumerate([("aaa", "a"), ("aaac", "a"), ("bbb", "b"), ("bbbc", "b")], 1):
        assert running.settle(annotated(number, text, label))
    assert running.service.serving.version == 0
    running.settle(annotated(5, "aaad", "a"))
    assert running.service.serving.version == 1
    assert running.predict(task(9, "bbb"))[0][0]["result"][0]["value"] == {"choices": ["b"]}


def test_training_learns_what_waits(start):
    running = start()
    running.settle(annotated(1, "aaa", "a"), annotated(2, "bbb", "b"))
    running.settle({"action": "START_TRAINING", "project": project()})
    assert running.service.serving.version == 1
    running.settle({"action": "START_TRAINING", "project": project()})
    assert running.service.serving.version == 1


def test_a_repeated_message_teaches_once(taught):
    before = taught.examples
    taught.settle(annotated(1, "aaa", "a"))
    taught.settle(annotated(1, "aaa", "a", action="ANNOTATION_UPDATED"))
    assert taught.examples == before
    assert (taught.service.n_pending, taught.service.serving.version) == (0, 1)


def test_a_changed_label_is_unlearned_and_learned(taught):
    taught.settle(annotated(1, "aaa", "b", minute=50, action="ANNOTATION_UPDATED"))
    assert dict(taught.examples)["aaa"] == "b"
    assert taught.service.store.versions()[-1].report["edit"] == "example 1 of a is now b"
    taught.settle(annotated(1, "aaa", "a", minute=45, action="ANNOTATION_UPDATED"))  # older, and late
    assert dict(taught.examples)["aaa"] == "b"


def test_a_change_before_it_was_learned_makes_no_version(start):
    running = start()
    running.settle(annotated(1, "aaa", "a"))
    running.settle(annotated(1, "aaa", "b", minute=50, action="ANNOTATION_UPDATED"))
    assert (running.examples, running.service.serving.version) == ([("aaa", "b")], 0)


@pytest.mark.parametrize(
    "event",
    [
        {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 1}], "project": project()},
        {"action": "TASKS_DELETED", "tasks": [{"id": 1}], "project": project()},
        annotated(1, "aaa", "", minute=50, action="ANNOTATION_UPDATED"),
        annotated(1, "aaa", "a", minute=50, action="ANNOTATION_UPDATED", was_cancelled=True),
    ],
    ids=["annotation", "task", "emptied", "skipped"],
)
def test_what_is_deleted_is_unlearned(taught, event):
    taught.settle(event)
    assert "aaa" not in dict(taught.examples)
    assert taught.service.store.versions()[-1].report["edit"] == "example 1 of a deleted"
    if event["action"].endswith("DELETED"):
        taught.settle(annotated(1, "aaa", "a", minute=55))  # a message that was on its way
        assert "aaa" not in dict(taught.examples)


def test_many_at_once(start):
    running = start()
    one, two = annotated(1, "aaa", "a"), annotated(2, "bbb", "b")
    both = {"annotation": [one["annotation"], two["annotation"]], "task": [one["task"], two["task"]]}
    running.settle({"action": "ANNOTATIONS_CREATED", "project": project()} | both)
    assert running.examples == [("aaa", "a"), ("bbb", "b")]


def test_what_was_written_down_is_learned_after_a_restart(start):
    first = start()
    first.send(annotated(1, "aaa", "a"), annotated(2, "bbb", "b"))
    first.service.close()  # before anything was applied
    second = start()
    assert second.examples == []
    second.settle()
    assert second.examples == [("aaa", "a"), ("bbb", "b")]


def test_after_going_back_a_changed_annotation_is_an_example_again(taught):
    taught.service.go_to(0)
    taught.settle(annotated(1, "aaa", "b", minute=50, action="ANNOTATION_UPDATED"))
    assert taught.examples == [("aaa", "b")]


def test_the_text_is_stored_once(taught):
    assert taught.service.store.rows("SELECT count(item) FROM label_studio") == [(0,)]


def test_a_busy_learner_is_waited_for(taught, caplog):
    with taught.service.learner.exclusively():
        assert not taught.settle(annotated(1, "aaa", "b", minute=50, action="ANNOTATION_UPDATED"))
        assert dict(taught.examples)["aaa"] == "a"
        assert "annotation 1 waits: a task is being learned" in caplog.text
    assert taught.settle()
    assert dict(taught.examples)["aaa"] == "b"


def test_what_cannot_be_learned_is_told_and_left(start, caplog):
    running = start()
    two = annotated(1, "aaa", "a")
    two["annotation"]["result"][0]["value"]["choices"].append("b")
    assert running.settle(two, annotated(2, "", "a"), annotated(3, "bbb", "b" * 200))
    assert running.examples == []
    for told in ("has 2 choices", "no text in its field text", "label: expected 1 to 100"):
        assert told in caplog.text


def test_a_thread_applies_what_comes(start, monkeypatch):
    monkeypatch.setattr(teaching, "AGAIN", 0.05)
    running = start(every=2)
    done = threading.Event()
    running.service.learn, learn = lambda: (learn(), done.set()), running.service.learn
    Teacher.start(running.teacher)
    with running.service.learner.exclusively():
        running.send(annotated(1, "aaa", "a"), annotated(2, "bbb", "b"))
    assert done.wait(60)
    running.teacher.stop()
    assert running.service.serving.version == 1


CONFIGS = {
    "two": (CONFIG.replace("</View>", '<Choices name="x" toName="text"/></View>'), "has 2 <Choices> tags"),
    "none": ('<View><Text name="text" value="$text"/></View>', "has 0 <Choices> tags"),
    "several": (CONFIG.replace('"single"', '"multiple"'), "takes several labels per task, which is not supported"),
    "regions": (CONFIG.replace('choice="single"', 'perRegion="true"'), "labels parts of a task"),
    "nested": (CONFIG.replace('"c"/>', '"c"><Choice value="d"/></Choice>'), "inside <Choice>"),
    "of data": (CONFIG.replace('choice="single"', 'value="$names"'), "from a task's data"),
    "sound": (CONFIG.replace("<Text", "<Audio"), "<Choices> is for <Audio>"),
    "nothing": (CONFIG.replace('toName="text"', 'toName="x"'), "<Choices> is for nothing"),
    "elsewhere": (CONFIG.replace('"$text"', '"$text" valueType="url"'), "one field of a task as it is"),
    "list": (PICTURES.replace('value="$image"', 'valueList="$image"'), "one field of a task as it is"),
    "not XML": ("<View", "is not XML"),
    "entities": ('<!DOCTYPE v [<!ENTITY a "b">]>' + CONFIG, "declares entities"),
    "hidden entities": ('<?a <!-- ?><!DOCTYPE v [<!ENTITY a "b">]><?a --> ?>' + CONFIG, "declares entities"),
    "the other kind": (PICTURES, "the project shows images, and this service has the backbone letters"),
}


@pytest.mark.parametrize(("config", "told"), CONFIGS.values(), ids=CONFIGS)
def test_interfaces_that_cannot_be_learned(start, caplog, config, told):
    refused = start().http.post("/label-studio/setup", json={"project": "1.1", "schema": config})
    assert refused.status_code == 422
    assert told in refused.json()["detail"]
    assert told in caplog.text


ODD = {
    "large number": {"id": 2**63},
    "large task": {"task": 10**30},
    "no time zone": {"updated_at": "0001-01-01T00:00:00"},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_messages_that_cannot_be_stored_are_refused(start, odd):
    answer = start().http.post("/label-studio/webhook", json=annotated(1, "aaa", "a", **odd))
    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize("value", ["a", ["a"], {"choices": 5}, {"choices": "a"}, {"choices": [["a"]]}])
def test_an_annotation_without_a_choice_in_its_place_is_told_and_left(start, caplog, value):
    result = [{"from_name": "topic", "to_name": "text", "type": "choices", "value": value}]
    running = start()
    assert running.settle(annotated(1, "aaa", "a", result=result), annotated(2, "bbb", "b"))
    assert running.examples == [("bbb", "b")]
    assert "annotation 1 is not learned: the annotation does not have its choice" in caplog.text


def test_what_fails_for_one_annotation_keeps_no_other_from_being_learned(start, caplog, monkeypatch):
    running = start()
    features = running.teacher.features

    def fails(kind, items):
        if items == ["aaa"]:
            raise RuntimeError("nobody expected this")
        return features(kind, items)

    with monkeypatch.context() as broken:
        broken.setattr(running.teacher, "features", fails)
        assert not running.settle(annotated(1, "aaa", "a"), annotated(2, "bbb", "b"))
    assert running.examples == [("bbb", "b")]
    assert "nobody expected this" in caplog.text
    assert running.settle()
    assert running.examples == [("bbb", "b"), ("aaa", "a")]


def test_no_more_tasks_are_predicted_than_label_studio_waits_for(start):
    body = {"tasks": [task(1, "aaa")] * (backend._MAX_TASKS + 1), "label_config": CONFIG}
    refused = start().http.post("/label-studio/predict", json=body)
    assert (refused.status_code, refused.json()["detail"]) == (422, "tasks: at most 20000 are taken at once")


def test_an_alias_is_the_label():
    shown = Interface.of(CONFIG.replace('value="a"', 'value="Alpha" alias="a"'))
    assert shown.choices == ("a", "b", "c")


# Images


def picture(kind):
    """Ink on the left, or at the top."""
    image = Image.new("L", (20, 20), 255)
    image.paste(0, (0, 0, 8, 20) if kind == "left" else (0, 0, 20, 8))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


class Files(BaseHTTPRequestHandler):
    """Some addresses of a tool, and what was asked."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        kind = "left" if "left" in self.path else "top"
        target = {
            "/data/moved": "/data/upload/1/left.png",
            "/data/away": f"http://localhost:{self.server.server_port}/x",
        }
        target |= {"/data/round": "/data/round", "/data/file": "file:///etc/passwd", "/data/api": "/api/users"}
        if self.path in target:
            self._send(302, b"", Location=target[self.path])
        elif self.path == "/data/large":
            self._send(200, b"x" * 3000)
        elif self.path == "/data/secret" and self.headers.get("Authorization") != "Bearer second":
            self._send(401, b"")
        elif self.path.startswith("/api/projects/1/export"):
            self._send(200, self.server.export)
        elif "none" in self.path:
            self._send(404, b"")
        else:
            self._send(200, picture(kind))

    def do_POST(self):
        size = int(self.headers["Content-Length"])
        self.server.asked.append((self.path, self.rfile.read(size).decode()))
        self.server.made = {"first": "second"}.get(getattr(self.server, "made", ""), "first")
        self._send(200, b'{"access": "%s"}' % self.server.made.encode())

    def _send(self, status, content, **headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def files():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    server.asked, server.export = [], b"[]"
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_images_are_predicted_and_learned(start, files):
    running = start(Pixels(), Tool(files.url, "key"), every=4)
    names = {1: "left-1", 2: "left-2", 3: "top-1", 4: "top Käse 2"}
    for number, name in names.items():
        event = annotated(number, f"/data/upload/1/{name}.png", "a" if "left" in name else "b", field="image")
        running.send(event | {"project": project(config=PICTURES)})
    assert running.settle()
    assert running.service.serving.version == 1
    inside = "data:image/png;base64," + base64.b64encode(picture("left")).decode()
    asked = [
        f"{files.url}/data/upload/1/left-9.png",
        "/data/local-files/?d=top 9/日本.png",
        inside,
        "/data/none.png",
    ]
    *found, nothing = running.predict(*(task(n, at, "image") for n, at in enumerate(asked)), config=PICTURES)
    assert [one[0]["result"][0]["value"]["choices"] for one in found] == [["a"], ["b"], ["a"]]
    assert nothing == []
    assert {auth for _, auth in files.asked} == {"Token key"}
    assert {
        "/data/upload/1/top%20K%C3%A4se%202.png",
        "/data/local-files/?d=top%209/%E6%97%A5%E6%9C%AC.png",
    } <= {path for path, _ in files.asked}
    source = running.service.example(1).source
    assert Image.open(io.BytesIO(source)).format == "JPEG"


ELSEWHERE = [
    "http://localhost:{port}/data/x.png", "https://127.0.0.1:{port}/data/x.png", "http://127.0.0.1:9/data/x.png",
    "//example.org/data/x.png", "http://127.0.0.1:{port}@example.org/data/x.png", "file:///etc/passwd", "s3://bucket/x",
    "http://example.org/data/x.png", "/data/away", "/data/file", "\\\\example.org\\data\\x.png", "http://[::1/data/x",
]  # fmt: skip


@pytest.mark.parametrize("address", ELSEWHERE)
def test_nothing_is_fetched_from_elsewhere(files, address):
    with pytest.raises(BadInput, match=r"fetched only from Label Studio itself|among the files|answered 302"):
        Tool(files.url, "key").image(address.format(port=files.server_port))
    assert [path for path, _ in files.asked if path not in ("/data/away", "/data/file")] == []


@pytest.mark.parametrize(
    "address",
    ["/api/projects/1/export", "/data/../api/users", "/data/%2e%2e/api/users", "/%61pi/users", "/user/login"],
)
def test_the_key_opens_nothing_but_files(files, address):
    with pytest.raises(BadInput, match="among the files of Label Studio"):
        Tool(files.url, "key").image(address)
    assert files.asked == []


def test_redirects_stay_on_the_host_and_end(files):
    assert Tool(files.url).image("/data/moved") == picture("left")
    with pytest.raises(BadInput, match="infinite loop"):
        Tool(files.url).image("/data/round")
    with pytest.raises(BadInput, match="among the files"):
        Tool(files.url).image("/data/api")


def test_a_file_is_read_up_to_a_limit(files, monkeypatch):
    monkeypatch.setattr(tools, "MAX_IMAGE_BYTES", 2000)
    with pytest.raises(BadInput, match="has more than"):
        Tool(files.url).image("/data/large")
    monkeypatch.setattr(tools, "MAX_IMAGE_BYTES", 4000)
    assert len(Tool(files.url).image("/data/large")) == 3000
    monkeypatch.setattr(tools, "_SECONDS", -1)
    with pytest.raises(Unreachable, match="took more than"):
        Tool(files.url).image("/data/large")


def test_a_personal_token_is_exchanged_and_renewed(files):
    tool = Tool(files.url, "one.two.three")
    assert tool.image("/data/secret") == picture("top")
    exchange = ("/api/token/refresh/", '{"refresh": "one.two.three"}')
    secret = "/data/secret"
    assert files.asked == [exchange, (secret, "Bearer first"), exchange, (secret, "Bearer second")]


def test_an_exchange_of_the_token_that_fails_is_tried_again(files, monkeypatch):
    tool = Tool(files.url, "one.two.three")
    monkeypatch.setattr(Files, "do_POST", lambda handler: handler._send(200, b"<html>"))
    with pytest.raises(Unreachable, match="gave no access for its token; is it Label Studio"):
        tool.image("/data/secret")


def test_without_a_key_the_message_names_the_option(files):
    with pytest.raises(
        Unreachable, match="answered 401 Unauthorized; give taer label-studio an access token with --key"
    ):
        Tool(files.url).image("/data/secret")


def test_an_image_that_cannot_be_had_now_is_tried_again(start, files):
    port, url = files.server_port, files.url
    tool = Tool(f"http://127.0.0.1:{port}")
    running = start(Pixels(), tool)
    event = annotated(1, "/data/secret", "a", field="image") | {"project": project(config=PICTURES)}
    assert not running.settle(event)  # 401
    assert running.examples == []
    running.teacher.tool = Tool(url, "one.two.three")
    assert running.settle()
    assert running.examples == [(None, "a")]


def test_training_compares_with_all_annotations(start, files):
    running = start(tool=Tool(files.url, "key"), every=100)
    running.settle(annotated(1, "aaa", "a"), annotated(2, "bbb", "b"), annotated(3, "aaac", "a"))
    rows = [(2, "bbb", "b"), (3, "aaac", "b"), (4, "bbbc", "b")]  # meanwhile 1 was deleted, 3 changed, 4 made
    messages = [annotated(n, text, label, minute=50 if n > 2 else 0) for n, text, label in rows]
    files.export = json.dumps([one["task"] | {"annotations": [one["annotation"]]} for one in messages]).encode()
    running.settle({"action": "START_TRAINING", "project": project()})
    assert running.examples == [("bbb", "b"), ("aaac", "b"), ("bbbc", "b")]
    assert running.service.serving.version == 1
    files.export = b"not JSON"
    assert not running.settle({"action": "START_TRAINING", "project": project()})
    assert len(running.examples) == 3


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://localhost", "http://", "http://user@host", "http://a:b"])
def test_an_address_that_is_none(url):
    with pytest.raises(ValueError, match="--url: expected the address of Label Studio"):
        Tool(url)


def test_a_webhook_without_payload(start, caplog):
    caplog.set_level(logging.WARNING)
    running = start()
    answer = running.http.post("/label-studio/webhook", json={"action": "ANNOTATION_CREATED"})
    assert (answer.status_code, "Send payload" in answer.json()["detail"]) == (422, True)
    running.send({"action": "PROJECT_UPDATED", "project": project()}, {"action": "LABEL_LINK_CREATED"})
