"""Which strengths of the correction of ``bayes-replay`` are worth choosing from, on held-out *training* samples.

    python -m benchmarks.notes.strengths --features clinc150-minilm.safetensors sketches100

30 % of the training samples of each class are held out; test samples are not read. Printed are points of accuracy over
``bayes`` after the last task of the protocol of ``benchmarks.pages.fewshot``, for each strength that is given to the head,
and for the one that it chooses itself.
"""

from __future__ import annotations

import argparse
from copy import deepcopy
from unittest import mock

import numpy as np

import taer
from benchmarks.pages.fewshot import protocol_of, table
from taer.heads.base import Head
from taer.heads.bayes import correction
from taer.heads.bayes.constants import Strength
from taer.threads import one_blas_thread

STRENGTHS = (Strength(1.0, 1000.0), Strength(0.7, 300.0), Strength(0.5, 100.0), Strength(0.25, 100.0))
SHOTS = (None, 5, 1)
HELD_OUT = 0.3


def split(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn and rows that are held out."""
    rng, learned, held = np.random.default_rng(0), [], []
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        at = int(HELD_OUT * len(rows))
        held.append(rows[:at])
        learned.append(rows[at:])
    return np.concatenate(learned), np.concatenate(held)


def accuracies(head: Head, data: taer.FeatureSet, seed: int) -> list[float]:
    """On all held-out samples, in percent, by samples per new class."""
    protocol, y = protocol_of(data), np.asarray(data.train_y)
    learned, held = split(y)
    tasks = protocol.stream(data, "all", seed).tasks
    head.partial_fit(*rows_of(data, learned, tasks[0], None))
    found = []
    for shots in SHOTS:
        later = deepcopy(head)
        for classes in tasks[1:]:
            later.partial_fit(*rows_of(data, learned, classes, shots))
        found.append(100 * float(later.score(data.train_x[np.sort(held)], y[np.sort(held)])))
    return found


def rows_of(
    data: taer.FeatureSet, rows: np.ndarray, classes: tuple[int, ...], shots: int | None
) -> tuple[np.ndarray, np.ndarray]:
    y = np.asarray(data.train_y)
    chosen = np.sort(np.concatenate([rows[y[rows] == label][:shots] for label in classes]))
    return data.train_x[chosen], y[chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", nargs="+", required=True, help="feature files, or sketches100")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the classes")
    options = parser.parse_args()
    rows = []
    for name in options.features:
        data = taer.load_features(None if name == "sketches100" else name)
        base = np.array(accuracies(taer.Bayes(), data, options.seed))
        gains = []
        for strength in STRENGTHS:
            with mock.patch.multiple(correction, DEFAULT=strength, BOLD=strength):
                gains.append(np.array(accuracies(taer.BayesReplay(), data, options.seed)) - base)
        gains.append(np.array(accuracies(taer.BayesReplay(), data, options.seed)) - base)
        cells = [" / ".join(f"{gain:+.2f}" for gain in each) for each in gains]
        rows.append([data.name, " / ".join(f"{each:.2f}" for each in base), *cells])
    titles = [f"a = {each.scale:g}, penalty {each.penalty:g}" for each in STRENGTHS]
    print(table(["all / five / one", "`bayes`, %", *titles, "chosen by the head"], rows))


if __name__ == "__main__":
    with one_blas_thread():
        main()
