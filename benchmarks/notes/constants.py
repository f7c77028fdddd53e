"""What other values of the constants of ``bayes`` change, on held-out training samples.

    python -m benchmarks.notes.constants --try ASKED=32 --try LEVEL=0.05 [FILE …]

A third of the training samples of each class are asked, the others may be learned: the first half of the classes as first
task, then the others with all, five and one samples. Accuracy is that on all classes, and on the first ones. Coverage of
sets and rejected known samples are those after all classes with all samples.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np

import taer
from taer.heads.bayes import constants
from taer.threads import one_blas_thread

SHOTS = (None, 5, 1)


@contextmanager
def with_constant(name: str, value: object) -> Iterator[None]:
    """Replace a constant in all modules of ``bayes``, which import it by name."""
    getattr(constants, name)  # raises for a misspelled one
    users = [module for at, module in sys.modules.items() if at.startswith("taer.heads.bayes.")]
    patches = [mock.patch.object(module, name, value) for module in users if hasattr(module, name)]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


def measured(data: taer.FeatureSet, most: int) -> list[str]:
    X, y = np.asarray(data.train_x), np.asarray(data.train_y)
    rng = np.random.default_rng(0)
    members = [rng.permutation(np.flatnonzero(y == label))[:most] for label in rng.permutation(np.unique(y))]
    asked = np.concatenate([each[: len(each) // 3] for each in members])
    half = len(members) // 2
    is_first = np.isin(y[asked], [y[each[0]] for each in members[:half]])
    accuracies, others = [], []
    for shots in SHOTS:
        head = taer.Bayes()
        for part, of_each in ((members[:half], None), (members[half:], shots)):
            rows = np.concatenate([each[len(each) // 3 :][:of_each] for each in part])
            head.partial_fit(X[rows], y[rows])
        right = head.predict(X[asked]) == y[asked]
        accuracies.append(f"{100 * right.mean():.1f} / {100 * right[is_first].mean():.1f}")
        if shots is None:
            for coverage in (0.8, 0.9):
                sets = head.predict_set(X[asked], coverage)
                inside = np.mean([label in each for label, each in zip(y[asked], sets, strict=True)])
                others.append(f"{100 * inside:.1f}")
            rejected = head.novelty(X[asked]) > head.novelty_threshold(false_alarms=0.05)
            others.append(f"{100 * rejected.mean():.1f}")
    return [*accuracies, *others]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--try", dest="tried", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--most", type=int, default=150, help="most training samples of a class")
    options = parser.parse_args()
    taer.BayesReplay()  # loads all modules
    print(
        "| features | constant | all / first, all samples | five | one | sets of 80 % | of 90 % | rejected at 5 % |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for file in options.files or [None]:
        data = taer.load_features(file)
        for given in ["", *options.tried]:
            name, _, value = given.partition("=")
            replaced = ast.literal_eval(value) if name else constants.ASKED
            with one_blas_thread(), with_constant(name or "ASKED", replaced):
                found = " | ".join(measured(data, options.most))
            print(f"| {data.name} | {given or 'as they are'} | {found} |", flush=True)


if __name__ == "__main__":
    main()
