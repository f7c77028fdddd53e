"""Tasks larger than they should be in memory: time and anonymous memory of learning from files.

    python -m benchmarks.speed.large

Writes features to a temporary folder (``--folder`` to choose the disk), a task of ``--samples`` × ``--width`` in float16
in shards, and learns it with every head of ``--methods``, one epoch; then ``--classes`` classes × 768 with every head of
``--many`` (by default those that the guide to heads recommends), and saves, loads and predicts. Anonymous memory is what
cannot be given back to the files it came from: pages of the mapped files are not counted. Each case runs in a process of
its own, and its memory is that beyond what the imports take. ``peak_mb`` is the peak of all memory of the process, with the
imports and the pages of files; ``answering_peak_mb`` is that of another process that only loads the head and answers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import taer
from taer.features.files import write_feature_file
from taer.heads import HEADS

SHARD = 100_000
N_CLASSES = 100
MANY: dict[str, dict[str, int]] = {
    "bayes": {},
    "gauss-chain": {"rank": 32},
    "lda-frozen": {},
    "slda": {},
    "ncm": {},
    "taer": {},
}
MOST_MB = 4000  # while learning, saving, loading and predicting


def memory_bytes(field: str) -> int:
    """A figure of /proc: RssAnon, which is memory that is not a page of a file, or VmHWM, the peak of all memory so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])
    raise OSError(f"the kernel does not report {field}")


class Peak:
    """The most anonymous memory while it is open, beyond that at its start."""

    def __enter__(self) -> Peak:
        self.start = self.most = memory_bytes("RssAnon")
        self.started, self.open = time.perf_counter(), True
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while self.open:
            self.most = max(self.most, memory_bytes("RssAnon"))
            time.sleep(0.005)

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self.started
        self.open = False
        self.thread.join()

    @property
    def bytes(self) -> int:
        return self.most - self.start


def make_features(folder: Path, samples: int, width: int) -> None:
    """Gaussian classes in shards, the last with a few test samples."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(N_CLASSES, width)).astype(np.float32)
    kinds = np.dtype(np.float16), np.dtype(np.int64)
    for number, start in enumerate(range(0, samples, SHARD)):
        tensors = {}
        sizes = {"train": min(SHARD, samples - start), "test": 5000 if start + SHARD >= samples else 0}
        for part, size in sizes.items():
            y = rng.integers(0, N_CLASSES, size)
            x = (centers[y] + 3 * rng.normal(size=(size, width)).astype(np.float32)).astype(np.float16)
            tensors[f"{part}.x"] = x.shape, kinds[0], [x]
            tensors[f"{part}.y"] = y.shape, kinds[1], [y]
        names = [str(label) for label in range(N_CLASSES)]
        write_feature_file(folder / f"{number:04}.safetensors", {"dataset": "blobs"}, names, tensors)


def one_epoch(name: str, **params: object) -> taer.heads.Head:
    head = taer.make_head(name, random_state=0, **params)
    return head.set_params(epochs=1) if "epochs" in head.get_params() else head


def learn(folder: Path, name: str) -> dict[str, object]:
    """Two tasks of half the classes each, so that the second has old ones to replay."""
    data = taer.load_features(folder)
    head = one_epoch(name)
    stream = taer.class_stream(data, tasks=2, order=list(range(N_CLASSES)))
    peak = Peak()
    with peak:
        for task in stream:
            head.partial_fit(task.X_train, task.y_train)
    right = head.predict(data.test_x) == data.test_y
    return {
        "head": name,
        "samples": len(data.train_y),
        "width": data.n_features,
        "seconds": peak.seconds,
        "anonymous_mb": peak.bytes / 1e6,
        "features_mb": len(data.train_y) * data.n_features * data.train_x.dtype.itemsize / 1e6,
        "accuracy": float(np.mean(right)),
    }


def many_classes(folder: Path, name: str, n_classes: int, width: int = 768) -> dict[str, object]:
    """Tasks of 500 classes with 20 samples each; then save, load and predict."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(n_classes, width)).astype(np.float32)

    def sample(y: np.ndarray) -> np.ndarray:
        return (centers[y] + 2 * rng.normal(size=(len(y), width)).astype(np.float32)).astype(np.float16)

    head, seconds = one_epoch(name, **MANY.get(name, {})), []
    with Peak() as everything:
        with Peak() as learning:
            for start in range(0, n_classes, 500):
                y = rng.permutation(np.repeat(np.arange(start, min(start + 500, n_classes)), 20))
                X = sample(y)
                started = time.perf_counter()
                head.partial_fit(X, y)
                seconds.append(time.perf_counter() - started)
        y_test = rng.integers(0, n_classes, 20_000)
        X_test = sample(y_test)
        with Peak() as saving:
            head.save(folder / "head.safetensors")
            head = None
            head = taer.load(folder / "head.safetensors")
        with Peak() as predicting:
            found = head.predict(X_test)
    answering = subprocess.run(
        [sys.executable, __file__, "--case", f"answer:{name}", "--folder", str(folder)],
        check=True,
        capture_output=True,
        text=True,
    )
    return {
        "head": name,
        "params": str(MANY.get(name, {})),
        "classes": n_classes,
        "width": width,
        "second_task_seconds": seconds[1],
        "last_task_seconds": seconds[-1],
        "learning_seconds": sum(seconds),
        "learning_anonymous_mb": learning.bytes / 1e6,
        "most_anonymous_mb": everything.bytes / 1e6,
        "peak_mb": memory_bytes("VmHWM") / 1e6,
        "within_4_gb": memory_bytes("VmHWM") / 1e6 <= MOST_MB,
        "save_and_load_seconds": saving.seconds,
        "file_mb": (folder / "head.safetensors").stat().st_size / 1e6,
        **json.loads(answering.stdout),
        "predictions_per_second": len(y_test) / predicting.seconds,
        "accuracy": float(np.mean(found == y_test)),
    }


def answer(folder: Path) -> dict[str, object]:
    """The most resident memory of a process that loads a saved head and answers 1,000 rows, all scores of 100 of them."""
    head = taer.load(folder / "head.safetensors")
    X = np.random.default_rng(1).normal(size=(1000, head.n_features_in_)).astype(np.float32)
    head.predict(X)
    head.predict_proba(X[:100])
    return {"answering_peak_mb": memory_bytes("VmHWM") / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--classes", type=int, default=10_000)
    parser.add_argument("--methods", default="taer,slda", help=f"of {', '.join(HEADS)}")
    parser.add_argument("--many", default=",".join(MANY), help="heads that learn --classes classes")
    parser.add_argument("--folder", type=Path, help="where the features are written; removed at the end")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        kind, name = options.case.split(":")
        cases = {
            "task": lambda: learn(options.folder, name),
            "classes": lambda: many_classes(options.folder, name, options.classes),
            "answer": lambda: answer(options.folder),
        }
        print(json.dumps(cases[kind]()))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as parent:
        folder = Path(parent) / "features"
        make_features(folder, options.samples, options.width)  # no samples, no shards
        cases = [f"task:{name}" for name in options.methods.split(",") if options.samples]
        cases += [f"classes:{name}" for name in options.many.split(",") if options.classes]
        for case in cases:
            command = [
                sys.executable,
                __file__,
                "--case",
                case,
                "--folder",
                str(folder),
                "--classes",
                str(options.classes),
            ]
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
            line = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
            if options.json:
                print(line, end="", flush=True)
            else:
                print(", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                                for key, value in json.loads(line).items()), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
