"""What exact products cost: scores of float32 features, by one float32 product and by ``taer.heads.exact``.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.speed.exact

Both sides run in turn in one process; the medians are of processor time. Prints a Markdown table.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from benchmarks.lib import measuring  # first: it sets the number of threads

# isort: split
import numpy as np

from taer.heads import exact

WIDTH = 384
SECONDS = 1.5  # of measuring, for each row of the table


def in_turn(*sides: Callable[[], object]) -> list[float]:
    """Median seconds of one call of each side, called in turn."""
    once = []
    for side in sides:
        side()
        start = time.process_time()
        side()
        once.append(time.process_time() - start)
    calls = max(1, int(0.01 / max(max(once), 1e-6)))  # the clock is coarse: many short calls at once
    found: list[list[float]] = [[] for _ in sides]
    for _ in range(max(5, int(SECONDS / max(calls * sum(once), 1e-6)))):
        for seconds, side in zip(found, sides, strict=True):
            start = time.process_time()
            for _ in range(calls):
                side()
            seconds.append((time.process_time() - start) / calls)
    return [median(seconds) for seconds in found]


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g}"


def measured(rows: np.ndarray, columns: np.ndarray) -> str:
    """A row of the table."""
    stored = exact.rounded(columns, np.float32)
    plain, ours = in_turn(lambda: rows @ columns.T, lambda: exact.products(rows, stored).astype(np.float32))
    true = rows.astype(np.float64) @ columns.T.astype(np.float64)
    errors = [np.abs(found - true).max() for found in (rows @ columns.T, exact.products(rows, stored))]
    cells = [f"{len(rows):,}", f"{len(columns):,}", milliseconds(plain), milliseconds(ours), f"{ours / plain:.1f}"]
    return " | ".join([*cells, *(f"{error:.1e}" for error in errors)])


def main() -> None:
    rng = np.random.default_rng(0)
    lines = [
        measured(*(rng.normal(size=(n, WIDTH)).astype(np.float32) for n in (n_rows, n_classes)))
        for n_classes in (100, 1_000, 10_000)
        for n_rows in (1, 1_000)
    ]
    header = "rows | classes | float32, ms | exact, ms | times | error of float32 | error of exact"
    print(measuring.table(header, lines))


if __name__ == "__main__":
    main()
