"""How many wrong labels ``taer diagnose`` finds: labels of a training part are changed at random, then looked for.

``python -m benchmarks.notes.mislabeled FILE…`` prints the fraction of the changed labels among as many of the
most suspicious samples, by a head that learned these labels itself, and in three folds.
"""

from __future__ import annotations

import argparse

import numpy as np

import taer

CHANGED = 0.03  # of the labels
SAMPLES = 4000  # at most, of a feature file


def found(features: taer.FeatureSet, method: str, seed: int) -> list[float]:
    """Percentages of the changed labels that are found, by the head itself and in three folds."""
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(features.train_y))[:SAMPLES])
    X, y = np.asarray(features.train_x[rows]), features.train_y[rows].copy()
    changed = np.flatnonzero(rng.random(len(y)) < CHANGED)
    y[changed] = (y[changed] + rng.integers(1, len(features.classes), len(changed))) % len(features.classes)
    head = taer.make_head(method, random_state=seed).fit(X, y)
    percentages = []
    for folds in (None, 3):
        suspects = taer.diagnose(head, X, y, folds=folds).suspects[: len(changed)]
        percentages.append(100 * len(np.intersect1d([each.row for each in suspects], changed)) / len(changed))
    return percentages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="feature files [default: the embedded sketches]")
    parser.add_argument("--methods", default="bayes,taer,ncm")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    print("| features | head | by the head itself | in three folds |\n|---|---|---:|---:|")
    for file in arguments.files or [None]:
        features = taer.load_features(file)
        for method in arguments.methods.split(","):
            runs = np.array([found(features, method, seed) for seed in range(arguments.seeds)])
            cells = [
                f"{mean:.0f} ± {std:.0f} %" for mean, std in zip(runs.mean(0), runs.std(0, ddof=1), strict=True)
            ]
            print(f"| {features.name} | `{method}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
