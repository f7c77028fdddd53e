"""Classes by a description, with 0 to 20 examples, as a table in Markdown.

    python -m benchmarks.notes.describe --banking77 FEATURES --clinc150 FEATURES [--orders 1]

Two thirds of the classes are learned with all samples and their descriptions, the others come with a description and so
many examples. A description is the name of the class with spaces, or one sentence: the training sample that is nearest
to the mean of its class stands for it (it is none of the examples). Accuracy on all test samples, and on those of the
described classes; beside it, ``bayes`` with the same examples and no description, and the nearest description.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

import taer
from taer.threads import one_blas_thread

EXAMPLES = (0, 1, 2, 5, 20)


def measure(name: str, path: str, orders: int) -> None:
    data = taer.load_features(path)
    X, y = np.asarray(data.train_x, np.float32), data.train_y
    test_x, test_y, count = np.asarray(data.test_x, np.float32), data.test_y, len(data.classes)
    members = [np.flatnonzero(y == label) for label in range(count)]
    nearest = np.array([rows[np.argmax(X[rows] @ X[rows].mean(axis=0))] for rows in members])
    names = taer.Extractor("minilm").transform([each.replace("_", " ").lower() for each in data.classes])
    for order in range(orders):
        rng = np.random.default_rng(order)
        classes = rng.permutation(count)
        old, new = np.split(classes, [2 * count // 3])
        picked = {label: rng.permutation(np.setdiff1d(members[label], nearest)) for label in new.tolist()}
        first, asked = np.isin(y, old), np.isin(test_y, new)
        base = taer.Bayes().partial_fit(X[first], y[first])._state()
        for kind, vectors in (("none", None), ("name", names), ("sentence", X[nearest])):
            if vectors is not None:
                unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
                show(name, order, f"nearest {kind}", 0, (test_x @ unit.T).argmax(axis=1), test_y, asked)
            for shots in EXAMPLES:
                if vectors is None and not shots:
                    continue
                head = taer.Bayes()._restore(dict(base))
                if vectors is not None:
                    head.describe(dict(enumerate(vectors)))
                if shots:
                    rows = np.concatenate([picked[label][:shots] for label in new.tolist()])
                    head.partial_fit(X[rows], y[rows])
                worth = "" if vectors is None else f"{head.description_examples_:.2f}"
                show(name, order, f"bayes, {kind} {worth}", shots, head.predict(test_x), test_y, asked)


def show(
    name: str, order: int, what: str, shots: int, found: np.ndarray, truth: np.ndarray, asked: np.ndarray
) -> None:
    right = 100 * (found == truth)
    print(f"| {name} | {order} | {what} | {shots} | {right.mean():.2f} | {right[asked].mean():.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("banking77", "clinc150"):
        parser.add_argument(f"--{name}", help="features by minilm")
    parser.add_argument("--orders", type=int, default=1)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    print("| set | order | description | examples | all | described classes |")
    print("|---|---|---|---|---|---|")
    with one_blas_thread():
        for name in ("banking77", "clinc150"):
            if getattr(options, name):
                measure(name, getattr(options, name), options.orders)


if __name__ == "__main__":
    main()
