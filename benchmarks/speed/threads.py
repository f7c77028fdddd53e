"""Every head with the machine's default number of BLAS threads against one: alone, and beside two busy processes.

    python -m benchmarks.speed.threads [--heads slda,gauss-chain] [--repeats 5]

Two tasks of ten classes (60 samples of each, 384 features) are learned, then 1,000 rows are scored and 200 one by one, the
sides in turn in one process. Ratios are of the best seconds, default threads over one: on the clock alone, on the clock
beside two busy processes, and of the processor alone, which other work on the machine disturbs least. At most 1.1 is
wanted. Fails if a head learned with one number of threads differs in any bit from the same head learned with the other.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import taer
from taer.files import read_metadata

WANTED = 1.1
STEPS = ("learn", "1,000 rows", "one row")
SMALL = {"ranpac": {"width": 1000}, "gacl": {"width": 1000}, "bic": {"epochs": 1}, "eeil": {"epochs": 1}}


def problem() -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(20, 384))
    tasks = []
    for first in (0, 10):
        y = np.tile(np.arange(first, first + 10), 60)
        tasks.append(((centers[y] + 2 * rng.normal(size=(len(y), 384))).astype(np.float32), y))
    return tasks, rng.normal(size=(1000, 384)).astype(np.float32)


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """That many processes beside, which compute for ever, each on a core of its own: so no side is luckier."""
    cores = [core % (os.cpu_count() or 1) for core in range(processes)]
    code = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
    others = [subprocess.Popen([sys.executable, "-c", code, str(core)]) for core in cores]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def seconds_and_bits(name: str, threads: int) -> tuple[list[float], str]:
    """Seconds of each step, first on the clock and then of the processor, and a hash of all that the head has learned."""
    tasks, rows = problem()
    head = taer.make_head(name, random_state=0, **SMALL.get(name, {}))
    moments = []
    with threadpool_limits(threads, user_api="blas"):
        moments.append(now())
        for X, y in tasks:
            head.partial_fit(X, y)
        moments.append(now())
        head.scores(rows)
        moments.append(now())
        for row in range(200):
            head.scores(rows[row : row + 1])
        moments.append(now())
    with tempfile.TemporaryDirectory() as folder:
        head.save(Path(folder) / "head")
        return np.diff(moments, axis=0).T.ravel().tolist(), read_metadata(Path(folder) / "head")["sha256"]


def ratios(name: str, repeats: int) -> list[float]:
    """Default threads over one: of each step on the clock, then of the processor."""
    best: dict[int, list[float]] = {}
    bits = set()
    for _ in range(repeats):
        for threads in (os.cpu_count() or 1, 1):
            seconds, found = seconds_and_bits(name, threads)
            best[threads] = list(map(min, seconds, best.get(threads, seconds)))
            bits.add(found)
    if len(bits) != 1:
        raise SystemExit(f"{name}: the number of threads changes its bits")
    default, one = best[os.cpu_count() or 1], best[1]
    return [many / single for many, single in zip(default, one, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--heads", default=",".join(taer.HEADS))
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start, best of {options.repeats}\n")
    print(f"| head | {' | '.join(f'{kind}{step}' for kind in ('', 'busy: ', 'processor: ') for step in STEPS)} |")
    print("|---|" + "---:|" * 3 * len(STEPS))
    for name in options.heads.split(","):
        alone, processor = np.reshape(ratios(name, options.repeats), (2, -1))
        with busy(2):
            beside, _ = np.reshape(ratios(name, options.repeats), (2, -1))
        cells = [f"**{each:.2f}**" if each > WANTED else f"{each:.2f}" for each in (*alone, *beside, *processor)]
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
