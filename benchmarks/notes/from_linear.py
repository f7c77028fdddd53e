"""How a linear classifier should grow: by TaER, as ``taer.from_linear`` does, or by ``bayes``.

    python -m benchmarks.notes.from_linear [FILE...]

Logistic regression knows two thirds of the classes, from all their samples. The others come as one task, with a few
samples of each old class at hand. "By bayes" is the best of what was tried: old classes keep their linear scores, and the
score of a new class is the logarithm of the sum of their exponentials, plus the log-odds of the new class against all old
ones in a ``bayes`` head that learned the few old and all new samples.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

import taer

DRAWS = 2


def by_bayes(known: LogisticRegression, old: tuple, new: tuple, X: np.ndarray) -> np.ndarray:
    head = taer.Bayes(random_state=0).partial_fit(*old).partial_fit(*new)
    scores, linear = head.scores(X) / head.temperature_, known.decision_function(X)
    is_old = np.isin(head.classes_, known.classes_)
    found = np.empty_like(scores)
    found[:, is_old] = linear
    among_old = logsumexp(linear, axis=1) - logsumexp(scores[:, is_old], axis=1)
    found[:, ~is_old] = scores[:, ~is_old] + among_old[:, None]
    return head.classes_[found.argmax(axis=1)]


def rows_of(data: taer.FeatureSet, seed: int) -> Iterator[tuple[int, int | None, list[float]]]:
    """Samples of an old class and of a new one; accuracies on old and new classes, by TaER and by bayes."""
    rng, y = np.random.default_rng(seed), np.asarray(data.train_y)
    old, new = np.split(rng.permutation(len(data.classes)), [len(data.classes) * 2 // 3])
    X, of_old = np.asarray(data.test_x, np.float64), np.isin(data.test_y, old)

    def samples(classes: np.ndarray, count: int | None) -> tuple[np.ndarray, np.ndarray]:
        rows = np.concatenate([rng.permutation(np.flatnonzero(y == label))[:count] for label in classes])
        return np.asarray(data.train_x[rows], np.float64), y[rows]

    known = LogisticRegression(max_iter=300).fit(*samples(old, None))
    for few in (1, 5, 20):
        for shots in (5, None):
            at_hand, arriving = samples(old, few), samples(new, shots)
            head = taer.from_linear(known.coef_, known.intercept_, known.classes_, *at_hand, random_state=seed)
            answers = head.partial_fit(*arriving).predict(X), by_bayes(known, at_hand, arriving, X)
            right = [answer == data.test_y for answer in answers]
            yield few, shots, [float(each[part].mean()) for each in right for part in (of_old, ~of_old)]


def main() -> None:
    print("| features | samples of an old class | of a new one | TaER: old | new | by bayes: old | new |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for file in [None, *sys.argv[1:]]:
        data = taer.load_features(file)
        for draws in zip(*(rows_of(data, seed) for seed in range(DRAWS)), strict=True):
            few, shots, _ = draws[0]
            cells = " | ".join(f"{value:.1f}" for value in 100 * np.mean([found for *_, found in draws], axis=0))
            print(f"| {data.name} | {few} | {shots or 'all'} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
