"""Near and far unknowns, thresholds without held-out samples, and the coverage of sets, as tables in Markdown.

    python -m benchmarks.notes.unknowns --banking77 FILE --cub200 FILE --flowers102 FILE --out-of-scope FILE \\
        [--method bayes]

A head learns some classes with all samples and others with five. The first table has the AUROC of ``novelty`` with test
samples of other classes, or with the samples of --out-of-scope, as unknowns; ranges are over the orders of classes. The
second one has training and test samples pooled and divided at random: a threshold for 5 % of false alarms is asked for
without any data, and sets that hold the true class in 80 and 90 % of cases.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import taer
from taer.heads.few import FewSamplesWarning
from taer.metrics import novelty_auroc
from taer.threads import one_blas_thread

SETS = ("banking77", "cub200", "flowers102")
HELD_OUT = 1 / 3  # of the pooled samples
ALARMS = 0.05
COVERAGES = (0.8, 0.9)


@dataclass(frozen=True)
class Case:
    """Classes with all samples, classes with five, and what is unknown."""

    data: str
    many: int
    few: int = 0
    far: bool = False

    def __str__(self) -> str:
        learned = f"{self.many} + {self.few} × 5" if self.few else str(self.many)
        return f"{self.data}, {learned}, against {'out of scope' if self.far else 'its other classes'}"


CASES = (
    Case("banking77", 50, 27, far=True),
    Case("banking77", 50, far=True),
    Case("banking77", 50),
    Case("banking77", 40, 20),
    Case("cub200", 100, 50),
    Case("cub200", 100),
    Case("flowers102", 50, 26),
    Case("flowers102", 50),
)


@dataclass(frozen=True)
class Samples:
    X: np.ndarray
    y: np.ndarray

    def of(self, classes: np.ndarray) -> np.ndarray:
        return self.X[np.isin(self.y, classes)]

    def at(self, rows: np.ndarray) -> Samples:
        return Samples(self.X[rows], self.y[rows])


def learned(method: str, train: Samples, case: Case, seed: int) -> tuple[Any, np.ndarray]:
    """A head, and the order of the classes."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(np.unique(train.y))
    head = taer.make_head(method)
    first = np.isin(train.y, order[: case.many])
    head.partial_fit(train.X[first], train.y[first])
    if case.few:
        later = order[case.many : case.many + case.few]
        rows = np.concatenate([rng.permutation(np.flatnonzero(train.y == label))[:5] for label in later])
        head.partial_fit(train.X[rows], train.y[rows])
    return head, order


def read(file: str) -> tuple[Samples, Samples]:
    data = taer.load_features(file)
    parts = ((data.train_x, data.train_y), (data.test_x, data.test_y))
    train, test = (Samples(np.asarray(X[:], np.float32), np.asarray(y[:])) for X, y in parts)
    return train, test


def aurocs(method: str, train: Samples, test: Samples, far: np.ndarray, case: Case, orders: int) -> str:
    found = []
    for seed in range(orders):
        head, order = learned(method, train, case, seed)
        known = order[: case.many + case.few]
        unknown = far if case.far else test.of(order[case.many + case.few :])
        found.append(novelty_auroc(head.novelty(test.of(known)), head.novelty(unknown)))
    return f"{case} | {np.mean(found):.3f} | {min(found):.3f} to {max(found):.3f}"


def promises(method: str, pooled: Samples, case: Case, orders: int) -> Iterator[float]:
    """Percent of known samples that are rejected, and that are in their sets, all drawn as the training samples are."""
    found = []
    for seed in range(orders):
        rng = np.random.default_rng(seed)
        held = rng.random(len(pooled.y)) < HELD_OUT
        head, order = learned(method, pooled.at(~held), case, seed)
        asked = pooled.at(held & np.isin(pooled.y, order[: case.many + case.few]))
        rejected = np.mean(head.novelty(asked.X) > head.novelty_threshold(false_alarms=ALARMS))
        covered = [
            np.mean([label in each for label, each in zip(asked.y, head.predict_set(asked.X, share), strict=True)])
            for share in COVERAGES
        ]
        found.append([rejected, *covered])
    yield from 100 * np.mean(found, axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in SETS:
        parser.add_argument(f"--{name}", help="feature file")
    parser.add_argument("--out-of-scope", required=True, help="feature file without labels")
    parser.add_argument("--method", default="bayes")
    parser.add_argument("--orders", type=int, default=3)
    options = parser.parse_args()
    file = taer.load_features(options.out_of_scope, labeled=False)
    far = np.concatenate([np.asarray(part[:], np.float32) for part in (file.train_x, file.test_x) if len(part)])
    sets = {name: read(path) for name in SETS if (path := getattr(options, name))}
    cases = [case for case in CASES if case.data in sets]
    print(f"| learned, and what is unknown | AUROC of `{options.method}` | range |\n|---|---:|---:|")
    for case in cases:
        print(f"| {aurocs(options.method, *sets[case.data], far, case, options.orders)} |", flush=True)
    print(
        "\n| drawn at random, in percent | rejected, 5 asked | in the set, 80 asked | 90 asked |\n|---|---:|---:|---:|"
    )
    for case in cases:
        if not case.far:
            pooled = Samples(
                *(np.concatenate(parts) for parts in zip(*((s.X, s.y) for s in sets[case.data]), strict=True))
            )
            numbers = " | ".join(f"{each:.1f}" for each in promises(options.method, pooled, case, options.orders))
            print(f"| {str(case).rpartition(',')[0]} | {numbers} |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore", FewSamplesWarning)
    with one_blas_thread():
        main()
