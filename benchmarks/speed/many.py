"""``taer serve --many``: memory of many heads on one backbone, and what a head that is hammered does to another.

    python -m benchmarks.speed.many               needs pip install 'taer[serve,text]'

Everything runs on 127.0.0.1, for a bounded time. The requests that hammer come from a process of their own.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import multiprocessing
import selectors
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import taer
from benchmarks.speed.serving import TOKEN, Client, Server, post, running
from taer.features.backbones import find_backbone
from taer.origin import Origin
from taer.serve.service import Service

WIDTH, CLASSES, PER_CLASS = 384, 20, 10
# Heads that are learned. The others are copies of their folders, with which the server has the same work.
DIFFERENT = 20
BACKBONE = "minilm"
PAUSE = 0.01  # between two requests to the quiet head
ROUNDS = 5  # with and without the load in turn
CONNECTIONS = 8  # of the load
SENTENCE = "my card was declined at the till although there is money in the account"
SIDES = ("quiet", "loud")


def make_heads(folder: Path, count: int) -> None:
    """Heads of random classes, which record the backbone."""
    rng, origin = np.random.default_rng(0), find_backbone(BACKBONE).origin
    assert origin is not None
    for place, name in enumerate(names_of(count)):
        if place < DIFFERENT:
            Service(folder / name, first=learned(rng, origin)).close()
        else:
            shutil.copytree(folder / names_of(count)[place % DIFFERENT], folder / name)


def names_of(count: int) -> list[str]:
    return [*SIDES, *(f"head-{number}" for number in range(count - len(SIDES)))]


def learned(rng: np.random.Generator, origin: Origin) -> Any:
    centers = rng.normal(size=(CLASSES, WIDTH))
    X = np.repeat(centers, PER_CLASS, axis=0) + rng.normal(size=(CLASSES * PER_CLASS, WIDTH))
    head = taer.Bayes(random_state=0)
    head.partial_fit(X.astype(np.float32), np.repeat([f"class {label}" for label in range(CLASSES)], PER_CLASS))
    head.feature_origin_ = origin
    return head


def serve(folder: Path, *options: str) -> Any:
    return running("-m", "taer", "serve", str(folder), "--many", "--port", "0", "--token", TOKEN, *options)


def megabytes(process: int, field: str = "VmRSS") -> float:
    (found,) = (line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith(field))
    return int(found.split()[1]) / 1024


def children(process: int) -> list[int]:
    threads = Path(f"/proc/{process}/task").glob("*/children")
    return [int(found) for thread in threads for found in thread.read_text().split()]


# Memory


def memory(folder: Path, count: int, most: str) -> None:
    rows = np.random.default_rng(1).normal(size=(1, WIDTH))
    asked = json.dumps({"vectors": rows.tolist()}).encode()
    for options in ((), ("--memory", most)):
        print(f"\n{count} heads of {CLASSES} classes, {' '.join(options) or 'no limit'}\n", flush=True)
        with serve(folder, "--backbone", BACKBONE, *options) as server:
            print(f"server with the backbone: {megabytes(server.process):.0f} MB", flush=True)
            for turn in ("first", "second"):
                seconds = []
                for name in names_of(count):
                    start = time.perf_counter()
                    post(f"{server.url}/heads/{name}/predict", asked)
                    seconds.append(time.perf_counter() - start)
                p50, p99 = 1e3 * np.percentile(seconds, [50, 99])
                with urllib.request.urlopen(f"{server.url}/health") as answer:
                    loaded = json.load(answer)["loaded"]
                print(
                    f"after the {turn} request to each: {megabytes(server.process):.0f} MB, at most "
                    f"{megabytes(server.process, 'VmHWM'):.0f} MB, {loaded} loaded; "
                    f"p50 {p50:.1f} ms, p99 {p99:.1f} ms",
                    flush=True,
                )
            post(f"{server.url}/heads/loud/examples", examples(0))
            post(f"{server.url}/heads/loud/learn")
            for process in children(server.process):
                print(f"learning process: {megabytes(process):.0f} MB", flush=True)


# One head hammered


def http(server: Server, head: str, body: bytes, kind: str = "json", path: str = "predict") -> bytes:
    headers = f"Host: {server.address[0]}\r\nContent-Type: application/{kind}\r\nContent-Length: {len(body)}"
    headers += f"\r\nAuthorization: Bearer {TOKEN}"
    return f"POST /heads/{head}/{path} HTTP/1.1\r\n{headers}\r\n\r\n".encode() + body


def vectors(count: int) -> bytes:
    rows = np.random.default_rng(2).normal(size=(count, WIDTH)).round(4)
    return json.dumps({"vectors": rows.tolist()}).encode()


def array(count: int) -> bytes:
    np.save(file := io.BytesIO(), np.random.default_rng(3).normal(size=(count, WIDTH)).astype(np.float32))
    return file.getvalue()


def texts(count: int) -> bytes:
    return json.dumps({"texts": [f"{SENTENCE} {number}" for number in range(count)]}).encode()


def examples(number: int) -> bytes:
    rows = np.random.default_rng(number).normal(size=(100, WIDTH)).round(4)
    return json.dumps({"label": f"new {number}", "vectors": rows.tolist()}).encode()


def hammer(server: Server, sent: bytes, begun: Any) -> None:
    """Requests without pause on several connections, until this process is ended."""
    with selectors.DefaultSelector() as ready:
        for client in [Client(server, sent) for _ in range(CONNECTIONS)]:
            ready.register(client.socket, selectors.EVENT_READ, client)
        begun.set()
        while True:
            for key, _ in ready.select():
                key.data.receive()


def teach(server: Server, _: bytes, begun: Any) -> None:
    """The other head learns one task after the other."""
    for number in itertools.count(1):
        post(f"{server.url}/heads/loud/examples", examples(number))
        begun.set()
        post(f"{server.url}/heads/loud/learn")


@contextmanager
def loaded(server: Server, sent: bytes) -> Iterator[None]:
    begun = multiprocessing.Event()
    work = hammer if sent else teach
    process = multiprocessing.Process(target=work, args=(server, sent, begun), daemon=True)
    process.start()
    begun.wait()
    time.sleep(1)
    try:
        yield
    finally:
        process.terminate()
        process.join()
        time.sleep(1)


class Patient(Client):
    """Waits a little before each request."""

    def send(self) -> None:
        time.sleep(PAUSE)
        super().send()


def latencies(server: Server, sent: bytes, seconds: float) -> np.ndarray:
    """Milliseconds of requests on one connection, with pauses."""
    client = Patient(server, sent)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        answered = len(client.seconds)
        while len(client.seconds) == answered:
            client.receive()
    client.socket.close()
    assert not client.errors
    return 1e3 * np.array(client.seconds)


def fairness(folder: Path, seconds: int) -> None:
    print(
        "\n| quiet head asks | the other head gets | p50 alone | p50 beside it | p99 alone | p99 beside it | ratio |"
    )
    print("|---|---|---:|---:|---:|---:|---:|")
    with serve(folder, "--backbone", BACKBONE) as server:
        loads = {
            f"1 vector, {CONNECTIONS} connections": http(server, "loud", vectors(1)),
            f"32 vectors, {CONNECTIONS} connections": http(server, "loud", vectors(32)),
            f"1,024 vectors as an array, {CONNECTIONS} connections": http(server, "loud", array(1024), "x-npy"),
            f"8 texts, {CONNECTIONS} connections": http(server, "loud", texts(8)),
            "tasks of 100 examples to learn": b"",
        }
        for asks, sent in (
            ("1 vector", http(server, "quiet", vectors(1))),
            ("1 text", http(server, "quiet", texts(1))),
        ):
            for name, load in loads.items():
                pairs = []
                for _ in range(ROUNDS):
                    alone = latencies(server, sent, seconds)
                    with loaded(server, load):
                        pairs.append((alone, latencies(server, sent, seconds)))
                alone, beside = (np.concatenate(side) for side in zip(*pairs, strict=True))
                (p50, p99), (beside_p50, beside_p99) = (np.percentile(one, [50, 99]) for one in (alone, beside))
                figures = f"{p50:.1f} | {beside_p50:.1f} | {p99:.1f} | {beside_p99:.1f} | {beside_p99 / p99:.1f}"
                print(f"| {asks} | {name} | {figures} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--heads", type=int, default=1000)
    parser.add_argument("--memory", default="1G", help="limit of the second measurement of memory")
    parser.add_argument("--seconds", type=int, default=4, help="of each of the measurements beside a load")
    parser.add_argument("--parts", default="memory,fairness")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        start = time.perf_counter()
        make_heads(folder, options.heads if "memory" in options.parts else 2)
        print(f"heads made in {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        if "memory" in options.parts:
            memory(folder, options.heads, options.memory)
        if "fairness" in options.parts:
            fairness(folder, options.seconds)


if __name__ == "__main__":
    main()
