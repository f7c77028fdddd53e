"""Several labels per sample: pairs of bank questions, as a table in Markdown.

    python -m benchmarks.notes.multilabel --banking77 TABLE.csv [--pairs 3000 1500]

Two questions of different classes are joined and embedded together, for training and for test. A label then has five
training pairs, 20, or all. In the last rows 50 labels have all pairs of these alone, and 27 labels are added with five
pairs or with one each, ``classes`` being these 27. Micro- and macro-averaged F1 on all test pairs.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

import taer
from taer.metrics import f1_macro, f1_micro
from taer.threads import one_blas_thread

METHODS: dict[str, Callable[[], Any]] = {
    "`MultiLabel()`": taer.MultiLabel,
    "logistic regression": lambda: OneVsRestClassifier(LogisticRegression(max_iter=300)),
    "C = 100": lambda: OneVsRestClassifier(LogisticRegression(max_iter=300, C=100)),
    "C = 10, balanced": lambda: OneVsRestClassifier(
        LogisticRegression(max_iter=300, C=10, class_weight="balanced")
    ),
    "`OneVsRestClassifier(Bayes())`": lambda: OneVsRestClassifier(taer.Bayes()),
}
ADDED = 27  # labels


def pairs(rows: list[dict[str, str]], names: list[str], count: int, rng: Any) -> tuple[list[str], np.ndarray]:
    """Texts of two questions, and their labels as an indicator matrix."""
    y = np.array([names.index(row["label"]) for row in rows])
    texts: list[str] = []
    Y = np.zeros((count, len(names)), np.int64)
    while len(texts) < count:
        order = rng.permutation(len(rows))
        for one, other in zip(order[::2], order[1::2], strict=False):
            if y[one] != y[other] and len(texts) < count:
                Y[len(texts), [y[one], y[other]]] = 1
                texts.append(f"{rows[one]['text'].strip()} {rows[other]['text'].strip()}")
    return texts, Y


def few(Y: np.ndarray, most: int, labels: np.ndarray, seed: int) -> np.ndarray:
    """Rows in which each of some labels occurs that often at most."""
    rows, counts = [], np.zeros(Y.shape[1], np.int64)
    for row in np.random.default_rng(seed).permutation(len(Y)):
        own = labels[Y[row, labels] == 1]
        if len(own) and (counts[own] < most).all():
            rows.append(row)
            counts[own] += 1
    return np.array(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--banking77", required=True)
    parser.add_argument("--pairs", nargs=2, type=int, default=[3000, 1500], metavar=("TRAIN", "TEST"))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    with open(options.banking77, newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    names, rng = sorted({row["label"] for row in table}), np.random.default_rng(0)
    parts = []
    for split, count in zip(("train", "test"), options.pairs, strict=True):
        texts, Y = pairs([row for row in table if row["split"] == split], names, count, rng)
        parts += [taer.Extractor("minilm").transform(texts), Y]
    with one_blas_thread():
        measure(*parts, options.seeds)


def measure(X: np.ndarray, Y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray, seeds: int) -> None:
    every = np.arange(Y.shape[1])
    print("| training pairs per label |", *(f" {name} |" for name in METHODS))
    print("|---|", *("---|" for _ in METHODS))
    for most in (5, 20, None):
        cells = []
        for name, make in METHODS.items():
            slow = name.startswith("`One")  # one order is enough for it
            found, seconds = [], time.process_time()
            for seed in range(1 if slow or most is None else seeds):
                rows = np.arange(len(X)) if most is None else few(Y, most, every, seed)
                answer = make().fit(X[rows], Y[rows]).predict(test_x)
                found.append((f1_micro(test_y, answer), f1_macro(test_y, answer)))
            seconds = (time.process_time() - seconds) / len(found)
            cells.append(f" {shown(found)}, {seconds:.1f} s |")
            print(name, cells[-1], flush=True) if slow else None
        print(f"| {most or 'all'} |", *cells, flush=True)
    for most in (5, 1):
        found, added = [], []
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(every)
            old, new = np.sort(order[:-ADDED]), np.sort(order[-ADDED:])
            first, later = np.flatnonzero(Y[:, new].sum(axis=1) == 0), few(Y, most, new, seed)
            model = taer.MultiLabel().fit(X[first], Y[np.ix_(first, old)], classes=old)
            before = model.scores(test_x)
            model.partial_fit(X[later], Y[np.ix_(later, new)], classes=new)
            if not (model.scores(test_x)[:, : len(old)] == before).all():
                raise SystemExit("a score of an old label moved")
            truth, answer = test_y[:, model.classes_], model.predict(test_x)
            found.append((f1_micro(truth, answer), f1_macro(truth, answer)))
            added.append((f1_micro(truth[:, len(old) :], answer[:, len(old) :]), 0))
        part = 100 * np.mean(added, axis=0)[0]
        print(
            f"| 50 labels with all, then {ADDED} with {most} | {shown(found)}; the added ones {part:.1f} |",
            flush=True,
        )


def shown(found: list[tuple[float, float]]) -> str:
    micro, macro = 100 * np.mean(found, axis=0)
    return f"{micro:.1f} / {macro:.1f}"


if __name__ == "__main__":
    main()
