"""Learning curves: the labels that ``suggest`` asks for, beside random ones and those of other methods.

    python -m benchmarks.notes.suggest --features banking77.safetensors … --seeds 2

From two labels per class, or from none, some labels are added in each round, and ``bayes`` is fitted again. The pool are at
most 3,000 training samples. Printed: mean test accuracy after each round, and the labels needed for 95 % of the accuracy
with the whole pool. With ``--to-goal``, a curve ends where it reaches that accuracy, every seed draws a pool of its
own, and only the labels needed are printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.special import entr
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize

import taer

Pick = Callable[[taer.Bayes | None, np.ndarray, np.ndarray, int, np.random.Generator], np.ndarray]


def at_random(head, X, labeled, n, rng):
    return rng.permutation(len(X))[:n]


def by_margin(head, X, labeled, n, rng):
    if head is None:
        return at_random(head, X, labeled, n, rng)
    best = np.sort(head.predict_proba(X), axis=1)[:, -2:]
    return np.argsort(best[:, 1] - best[:, 0], kind="stable")[:n]


def by_entropy(head, X, labeled, n, rng):
    if head is None:
        return at_random(head, X, labeled, n, rng)
    return np.argsort(-entr(head.predict_proba(X)).sum(axis=1), kind="stable")[:n]


def k_center(head, X, labeled, n, rng):
    rows, kept = normalize(X), normalize(labeled) if len(labeled) else None
    nearest = np.full(len(rows), np.inf) if kept is None else 2 - 2 * (rows @ kept.T).max(axis=1)
    picked = []
    for _ in range(n):
        picked.append(int(nearest.argmax()) if np.isfinite(nearest).all() else int(rng.integers(len(rows))))
        nearest = np.minimum(nearest, 2 - 2 * rows @ rows[picked[-1]])
    return np.array(picked)


def typiclust(head, X, labeled, n, rng):
    """The most typical sample of each of the largest clusters without labels, as in TypiClust (Hacohen et al., 2022)."""
    both = normalize(np.concatenate([labeled, X]) if len(labeled) else X)
    count = min(n + len(labeled), 300)
    clusters = KMeans(count, n_init=1, random_state=int(rng.integers(1000))).fit_predict(both)
    taken = np.bincount(clusters[: len(labeled)], minlength=count)
    own, rows = clusters[len(labeled) :], both[len(labeled) :]
    sizes = np.bincount(own, minlength=count)
    picked: list[int] = []
    while len(picked) < n:
        for cluster in np.lexsort((-sizes, taken)):
            members = np.setdiff1d(np.flatnonzero(own == cluster), picked)
            if len(picked) == n or not len(members):
                continue
            near = np.sort(rows[members] @ rows[members].T, axis=1)[:, -21:]
            picked.append(int(members[near.mean(axis=1).argmax()]))
            taken[cluster] += 1
    return np.array(picked)


def suggested(head, X, labeled, n, rng):
    return (head or taer.Bayes()).suggest(X, n)


METHODS: dict[str, Pick] = {
    "suggest": suggested,
    "random": at_random,
    "margin": by_margin,
    "entropy": by_entropy,
    "k-center": k_center,
    "TypiClust": typiclust,
}


def curve(data, pick: Pick, start: int, step: int, rounds: int, seed: int, goal: float = np.inf) -> list[float]:
    X, y, test_x, test_y = data
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    labeled = [row for label in np.unique(y) for row in order[y[order] == label][:start]]
    found = []
    for number in range(rounds + 1):
        head = taer.Bayes().fit(X[labeled], y[labeled]) if labeled else None
        if head is not None:
            found.append(float((head.predict(test_x) == test_y).mean()))
            if found[-1] >= goal:
                break
        if number < rounds:
            left = np.setdiff1d(np.arange(len(y)), labeled)
            labeled += left[pick(head, X[left], X[labeled], step, rng)].tolist()
    return found


def labels_for(accuracy: float, counts: list[int], found: np.ndarray) -> float:
    """Labels until this accuracy, interpolated; infinite if it was not reached."""
    reached = np.flatnonzero(found >= accuracy)
    if not len(reached):
        return np.inf
    at = int(reached[0])
    if at == 0:
        return counts[0]
    part = (accuracy - found[at - 1]) / (found[at] - found[at - 1])
    return counts[at - 1] + part * (counts[at] - counts[at - 1])


def drawn(read: taer.FeatureSet, size: int, seed: int) -> tuple[np.ndarray, ...]:
    """A pool with its labels, and test samples."""
    X, y, test_x, test_y = (np.asarray(part) for part in (read.train_x, read.train_y, read.test_x, read.test_y))
    rows = np.random.default_rng(seed).permutation(len(y))[:size]
    test = np.random.default_rng(1).permutation(len(test_y))[:1500]
    return X[rows].astype(np.float32), y[rows], test_x[test].astype(np.float32), test_y[test]


def goal_of(data) -> float:
    return 0.95 * float((taer.Bayes().fit(*data[:2]).predict(data[2]) == data[3]).mean())


def counts_of(data, start: int, step: int, rounds: int) -> list[int]:
    known = int(np.minimum(np.bincount(data[1]), start).sum())
    return [known + step * number for number in range(0 if start else 1, rounds + 1)]


def needed(path: Path, start: int, options: argparse.Namespace) -> None:
    """Labels until 95 % of the accuracy with the whole pool: mean and standard error over pools."""
    read = taer.load_features(path)
    step = len(read.classes)
    pools = [drawn(read, options.pool, seed) for seed in range(options.seeds)]
    goals = [goal_of(pool) for pool in pools]
    print(f"\n{path.stem}, from {start or 'no'} labels per class; 95 % of all is {100 * np.mean(goals):.1f}\n")
    for name in options.methods:
        found = []
        for seed, (pool, goal) in enumerate(zip(pools, goals, strict=True)):
            accuracies = np.array(curve(pool, METHODS[name], start, step, options.rounds, seed, goal))
            found.append(labels_for(goal, counts_of(pool, start, step, options.rounds), accuracies))
        error = np.std(found, ddof=1) / np.sqrt(len(found)) if np.isfinite(found).all() else np.nan
        print(f"| {name} | {np.mean(found):.0f} ± {error:.0f} | {np.round(found).tolist()}", flush=True)


def measure(path: Path, start: int, options: argparse.Namespace) -> None:
    read = taer.load_features(path)
    data, step = drawn(read, options.pool, 0), len(read.classes)
    goal, counts = goal_of(data), counts_of(data, start, step, options.rounds)
    print(f"\n{path.stem}, from {start or 'no'} labels per class; 95 % of all is {100 * goal:.1f}\n")
    print(f"| | {' | '.join(map(str, counts))} | labels for 95 % |\n|---|" + "---:|" * (len(counts) + 1))
    for name in options.methods:
        curves = np.array(
            [curve(data, METHODS[name], start, step, options.rounds, seed) for seed in range(options.seeds)]
        )
        mean = curves.mean(axis=0)
        error = curves[:, -1].std(ddof=1) / np.sqrt(len(curves)) if len(curves) > 1 else 0.0
        cells = [f"{100 * value:.1f}" for value in mean]
        cells[-1] += f" ± {100 * error:.1f}"
        labels = labels_for(goal, counts, mean)
        shown = f"{labels:.0f}" if np.isfinite(labels) else f"> {counts[-1]}"
        print(f"| {name} | {' | '.join(cells)} | {shown} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, nargs="+", required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--pool", type=int, default=3000)
    parser.add_argument("--starts", type=int, nargs="+", default=[2, 0])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--to-goal", action="store_true", help="print only the labels needed for 95 %%")
    options = parser.parse_args()
    for path in options.features:
        for start in options.starts:
            (needed if options.to_goal else measure)(path, start, options)


if __name__ == "__main__":
    main()
