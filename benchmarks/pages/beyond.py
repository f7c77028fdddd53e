"""The tables and figures of docs/evidence/beyond.md and docs/guides/choosing.md, from feature files and stored runs.

    python -m benchmarks.pages.beyond --features DIR --out results > beyond.out.md
    python -m benchmarks.notes.tried --features DIR --out results >> beyond.out.md
    python tools/fill_docs.py docs/evidence/beyond.md beyond.out.md
    python tools/fill_docs.py docs/guides/choosing.md beyond.out.md
    python -m benchmarks.pages.beyond --parts figures

DIR holds cub200-resnet18.safetensors and cifar100-resnet18.safetensors, and photos.safetensors if there is one (see
docs/guides/features.md). Runs are kept in --out and not run again; with --stored nothing is run, and missing results show
as a dash. --parts decision runs only what docs/guides/choosing.md needs, --heads bayes measures only this head, and
``fill_docs.py --rows`` then replaces only its rows. Figures are drawn from the tables of the page.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import taer
from benchmarks.pages.fidelity import EPOCHS
from taer.experiment import Result, Run, Spread, mean_auroc, run_grid
from taer.features import FeatureSet, load_features
from taer.heads import HEADS
from taer.heads.closed_form.linalg import RelativeDistances, shrunk
from taer.heads.registry import CORE
from taer.report.figures import Curve, curves
from taer.stream import class_stream
from taer.threads import one_blas_thread

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "beyond.md"
IMAGES = PAGE.parent / "images"
TASKS = (5, 10, 20, 50)
RANKS = (0, 4, 16, 64, 512)
MEMORIES = (200, 1000, 5000, 20000)
STRENGTHS = (0.0003, 0.001, 0.003, 0.01, 0.03)  # C of the joint softmax
TITLES = {"cub200-resnet18": "CUB-200", "cifar100-resnet18": "CIFAR-100"}
# The heads of the shorter tables.
SHOWN = (
    "bayes",
    "bayes-replay",
    "gauss-chain",
    "gauss-frozen",
    "lda-frozen",
    "fecam",
    "ncm",
    "taer-gauss",
    "rgda",
    "slda",
    "ranpac",
    "ridge",
    "taer",
    "er",
    "finetune",
    "joint",
)
ALL = (*SHOWN, *(method for method in HEADS if method not in SHOWN))


@dataclass(frozen=True)
class Bench:
    """Results of runs, by what decides them."""

    sets: dict[str, FeatureSet]
    out: Path
    jobs: int
    stored: bool
    heads: tuple[str, ...] = tuple(HEADS)

    def among(self, methods: Iterable[str]) -> list[str]:
        return [method for method in methods if method in self.heads]

    def run_all(self) -> None:
        """All of the large table in one grid, so that no worker waits."""
        runs = [
            run
            for name in TITLES
            for method in self.among(ALL)
            for tasks in TASKS
            for run in _runs(self.sets[name], method, tasks)
        ]
        for done, (run, _, stored) in enumerate(run_grid(runs, self.out, jobs=self.jobs), start=1):
            if not stored:
                where = f"{run.stream.features.name}, {len(run.stream)} tasks"
                print(f"{done} of {len(runs)}: {run.method}, {where}, order {run.seed}", file=sys.stderr)

    def results(
        self, data: FeatureSet, method: str, tasks: int = 10, seeds: int = 3, **params: Any
    ) -> list[Result] | None:
        """Of all seeds; where nothing is to be run, of those on disk."""
        runs = _runs(data, method, tasks, seeds, **params)
        if self.stored:
            runs = [run for run in runs if (self.out / run.file_name).is_file()]
        return [result for _, result, _ in run_grid(runs, self.out, jobs=self.jobs)] or None

    def once(self, name: str, data: FeatureSet, measure: Any) -> dict[str, Any] | None:
        """A measurement that is no run, kept beside the results."""
        path = self.out / f"{name}-{data.fingerprint[:20]}.json"
        if not path.is_file():
            if self.stored or len(self.heads) < len(HEADS):
                return None
            self.out.mkdir(parents=True, exist_ok=True)
            with one_blas_thread():
                path.write_text(json.dumps(measure(data)))
        kept: dict[str, Any] = json.loads(path.read_text())
        return kept


def _runs(data: FeatureSet, method: str, tasks: int, seeds: int = 3, **params: Any) -> list[Run]:
    if "epochs" in HEADS[method]().get_params():
        params = {"epochs": EPOCHS.get(data.name, 10)} | params
    return [Run(class_stream(data, tasks, order=seed), method, params, seed) for seed in range(seeds)]


def joint_softmax(data: FeatureSet) -> dict[str, Any]:
    """LogisticRegression on standardized features, C by 5-fold cross-validation on the training data.

    LogisticRegressionCV starts each C where the last one ended, which makes the search affordable.
    """
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler()
    X, y = scaler.fit_transform(data.train_x.astype(np.float64)), np.asarray(data.train_y)
    search = LogisticRegressionCV(
        Cs=STRENGTHS, cv=5, scoring="accuracy", l1_ratios=(0,), max_iter=1000, use_legacy_attributes=False
    )
    predicted, test_y = search.fit(X, y).predict(scaler.transform(data.test_x.astype(np.float64))), data.test_y
    accuracy = float(np.mean([np.mean(predicted[test_y == c] == c) for c in range(len(data.classes))]))
    return {"accuracy": accuracy, "C": float(search.C_), "steps": int(search.n_iter_.max())}


def learning_seconds(data: FeatureSet) -> dict[str, float]:
    """Processor time to learn a task, the mean of ten."""
    found, tasks = {}, list(class_stream(data, 10))
    for method in SHOWN:
        head = taer.make_head(method, random_state=0)
        if "epochs" in head.get_params():
            head.set_params(epochs=EPOCHS.get(data.name, 10))
        started = time.process_time()
        for task in tasks:
            head.partial_fit(task.X_train, task.y_train)
        found[method] = (time.process_time() - started) / len(tasks)
    return found


def novelty_scores(data: FeatureSet) -> dict[str, float]:
    """Mean AUROC over nine tasks of several scores of novelty, all from one gauss-chain."""
    from scipy.special import entr

    stream = class_stream(data, 10)
    place, found = np.argsort(stream.order), {}
    head, y = taer.zoo.GaussChain(), place[np.asarray(data.test_y)]
    for task in list(stream)[:-1]:
        head.partial_fit(task.X_train, task.y_train)
        scores = head.scores(data.test_x).astype(np.float64)
        probabilities, rows = head._probabilities(scores), head.embedding_(data.test_x[:])
        relative = RelativeDistances(head.statistics_)(rows)
        entropy = entr(probabilities).sum(axis=1)
        shared = shrunk(head.statistics_.covariance(), head.shrinkage_)
        means, inverse = head.statistics_.means, np.linalg.inv(shared)
        to_class = (means @ inverse * means).sum(axis=1) - 2 * rows @ inverse @ means.T
        novel = y >= len(head.classes_)
        for name, novelty in {
            "1 - highest probability": 1 - probabilities.max(axis=1),
            "entropy": entropy,
            "- highest score": -scores.max(axis=1),
            "Mahalanobis distance": (rows @ inverse * rows).sum(axis=1) + to_class.min(axis=1),
            "relative Mahalanobis distance": relative,
            "entropy and relative distance (`novelty`)": entropy + relative / head.temperature_,
        }.items():
            area = taer.metrics.novelty_auroc(novelty[~novel], novelty[novel])
            found.setdefault(name, []).append(area)
    return {name: float(np.mean(values)) for name, values in found.items()}


def unlabeled_covariance(data: FeatureSet) -> dict[str, float]:
    """A_T of lda-frozen at 50 tasks with the covariance of the first task, or of all training samples unlabeled."""
    found: dict[str, list[float]] = {"first task": [], "unlabeled": []}
    for seed in range(3):
        stream = class_stream(data, 50, order=seed)
        for name, accuracies in found.items():
            head = taer.LDAFrozen(random_state=seed)
            if name == "unlabeled":
                head.fit_covariance(data.train_x)
            for task in stream:
                head.partial_fit(task.X_train, task.y_train)
            accuracies.append(float(np.mean([head.score(task.X_test, task.y_test) for task in stream])))
    return {name: float(np.mean(accuracies)) for name, accuracies in found.items()}


def table(header: list[str], rows: list[list[str]]) -> str:
    right = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, right, *rows))


def shown(values: list[float], digits: int = 2) -> str:
    return format(Spread.of(values), f".{digits}f")


def percent(results: list[Result] | None, key: str) -> str:
    return "–" if results is None else shown([100 * result[key] for result in results])


def kept_bytes(results: list[Result]) -> float:
    """All that a head keeps, columns and memory, after the last task."""
    return float(np.mean([result["memory_bytes"] + result["head_bytes"][-1] for result in results]))


def size(number: float) -> str:
    return f"{number / 1e6:.1f} MB" if number >= 1e5 else f"{number / 1e3:.0f} kB"


def accuracy(bench: Bench) -> str:
    parts = []
    for name, title in TITLES.items():
        joint = bench.once("joint-softmax", bench.sets[name], joint_softmax)
        rows = []
        for method in bench.among(ALL):
            found = [bench.results(bench.sets[name], method, n) for n in TASKS]
            if any(found):
                rows.append([f"`{method}`", *(percent(one, key) for one in found for key in ("A_T", "AIA"))])
        header = ["head", *(f"{key}, N = {n}" for n in TASKS for key in ("A_T", "AIA"))]
        softmax = "not measured" if joint is None else f"{100 * joint['accuracy']:.2f} (C = {joint['C']:g})"
        parts.append(f"**{title}** (converged joint softmax: {softmax})\n\n{table(header, rows)}")
    return "\n\n".join(parts)


def calibration(bench: Bench) -> str:
    rows = []
    for method in bench.among(SHOWN):
        found = [bench.results(data, method) for data in (bench.sets[name] for name in TITLES)]
        errors = ["–" if one is None else shown([result["ece"][-1] for result in one], 3) for one in found]
        areas = ["–" if one is None else shown([mean_auroc(result) or 0 for result in one], 3) for one in found]
        rows.append([f"`{method}`", *errors, *areas])
    return table(["head", *(f"{what}, {title}" for what in ("ECE", "AUROC") for title in TITLES.values())], rows)


def auroc(bench: Bench) -> str:
    parts = []
    for name, title in TITLES.items():
        rows = []
        for method in bench.among(SHOWN):
            if found := bench.results(bench.sets[name], method):
                areas = np.mean([result["novelty_auroc"] for result in found], axis=0)
                rows.append([f"`{method}`", *(f"{area:.3f}" for area in areas)])
        parts.append(f"**{title}**\n\n{table(['after task', *map(str, range(1, 10))], rows)}")
    return "\n\n".join(parts)


def ranks(bench: Bench) -> str:
    rows = []
    for rank in RANKS:
        row = [str(rank)]
        for name in TITLES:
            for method in ("gauss-chain", "gauss-frozen"):
                found = bench.results(bench.sets[name], method, seeds=1, **({} if rank == 64 else {"rank": rank}))
                row += ["–", "–"] if found is None else [percent(found, "A_T"), size(kept_bytes(found))]
        rows.append(row)
    heads = [
        f"{title}, `{method}`{of}"
        for title in TITLES.values()
        for method in ("gauss-chain", "gauss-frozen")
        for of in ("", ", bytes")
    ]
    return table(["rank", *heads], rows)


def exemplars(bench: Bench) -> str:
    rows = []
    for method in bench.among(("taer", "er")):
        for memory in MEMORIES:
            row = [f"`{method}`, {memory:,} samples"]
            for name in TITLES:
                extra = {} if memory == 200 else {"memory_size": memory}
                found = bench.results(bench.sets[name], method, **extra)
                row += ["–", "–"] if found is None else [percent(found, "A_T"), size(kept_bytes(found))]
            rows.append(row)
    for method in bench.among(("ncm", "lda-frozen", "bayes", "gauss-chain")):
        row = [f"`{method}`"]
        for name in TITLES:
            found = bench.results(bench.sets[name], method)
            row += ["–", "–"] if found is None else [percent(found, "A_T"), size(kept_bytes(found))]
        rows.append(row)
    return table(["head", *(f"{title}{of}" for title in TITLES.values() for of in ("", ", bytes"))], rows)


def others(bench: Bench) -> str:
    """Data sets that no part of a head was settled on."""
    streams = [(name, data, n) for name, data in bench.sets.items() if name not in TITLES for n in (5, 10)]
    rows = []
    for method in bench.among(
        ("bayes", "gauss-chain", "gauss-frozen", "lda-frozen", "slda", "ncm", "taer", "joint")
    ):
        rows.append([f"`{method}`", *(percent(bench.results(data, method, n), "A_T") for _, data, n in streams)])
    joint = [bench.once("joint-softmax", data, joint_softmax) for _, data, _ in streams]
    if any(joint):
        rows.append(
            ["converged joint softmax", *("–" if one is None else f"{100 * one['accuracy']:.2f}" for one in joint)]
        )
    return table(["head", *(f"{name}, N = {n}" for name, _, n in streams)], rows)


def tried(bench: Bench) -> str:
    parts = []
    for title, measure in (
        ("score of novelty", novelty_scores),
        ("covariance of `lda-frozen`", unlabeled_covariance),
    ):
        found = [bench.once(measure.__name__, bench.sets[name], measure) for name in TITLES]
        if all(found):
            scale, digits = (100, 2) if measure is unlabeled_covariance else (1, 3)
            rows = [[key, *(f"{scale * one[key]:.{digits}f}" for one in found if one)] for key in found[0] or {}]
            parts.append(table([title, *TITLES.values()], rows))
    return "\n\n".join(parts)


def decision(bench: Bench) -> str:
    """The heads that a user chooses from."""
    return sizes(bench, [method for method in SHOWN if method in CORE])


def sizes(bench: Bench, methods: Iterable[str] = SHOWN) -> str:
    rows = []
    seconds = bench.once("learning-seconds", bench.sets["cifar100-resnet18"], learning_seconds) or {}
    for method in bench.among(methods):
        found = [bench.results(bench.sets[name], method) for name in TITLES]
        stored = ["–" if one is None else size(kept_bytes(one)) for one in found]
        spent = f"{seconds[method]:.2f}" if method in seconds else "–"
        rows.append([f"`{method}`", *(percent(one, "A_T") for one in found), *stored, spent])
    header = ["head", *TITLES.values(), *(f"bytes, {title}" for title in TITLES.values()), "seconds per task"]
    return table(header, rows)


def figures() -> Iterator[tuple[str, str]]:
    """Accuracy against the number of tasks and against bytes, as SVG, drawn from the tables of the page."""
    panels: dict[str, list[Curve]] = {}
    for title, joint, rows in _tables("accuracy"):
        for row in rows:
            if row["head"] in SHOWN and row["head"] not in ("er", "finetune"):
                points = [row[f"A_T, N = {n}"] for n in TASKS]
                if "–" not in points:
                    panels.setdefault(title, []).append(Curve(row["head"], row["head"], _band(points)))
        panels[title].append(_joint_line(joint, tuple(range(len(TASKS)))))
    picture = curves("beyond-tasks", "", "", panels, [str(n) for n in TASKS], ("number of tasks", "A_T (%)"))
    yield "beyond-tasks.svg", picture.svg
    (sizes,), (ranks,), (exemplars,) = (
        [rows for *_, rows in _tables(name)] for name in ("sizes", "ranks", "exemplars")
    )
    joints = {title: joint for title, joint, _ in _tables("accuracy")}
    panels = {}
    for title in TITLES.values():
        for row in sizes:
            head = row["head"]
            found = [(row[title], row[f"bytes, {title}"])]
            if head in ("gauss-chain", "gauss-frozen"):
                found = [(one[f"{title}, `{head}`"], one[f"{title}, `{head}`, bytes"]) for one in ranks]
            if head in ("taer", "er"):
                budgets = [one for one in exemplars if one["head"].startswith(f"{head},")]
                found = [(one[title], one[f"{title}, bytes"]) for one in budgets]
            if head != "finetune" and "–" not in found[0]:
                points = _band([accuracy for accuracy, _ in found])
                at = tuple(float(size.removesuffix(" MB")) for _, size in found)
                panels.setdefault(title, []).append(Curve(head, head, points, x=at))
        widths = [at for curve in panels[title] for at in curve.x]
        panels[title].append(_joint_line(joints[title], (min(widths), max(widths))))
    picture = curves("beyond-bytes", "", "", panels, (), ("MB kept", "A_T (%), 10 tasks"), logarithmic=True)
    yield "beyond-bytes.svg", picture.svg


def _tables(section: str) -> Iterator[tuple[str, float, list[dict[str, str]]]]:
    """The tables of a marked place of the page: data set, accuracy of the joint softmax, and rows."""
    place = re.search(rf"<!-- measured: {section} -->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL)
    for title, lines in re.findall(r"(?:\*\*(.+)\n\n)?((?:\|.*\n)+)", place[1] if place else ""):
        header, _, *rows = (
            [cell.strip() for cell in line.strip("| \n").split(" | ")] for line in lines.splitlines()
        )
        joint = re.search(r"joint softmax: ([\d.]+)", title)
        cells = [dict(zip(header, row, strict=True)) for row in rows]
        for row in cells:
            row["head"] = row.get("head", "").replace("`", "")
        yield title.partition("**")[0], float(joint[1]) if joint else 0.0, cells


def _band(cells: list[str]) -> np.ndarray:
    """Mean and standard deviation as two curves; the figure shows their mean, and what is between them."""
    found = [cell.split(" ± ") for cell in cells]
    mean = np.array([float(one[0]) for one in found])
    spread = np.array([float(one[1]) if len(one) > 1 else 0.0 for one in found])
    return np.stack([mean - spread, mean + spread])


def _joint_line(accuracy: float, x: tuple[float, ...]) -> Curve:
    return Curve("joint softmax", "joint", np.full((1, len(x)), accuracy), True, x)


TABLES = {
    "accuracy": accuracy,
    "calibration": calibration,
    "auroc": auroc,
    "ranks": ranks,
    "exemplars": exemplars,
    "others": others,
    "tried": tried,
    "decision": decision,
    "sizes": sizes,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--parts", default=",".join(TABLES), help="or figures, from the page")
    parser.add_argument("--heads", default=",".join(HEADS), help="only these heads, separated by commas")
    parser.add_argument("--stored", action="store_true", help="only what is in --out")
    options = parser.parse_args()
    if options.parts == "figures":
        for file, svg in figures():
            (IMAGES / file).write_text(svg)
        return
    if options.features is None:
        parser.error("--features is needed, except for --parts figures")
    sets = {name: load_features(options.features / f"{name}.safetensors") for name in TITLES}
    sets["sketches100"] = load_features()
    if (photos := options.features / "photos.safetensors").is_file():
        sets["photos"] = load_features(photos)
    bench = Bench(sets, options.out, options.jobs, options.stored, tuple(options.heads.split(",")))
    parts = options.parts.split(",")
    if "accuracy" in parts and not options.stored:
        bench.run_all()
    for name in parts:
        print(f"### {name}\n\n{TABLES[name](bench)}\n", flush=True)


if __name__ == "__main__":
    main()
