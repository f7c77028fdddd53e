"""How often the promise of ``automate`` is broken, how late the alarm is, and what ``explain`` costs: tables in Markdown.

    python -m benchmarks.notes.automate --set NAME=FILE [--set …] [--out-of-scope FILE] [--splits 200] [--errors 0.02]

A head learns the training samples. Held-out samples are drawn from the test samples in three ways:

- drawn: with replacement from half of the test samples' number, so that the error rate of the answers of the whole test
  part is exactly the one the promise is about;
- halves: one random half for the threshold, the other half for counting errors, whose number is subject to chance, too;
- training: a random third of the training samples is not learned; the promise is then tried on the test part, whose
  samples may differ.

With --out-of-scope, its samples come among those of the sets whose name starts with clinc150.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator

import numpy as np

import taer
from taer.heads.few import FewSamplesWarning
from taer.loop.alarm import Alarm
from taer.loop.automate import answered, controlled
from taer.threads import one_blas_thread

CONFIDENCE = 0.95
Judged = tuple[np.ndarray, np.ndarray]  # the confidence of each answer, and whether it is right


def judged(head: taer.Bayes, X: np.ndarray, y: np.ndarray) -> Judged:
    labels, trust = answered(head, X)
    return trust, labels == y


def joined(*parts: Judged) -> Judged:
    trust, right = (np.concatenate(each) for each in zip(*parts, strict=True))
    return trust, right


def risk(pool: Judged, threshold: float) -> tuple[float, float]:
    """The share of answers above the threshold, and the share of these that is wrong."""
    alone = pool[0] > threshold
    return float(alone.mean()), float((~pool[1])[alone].mean()) if alone.any() else 0.0


def drawn(pool: Judged, rng: np.random.Generator) -> tuple[Judged, Judged]:
    n = len(pool[0])
    rows = rng.integers(n, size=n // 2)
    return (pool[0][rows], pool[1][rows]), pool


def halves(pool: Judged, rng: np.random.Generator) -> tuple[Judged, Judged]:
    rows = rng.permutation(len(pool[0]))
    one, other = np.array_split(rows, 2)
    return (pool[0][one], pool[1][one]), (pool[0][other], pool[1][other])


def row(name: str, pairs: Iterator[tuple[Judged, Judged]], errors: float) -> str:
    """Broken promises, by how much, and coverages."""
    found, sizes = [], []
    for calibration, asked in pairs:
        sizes.append(len(calibration[0]))
        promise = controlled(*calibration, errors, CONFIDENCE)
        found.append((promise.coverage, *risk(asked, promise.threshold)))
    coverage, share, wrong = np.array(found).T
    broken = wrong > errors
    worst = f"{100 * wrong.max():.2f}"
    return (
        f"| {name} | {int(np.mean(sizes)):,} | {100 * coverage.mean():.1f} | {100 * share.mean():.1f} | "
        f"{100 * wrong.mean():.2f} | {100 * broken.mean():.1f} | {worst} |"
    )


def learned(method: str, X: np.ndarray, y: np.ndarray) -> taer.Bayes:
    head = taer.make_head(method).fit(X, y)
    head.novelty_threshold()
    return head


def arrays(file: str) -> tuple[np.ndarray, ...]:
    data = taer.load_features(file)
    X, test = (np.asarray(part[:], np.float32) for part in (data.train_x, data.test_x))
    return X, np.asarray(data.train_y[:]), test, np.asarray(data.test_y[:])


def of_set(name: str, file: str, far: np.ndarray | None, options: argparse.Namespace) -> None:
    X, y, test, truth = arrays(file)
    rng = np.random.default_rng(0)
    held = rng.permutation(len(y)) < len(y) // 3
    head = learned(options.method, X[~held], y[~held])
    calibration, pool = judged(head, X[held], y[held]), judged(head, test, truth)
    head = learned(options.method, X, y)
    full = judged(head, test, truth)
    pools = {name: full}
    if far is not None and name.startswith("clinc150"):
        strange = (answered(head, far)[1], np.zeros(len(far), bool))
        pools[f"{name} with {len(far):,} out of scope"] = joined(full, strange)
    for title, each in pools.items():
        for how in (drawn, halves):
            pairs = (how(each, rng) for _ in range(options.splits))
            print(row(f"{title}, {how.__name__}", pairs, options.errors), flush=True)
    pairs = (
        ((trust[rows], right[rows]), pool)
        for rows in _samples(len(calibration[0]), options.splits, rng)
        for trust, right in [calibration]
    )
    print(row(f"{name}, training", pairs, options.errors), flush=True)


def _samples(n: int, times: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    for _ in range(times):
        yield rng.integers(n, size=n)


def alarms(runs: int) -> None:
    """False alarms in 2,000 hours, and answers between a change and the alarm."""
    print("\n| share of unknown answers | after | alarms of", runs, "| answers until the alarm: median | 90 % |")
    print("|---|---:|---:|---:|---:|")
    rng = np.random.default_rng(0)
    for share, hours in ((0.05, 0), (0.07, 0), (0.1, 0), (0.1, 1000), (0.2, 0), (0.2, 1000)):
        late = []
        for _ in range(runs):
            alarm = Alarm(0.05, false_alarms=0.01)
            for unknown in [*rng.binomial(50, 0.05, hours), *rng.binomial(50, share, 1000)]:
                if alarm.update(50, int(unknown)):
                    late.append(alarm.raised_after - 50 * hours)
                    break
        after = f"{hours:,} quiet hours" if hours else "at once"
        when = [f"{np.quantile(late, q):,.0f}" for q in (0.5, 0.9)] if share > 0.05 else ["", ""]
        print(f"| {share:.0%} | {after} | {len(late)} | {when[0]} | {when[1]} |", flush=True)


def cost(n_classes: int = 1000, width: int = 384, rows: int = 200) -> None:
    """The time of a row with and without its explanation."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(n_classes), 20)
    X = (rng.normal(size=(n_classes, width))[y] + rng.normal(size=(len(y), width))).astype(np.float32)
    head = learned("bayes", X, y)
    asked = X[rng.integers(len(y), size=rows)]
    times: dict[str, list[float]] = {"predict_proba": [], "explain": [], "with 20,000 examples": []}
    head.explain(asked[:1], (X, y))
    for one in asked[:, None]:
        for name, call in (
            ("predict_proba", lambda one=one: head.predict_proba(one)),
            ("explain", lambda one=one: head.explain(one)),
            ("with 20,000 examples", lambda one=one: head.explain(one, (X, y))),
        ):
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    print(
        f"\n| one row among {n_classes:,} classes, {width} features | milliseconds, median | 90 % |\n|---|---:|---:|"
    )
    for name, each in times.items():
        print(f"| {name} | {1000 * np.median(each):.2f} | {1000 * np.quantile(each, 0.9):.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--out-of-scope", help="feature file without labels")
    parser.add_argument("--method", default="bayes")
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--errors", type=float, default=0.02)
    parser.add_argument("--alarms", type=int, default=200, help="runs; 0 leaves alarm and cost out")
    options = parser.parse_args()
    far = None
    if options.out_of_scope:
        file = taer.load_features(options.out_of_scope, labeled=False)
        far = np.concatenate([np.asarray(part[:], np.float32) for part in (file.train_x, file.test_x) if len(part)])
    print(
        f"| `{options.method}`, at most {100 * options.errors:g} % wrong | held-out samples | automated, % | of the asked |"
        f" wrong | broken | worst |\n|---|---:|---:|---:|---:|---:|---:|"
    )
    for each in options.set:
        of_set(*each.split("=", 1), far, options)
    if options.alarms:
        alarms(options.alarms)
        cost()


if __name__ == "__main__":
    warnings.simplefilter("ignore", FewSamplesWarning)
    with one_blas_thread():
        main()
