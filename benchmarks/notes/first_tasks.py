"""Small first tasks: are their classes crowded out by later ones? A table in Markdown.

    python -m benchmarks.notes.first_tasks --features FILE sketches100 FILE+FILE FILE~2048 [--orders 10]

``FILE+FILE`` joins the features of two networks for the same samples; ``FILE~2048`` projects features at random to 2,048
and bends them by tanh. Forty classes arrive in random order: the first 2, 5 or 10 in one task, the others in tasks of some
ten, all with the same number of samples. Cells have the accuracy on the first classes, and on all.
"""

from __future__ import annotations

import argparse
import warnings
from itertools import product
from pathlib import Path

import numpy as np

import taer
from taer.heads.few import FewSamplesWarning
from taer.threads import one_blas_thread

HEADS = ("bayes", "slda", "ncm")
FIRST = (2, 5, 10)
SAMPLES = (5, 20, 50)
CLASSES, TOGETHER = 40, 10
BEHIND = 2.0  # points that the first classes may be behind slda

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # X_train, y_train, X_test, y_test


def arrays(name: str) -> Arrays:
    if "+" in name:
        one, other = (arrays(part) for part in name.split("+"))
        if not all(np.array_equal(one[at], other[at]) for at in (1, 3)):
            raise SystemExit(f"{name}: the two files do not have the same samples")
        return tuple(np.concatenate([one[at], other[at]], axis=1) if at % 2 == 0 else one[at] for at in range(4))
    name, _, width = name.partition("~")
    data = taer.load_features(None if name == "sketches100" else name)
    train, y, test, y_test = (
        np.asarray(each[:]) for each in (data.train_x, data.train_y, data.test_x, data.test_y)
    )
    train, test = train.astype(np.float32), test.astype(np.float32)
    if width:
        center, scale = train.mean(axis=0), train.std() * np.sqrt(train.shape[1])
        bases = np.random.default_rng(0).normal(size=(train.shape[1], int(width))).astype(np.float32) / scale
        train, test = (np.tanh((each - center) @ bases) for each in (train, test))
    return train, y, test, y_test


def accuracies(data: Arrays, first: int, samples: int, seed: int) -> np.ndarray:
    """By head: percent of the test samples of the first classes, and of all, that are right."""
    X, y, X_test, y_test = data
    rng = np.random.default_rng(seed)
    order = rng.permutation(np.unique(y))[:CLASSES]
    members = {label: rng.permutation(np.flatnonzero(y == label))[:samples] for label in order}
    later = np.array_split(order[first:], max(1, (len(order) - first) // TOGETHER))
    asked, found = np.isin(y_test, order), []
    old = np.isin(y_test[asked], order[:first])
    for name in HEADS:
        head = taer.make_head(name)
        for task in (order[:first], *later):
            rows = np.concatenate([members[label] for label in task])
            head.partial_fit(X[rows], y[rows])
        right = head.predict(X_test[asked]) == y_test[asked]
        found.append([100 * right[old].mean(), 100 * right.mean()])
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", nargs="+", required=True)
    parser.add_argument("--orders", type=int, default=10)
    options = parser.parse_args()
    print(f"| features | first classes × samples | {' | '.join(f'`{name}`' for name in HEADS)} | |")
    print("|---|---:|" + "---:|" * len(HEADS) + "---|")
    for name in options.features:
        data, title = arrays(name), " + ".join(Path(part).stem for part in name.split("+"))
        for first, samples in product(FIRST, SAMPLES):
            found = np.mean([accuracies(data, first, samples, seed) for seed in range(options.orders)], axis=0)
            kept, ahead = found[0, 0] >= found[1, 0] - BEHIND, found[0, 1] >= found[1:, 1].max()
            note = ", ".join([] if kept else ["first behind"]) + ("" if ahead else " all behind")
            cells = " | ".join(f"{old:.1f} / {everything:.1f}" for old, everything in found)
            print(f"| {title}, {data[0].shape[1]} | {first} × {samples} | {cells} | {note.strip()} |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore", FewSamplesWarning)
    with one_blas_thread():
        main()
