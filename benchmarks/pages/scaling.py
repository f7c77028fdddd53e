"""The rates that the plan in docs/evidence/scaling.md is made of, on one core.

    python -m benchmarks.pages.scaling

Statistics: blocks of float16 features as a worker of the cluster sums them, and the addition of two sums in the process
that collects them. TaER: a task after few and after many others. Images: what
has to be done before the model sees them. Each is the median of repeats, with the range; seconds are of processor time.
"""

from __future__ import annotations

import argparse
import copy
import io
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before numpy

import numpy as np

import taer
from taer.heads.closed_form import collect
from taer.parallel import Shared
from taer.rows import row_chunks


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
    rows = next(row_chunks(np.empty((1 << 30, 0)), width=-(-width // collect._CHUNKS))).stop
    X = rng.standard_normal((rows, width), np.float32).astype(np.float16)
    embedding = Shared(taer.SLDA().fit(X[:100], np.arange(100) % 2).embedding_)
    print(f"| a block of {rows:,} rows × {width} | classes | s | rows/s | GB/s | MB of the sum | s to add it |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for order, y in (
        ("sorted by class, 1,000 rows each", np.arange(rows) // 1000),
        ("in any order", rng.integers(0, classes_in_all, rows)),
    ):
        summed = partial(collect._statistics_of, embedding, X, y, per_class=False)
        taken, block = seconds(summed, repeats), summed()
        total = taer.ClassStatistics(width)
        total.labels, total.counts = np.arange(classes_in_all), np.ones(classes_in_all)
        total.means = np.zeros((classes_in_all, width))
        added = seconds(lambda block=block, total=total: total + block, repeats)
        rate = rows / statistics.median(taken)
        print(
            f"| {order} | {len(block.labels):,} | {shown(taken)} | {rate:,.0f} | {rate * width * 2 / 1e9:.3f} | "
            f"{block.nbytes / 1e6:,.0f} | {shown(added)} |"
        )


def task_of_taer(width: int, old_classes: int, samples: int, repeats: int) -> list[float]:
    """Seconds of a task with 100 new classes after many others."""
    rng = np.random.default_rng(0)
    head = taer.TaER(epochs=1, init="zero", standardize="none", random_state=0)
    first = max(old_classes, 200)
    head.partial_fit(rng.standard_normal((first, width), np.float32), np.arange(first) % old_classes)
    X, y = rng.standard_normal((samples, width), np.float32), old_classes + np.arange(samples) % 100
    return seconds(lambda: copy.deepcopy(head).partial_fit(X, y), repeats)


def steps(width: int, samples: int, repeats: int) -> None:
    few, many = (task_of_taer(width, old, samples, repeats) for old in (10, 10_000))
    per_step = [value / (samples / 32) for value in few]
    look = 2 * samples * width * 10_000 / (statistics.median(many) - statistics.median(few))
    print(
        f"\nTaER, {samples:,} × {width}, 100 new classes, one epoch: {shown(per_step, 1e6, 0)} µs per step of 32 + 32 "
        f"after 10 classes; after 10,000 the one look at the old columns adds "
        f"{statistics.median(many) - statistics.median(few):.1f} s to the task's {statistics.median(few):.1f} s, "
        f"at {look / 1e9:.0f} GFLOP/s"
    )


def decoding(repeats: int) -> None:
    from PIL import Image

    from taer.features.backbones.base import ImageTransform
    from taer.features.images import decode_image

    smooth = np.random.default_rng(0).integers(0, 256, (15, 20, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(smooth).resize((640, 480), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    transform = ImageTransform(248, (224, 224), "bicubic", (0.5,) * 3, (0.5,) * 3)

    def hundred() -> None:
        for _ in range(100):
            transform(decode_image(file.getvalue()))

    taken = [value / 100 for value in seconds(hundred, repeats)]
    print(f"\nA JPEG of 640 × 480 decoded, resized and cropped: {shown(taken, 1e3, 1)} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--classes", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=32_000, help="of the task of TaER")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    sums(options.width, options.classes, options.repeats)
    steps(options.width, options.samples, options.repeats)
    decoding(options.repeats)


if __name__ == "__main__":
    main()
