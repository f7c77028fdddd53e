"""What wide features cost: seconds against width, beside slda, logistic regression and nearest neighbors.

    python -m benchmarks.speed.wide [--figure docs/images/wide.svg] [--widest 20000]

A first task of 1,000 samples of 20 classes, whose variances fall along the features as those of embeddings do. All sides
learn in one process, in turn, with one thread; seconds are those of the processor, the median of the repeats. Then, for
``bayes``, a later task of one class of five samples, one row, and the file. ``--widest`` adds one first task so wide, in a
process of its own, with its peak memory.
"""

from __future__ import annotations

import argparse
import copy
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.lib.measuring import table  # first: it sets the number of threads

import numpy as np  # isort: skip
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import taer
from taer.report.figures import Curve, curves

WIDTHS = (384, 768, 1536, 3072, 4096)
N_CLASSES, PER_CLASS = 20, 50
SIDES: dict[str, Callable[[], Any]] = {
    "bayes": taer.Bayes,
    "slda": taer.SLDA,
    "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000)),
    "nearest neighbors": lambda: KNeighborsClassifier(metric="cosine"),
}


def classes(number: int, per_class: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(number), per_class)
    deviations = np.arange(1, width + 1) ** -0.5
    X = (0.7 * rng.normal(size=(number, width))[y] + rng.normal(size=(len(y), width))) * deviations
    return X.astype(np.float32), y


def seconds(run: Callable[[], Any], times: int = 1) -> float:
    """Processor seconds, the median of several."""
    found = []
    for _ in range(times):
        started = time.process_time()
        run()
        found.append(time.process_time() - started)
    return median(found)


def file_bytes(head: Any) -> int:
    with TemporaryDirectory() as folder:
        head.save(Path(folder) / "head.safetensors")
        return (Path(folder) / "head.safetensors").stat().st_size


def first_tasks(repeats: int) -> dict[str, list[float]]:
    """Seconds by side, one for each width."""
    found: dict[str, list[float]] = {name: [] for name in SIDES}
    for width in WIDTHS:
        X, y = classes(N_CLASSES, PER_CLASS, width)
        runs: dict[str, list[float]] = {name: [] for name in SIDES}
        for _ in range(repeats):
            for name, make in SIDES.items():
                runs[name].append(seconds(lambda make=make, X=X, y=y: make().fit(X, y)))
        for name, values in runs.items():
            found[name].append(median(values))
    return found


def afterwards(width: int) -> tuple[float, float, float, int]:
    """Milliseconds of a later task of five samples, of ``predict`` and ``predict_proba`` of one row, and bytes saved."""
    X, y = classes(N_CLASSES + 1, PER_CLASS, width)
    old, five = y < N_CLASSES, np.flatnonzero(y == N_CLASSES)[:5]
    head = taer.Bayes().fit(X[old], y[old])
    size = file_bytes(head)
    later = seconds(lambda: copy.copy(head).partial_fit(X[five], y[five]), 5)
    row, scores = (seconds(lambda ask=ask: ask(X[:1]), 200) for ask in (head.predict, head.predict_proba))
    return 1e3 * later, 1e3 * row, 1e3 * scores, size


def class_bytes(width: int = 384) -> float:
    """What one more class of many samples adds to the file."""
    sizes = []
    for number in (N_CLASSES, 2 * N_CLASSES):
        X, y = classes(number, PER_CLASS, width)
        head = taer.Bayes().partial_fit(X[y < N_CLASSES], y[y < N_CLASSES])
        if number > N_CLASSES:
            head.partial_fit(X[y >= N_CLASSES], y[y >= N_CLASSES])
        sizes.append(file_bytes(head))
    return (sizes[1] - sizes[0]) / N_CLASSES


def widest(width: int) -> str:
    X, y = classes(N_CLASSES, PER_CLASS, width)
    head = taer.Bayes()
    took = seconds(lambda: head.fit(X, y))
    head.predict(X[:100])
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = file_bytes(head) / 1e6
    return f"{width:,} features: {took:.1f} s, peak memory of the process {peak / 1e9:.2f} GB, file {size:.1f} MB"


def picture(found: dict[str, list[float]]) -> str:
    lines = [Curve(name, name, np.array([values])) for name, values in found.items()]
    title = f"a first task of {N_CLASSES} classes of {PER_CLASS} samples"
    return curves("wide", "", "", {title: lines}, WIDTHS, ("features", "seconds"), logarithmic=True).svg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--figure", type=Path, help="where the figure goes")
    parser.add_argument("--widest", type=int, help="features of one more first task")
    parser.add_argument("--only-widest", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only_widest:
        print(widest(options.widest))
        return
    found = first_tasks(options.repeats)
    header = " | ".join(f"{width:,}" for width in WIDTHS)
    rows = [f"{name} | {' | '.join(f'{each:.2f}' for each in values)}" for name, values in found.items()]
    ratios = [f"{one / other:.1f}" for one, other in zip(found["bayes"], found["slda"], strict=True)]
    print(table(f"first task, seconds | {header}", [*rows, f"`bayes` / `slda` | {' | '.join(ratios)}"]), end="\n\n")
    after = zip(*(afterwards(width) for width in WIDTHS), strict=True)
    titles = (
        "later task of five samples, ms",
        "`predict`, one row, ms",
        "`predict_proba`, one row, ms",
        "file, MB",
    )
    rows = [
        f"{title} | {' | '.join(f'{each / 1e6:.2f}' if 'MB' in title else f'{each:.2f}' for each in values)}"
        for title, values in zip(titles, after, strict=True)
    ]
    print(table(f"`bayes` | {header}", rows), end="\n\n", flush=True)
    print(f"One more class of {PER_CLASS} samples × 384 takes {class_bytes():,.0f} B in the file.")
    if options.widest:
        command = [sys.executable, "-m", "benchmarks.speed.wide", "--only-widest", "--widest", str(options.widest)]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")
    if options.figure:
        options.figure.write_text(picture(found))


if __name__ == "__main__":
    main()
