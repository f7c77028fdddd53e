"""What answers and learning of ``bayes`` cost among many classes, and how well it tells samples of no known class.

    python -m benchmarks.notes.bayes                                     # speed, beside taer
    python -m benchmarks.notes.bayes --features FILE --tasks 10 [--unknown FILE] [--method bayes-replay]
    python -m benchmarks.notes.bayes --calls FILE sketches100

With ``--features`` it learns the classes in their natural order. Without ``--unknown`` the classes after the first task
are the unknown ones, and are learned in the end; with it, all test and training samples of that file are. With ``--calls``
every class after the first task is taught in one call and in four, each with a quarter of its samples.
"""

from __future__ import annotations

import argparse
import time
import warnings
from copy import deepcopy
from typing import Any

import numpy as np

import taer
from benchmarks.pages.fewshot import protocol_of
from taer.heads.few import FewSamplesWarning
from taer.threads import one_blas_thread


def speed(n_classes: int = 1000, per_class: int = 20, width: int = 384, tasks: int = 5) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(n_classes), per_class)
    X = (rng.normal(size=(n_classes, width))[y] + rng.normal(size=(len(y), width))).astype(np.float32)
    print(f"{n_classes} classes of {per_class} samples, {width} features, {tasks} tasks, one thread")
    for name in ("bayes", "taer"):
        head, started = taer.make_head(name, random_state=0), time.perf_counter()
        for part in np.array_split(np.arange(n_classes), tasks):
            head.partial_fit(X[np.isin(y, part)], y[np.isin(y, part)])
        learned, started = time.perf_counter() - started, time.perf_counter()
        for number in range(50):
            head.predict(X[number : number + 1])
        one, started = (time.perf_counter() - started) / 50, time.perf_counter()
        head.predict(X[:1000])
        rate = 1000 / (time.perf_counter() - started)
        print(f"{name}: learned in {learned:.2f} s, one row {1000 * one:.2f} ms, {rate:.0f} rows/s")


def novelty(method: str, known: str, unknown: str | None, tasks: int) -> None:
    data = taer.load_features(known)
    stream = list(taer.class_stream(data, tasks, order="natural"))
    head = taer.make_head(method)
    for task in stream[: None if unknown else 1]:
        head.partial_fit(task.X_train, task.y_train)
    seen = np.isin(data.test_y, head.classes_)
    other = np.asarray(data.test_x)[~seen]
    if unknown:
        file = taer.load_features(unknown, labeled=False)
        other = np.concatenate([np.asarray(part) for part in (file.train_x, file.test_x) if len(part)])
    inside, outside = head.novelty(np.asarray(data.test_x)[seen]), head.novelty(other)
    threshold = head.novelty_threshold(false_alarms=0.05)
    print(f"AUROC {taer.metrics.novelty_auroc(inside, outside):.3f}; accepted where 95 % of the known are: "
          f"{100 * np.mean(outside <= np.quantile(inside, 0.95)):.1f} %; the kept threshold for 5 % rejects "
          f"{100 * np.mean(inside > threshold):.1f} % of the known")  # fmt: skip
    if not unknown:
        for task in stream[1:]:
            head.partial_fit(task.X_train, task.y_train)
        everything = head.novelty(np.asarray(data.test_x))
        again = head.novelty_threshold(false_alarms=0.05)
        print(f"after all tasks that threshold rejects {100 * np.mean(everything > threshold):.1f} % of the known, and "
              f"one asked for again {100 * np.mean(everything > again):.1f} %")  # fmt: skip


def in_calls(files: list[str]) -> None:
    """Accuracy on all classes, in the protocol of docs/evidence/fewshot.md, with its first order of classes."""
    print("| features | samples per new class | one call | four calls | same answer |\n|---|---:|---:|---:|---:|")
    for file in files:
        data = taer.load_features(None if file == "sketches100" else file)
        X_test, y_test = np.asarray(data.test_x[:]), np.asarray(data.test_y)
        for shots in ("all", "5"):  # one sample cannot be divided
            first, *later = list(protocol_of(data).stream(data, shots, 0))
            begun = taer.Bayes().partial_fit(first.X_train, first.y_train)
            one, four = (taught(begun, later, calls).predict(X_test) for calls in (1, 4))
            found = [one == y_test, four == y_test, one == four]
            print(
                f"| {data.name} | {shots} | {' | '.join(f'{100 * each.mean():.1f}' for each in found)} |",
                flush=True,
            )


def taught(begun: taer.Bayes, tasks: list[Any], calls: int) -> taer.Bayes:
    """A copy that has learned these tasks, each class divided over so many calls."""
    head = deepcopy(begun)
    for task in tasks:
        X, y = np.asarray(task.X_train), np.asarray(task.y_train)
        call = np.empty(len(y), int)  # of each sample
        for label in np.unique(y):
            call[y == label] = np.arange((y == label).sum()) % calls
        for number in np.unique(call):
            head.partial_fit(X[call == number], y[call == number])
    return head


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features")
    parser.add_argument("--unknown")
    parser.add_argument("--method", default="bayes")
    parser.add_argument("--calls", nargs="+", metavar="FILE")
    parser.add_argument("--tasks", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore", FewSamplesWarning)
    with one_blas_thread():
        if options.calls:
            in_calls(options.calls)
        elif options.features:
            novelty(options.method, options.features, options.unknown, options.tasks)
        else:
            speed()
