"""Classes of a few samples beside classes of many: the fact ``few_shot`` on the card of a head.

    python benchmarks/few_shot_cards.py FEATURES > few.out.md
    python tools/fill_docs.py docs/beyond.md few.out.md

The first half of the classes is learned with all samples, then the others ten at a time with five samples each. Prints
the accuracy on both halves after the last task. A head finds classes of few samples if it finds them at least two fifths
as often as the others; where its card says otherwise, so does stderr.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import numpy as np

import taer
from taer.features import FeatureSet, load_features

SAMPLES, CLASSES = 5, 10
ENOUGH = 0.4


def tasks(data: FeatureSet) -> Iterator[np.ndarray]:
    """The rows of each task."""
    y, half = np.asarray(data.train_y), len(data.classes) // 2
    yield np.flatnonzero(y < half)
    for start in range(half, len(data.classes), CLASSES):
        new = range(start, min(start + CLASSES, len(data.classes)))
        yield np.concatenate([np.flatnonzero(y == label)[:SAMPLES] for label in new])


def accuracies(name: str, data: FeatureSet) -> tuple[float, float]:
    """On the classes of many samples and on those of few."""
    head = taer.make_head(name, random_state=0)
    for rows in tasks(data):
        head.partial_fit(data.train_x[rows], data.train_y[rows])
    right, many = head.predict(data.test_x) == data.test_y, np.asarray(data.test_y) < len(data.classes) // 2
    return float(right[many].mean()), float(right[~many].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features")
    data = load_features(parser.parse_args().features)
    print("### few\n\n| head | classes of many samples | classes of five | found |\n|---|---:|---:|---|")
    for name, head in taer.HEADS.items():
        many, few = accuracies(name, data)
        found = few >= ENOUGH * many
        print(f"| `{name}` | {100 * many:.1f} | {100 * few:.1f} | {'yes' if found else 'no'} |", flush=True)
        if found != head.card.few_shot:
            print(f"{name}: its card says few_shot={head.card.few_shot}", file=sys.stderr)


if __name__ == "__main__":
    main()
