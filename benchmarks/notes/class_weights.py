"""Whether a head should weigh classes or samples alike, decided on training data alone (docs/evidence/beyond.md).

    python -m benchmarks.notes.class_weights --features DIR [--methods ridge,joint,taer]

A fifth of the training samples is held out. Of the rest, half of the classes keep all samples, and the other half all or
only 5. DIR holds feature files; every one of them is used.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import taer
from taer.features import FeatureSet, load_features

DRAWS = 3
# How a head is told to weigh samples or classes alike: (parameter, value for samples, value for classes).
PARAMETERS = (("class_weight", None, "balanced"), ("balance_classes", False, True))


def settings(method: str) -> dict[str, dict[str, object]]:
    """Parameters of a head by what the table shows; nothing for a head that has none for it."""
    known = taer.make_head(method).get_params()
    for name, plain, balanced in PARAMETERS:
        if name in known:
            return {"no": {name: plain}, "yes": {name: balanced}}
    return {"": {}}


def accuracies(
    data: FeatureSet, method: str, shots: int | None, params: dict[str, object], seed: int
) -> tuple[float, float, float]:
    """On all held-out samples, on those of the full classes, on those of the others."""
    rng, y = np.random.default_rng(seed), np.asarray(data.train_y)
    held = np.isin(np.arange(len(y)), rng.permutation(len(y))[: len(y) // 5])
    full = rng.permutation(len(data.classes))[: len(data.classes) // 2]
    members = [np.flatnonzero(~held & (y == c))[: None if c in full else shots] for c in range(len(data.classes))]
    rows = np.concatenate(members)
    head = taer.make_head(method, random_state=seed, **params)
    head.partial_fit(data.train_x[rows], y[rows])
    right, of_full = head.predict(data.train_x[held]) == y[held], np.isin(y[held], full)
    return float(right.mean()), float(right[of_full].mean()), float(right[~of_full].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--methods", default="ridge")
    options = parser.parse_args()
    print("| features | head | samples of the other half | balanced | all | full half | other half |")
    print("| --- | --- | --- | --- | ---: | ---: | ---: |")
    for path in sorted(options.features.glob("*.safetensors")):
        data = load_features(path)
        for method in options.methods.split(","):
            for shots in (None, 5):
                for balanced, params in settings(method).items():
                    draws = [accuracies(data, method, shots, params, seed) for seed in range(DRAWS)]
                    cells = " | ".join(f"{value:.1f}" for value in 100 * np.mean(draws, axis=0))
                    print(f"| {path.stem} | {method} | {shots or 'all'} | {balanced} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
