"""Speed of the heads against the same objectives in plain torch, side by side in one process on one thread.

    python benchmarks/speed.py [--features cifar100-resnet18.safetensors]

Prints Markdown. Seconds are of processor time, which other work on the machine disturbs least, and every ratio is of
two medians measured in turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before numpy and torch

import numpy as np
import torch
from torch_loops import LOOPS

import taer
from taer.features import load_features
from taer.stream import class_stream

REQUIRED = {"taer": 8, "er": 5, "derpp": 5, "ssil": 5, "ucir": 5, "oewc": 5, "gss": 20}


def problem(n_tasks: int, per_task: int, width: int, seed: int = 0) -> tuple[list[Any], Any, Any]:
    """Tasks of ten Gaussian classes, and a test set."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(10 * n_tasks, width)).astype(np.float32)

    def sample(labels: np.ndarray) -> np.ndarray:
        rows: np.ndarray = centres[labels] + 3 * rng.normal(size=(len(labels), width)).astype(np.float32)
        return rows / np.sqrt(width, dtype=np.float32)

    tasks = []
    for number in range(n_tasks):
        y = np.repeat(np.arange(10 * number, 10 * number + 10), per_task // 10)
        tasks.append((sample(y), y))
    y_test = np.repeat(np.arange(10 * n_tasks), 20)
    return tasks, sample(y_test), y_test


def ours(name: str, tasks: list[Any], lr: float, epochs: int) -> taer.heads.base.Head:
    head = taer.make_head(name, epochs=epochs, standardize="none", random_state=0)
    params = {"lr": lr, "init": "zero", "replay_batch_size": 8 if name == "ssil" else 32}
    head.set_params(**{key: value for key, value in params.items() if key in head.get_params()})
    for X, y in tasks:
        head.partial_fit(X, y)
    return head


def in_turn(*calls: Callable[[], Any], repeats: int) -> list[list[float]]:
    """Seconds of each call, measured in turn so that noise falls on all alike."""
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for each, call in zip(seconds, calls, strict=True):
            started = time.process_time()
            call()
            each.append(time.process_time() - started)
    return seconds


def shown(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.3f} ({min(seconds):.3f}–{max(seconds):.3f})"


def against_torch(names: list[str], tasks: list[Any], test: tuple[Any, Any], repeats: int) -> None:
    tensors = [(torch.tensor(X), torch.tensor(y)) for X, y in tasks]
    test_X, test_y = test
    print("| method | ours, s | torch, s | times faster | required | accuracy, ours | torch |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in names:
        lr = 1.0 if name != "ucir" else 0.1
        few = slice(0, 2) if name == "gss" else slice(None)  # the plain GSS would take half an hour
        kept: dict[str, Any] = {}

        def run_ours(name: str = name, lr: float = lr, few: slice = few, kept: dict[str, Any] = kept) -> None:
            kept["ours"] = ours(name, tasks[few], lr, 1)

        def run_torch(name: str = name, lr: float = lr, few: slice = few, kept: dict[str, Any] = kept) -> None:
            torch.manual_seed(0)
            kept["torch"] = LOOPS[name](tensors[few], lr=lr)

        own, other = in_turn(run_ours, run_torch, repeats=1 if name in ("gss", "oewc") else repeats)
        seen = np.isin(test_y, np.concatenate([y for _, y in tasks[few]]))
        scores = [
            np.mean(kept["ours"].predict(test_X[seen]) == test_y[seen]),
            np.mean(kept["torch"](torch.tensor(test_X[seen])).numpy() == test_y[seen]),
        ]
        ratio = statistics.median(other) / statistics.median(own)
        print(f"| {name} | {shown(own)} | {shown(other)} | {ratio:.1f} | {REQUIRED[name]} | "
              f"{100 * scores[0]:.1f} | {100 * scores[1]:.1f} |", flush=True)  # fmt: skip
    print()


class Timed(taer.TaER):
    """TaER that times its steps apart from the one look at the old columns before them."""

    def _descend(self, *arguments: Any) -> None:
        started = time.process_time()
        super()._descend(*arguments)
        self.seconds_ = time.process_time() - started


def many_old_classes(repeats: int) -> None:
    """A step of TaER after 10 and after 10,000 old classes."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6400, 384)).astype(np.float32), np.repeat(np.arange(10_000, 10_010), 640)
    spent: dict[int, list[float]] = {10: [], 10_000: []}
    for _ in range(repeats):
        for n_old, seconds in spent.items():
            old_y = np.arange(max(n_old, 200)) % n_old  # enough for a full memory in both cases
            old_X = rng.normal(size=(len(old_y), 384)).astype(np.float32)
            head = Timed(epochs=1, standardize="none", random_state=0).fit(old_X, old_y)
            seconds.append(head.set_params(epochs=5).partial_fit(X, y).seconds_ / 1000)  # 5 epochs of 200 steps
    few, many = (statistics.median(seconds) for seconds in spent.values())
    print(f"A step of TaER with 10 old classes: {1e6 * few:.0f} µs; with 10,000: {1e6 * many:.0f} µs; ", end="")
    print(f"ratio {many / few:.2f} (required: at most 1.3).\n", flush=True)


def on_real_features(path: Path) -> None:
    data = load_features(path)
    streams = [class_stream(data, 10, order=seed) for seed in range(3)]
    first = list(streams[0])
    numbered = np.argsort(streams[0].order)
    tensors = [(torch.tensor(t.X_train.astype(np.float32)), torch.tensor(numbered[t.y_train])) for t in first]
    all_six = ("taer", "er", "er-fixed", "er-balanced", "finetune", "joint")

    def six_heads() -> None:
        for stream in streams:
            tasks = [(task.X_train, task.y_train) for task in stream]
            for name in all_six:
                ours(name, tasks, 0.1, 1)

    own, other = in_turn(six_heads, lambda: LOOPS["taer"](tensors), repeats=1)
    single, _ = in_turn(
        lambda: ours("taer", [(t.X_train, t.y_train) for t in first], 0.1, 1), lambda: None, repeats=3
    )
    median = statistics.median(single)
    print(
        f"{data.name}: all six heads × 3 seeds take {own[0]:.1f} s, one torch run of TaER {other[0]:.1f} s, ",
        end="",
    )
    print(f"one of ours {median:.2f} s ({other[0] / median:.1f} times faster).\n", flush=True)


def slda_against_one_product(path: Path, repeats: int) -> None:
    """SLDA over a file, task after task, against the least it could do: convert to float64, one Gram product."""
    data = load_features(path)
    X, tasks = np.array(data.train_x), [(task.X_train, task.y_train) for task in class_stream(data, 10)]

    def learn() -> None:
        head = taer.SLDA()
        for task_X, y in tasks:
            head.partial_fit(task_X, y)

    def product() -> None:
        rows = X.astype(np.float64)
        rows.T @ rows

    learn()  # imports
    own, least = in_turn(learn, product, repeats=max(5, repeats))
    ratio = statistics.median(own) / statistics.median(least)
    print(
        f"{data.name}: slda in 10 tasks {shown(own)} s, conversion and one Gram product {shown(least)} s; ", end=""
    )
    print(f"ratio {ratio:.2f} (required: at most 1.5).\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, help="also measure on this feature file")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--methods", default=",".join(LOOPS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    tasks, *test = problem(n_tasks=10, per_task=5000, width=384)
    print("10 tasks of 5,000 × 384, 10 classes each, one epoch, batch 32 + 32, one thread; median (range) of "
          f"{options.repeats}; GSS: 2 tasks, GSS and oEWC measured once.\n")  # fmt: skip
    against_torch(options.methods.split(","), tasks, (test[0], test[1]), options.repeats)
    many_old_classes(options.repeats)
    if options.features:
        slda_against_one_product(options.features, options.repeats)
        on_real_features(options.features)


if __name__ == "__main__":
    main()
