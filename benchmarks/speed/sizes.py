"""What ``bayes``, ``taer`` and ``slda`` take as classes, samples and features grow, with the exponent of each growth.

    python -m benchmarks.speed.sizes [--quick]

``make bench`` runs this, too.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.lib.measuring import table  # first: it sets the number of threads

# isort: split
import numpy as np

import taer
from taer.features.files import write_feature_file
from taer.heads.task import Learned

HEADS = ("bayes", "taer", "slda")
CLASSES = (10, 100, 1000, 10_000, 100_000)
SAMPLES = (100, 1000, 10_000, 100_000, 1_000_000, 10_000_000)
WIDTHS = (16, 64, 256, 1024, 4096)
NARROW = 32  # features where classes grow, and 16 where samples do: 100,000 classes of bayes are to fit into memory
SHARD = 1_000_000
EXPONENT = (
    "An exponent is the slope of the last three points on log axes: 0 does not grow, 1 grows in proportion. One run; the "
    "best of several for one row."
)
BEYOND = {
    "classes": "A task copies what is kept of all classes, so it grows with them. Beyond 10,000 classes take `slda` or "
    "`taer` where rows or bytes matter, or `bayes` with a small `rank`.",
    "samples": "All three grow in proportion and read shards in pieces, so the memory of the machine is no limit. "
    "`slda` is the fastest beyond a million samples.",
    "features": "`taer` grows in proportion. `slda` factorizes a matrix of features × features, `bayes` one of samples × "
    "samples where these are fewer, so beyond 4,096 features take `bayes`, `taer` or `ncm`.",
}


@dataclass(frozen=True)
class Growth:
    """One quantity of one head, measured at each size."""

    head: str
    what: str
    unit: str
    found: list[float]

    def row(self, sizes: Sequence[int]) -> str:
        cells = " | ".join(f"{value:,.3g}" for value in self.found)
        return f"`{self.head}`, {self.what} ({self.unit}) | {cells} | {exponent(sizes, self.found):.2f}"


def exponent(sizes: Sequence[int], found: Sequence[float]) -> float:
    """The slope of the last three points on log axes."""
    return float(np.polyfit(np.log(sizes[-3:]), np.log(found[-3:]), 1)[0])


def blobs(first: int, n_classes: int, per_class: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(first)
    y = np.tile(np.arange(first, first + n_classes), per_class)
    centers = rng.normal(size=(n_classes, width))
    return (centers[y - first] + rng.normal(size=(len(y), width))).astype(np.float32), y


def fresh(name: str) -> Any:
    return taer.make_head(name, random_state=0, **({"epochs": 1} if name == "taer" else {}))


def seconds(run: Callable[[], Any], at_least: float = 0.0) -> float:
    """Processor seconds of a call: the best of several, until they took so long together."""
    found = []
    while not found or (sum(found) < at_least and len(found) < 100):
        started = time.process_time()
        run()
        found.append(time.process_time() - started)
    return min(found)


def repeated(head: taer.heads.Head, times: int) -> taer.heads.Head:
    """A head whose classes are those of another several times over: as large, and learned sooner."""
    arrays: dict[str, Any] = {name: np.concatenate([getattr(head, name)] * times) for name in head._class_arrays}
    for name in ("densities_", "novelties_"):  # of bayes: values with one row per class in each array
        if (value := getattr(head, name, None)) is not None:
            parts = {each.name: np.concatenate([getattr(value, each.name)] * times) for each in fields(value)}
            arrays[name] = replace(value, **parts)
    labels = np.arange(times * len(head.classes_))
    order = [Learned(label, 1) for label in labels.tolist()]
    return head._restore({**arrays, "classes_": labels, "arrival_": labels.copy(), "learning_order_": order})


def with_classes(name: str, n_classes: int) -> Any:
    """A head of so many classes: beyond 1,000 those of ``bayes`` and ``taer`` are copies of the first ones."""
    if name == "slda" or n_classes <= 1000:
        return fresh(name).fit(*blobs(0, n_classes, 4, NARROW))
    return repeated(fresh(name).fit(*blobs(0, 1000, 4, NARROW)), n_classes // 1000)


def by_classes(sizes: Sequence[int]) -> list[Growth]:
    found = []
    for name in HEADS:
        task, row, size = [], [], []
        for n_classes in sizes:
            head = with_classes(name, n_classes)
            X, y = blobs(n_classes, 10, 20, NARROW)
            grown = copy.copy(head)
            task.append(1e3 * seconds(lambda head=grown, X=X, y=y: head.partial_fit(X, y)))
            row.append(1e3 * seconds(lambda head=grown, X=X: head.predict(X[:1]), at_least=0.3))
            with TemporaryDirectory() as folder:
                head.save(Path(folder) / "head")
                size.append((Path(folder) / "head").stat().st_size / 1e6)
        found += [
            Growth(name, what, unit, values)
            for what, unit, values in (
                ("a task of ten new classes", "ms", task),
                ("one row", "ms", row),
                ("saved", "MB", size),
            )
        ]
    return found


def by_samples(sizes: Sequence[int]) -> list[Growth]:
    """Ten classes × 16 features in float16, streamed from shards."""
    found: dict[str, list[float]] = {name: [] for name in HEADS}
    for n_samples in sizes:
        with TemporaryDirectory() as place:
            for number, start in enumerate(range(0, n_samples, SHARD)):
                X, y = blobs(0, 10, min(SHARD, n_samples - start) // 10, 16)
                parts = {"train": slice(None), "test": slice(0, 10)}
                tensors = {}
                for part, rows in parts.items():
                    few, labels = X[rows].astype(np.float16), y[rows].astype(np.int64)
                    tensors[f"{part}.x"] = few.shape, few.dtype, [few]
                    tensors[f"{part}.y"] = labels.shape, labels.dtype, [labels]
                names = [str(label) for label in range(10)]
                write_feature_file(Path(place) / f"{number:04}.safetensors", {"dataset": "blobs"}, names, tensors)
            data = taer.load_features(place)
            for name in HEADS:
                found[name].append(
                    seconds(lambda name=name, data=data: fresh(name).fit(data.train_x, data.train_y))
                )
    return [Growth(name, "a task of ten classes", "s", values) for name, values in found.items()]


def by_width(sizes: Sequence[int]) -> list[Growth]:
    """A task of 20 classes of 50 samples, after which one row is asked."""
    found = []
    for name in HEADS:
        task, row = [], []
        for width in sizes:
            X, y = blobs(0, 20, 50, width)
            head = fresh(name)
            task.append(1e3 * seconds(lambda head=head, X=X, y=y: head.fit(X, y)))
            row.append(1e3 * seconds(lambda head=head, X=X: head.predict(X[:1]), at_least=0.3))
        found += [Growth(name, "a first task of 20 classes", "ms", task), Growth(name, "one row", "ms", row)]
    return found


def measure(quick: bool) -> Iterator[str]:
    """Paragraphs of Markdown, as they are measured."""
    cases = (
        ("classes", by_classes, CLASSES, f"old classes × {NARROW} features"),
        ("samples", by_samples, SAMPLES, "samples × 16 features in float16, ten classes, streamed from shards"),
        ("features", by_width, WIDTHS, "features, 20 classes of 50 samples"),
    )
    for name, run, sizes, title in cases:
        few = sizes[: 3 if quick else None]
        rows = [growth.row(few) for growth in run(few)]
        header = " | ".join(f"{size:,}" for size in few)
        yield from (f"Growing: {title}.", table(f"{name} | {header} | exponent", rows), BEYOND[name])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the three smallest sizes of each")
    print(EXPONENT, end="\n\n")
    for paragraph in measure(parser.parse_args().quick):
        print(paragraph, end="\n\n", flush=True)
