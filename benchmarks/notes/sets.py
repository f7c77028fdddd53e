"""Coverage and size of the sets of classes that ``bayes`` gives without held-out samples.

    python -m benchmarks.notes.sets FILE...

Half of the classes are the first task; the others come in five tasks, with all samples or five of each. The samples to
predict are drawn at random from the training and the test set together, or are the test set.
"""

from __future__ import annotations

import sys

import numpy as np

import taer


def measured(data: taer.FeatureSet, at_random: bool, shots: int | None) -> list[str]:
    X, y = np.concatenate([data.train_x, data.test_x]), np.concatenate([data.train_y, data.test_y])
    order = np.random.default_rng(0).permutation(len(y)) if at_random else np.arange(len(y))
    learned, asked = np.split(order, [len(data.train_y)])
    half = len(data.classes) // 2
    tasks = [np.arange(half), *np.array_split(np.arange(half, len(data.classes)), 5)]
    head = taer.Bayes(random_state=0)
    for number, task in enumerate(tasks):
        members = [learned[y[learned] == label] for label in task]
        rows = np.concatenate([each[: shots if number else None] for each in members])
        head.partial_fit(X[rows], y[rows])
    found, truth = [], y[asked]
    for coverage in (0.8, 0.9):
        sets = head.predict_set(X[asked], coverage)
        inside = np.array([label in each for label, each in zip(truth, sets, strict=True)])
        parts = [f"{100 * part.mean():.1f}" for part in (inside, inside[truth < half], inside[truth >= half])]
        found.append(" | ".join([f"{100 * coverage:.0f}", *parts, f"{np.mean([len(each) for each in sets]):.1f}"]))
    return found


def main() -> None:
    print(
        "| features | samples | training samples per later class | requested | covered | first task | later "
        "| classes in a set |"
    )
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for file in [None, *sys.argv[1:]]:
        data = taer.load_features(file)
        for at_random in (True, False):
            for shots in (None, 5):
                for row in measured(data, at_random, shots):
                    asked = "at random" if at_random else "the test set"
                    print(f"| {data.name} | {asked} | {shots or 'all'} | {row} |", flush=True)


if __name__ == "__main__":
    main()
