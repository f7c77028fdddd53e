"""How long every head takes to answer: one row and 1,000 rows, beside the matrix products that its scores need.

A class alone (``predict``), and for one row also probabilities and novelty, which the service answers with.

    python -m benchmarks.speed.answers [--classes 100,1000] [--heads slda,gauss-chain] [--samples 8] [--features FILE]

384 features in float32, one BLAS thread, processor time, best of several. A head is fitted on Gaussian classes of 8 samples
(``--samples``: of more samples ``gauss-chain`` and ``gauss-frozen`` keep more directions) and asked about samples of them.
The products are, for every class: one column, or its directions beside it (``bayes``, ``gauss-chain``, ``gauss-frozen``,
``factor-analyzer``), or a whole matrix (``rgda``, ``fecam``); in float64, which exact scores need, with the matrices ready
in memory. A matrix per class for 1,000 classes is 1.2 GB in float64 and is measured on a tenth of them. With ``--features``
heads learn the training part of a feature file and answer for its test part.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from benchmarks.lib import measuring  # noqa: F401  (first: it sets the number of threads)

# isort: split
import numpy as np

import taer
from taer.zoo.shared.low_rank import AFTER

WIDTH = 384
SMALL = {"ranpac": {"width": 2000}, "gacl": {"width": 2000}}
SLOW = ("gss", "joint", "bic", "eeil", "gdumb")  # to fit; their scores are those of taer
MOST_MS = {"rgda": 10.0, "fecam": 10.0}  # a full covariance per class; others 1 ms
MANY_ROWS = 3.0  # times the products


def samples(n_classes: int, y: np.ndarray, seed: int) -> np.ndarray:
    centers = 2 * np.random.default_rng(0).normal(size=(n_classes, WIDTH))
    return (centers[y] + np.random.default_rng(seed).normal(size=(len(y), WIDTH))).astype(np.float32)


def problem(n_classes: int, per_class: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples to learn, their classes, and 1,000 rows to ask about."""
    y = np.repeat(np.arange(n_classes), per_class)
    return samples(n_classes, y, seed=1), y, samples(n_classes, np.arange(1000) % n_classes, seed=2)


def stored_problem(file: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    data = taer.load_features(file)
    rows = np.random.default_rng(0).permutation(len(data.test_y))[:1000]
    return np.asarray(data.train_x), np.asarray(data.train_y), np.asarray(data.test_x[np.sort(rows)], np.float32)


def fitted(name: str, X: np.ndarray, y: np.ndarray) -> Any:
    head = taer.make_head(name, random_state=0, **SMALL.get(name, {}))
    if "epochs" in head.get_params():
        head.set_params(epochs=1)
    return head.fit(X, y)


def products(head: Any, rows: np.ndarray) -> Callable[[], Any]:
    """The matrix products that the scores of these rows need."""
    n_classes, times, width = len(head.classes_), 1, rows.shape[1]
    if head.name in ("rgda", "fecam"):
        height, times = max(1, n_classes // 10) * width, 10
    elif (own := getattr(head, "directions_", getattr(head, "factors_", None))) is not None:
        used = own.any(axis=2).sum()  # a class of few samples has fewer than it may have
        height = (1 if head.name.startswith("gauss") else 2) * n_classes + used  # squares of rows, too
    else:
        height, width = getattr(head, "weights_", np.empty((n_classes, width))).shape
    matrix, wide = np.full((height, width), 0.5), np.full((len(rows), width), 0.5)
    return lambda: [wide @ matrix.T for _ in range(times)]


def best_ms(run: Callable[[], Any]) -> float:
    """The best of as many calls as fit into half a second, at least three."""
    found: list[float] = []
    run()
    while len(found) < 3 or (sum(found) < 0.5 and len(found) < 200):
        started = time.process_time()
        run()
        found.append(time.process_time() - started)
    return 1000 * min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--heads", default=",".join(name for name in taer.HEADS if name not in SLOW))
    parser.add_argument("--classes", default="100,1000")
    parser.add_argument("--samples", type=int, default=8, help="of each class")
    parser.add_argument("--features", help="a feature file whose classes are learned instead")
    options = parser.parse_args()
    print(
        "| head | classes | one row, ms | with probabilities | products | 1,000 rows, ms | products | times products |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    sizes = [int(size) for size in options.classes.split(",")]
    problems = [problem(size, options.samples) for size in sizes]
    for name in options.heads.split(","):
        for X, y, rows in [stored_problem(options.features)] if options.features else problems:
            head = fitted(name, X, y)
            n_classes = len(head.classes_)
            for _ in range(AFTER + 1):  # then rgda and fecam have made their bounds
                head.predict(rows[:1])
            one, one_products, many, many_products = (
                best_ms(run)
                for part in (rows[:1], rows)
                for run in (lambda p=part, h=head: h.predict(p), products(head, part))
            )
            whole = best_ms(lambda h=head, one=rows[:1]: h._probabilities(h._scores_with_novelty(one)[0]))
            missed = n_classes == 1000 and one > MOST_MS.get(name, 1.0)
            ratio = many / many_products
            shown = f"**{one:.2f}**" if missed else f"{one:.2f}"
            times = f"**{ratio:.1f}**" if ratio > MANY_ROWS else f"{ratio:.1f}"
            print(
                f"| `{name}` | {n_classes:,} | {shown} | {whole:.2f} | {one_products:.2f} "
                f"| {many:.1f} | {many_products:.1f} | {times} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
