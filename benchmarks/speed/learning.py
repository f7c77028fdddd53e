"""What learning costs: processor time of ``bayes`` and ``bayes-replay`` against ``slda``, in one run.

    python -m benchmarks.speed.learning [--features FILE …] [--tasks 5] [--repeats 3]

Without files: 5,000 samples of 50 classes with 384 features, whose variances fall as those of embeddings do. Heads learn
in turn, with one thread; each counts with its fastest repeat.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.lib.measuring import table  # first: it sets the number of threads

# isort: split
import numpy as np

import taer
from benchmarks.speed.wide import classes

HEADS = ("slda", "bayes", "bayes-replay")


def seconds(name: str, tasks: list[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """Of the first task, and of all later ones."""
    head, found = taer.make_head(name), []
    for X, y in tasks:
        start = time.process_time()
        head.partial_fit(X, y)
        found.append(time.process_time() - start)
    return found[0], sum(found[1:])


def rows_of(title: str, X: np.ndarray, y: np.ndarray, n_tasks: int, repeats: int) -> list[str]:
    parts = np.array_split(np.unique(y), n_tasks)
    tasks = [(X[np.isin(y, part)], y[np.isin(y, part)]) for part in parts]
    runs = [{name: seconds(name, tasks) for name in HEADS} for _ in range(repeats)]
    best = {name: tuple(min(run[name][at] for run in runs) for at in (0, 1)) for name in HEADS}
    base = sum(best["slda"])
    return [
        f"{title} | `{name}` | {first:.2f} | {later:.2f} | {(first + later) / base:.1f}"
        for name, (first, later) in best.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", nargs="*", type=Path, default=[])
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    rows = rows_of("5,000 × 384", *classes(50, 100, 384), given.tasks, given.repeats)
    for path in given.features:
        data = taer.load_features(path)
        X, y = np.asarray(data.train_x[:], np.float32), np.asarray(data.train_y[:])
        rows += rows_of(path.stem, X, y, given.tasks, given.repeats)
    print(table("data | head | first task, s | later tasks, s | all / slda", rows))


if __name__ == "__main__":
    main()
