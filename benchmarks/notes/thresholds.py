"""Thresholds of novelty without held-out data: how many samples of known classes they reject. A table in Markdown.

    python -m benchmarks.notes.thresholds --features FILE sketches100 [--orders 8]

Some classes arrive in one task, some in a second one, all with the same few training samples. Ten other training samples
of each are then asked; test samples are not touched.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import taer
from taer.threads import one_blas_thread

CASES = ((4, 2, 2), (4, 2, 5), (10, 5, 2), (10, 5, 3), (10, 5, 5), (20, 10, 2), (20, 10, 5), (20, 10, 20))
ASKED, HELD_OUT = (0.05, 0.2), 10


def rejected(X: np.ndarray, y: np.ndarray, case: tuple[int, int, int], order: int) -> list[float]:
    first, later, samples = case
    rng, head, others = np.random.default_rng(order), taer.Bayes(), []
    classes = rng.permutation(np.unique(y))[: first + later]
    for part in (classes[:first], classes[first:]):
        members = [rng.permutation(np.flatnonzero(y == label)) for label in part]
        shown = np.concatenate([each[:samples] for each in members])
        head.partial_fit(X[shown], y[shown])
        others += [each[samples : samples + HELD_OUT] for each in members]
    rows = X[np.concatenate(others)]
    found = []
    for asked in ASKED:
        limit = head.novelty_threshold(false_alarms=asked)
        found.append(float((head.novelty(rows) > limit).mean()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", nargs="+", default=["sketches100"])
    parser.add_argument("--orders", type=int, default=8)
    options = parser.parse_args()
    print(
        "| set | classes, later ones, samples each | " + " | ".join(f"asked {100 * a:.0f} %" for a in ASKED) + " |"
    )
    print("|---|---|" + "---|" * len(ASKED))
    for name in options.features:
        data = taer.load_features(None if name == "sketches100" else name)
        X, y = np.asarray(data.train_x), np.asarray(data.train_y)
        for case in CASES:
            mean = np.mean([rejected(X, y, case, order) for order in range(options.orders)], axis=0)
            cells = " | ".join(f"{100 * each:.1f}" for each in mean)
            print(f"| {Path(name).stem} | {case[0]}, {case[1]}, {case[2]} | {cells} |", flush=True)


if __name__ == "__main__":
    with one_blas_thread():
        main()
