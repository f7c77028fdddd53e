"""``POST /predict`` against a bare FastAPI endpoint with the same matrix product, also while tasks are learned.

    python -m benchmarks.speed.serving            needs pip install 'taer[serve]'

Everything runs on 127.0.0.1, for a bounded time. The bare endpoint checks the same JSON body with pydantic, as
FastAPI does, and answers with the same classes; it has no versions, limits, counters, novelty or checks of the values.
Processor ms are those of the server's process per request; "of bare" is how much of bare's rate they allow.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fastapi import FastAPI
from fastapi.responses import Response
from pydantic import BaseModel
from threadpoolctl import threadpool_limits

import taer

TOKEN = "benchmark"
WIDTH, CLASSES, CONNECTIONS = 512, 100, 8
TASKS = 40  # to learn meanwhile, at most
ROUNDS = 5  # of bare and ours in turn; the one with the median processor time is shown


def blobs(classes: range, per_class: int) -> tuple[np.ndarray, np.ndarray]:
    centers = np.random.default_rng(0).normal(size=(1000, WIDTH)).astype(np.float32)
    y = np.repeat(list(classes), per_class)
    return centers[y] + np.random.default_rng(1).normal(size=(len(y), WIDTH)).astype(np.float32), y


class PredictRequest(BaseModel):
    vectors: list[list[float]]
    top: int = 5


def bare_app(head_file: str) -> FastAPI:
    head = taer.load(head_file)
    coef, intercept, names = head.coef_, head.intercept_, head.classes_.tolist()
    app = FastAPI()

    @app.post("/predict")
    async def predict(request: PredictRequest) -> Response:
        scores = np.array(request.vectors, np.float32) @ coef.T + intercept
        exps = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares = exps / exps.sum(axis=1, keepdims=True)
        answers = []
        for row in shares:
            order = np.argsort(-row)[: request.top].tolist()
            listed = [{"label": names[i], "probability": float(row[i])} for i in order]
            answers.append({"label": names[order[0]], "probabilities": listed})
        return Response(json.dumps({"version": 1, "predictions": answers}), media_type="application/json")

    return app


class Server(NamedTuple):
    url: str
    process: int

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").partition(":")
        return host, int(port)

    def seconds(self) -> float:
        """Processor time so far: what other work on the machine disturbs least."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(*command: str) -> Iterator[Server]:
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found, "the server did not start"
        yield Server(found[0], process.pid)
    finally:
        process.terminate()
        process.wait()


def post(url: str, body: bytes = b"") -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, body, headers, method="POST")
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def request(server: Server, rows: int, kind: str) -> bytes:
    """An HTTP request to predict that many rows."""
    X = blobs(range(rows), 1)[0]
    if kind == "json":
        body = json.dumps({"vectors": X.astype(float).round(4).tolist()}).encode()
    else:
        np.save(file := io.BytesIO(), X)
        body = file.getvalue()
    headers = f"Host: {server.address[0]}\r\nContent-Type: application/{kind}\r\nContent-Length: {len(body)}"
    return f"POST /predict HTTP/1.1\r\n{headers}\r\n\r\n".encode() + body


