"""What a prediction costs with the spans of ``taer.serve.traces``, which nothing asked for, against a tree without them.

    python -m benchmarks.speed.traces --before REVISION

The revision is unpacked into a temporary folder. One process per tree predicts over the application itself, without a
network; they take turns, and only one of them works at a time. Their CPU time per request is compared pair by pair.
``OPENBLAS_NUM_THREADS=1``.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
WIDTH, CLASSES = 384, 20

WORKER = f"""
import asyncio, json, sys, tempfile, time
from pathlib import Path
import numpy as np
import taer
from taer.serve.app import create_app
from taer.serve.service import Service

assert Path(taer.__file__).is_relative_to(sys.argv[1]), taer.__file__
rng = np.random.default_rng(0)
y = np.repeat(np.arange({CLASSES}), 20)
X = rng.normal(size=({CLASSES}, {WIDTH}))[y] + rng.normal(size=(len(y), {WIDTH}))
head = taer.Bayes().fit(X.astype(np.float32), y.astype(str))
app = create_app(Service(Path(tempfile.mkdtemp(dir=sys.argv[2])), first=head), "token")
kept, headers = [], [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]

async def predict(body):
    scope = {{"type": "http", "asgi": {{"version": "3.0"}}, "http_version": "1.1", "method": "POST", "scheme": "http",
             "path": "/predict", "raw_path": b"/predict", "query_string": b"", "root_path": "", "headers": headers,
             "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000)}}

    async def receive():
        return {{"type": "http.request", "body": body, "more_body": False}}

    async def send(message):
        if message["type"] == "http.response.start":
            assert message["status"] == 200, message

    await app(scope, receive, send)

async def many(body, times):
    start = time.process_time()
    for _ in range(times):
        await predict(body)
    return time.process_time() - start

bodies = {{rows: json.dumps({{"vectors": X[:rows].round(4).tolist()}}).encode() for rows in (1, 32)}}
print("ready", flush=True)
for line in sys.stdin:
    rows, times = json.loads(line)
    print(asyncio.run(many(bodies[rows], times)) / times, flush=True)
"""


class Worker:
    def __init__(self, tree: Path, folder: str) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tree), folder],
            env={**environment, "PYTHONPATH": str(tree / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def seconds(self, rows: int, times: int) -> float:
        """CPU time of one request."""
        print(json.dumps([rows, times]), file=self._process.stdin, flush=True)
        return float(self._read())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--before", required=True, help="revision of the tree to compare with")
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        old = subprocess.run(
            ["git", "archive", options.before, "src"], cwd=ROOT, stdout=subprocess.PIPE, check=True
        )
        before = Path(folder) / "before"
        with tarfile.open(fileobj=io.BytesIO(old.stdout)) as archive:
            archive.extractall(before, filter="data")
        # Twice the old tree: how far two processes with the same code differ.
        workers = {
            name: Worker(tree, folder) for name, tree in (("before", before), ("same", before), ("after", ROOT))
        }
        try:
            print(
                "| vectors in a request | | ratio of CPU times, median | middle half of the rounds |\n|---:|---|---:|---:|"
            )
            for rows, times in ((1, 300), (32, 40)):
                found: dict[str, list[float]] = {name: [] for name in workers}
                for turn in range(options.rounds):
                    names = list(workers)
                    for name in names[turn % 3 :] + names[: turn % 3]:
                        found[name].append(workers[name].seconds(rows, times))
                base = np.array(found["before"])
                for name, told in (("same", "before, another process"), ("after", "after")):
                    low, middle, high = np.percentile(np.array(found[name]) / base, [25, 50, 75])
                    print(f"| {rows} | {told} | {middle:.3f} | {low:.3f} to {high:.3f} |")
        finally:
            for worker in workers.values():
                worker.close()


if __name__ == "__main__":
    main()
