"""Coverage and size of the sets of classes that ``bayes`` gives without held-out samples.

    python benchmarks/sets.py FILE...

Half of the classes are the first task; the others come in five tasks, with all samples or five of each. Every fourth
test sample is asked.
"""

from __future__ import annotations

import sys

import numpy as np

import taer


def measured(data: taer.FeatureSet, shots: int | None, coverage: float) -> str:
    X, y, half = data.train_x, np.asarray(data.train_y), len(data.classes) // 2
    first = np.flatnonzero(y < half)
    head = taer.Bayes(random_state=0).partial_fit(X[first], y[first])
    for task in np.array_split(np.arange(half, len(data.classes)), 5):
        rows = np.concatenate([np.flatnonzero(y == label)[:shots] for label in task])
        head.partial_fit(X[rows], y[rows])
    sets, truth = head.predict_set(data.test_x[::4], coverage), data.test_y[::4]
    inside = np.array([label in each for label, each in zip(truth, sets, strict=True)])
    size = np.mean([len(each) for each in sets])
    parts = " | ".join(f"{100 * part.mean():.1f}" for part in (inside, inside[truth < half], inside[truth >= half]))
    return f"{parts} | {size:.1f}"


def main() -> None:
    print("| features | samples of a new class | asked | covered | first task | later | classes in a set |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for file in [None, *sys.argv[1:]]:
        data = taer.load_features(file)
        for shots in (None, 5):
            for coverage in (0.8, 0.9):
                found = measured(data, shots, coverage)
                print(f"| {data.name} | {shots or 'all'} | {100 * coverage:.0f} | {found} |", flush=True)


if __name__ == "__main__":
    main()
