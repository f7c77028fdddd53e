"""New classes found in a pool, beside k-means that is told their number.

    python -m benchmarks.notes.discover --features banking77.safetensors … [--noise out-of-scope.safetensors]

Half of the classes of each file are learned, two thirds of CLINC150's. The pool are test samples: of unknown classes alone,
of unknown and known classes, and of unknown classes beside noise. The constants were chosen on training samples
of the orders 0 and 1, the limit of scatter on those of 10 and 11; order 1 is also among those here.

``--small`` instead learns a few samples of a few classes; the pool are 20 test samples each of 14 other classes.
``--mixed`` instead learns 10, 40 or 80 of the classes of the set that comes with taer; the pool are all its test samples.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.metrics import adjusted_rand_score

import taer

SIZES = ((5, 20), (10, 20), (20, 5), (20, 20), (30, 5), (30, 20), (30, 30))  # classes and samples of a small head
_NEW = 14  # classes of its pool
_MIXED = (10, 40, 80)  # classes of a head whose pool are samples of all 100


def rand(truth: np.ndarray, labels: np.ndarray) -> float:
    """Adjusted Rand index; every sample without a group is a group of its own."""
    alone = labels.max() + 1 + np.arange(len(labels))
    return float(adjusted_rand_score(truth, np.where(labels < 0, alone, labels)))


def weighted(head: taer.Bayes, X: np.ndarray) -> np.ndarray:
    """Rows in the space of the prior, weighted by psi / (1 + psi): what the peers are given."""
    directions, psi, *_ = head.prior_.spread
    found: np.ndarray = head._in_prior(X) @ directions.T * np.sqrt(psi / (1 + psi))
    return found


def kmeans(rows: np.ndarray, truth: np.ndarray, seeds: int) -> float:
    """Rand of k-means that is told the number of classes."""
    found = [KMeans(len(np.unique(truth)), n_init=3, random_state=seed).fit_predict(rows) for seed in range(seeds)]
    return float(np.mean([adjusted_rand_score(truth, labels) for labels in found]))


def hdbscan(rows: np.ndarray, truth: np.ndarray) -> float:
    """Rand of HDBSCAN with the defaults of scikit-learn."""
    return rand(truth, HDBSCAN(copy=True).fit_predict(rows))


def measure(path: Path, order: int, noise: np.ndarray | None) -> dict[str, list[float]]:
    data = taer.load_features(path)
    X, y, test_x, test_y = (np.asarray(part) for part in (data.train_x, data.train_y, data.test_x, data.test_y))
    classes = np.random.default_rng(order).permutation(len(data.classes))
    known = classes[: len(classes) * (2 if "clinc" in path.name else 1) // (3 if "clinc" in path.name else 2)]
    learned, is_known = np.isin(y, known), np.isin(test_y, known)
    head = taer.Bayes().fit(X[learned], y[learned])
    new, truth = test_x[~is_known], test_y[~is_known]
    found = head.discover(new)
    tables = {
        "unknown classes": [
            len(new),
            len(np.unique(truth)),
            len(found.groups),
            rand(truth, found.labels),
            kmeans(weighted(head, new), truth, 2),
            hdbscan(weighted(head, new), truth),
            float((found.labels >= 0).mean()),
        ]
    }
    tables["half known"] = mixed(head, test_x, test_y, is_known)
    if noise is not None:
        tables["noise"] = beside(head, new, truth, noise)
    return tables


def mixed(head: taer.Bayes, X: np.ndarray, truth: np.ndarray, is_known: np.ndarray) -> list[float]:
    found = head.discover(X)
    grouped = ~is_known & (found.labels >= 0)
    return [
        float((found.labels[is_known] >= 0).mean()),
        float(grouped[~is_known].mean()),
        len(found.groups),
        rand(truth[~is_known], found.labels[~is_known]),
        rand(truth[grouped], found.labels[grouped]) if grouped.any() else float("nan"),
    ]


def measure_mixed(n_classes: int, order: int) -> list[float]:
    """A pool of known and new classes, for a head that knows some of those of sketches100."""
    data = taer.load_features()
    known = np.random.default_rng(order).permutation(100)[:n_classes]
    learned = np.isin(data.train_y, known)
    head = taer.Bayes().fit(data.train_x[learned], data.train_y[learned])
    return mixed(head, data.test_x, data.test_y, np.isin(data.test_y, known))


def beside(head: taer.Bayes, new: np.ndarray, truth: np.ndarray, noise: np.ndarray) -> list[float]:
    found = head.discover(np.concatenate([new, noise]))
    mostly = sum(float((group.rows >= len(new)).mean()) > 0.5 for group in found.groups)
    share = float((found.labels[len(new) :] >= 0).mean())
    return [len(noise), len(found.groups), mostly, share, rand(truth, found.labels[: len(new)])]


def measure_small(path: Path, size: tuple[int, int], order: int, noise: np.ndarray | None) -> list[float]:
    data = taer.load_features(path)
    n_classes, per_class = size
    classes = np.random.default_rng(order).permutation(len(data.classes))

    def some(X: np.ndarray, y: np.ndarray, which: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        rows = np.concatenate([np.flatnonzero(y == label)[:most] for label in which])
        return np.asarray(X[rows]), y[rows]

    head = taer.Bayes().fit(*some(data.train_x, np.asarray(data.train_y), classes[:n_classes], per_class))
    new, truth = some(data.test_x, np.asarray(data.test_y), classes[n_classes:][:_NEW], 20)
    found = head.discover(new)
    peers = [kmeans(weighted(head, new), truth, 2), hdbscan(weighted(head, new), truth)]
    measured = [len(found.groups), rand(truth, found.labels), *peers]
    return measured if noise is None else [*measured, *beside(head, new, truth, noise[:300])[1:3]]


def large(count: int) -> str:
    """Time and memory of a pool of Gaussian classes."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(250, 64)) @ rng.normal(size=(64, 384)) / 8 * 1.2  # classes differ in 64 directions
    y = rng.integers(0, 50, 2500)
    head = taer.Bayes().fit(centers[y] + rng.normal(size=(2500, 384)), y)
    truth = rng.integers(50, 250, count)
    pool = (centers[truth] + rng.normal(size=(count, 384))).astype(np.float32)
    start, clock = time.process_time(), time.perf_counter()
    found = head.discover(pool)
    spent, clock = time.process_time() - start, time.perf_counter() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return (
        f"{count:,} samples of 200 classes, 384 features: {spent:.0f} s of processor time, {clock:.0f} s by the clock, "
        f"{peak:.1f} GB at most; {len(found.groups)} groups, Rand {rand(truth, found.labels):.2f}"
    )


