"""The rates that the plan in docs/scaling.md is made of, on one core.

    python benchmarks/scaling.py

Statistics: blocks of float16 features as a worker of the cluster sums them, and the addition of two sums in the process
that collects them. TaER: a task after many others. Each is the median of
repeats, with the range; seconds are of processor time.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before numpy

import numpy as np

import taer
from taer.engine import Shared
from taer.heads import statistical
from taer.heads._validation import row_chunks


def seconds(call: Callable[[], Any], repeats: int) -> list[float]:
    taken = []
    for _ in range(repeats):
        started = time.process_time()
        call()
        taken.append(time.process_time() - started)
    return taken


def shown(values: list[float], unit: float = 1, digits: int = 2) -> str:
    low, high = min(values) * unit, max(values) * unit
    return f"{statistics.median(values) * unit:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def sums(width: int, classes_in_all: int, repeats: int) -> None:
    rng = np.random.default_rng(0)
    rows = next(row_chunks(np.empty((1 << 30, 0)), width=-(-width // statistical._CHUNKS))).stop
    X = rng.standard_normal((rows, width), np.float32).astype(np.float16)
    head = Shared(taer.SLDA().fit(X[:100], np.arange(100) % 2))
    print(f"| a block of {rows:,} rows × {width} | classes | s | rows/s | GB/s | MB of the sum | s to add it |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for order, y in (
        ("sorted by class, 1,000 rows each", np.arange(rows) // 1000),
        ("in any order", rng.integers(0, classes_in_all, rows)),
    ):
        taken = seconds(lambda y=y: statistical._statistics_of(head, X, slice(None), y), repeats)
        block = statistical._statistics_of(head, X, slice(None), y)
        total = taer.ClassStatistics(width)
        total.labels, total.counts = np.arange(classes_in_all), np.ones(classes_in_all)
        total.means = np.zeros((classes_in_all, width))
        added = seconds(lambda block=block, total=total: total + block, repeats)
        rate = rows / statistics.median(taken)
        print(
            f"| {order} | {len(block.labels):,} | {shown(taken)} | {rate:,.0f} | {rate * width * 2 / 1e9:.3f} | "
            f"{block.nbytes / 1e6:,.0f} | {shown(added)} |"
        )


def steps(width: int, old_classes: int, samples: int, repeats: int) -> None:
    rng = np.random.default_rng(0)
    head = taer.TaER(epochs=1, init="zero", standardize="none", random_state=0)
    n_first = max(old_classes, 200)
    head.partial_fit(rng.standard_normal((n_first, width), np.float32), np.arange(n_first) % old_classes)
    X = rng.standard_normal((samples, width), np.float32)
    y = old_classes + np.arange(samples) % 100
    taken = [
        value / (samples / head.batch_size)
        for value in seconds(lambda: copy.deepcopy(head).partial_fit(X, y), repeats)
    ]
    print(
        f"\nTaER, a task of {samples:,} × {width} with 100 new classes after {old_classes:,}: "
        f"{shown(taken, 1e6, 0)} µs a step of {head.batch_size} + {head.replay_batch_size}, "
        "all costs of the task spread over its steps"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--classes", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=100_000, help="of the task of TaER")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    sums(options.width, options.classes, options.repeats)
    for old_classes in (1_000, 10_000):
        steps(options.width, old_classes, options.samples, options.repeats)


if __name__ == "__main__":
    main()
