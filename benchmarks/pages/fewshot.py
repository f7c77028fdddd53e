"""The tables and the figure of docs/evidence/fewshot.md: old and new classes, from one example per new class to all.

    python -m benchmarks.pages.fewshot --features cub200-resnet18.safetensors banking77-minilm.safetensors sketches100 \\
        --out results/fewshot > fewshot.out.md
    python tools/fill_docs.py docs/evidence/fewshot.md fewshot.out.md

    python -m benchmarks.pages.fewshot --cards --features FILE > few.out.md
    python tools/fill_docs.py --some docs/evidence/beyond.md few.out.md

A data set is known by the name in the header of its file; ``sketches100`` is the embedded one. The first task has all
samples, later ones a few per class, drawn by the seed. A head learns the first task once per seed; a copy goes on from
there for each number of samples. Everything is kept in --out: run again, and only what is missing is run. With --stored
nothing is run, and what is missing shows as a dash.

    python -m benchmarks.pages.fewshot --newer --features FILE… > newer.out.md
    python tools/fill_docs.py --some docs/evidence/fewshot.md newer.out.md

With --newer: the closed forms published since 2023 beside their siblings and ``bayes``, with all, five and one examples and
one seed; one table for each data set and backbone.

With --cards every head learns five samples per new class with one seed, for the fact ``few_shot`` on its card: a head finds
new classes if their accuracy after the last task is at least two fifths of that of the first task's classes. Cards that
differ are named on stderr.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from taer import metrics
from taer.experiment import Run, Spread
from taer.features import FeatureSet, load_features
from taer.heads import HEADS, Head, make_head
from taer.heads.few import FewSamplesWarning
from taer.report.figures import Curve, curves
from taer.stream import Stream, class_stream
from taer.threads import one_blas_thread

METHODS = (
    "bayes",
    "bayes-replay",
    "gauss-chain",
    "gauss-frozen",
    "lda-frozen",
    "slda",
    "ncm",
    "ridge",
    "rgda",
    "taer",
    "er",
    "joint",
)
OURS = ("bayes", "bayes-replay")
NEWER = (*OURS, "slda", "ncm", "klda", "hycal", "teen", "gacl", "ranpac", "loranpac", "anacp")
SHOTS = ("all", "20", "10", "5", "2", "1")
DRAWN = ("bayes", "gauss-chain", "lda-frozen", "ncm", "taer", "logistic regression")
PANELS = 6  # of the figure
SHORT = {"logistic regression": "LR", "linear SVM": "SVM", "nearest neighbors": "kNN"}  # in the summary
BLOCKS = {
    "last": "All classes",
    "base": "Old classes",
    "new": "New classes",
    "ece_new": "Calibration of new classes",
}
ENOUGH = 0.4  # of the accuracy on old classes: a head that reaches it on new ones finds them
FIRST_SAMPLES = 50  # per class of the first task, on which the strength of a classifier is chosen


@dataclass(frozen=True)
class Protocol:
    """How the classes of a data set arrive. In the natural order, a seed decides the samples alone."""

    title: str
    first: int
    tasks: int
    natural: bool = False

    def stream(self, data: FeatureSet, shots: str, seed: int) -> Stream:
        order = "natural" if self.natural else seed
        return class_stream(data, self.tasks, self.first, order, None if shots == "all" else int(shots), seed)


PROTOCOLS = {  # those of CUB-200 and CIFAR-100 have the published classes in the published order
    "cub200": Protocol("CUB-200", 100, 10, natural=True),
    "cifar100": Protocol("CIFAR-100", 60, 8, natural=True),
    "flowers102": Protocol("Flowers-102", 52, 5),
    "banking77": Protocol("BANKING77", 50, 9),
    "clinc150": Protocol("CLINC150", 100, 10),
    "sketches100": Protocol("sketches100", 60, 8),
}


def protocol_of(data: FeatureSet) -> Protocol:
    """The protocol of a known data set; for any other, half of the classes first and the others in five tasks."""
    name = data.meta.get("dataset", data.name)
    return PROTOCOLS.get(name) or Protocol(name, len(data.classes) // 2, min(5, (len(data.classes) + 1) // 2))


@dataclass(frozen=True)
class Refitted:
    """A classifier of scikit-learn that is fitted again on everything seen so far, balanced where it can be.

    Its strength is chosen by cross-validation on the first task.
    """

    model: Any
    choices: dict[str, Sequence[float]]

    def choose(self, stream: Stream) -> dict[str, Any]:
        labels = np.asarray(stream.features.train_y)
        rows = np.concatenate([np.flatnonzero(labels == label)[:FIRST_SAMPLES] for label in stream.tasks[0]])
        X = stream.features.train_x[rows].astype(np.float64)
        chosen: dict[str, Any] = (
            GridSearchCV(self.model, self.choices, cv=3, refit=False).fit(X, labels[rows]).best_params_
        )
        return chosen

    def fitted(self, stream: Stream, strength: dict[str, Any]) -> Any:
        """On all samples of the stream."""
        data, model = stream.features, clone(self.model).set_params(**strength)
        if isinstance(model, KNeighborsClassifier):
            model.set_params(n_neighbors=min(5, stream.shots or 5))  # no more than a new class has
        rows = np.concatenate([stream.train_rows(t) for t in range(len(stream))])
        return model.fit(data.train_x[rows].astype(np.float64), data.train_y[rows])


REFITTED = {
    "logistic regression": Refitted(
        make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000)),
        {"logisticregression__C": (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)},
    ),
    "linear SVM": Refitted(
        make_pipeline(StandardScaler(), LinearSVC(class_weight="balanced")),
        {"linearsvc__C": (0.00001, 0.0001, 0.001, 0.01)},
    ),
    "nearest neighbors": Refitted(KNeighborsClassifier(weights="distance", metric="cosine"), {}),
}


@dataclass(frozen=True)
class Bench:
    """Measurements by data set, head, shots and seed, kept on disk."""

    sets: list[FeatureSet]
    methods: list[str]
    shots: list[str]
    seeds: int
    out: Path
    strengths: dict[str, dict[str, Any]] = field(default_factory=dict)  # of what is refitted, by its first task

    def streams(self, data: FeatureSet, method: str, shots: str) -> list[Stream]:
        """One for each seed; a single one where a seed would change nothing."""
        protocol = protocol_of(data)
        random = not protocol.natural or shots != "all"
        random |= method in HEADS and "epochs" in HEADS[method]().get_params()
        return [protocol.stream(data, shots, seed) for seed in range(self.seeds if random else 1)]

    def run(self, data: FeatureSet, method: str) -> None:
        """Whatever is missing of a method on a data set."""
        for seed in range(self.seeds):
            of_seed = [
                streams[seed] for shots in self.shots if len(streams := self.streams(data, method, shots)) > seed
            ]
            missing = [stream for stream in of_seed if not self._path(method, stream, seed).is_file()]
            for stream, model in self._learned(method, missing, seed):
                self._path(method, stream, seed).write_text(json.dumps(measured(model, stream)))
                print(
                    f"{method}, {data.name}, {stream.shots or 'all'} shots, seed {seed}",
                    file=sys.stderr,
                    flush=True,
                )

    def _learned(self, method: str, streams: list[Stream], seed: int) -> Iterator[tuple[Stream, Any]]:
        """A model for each stream; all of them begin with the same first task."""
        if not streams:
            return
        if method in REFITTED:
            key = f"{method} {streams[0].features.fingerprint} {streams[0].tasks[0]}"
            if key not in self.strengths:
                self.strengths[key] = REFITTED[method].choose(streams[0]) if REFITTED[method].choices else {}
            yield from ((stream, REFITTED[method].fitted(stream, self.strengths[key])) for stream in streams)
            return
        first = next(iter(streams[0]))
        begun = make_head(method, random_state=seed).partial_fit(first.X_train, first.y_train)
        for stream in streams:
            head = deepcopy(begun)
            for task in islice(stream, 1, None):
                head.partial_fit(task.X_train, task.y_train)
            yield stream, head

    def _path(self, method: str, stream: Stream, seed: int) -> Path:
        code = Run(stream, method, {}, seed).file_name if method in HEADS else method
        parts = [code, stream.features.fingerprint, stream.tasks, stream.rows_digest]
        return self.out / f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]}.json"

    def values(self, data: FeatureSet, method: str, shots: str) -> dict[str, list[float]]:
        """Percentages by metric, one for each seed that is on disk."""
        paths = [self._path(method, stream, seed) for seed, stream in enumerate(self.streams(data, method, shots))]
        found = [json.loads(path.read_text()) for path in paths if path.is_file()]
        return {metric: [100 * one[metric] for one in found if one.get(metric) is not None] for metric in BLOCKS}


def measured(model: Any, stream: Stream) -> dict[str, float | None]:
    """Fractions after the last task."""
    X, y_true = stream.features.test_x[:], np.asarray(stream.features.test_y)
    first = np.isin(y_true, stream.tasks[0])
    found: dict[str, float | None] = {}
    if isinstance(model, Head):
        y_pred, probabilities = model.predict_with_proba(X)
        columns = np.searchsorted(model.classes_, y_true[~first])
        found["ece_new"] = metrics.expected_calibration_error(probabilities[~first], columns)
    else:
        y_pred = model.predict(X.astype(np.float64))
    marked = {"last": np.ones(len(y_true), bool), "base": first, "new": ~first}
    return found | {metric: metrics.accuracy_among(y_true, y_pred, members) for metric, members in marked.items()}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    right = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, right, *rows))


def section(bench: Bench, data: FeatureSet) -> str:
    """A table of heads and shots for each metric."""
    protocol = protocol_of(data)
    sizes = [len(task) for task in protocol.stream(data, "all", 0).tasks]
    later = " or ".join(map(str, dict.fromkeys(sizes[1:])))
    found = {
        (method, shots): bench.values(data, method, shots) for method in bench.methods for shots in bench.shots
    }
    parts = [f"### {protocol.title}"]
    for metric, title in BLOCKS.items():
        rows = [
            [f"`{method}`" if method in HEADS else method, *(str(Spread.of(cell)) for cell in cells)]
            for method in bench.methods
            if any(cells := [found[method, shots][metric] for shots in bench.shots])
        ]
        what = "expected calibration error" if metric == "ece_new" else "accuracy after the last task"
        about = (
            f"**{title}, {protocol.title}** ({sizes[0]} classes, then {len(sizes) - 1} tasks of {later}; {what}, %)"
        )
        parts.append(f"{about}\n\n{table(['samples per new class', *bench.shots], rows)}")
    return "\n\n".join(parts)


def summary(bench: Bench) -> str:
    """The recommended heads, and in brackets the best of the others, on each data set, all classes together."""
    rivals, rows = [method for method in bench.methods if method not in OURS], []
    for data in bench.sets:
        row = [protocol_of(data).title]
        for shots in bench.shots:
            found = {method: Spread.of(bench.values(data, method, shots)["last"]).mean for method in bench.methods}
            ours = (found[method] for method in bench.methods if method in OURS)
            cell = " / ".join("–" if mean is None else f"{mean:.1f}" for mean in ours)
            known = {method: mean for method in rivals if (mean := found[method]) is not None}
            best = max(known, key=known.__getitem__, default=None)
            row.append(cell if best is None else f"{cell} ({known[best]:.1f} {SHORT.get(best, best)})")
        rows.append(row)
    return f"### Summary\n\n{table(['samples per new class', *bench.shots], rows)}"


def figure(bench: Bench) -> str:
    """Accuracy on old (dashed) and new classes of the first data sets, against the samples of a new class."""
    panels: dict[str, list[Curve]] = {}
    shots = [shots for shots in bench.shots if shots != "all"][::-1]
    for data in bench.sets[:PANELS]:
        for method in (method for method in DRAWN if method in bench.methods):
            for metric, dashed in (("new", False), ("base", True)):
                means = [Spread.of(bench.values(data, method, k)[metric]).mean for k in shots]
                if None not in means:
                    color = method if method in HEADS else "joint"
                    name = f"{method}, {'old' if dashed else 'new'}"
                    panels.setdefault(protocol_of(data).title, []).append(
                        Curve(name, color, np.array([means], float), dashed)
                    )
    return curves("fewshot", "", "", panels, shots, ("samples per new class", "accuracy (%)")).svg if panels else ""


def newer(bench: Bench) -> str:
    """All classes and new ones after the last task, one table for each data set; the best of a column is bold."""
    parts = ["### Beside newer closed forms"]
    for data in bench.sets:
        protocol = protocol_of(data)
        sizes = [len(task) for task in protocol.stream(data, "all", 0).tasks]
        columns = [(metric, shots) for metric in ("last", "new") for shots in bench.shots]
        found = {
            (method, metric, shots): Spread.of(bench.values(data, method, shots)[metric]).mean
            for method in bench.methods
            for metric, shots in columns
        }

        def cell(method: str, metric: str, shots: str, found: dict[Any, float | None] = found) -> str:
            mean = found[method, metric, shots]
            if mean is None:
                return "–"
            others = [found[other, metric, shots] for other in bench.methods]
            best = max(round(value, 1) for value in others if value is not None)
            return f"**{mean:.1f}**" if round(mean, 1) == best else f"{mean:.1f}"

        heading = [f"{'all' if metric == 'last' else 'new'} classes: {shots}" for metric, shots in columns]
        rows = [[f"`{method}`", *(cell(method, *column) for column in columns)] for method in bench.methods]
        title = ", ".join([protocol.title, *[data.meta["backbone"]] * ("backbone" in data.meta)])
        later = " or ".join(map(str, dict.fromkeys(sizes[1:])))
        parts.append(f"**{title}** ({sizes[0]} classes, then {len(sizes) - 1} tasks of {later})\n\n"
                     f"{table(['head', *heading], rows)}")  # fmt: skip
    return "\n\n".join(parts)


def cards(bench: Bench) -> str:
    """Which heads find classes of few samples beside classes of many, on the first data set."""
    rows = []
    for name in bench.methods:
        found = bench.values(bench.sets[0], name, bench.shots[0])
        (many,), (few,) = found["base"], found["new"]
        finds = few >= ENOUGH * many
        rows.append([f"`{name}`", f"{many:.1f}", f"{few:.1f}", "yes" if finds else "no"])
        if finds != HEADS[name].card.few_shot:
            print(f"{name}: its card says few_shot={not finds}", file=sys.stderr)
    return f"### few\n\n{table(['head', 'classes of many samples', 'classes of five', 'found'], rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", nargs="+", required=True, help="feature files, or sketches100")
    parser.add_argument("--out", type=Path, default=Path("results/fewshot"))
    parser.add_argument("--methods", help="by default those of the page; with --cards every head")
    parser.add_argument("--shots", default=",".join(SHOTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--cards", action="store_true", help="five samples per new class, one seed: the facts on the cards"
    )
    parser.add_argument(
        "--newer", action="store_true", help="the newer closed forms; all, 5 and 1 examples, one seed"
    )
    parser.add_argument("--stored", action="store_true", help="only what is in --out")
    parser.add_argument(
        "--figure", type=Path, help="where the figure goes, such as docs/evidence/images/fewshot.svg"
    )
    options = parser.parse_args()
    sets = [load_features(None if name == "sketches100" else name) for name in options.features]
    options.out.mkdir(parents=True, exist_ok=True)
    shots, seeds = options.shots.split(","), options.seeds
    if options.cards or options.newer:
        shots, seeds = ["all", "5", "1"] if options.newer else ["5"], 1
    usual = list(HEADS) if options.cards else NEWER if options.newer else [*METHODS, *REFITTED]
    methods = options.methods.split(",") if options.methods else list(usual)
    if unknown := [name for name in methods if name not in HEADS and name not in REFITTED]:
        raise SystemExit(f"unknown method {unknown[0]!r}; there are {', '.join([*HEADS, *REFITTED])}")
    bench = Bench(sets, methods, shots, seeds, options.out)
    if not options.stored:
        with one_blas_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FewSamplesWarning)  # few samples are the point
            for data, method in product(sets, methods):
                bench.run(data, method)
    if options.cards or options.newer:
        parts = [newer(bench) if options.newer else cards(bench)]
    else:
        parts = [summary(bench), *(section(bench, data) for data in sets)]
    print(*parts, sep="\n\n", end="\n\n")
    if options.figure and (svg := figure(bench)):
        options.figure.write_text(svg)


if __name__ == "__main__":
    main()