COLUMNS = {
    "unknown classes": "samples | classes | groups | Rand | of k-means told k | of HDBSCAN | share in a group",
    "half known": "known proposed as new | new in a group | groups | Rand of new | Rand of new in a group",
    "noise": "noise samples | groups | of mostly noise | noise in a group | Rand of new",
}


def print_small(files: list[Path], noise: np.ndarray | None, orders: int) -> None:
    names = "head, classes × samples | groups | Rand | of k-means told k | of HDBSCAN"
    for path in files:
        beside_noise = noise if any(name in path.name for name in ("clinc", "banking")) else None
        more = " | groups beside noise | of mostly noise" if beside_noise is not None else ""
        print(f"\n{path.stem}\n\n| {names}{more} |\n|---|" + "---:|" * (names + more).count("|"))
        for size in SIZES:
            runs = [measure_small(path, size, order, beside_noise) for order in range(1, orders + 1)]
            means = np.mean(runs, axis=0).tolist()
            cells = [f"{value:.3f}" if at in (1, 2, 3) else f"{value:.0f}" for at, value in enumerate(means)]
            print(f"| {size[0]} × {size[1]} | " + " | ".join(cells) + " |", flush=True)


def print_mixed(orders: int) -> None:
    names = COLUMNS["half known"].rpartition(" | ")[0]
    print(f"\n| classes of the head | {names} |\n|---|---:|---:|---:|---:|")
    for n_classes in _MIXED:
        runs = [measure_mixed(n_classes, order) for order in range(1, orders + 1)]
        means = np.mean(runs, axis=0).tolist()[:-1]  # without that of new samples in a group: there may be none
        cells = [f"{value:.0f}" if at == 2 else f"{value:.3f}" for at, value in enumerate(means)]
        print(f"| {n_classes} | " + " | ".join(cells) + " |", runs, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, nargs="+", default=[])
    parser.add_argument(
        "--noise", type=Path, help="features of texts of no class, for CLINC150 (with --small also BANKING77)"
    )
    parser.add_argument("--orders", type=int, default=3)
    parser.add_argument(
        "--large", type=int, default=20_000, help="samples of the pool for time and memory; 0: none"
    )
    parser.add_argument("--small", action="store_true", help="small heads only")
    parser.add_argument("--mixed", action="store_true", help="pools of known and new classes of sketches100 only")
    options = parser.parse_args()
    unrelated = None
    if options.noise:
        kept = taer.load_features(options.noise, labeled=False)
        unrelated = np.asarray(kept.test_x)[len(kept.test_x) // 2 :]  # a constant was chosen on the others
    if options.mixed:
        print_mixed(options.orders)
        return
    if options.small:
        print_small(options.features, unrelated, options.orders)
        return
    rows: dict[str, list[str]] = {name: [] for name in COLUMNS}
    for path in options.features:
        noise = unrelated if "clinc" in path.name else None
        runs = [measure(path, order, noise) for order in range(1, options.orders + 1)]
        for name in runs[0]:
            means = np.mean([run[name] for run in runs], axis=0)
            cells = [f"{value:,.0f}" if value > 1.5 else f"{value:.3f}" for value in means]
            rows[name].append(f"| {path.stem} | " + " | ".join(cells) + " |")
            print(rows[name][-1], [run[name] for run in runs], flush=True)
    for name, lines in rows.items():
        if lines:
            print(f"\n{name}\n\n| | {COLUMNS[name]} |\n|---|" + "---:|" * (COLUMNS[name].count("|") + 1))
            print("\n".join(lines))
    if options.large:
        print("\n" + large(options.large))


if __name__ == "__main__":
    main()
