"""Ratios of times that a slow-down would change, compared with those of the last release (``make bench-check``).

Both sides of a ratio alternate in one run, in CPU time, and each counts with its fastest round, so that other work on
the machine and the speed of the processor cancel. BLAS must have one thread (``OPENBLAS_NUM_THREADS=1``), because
the CPU time of several includes their waiting. ``--runs 10`` prints how far runs differ, ``--record`` writes the file.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import taer

RECORD = Path(__file__).with_name("last_release.json")
TOLERANCE = 1.5  # a ratio may be this many times the recorded one; noise is far below (docs/evidence/testing.md)

Side = Callable[[], object]


def problem(classes: int = 20, per_class: int = 60, width: int = 256) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), per_class)
    return (rng.normal(size=(classes, width))[y] + rng.normal(size=(len(y), width))).astype(np.float32), y


def taught(name: str, X: np.ndarray, y: np.ndarray) -> taer.heads.Head:
    half = y < 10
    head = taer.make_head(name, **({"random_state": 0} if name in ("taer", "bayes") else {}))
    return head.partial_fit(X[half], y[half]).partial_fit(X[~half], y[~half])


def products(X: np.ndarray, classes: int, epochs: int, batch: int) -> None:
    """The two products of a step of gradient descent: scores, and their gradient back onto the weights."""
    W = np.zeros((classes, X.shape[1]), np.float32)
    for _ in range(epochs):
        for start in range(0, len(X), batch):
            rows = X[start : start + batch]
            W = W - 1e-3 * ((rows @ W.T).T @ rows)


def cpu(side: Side) -> float:
    start = time.process_time()
    side()
    return time.process_time() - start


def child(code: str) -> float:
    """CPU time of an interpreter that runs ``code``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ratio(ours: Callable[[], float], reference: Callable[[], float], rounds: int) -> float:
    pairs = [(ours(), reference()) for _ in range(rounds)]
    return min(pair[0] for pair in pairs) / min(pair[1] for pair in pairs)


def repeated(side: Side, times: int) -> Side:
    return lambda: [side() for _ in range(times)]


def measure() -> dict[str, float]:
    X, y = problem()
    bayes, row = taught("bayes", X, y), X[:1]
    weights = np.ones((20, X.shape[1]), np.float32)
    libraries = "import numpy, scipy.linalg, sklearn.base"
    return {
        "taer / products of 40 epochs": ratio(
            lambda: cpu(lambda: taught("taer", X, y)), lambda: cpu(lambda: products(X, 20, 40, 16)), 5
        ),
        "bayes / slda": ratio(
            lambda: cpu(lambda: taught("bayes", X, y)), lambda: cpu(lambda: taught("slda", X, y)), 5
        ),
        "one row of bayes / a product": ratio(
            lambda: cpu(repeated(lambda: bayes.predict(row), 300)),
            lambda: cpu(repeated(lambda: (row @ weights.T).argmax(), 30_000)),
            5,
        ),
        "import taer / an empty interpreter": ratio(lambda: child("import taer"), lambda: child("pass"), 5),
        "first head / its libraries": ratio(
            lambda: child("import taer; taer.Bayes()"), lambda: child(libraries), 3
        ),
    }


def slower(found: dict[str, float], recorded: dict[str, float]) -> list[str]:
    """What is wrong with the ratios, in words; empty if nothing is."""
    problems = [f"{name}: measured, but not recorded" for name in found.keys() - recorded.keys()]
    problems += [f"{name}: recorded, but not measured" for name in recorded.keys() - found.keys()]
    for name in found.keys() & recorded.keys():
        if found[name] > TOLERANCE * recorded[name]:
            problems.append(
                f"{name}: {found[name]:.2f}, more than {TOLERANCE} times the {recorded[name]:.2f} of the last release"
            )
    return sorted(problems)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1, help="measure this often, and print the spread")
    parser.add_argument("--record", action="store_true", help="write the medians into the file of the last release")
    options = parser.parse_args()
    runs = [measure() for _ in range(options.runs)]
    medians = {name: float(np.median([run[name] for run in runs])) for name in runs[0]}
    print("| ratio | median | lowest | highest | highest / lowest |\n|---|---:|---:|---:|---:|")
    for name, middle in medians.items():
        low, high = (pick(run[name] for run in runs) for pick in (min, max))
        print(f"| {name} | {middle:.2f} | {low:.2f} | {high:.2f} | {high / low:.2f} |")
    if options.record:
        ratios = {name: round(value, 3) for name, value in medians.items()}
        RECORD.write_text(json.dumps({"version": taer.__version__, "ratios": ratios}, indent=1) + "\n")
        return 0
    problems = slower(medians, json.loads(RECORD.read_text())["ratios"])
    print(*problems, sep="\n", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    raise SystemExit(main())