class Client:
    """One connection that sends a request again as soon as it is answered."""

    def __init__(self, server: Server, sent: bytes) -> None:
        self.socket = socket.create_connection(server.address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent, self.seconds, self.errors = sent, [], 0
        self.send()

    def send(self) -> None:
        self.answer, self.started = b"", time.perf_counter()
        self.socket.sendall(self.sent)

    def receive(self) -> None:
        self.answer += self.socket.recv(1 << 20)
        head, end, body = self.answer.partition(b"\r\n\r\n")
        if end and len(body) == int(re.search(rb"content-length: (\d+)", head)[1]):  # type: ignore[index]
            self.seconds.append(time.perf_counter() - self.started)
            self.errors += not head.startswith(b"HTTP/1.1 200")
            self.send()


def load(server: Server, rows: int, seconds: int, kind: str = "json") -> dict[str, float]:
    """Requests on several connections at once, for some seconds."""
    sent = request(server, rows, kind)
    used, started = server.seconds(), time.perf_counter()
    with selectors.DefaultSelector() as ready:
        clients = [Client(server, sent) for _ in range(CONNECTIONS)]
        for client in clients:
            ready.register(client.socket, selectors.EVENT_READ, client)
        while time.perf_counter() - started < seconds:
            for key, _ in ready.select():
                key.data.receive()
    used, took = server.seconds() - used, time.perf_counter() - started
    for client in clients:
        client.socket.close()
    found = np.concatenate([client.seconds for client in clients])
    p50, p99 = 1e3 * np.percentile(found, [50, 99])
    return {
        "requests/s": len(found) / took,
        "processor": used / len(found),
        "p50 ms": p50,
        "p99 ms": p99,
        "errors": sum(client.errors for client in clients),
    }


@contextlib.contextmanager
def learning(url: str) -> Iterator[list[float]]:
    """Tasks of ten new classes of 100 examples, one after the other, until left; the seconds each took."""
    bodies = [examples_of(range(first, first + 10)) for first in range(CLASSES, CLASSES + 10 * TASKS, 10)]
    stop, seconds = threading.Event(), []

    def teach() -> None:
        for task in bodies:
            for body in task:
                post(f"{url}/examples", body)
            if stop.is_set():
                return
            start = time.perf_counter()
            post(f"{url}/learn")
            seconds.append(time.perf_counter() - start)
            if stop.is_set():
                return

    teacher = threading.Thread(target=teach)
    teacher.start()
    try:
        yield seconds
    finally:
        stop.set()
        teacher.join()


def examples_of(labels: range) -> list[bytes]:
    """A request body for each label, made before anything is timed: this process measures the latencies too."""
    X, y = blobs(labels, 100)
    return [
        json.dumps({"label": f"class {label}", "vectors": X[y == label].astype(float).round(4).tolist()}).encode()
        for label in labels
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=8, help="of each measurement")
    parser.add_argument("--bare", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        import uvicorn

        from taer.serve.run import listen

        listener = listen("127.0.0.1", 0)
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        config = uvicorn.Config(bare_app(options.bare), log_level="warning", access_log=False)
        threadpool_limits(1, user_api="blas")  # as in taer serve
        uvicorn.Server(config).run([listener])
        return

    X, y = blobs(range(CLASSES), 30)
    names = np.array([f"class {label}" for label in range(CLASSES)])
    print(f"{CLASSES} classes, {WIDTH} features, {CONNECTIONS} connections, {options.seconds} s each\n")
    print("| vectors in a request | | requests/s | of bare | processor ms | of bare | p50 ms | p99 ms | errors |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        head = taer.TaER(random_state=0, epochs=2).partial_fit(X, names[y])
        head.save(folder / "head.safetensors")
        serve = ("-m", "taer", "serve", f"{folder}/service", "--model", f"{folder}/head.safetensors")
        with (
            running(__file__, "--bare", f"{folder}/head.safetensors") as bare,
            running(*serve, "--port", "0", "--token", TOKEN) as ours,
        ):
            for rows in (1, 32):
                pairs = [[load(side, rows, options.seconds) for side in (bare, ours)] for _ in range(ROUNDS)]
                plain, idle = (
                    sorted(runs, key=itemgetter("processor"))[ROUNDS // 2] for runs in zip(*pairs, strict=True)
                )
                array = load(ours, rows, options.seconds, "x-npy")
                with learning(ours.url) as tasks:
                    busy = load(ours, rows, options.seconds)
                for name, found in (
                    ("bare", plain),
                    ("taer serve", idle),
                    ("taer serve, application/x-npy", array),
                    ("taer serve, learning", busy),
                ):
                    rate, ratio = found["requests/s"], found["requests/s"] / plain["requests/s"]
                    latencies = f"{found['p50 ms']:.2f} | {found['p99 ms']:.2f}"
                    used = f"{1e3 * found['processor']:.2f} | {plain['processor'] / found['processor']:.2f}"
                    row = f"| {rows} | {name} | {rate:.0f} | {ratio:.2f} | {used} | {latencies} | {found['errors']:.0f} |"
                    print(row, flush=True)
                learned = f"{len(tasks)} tasks of 10 classes were learned meanwhile"
                print(f"\n{learned}, {np.median(tasks or [0]):.2f} s each (median)\n", file=sys.stderr)


if __name__ == "__main__":
    main()
