"""Every table of docs/evidence/fidelity.md, from feature files and the results of the runs.

    python -m benchmarks.pages.fidelity --features DIR --out results --jobs 2

DIR holds cub200-resnet18.safetensors and cifar100-resnet18.safetensors. Runs are kept in --out and not run again.
--tables names some of the tables, separated by commas.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from taer.experiment import Run, Spread, run_grid, summarize
from taer.features import FeatureSet, load_features
from taer.heads import HEADS
from taer.stream import class_stream

EPOCHS = {"cub200-resnet18": 10, "cifar100-resnet18": 1}
RAW = {"standardize": "none", "init": "zero"}
# Table 1 of the paper, ResNet18 columns: CUB-200, CIFAR-100.
PUBLISHED = {
    "finetune": (10.78, 11.50),
    "oewc": (6.31, 7.85),
    "er": (31.73, 25.29),
    "icarl": (28.94, 31.49),
    "gss": (23.08, 18.92),
    "derpp": (30.25, 22.35),
    "ucir": (24.54, 29.20),
    "ssil": (33.36, 36.31),
    "taer": (55.42, 55.50),
    "joint": (65.86, 66.47),
}
# One setting per method, for both data sets, and where it comes from; the rest is each head's default.
CHOSEN: dict[str, tuple[dict[str, Any], str]] = {
    "finetune": ({}, "paper: lr 0.1"),
    "oewc": ({"lr": 0.03, "e_lambda": 10.0}, "public code, tuned for CIFAR-10"),
    "er": ({}, "paper: lr 0.1"),
    "icarl": ({"memory": "greedy"}, "paper: greedy balancing for all but GSS and UCIR"),
    "gss": ({"lr": 0.03}, "public code, tuned for CIFAR-10, 200 samples"),
    "derpp": ({"lr": 0.03, "alpha": 0.1, "beta": 0.5}, "public code, tuned for CIFAR-100"),
    "ucir": ({"lr": 0.1, "momentum": 0.0}, "grid below; the paper trains its own heads without momentum"),
    "ssil": (
        {"lr": 0.03, "lr_decay_per_task": True, "replay_batch_size": 8},
        "grid below; decay and 4 : 1 are public",
    ),
    "taer": ({}, "paper: lr 0.1"),
    "joint": ({}, "paper: lr 0.1"),
}
GRIDS: dict[str, list[dict[str, Any]]] = {
    "oewc": [{"lr": lr, "e_lambda": e} for lr in (0.1, 0.03) for e in (1.0, 10.0, 100.0)],
    "icarl": [{"memory": "herding"}, {"memory": "greedy"}],
    "gss": [{"lr": 0.1}, {"lr": 0.03}],
    "derpp": [{"lr": lr, "alpha": a, "beta": 0.5} for lr, a in ((0.1, 0.1), (0.03, 0.1), (0.03, 0.3))],
    "ucir": [{"lr": lr, "momentum": m} for lr in (0.1, 0.03) for m in (0.0, 0.9)],
    "ssil": [
        {"lr": lr, "lr_decay_per_task": decay, "replay_batch_size": r}
        for lr in (0.1, 0.03)
        for decay in (True, False)
        for r in (8, 32)
    ],
}
RELATED = ("er-fixed", "er-balanced", "lwf", "eeil", "bic", "gdumb")
LAST_BATCHES = ("keep", "drop", "weigh")


class Bench:
    def __init__(self, folder: Path, out: Path, jobs: int) -> None:
        self.sets = {name: load_features(folder / f"{name}.safetensors") for name in EPOCHS}
        self.out, self.jobs = out, jobs

    def measure(
        self,
        data: FeatureSet,
        method: str,
        params: dict[str, Any],
        tasks: int = 10,
        first: int | None = None,
        metric: str = "A_T",
        seeds: int = 3,
    ) -> Spread:
        known = HEADS[method]().get_params()
        given = {key: value for key, value in params.items() if key in known}
        runs = [Run(class_stream(data, tasks, first, seed), method, given, seed) for seed in range(seeds)]
        results = [result for _, result, _ in run_grid(runs, self.out, jobs=self.jobs)]
        return Spread(**summarize(results)[0][metric])

    def row(self, method: str, params: dict[str, Any]) -> list[Spread]:
        """Mean and standard deviation on both data sets, 10 tasks."""
        return [
            self.measure(self.sets[name], method, {"epochs": epochs, **params}) for name, epochs in EPOCHS.items()
        ]


def show(values: list[Spread]) -> list[str]:
    return [str(value) for value in values]


def mark(measured: float, published: float) -> str:
    gap = abs(measured - published)
    return "reproduced" if gap <= 4 else "near" if gap <= 8 else "not"


def table(header: list[str], rows: list[list[str]]) -> None:
    for line in (header, ["---"] * len(header), *rows):
        print(f"| {' | '.join(line)} |")
    print(flush=True)


def setting(params: dict[str, Any]) -> str:
    return ", ".join(f"`{key}={value}`" for key, value in params.items()) or "its defaults"


def table_of_methods(bench: Bench) -> None:
    print("### Table 1, ResNet18, raw features, zero init\n")
    rows = []
    for method, (params, source) in CHOSEN.items():
        values, published = bench.row(method, {**RAW, **params}), PUBLISHED[method]
        cells = []
        for value, number in zip(values, published, strict=True):
            cells += [str(value), f"{number:.2f}", mark(value.mean, number)]
        rows.append([method, *cells, setting(params), source])
    table(["method", "CUB-200", "published", "", "CIFAR-100", "published", "", "parameters", "source"], rows)


def table_of_grids(bench: Bench) -> None:
    print("### What was tried where the paper is silent (raw features, zero init)\n")
    rows = []
    for method, grid in GRIDS.items():
        for params in grid:
            chosen = " **chosen**" if all(CHOSEN[method][0].get(k, v) == v for k, v in params.items()) else ""
            rows.append([method, setting(params) + chosen, *show(bench.row(method, {**RAW, **params}))])
        rows.append([method, "published", *(f"{number:.2f}" for number in PUBLISHED[method])])
    table(["method", "parameters", "CUB-200", "CIFAR-100"], rows)


def table_standardized(bench: Bench) -> None:
    print("### The same methods and settings on standardized features (`standardize=scale`)\n")
    rows = []
    for method, (params, _) in CHOSEN.items():
        rows.append([method, setting(params), *show(bench.row(method, {**RAW, **params, "standardize": "scale"}))])
    for params in ({"lr": 0.1, "lr_decay_per_task": False}, {"lr": 0.03, "lr_decay_per_task": False}):
        rows.append(["ssil", setting(params), *show(bench.row("ssil", {**RAW, **params, "standardize": "scale"}))])
    rows.append(["ucir", "`momentum=0.9`", *show(bench.row("ucir", {"standardize": "scale"}))])
    rows.append(["icarl", "`memory=herding`", *show(bench.row("icarl", {**RAW, "standardize": "scale"}))])
    rows.append(["derpp", "`lr=0.1`", *show(bench.row("derpp", {**RAW, "lr": 0.1, "standardize": "scale"}))])
    for method in ("er", "taer", "joint"):
        rows.append([method, "`init=normalized-mean`", *show(bench.row(method, {"standardize": "scale"}))])
    table(["method", "parameters", "CUB-200", "CIFAR-100"], rows)


def table_of_related(bench: Bench) -> None:
    print("### The ablation's other rows and the methods of the related work\n")
    rows = []
    for method in RELATED:
        free = {"epochs": 50} if method == "gdumb" else {}
        raw, scaled = bench.row(method, {**RAW, **free}), bench.row(method, {**RAW, **free, "standardize": "scale"})
        rows.append([method, *show(raw), *show(scaled)])
    table(["method", "CUB-200, raw", "CIFAR-100, raw", "CUB-200, scaled", "CIFAR-100, scaled"], rows)


def table_of_inputs(bench: Bench) -> None:
    print("### Which treatment of the features comes nearest to the paper\n")
    methods = ("finetune", "er", "taer", "joint")
    rows = []
    for standardize in ("none", "center", "scale"):
        for init in ("zero", "uniform", "normalized-mean"):
            cells, gaps = [], []
            for method in methods:
                values = bench.row(method, {"standardize": standardize, "init": init})
                cells += [f"{value.mean:.1f}" for value in values]
                gaps += [abs(value.mean - number) for value, number in zip(values, PUBLISHED[method], strict=True)]
            rows.append([standardize, init, *cells, f"{sum(gaps) / len(gaps):.1f}"])
    rows.append(["published", "", *(f"{value:.1f}" for method in methods for value in PUBLISHED[method]), ""])
    heads = [f"{method} {data}" for method in methods for data in ("CUB", "CIFAR")]
    table(["standardize", "init", *heads, "mean gap"], rows)

    cifar = bench.sets["cifar100-resnet18"]
    print("TaER on CIFAR-100 against the number of tasks (A_T):\n")
    rows = []
    for standardize in ("none", "center", "scale"):
        for init in ("zero", "normalized-mean"):
            how = {"standardize": standardize, "init": init, "epochs": 1}
            rows.append([standardize, init, *show([bench.measure(cifar, "taer", how, n) for n in (5, 10, 20, 50)])])
    table(["standardize", "init", "N = 5", "N = 10", "N = 20", "N = 50"], rows)


def table_of_scales(bench: Bench) -> None:
    print("### TaER on CUB-200 features of another length (init normalized-mean)\n")
    data, rows = bench.sets["cub200-resnet18"], []
    lengths: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "as they are": lambda X: X,
        "unit length": lambda X: X / np.linalg.norm(X, axis=1, keepdims=True),
        "30 times as long": lambda X: 30 * X,
    }
    for name, change in lengths.items():
        train, test = (change(X.astype(np.float32)) for X in (data.train_x, data.test_x))
        changed = FeatureSet(train, data.train_y, test, data.test_y, data.classes)
        how = [{"standardize": standardize, "epochs": 10} for standardize in ("none", "center", "scale")]
        rows.append([name, *show([bench.measure(changed, "taer", params) for params in how])])
    table(["features", "none", "center", "scale"], rows)


def table_of_last_batches(bench: Bench) -> None:
    print("### The last batch of an epoch\n")
    rows = []
    treatments: dict[str, dict[str, Any]] = {"raw, zero init": RAW, "standardized": {}}
    for method in ("finetune", "er", "lwf", "ssil", "taer", "joint"):
        for treatment, how in treatments.items():
            params = {**how, **CHOSEN.get(method, ({}, ""))[0]}
            found = [show(bench.row(method, {**params, "last_batch": last})) for last in LAST_BATCHES]
            rows.append([method, treatment, *(one[0] for one in found), *(one[1] for one in found)])
    heads = [f"{data}, {last}" for data in ("CUB-200", "CIFAR-100") for last in LAST_BATCHES]
    table(["method", "features", *heads], rows)
    print("CIFAR-100 in 20 tasks, raw, zero init:\n")
    cifar, rows = bench.sets["cifar100-resnet18"], []
    for method in ("er", "taer"):
        how = {**RAW, "epochs": 1}
        rows.append(
            [
                method,
                *show([bench.measure(cifar, method, {**how, "last_batch": last}, 20) for last in LAST_BATCHES]),
            ]
        )
    table(["method", *LAST_BATCHES], rows)


def table_of_logits(bench: Bench) -> None:
    print("### The logits of classes unknown when a sample was stored (DER++)\n")
    rows = []
    for treatment, how in {"raw, zero init": RAW, "standardized": {}}.items():
        for lr in (0.03, 0.1):
            for unseen in ("zero", "ignore"):
                values = bench.row("derpp", {**how, "lr": lr, "unseen_logits": unseen})
                rows.append([treatment, f"{lr:g}", unseen, *show(values)])
    rows.append(["published", "", "", *(f"{number:.2f}" for number in PUBLISHED["derpp"])])
    table(["features", "lr", "`unseen_logits`", "CUB-200", "CIFAR-100"], rows)


def table_of_adapters(bench: Bench) -> None:
    print("### Systems on an adapter\n")
    rows = []
    for method in (name for name, head in HEADS.items() if head.card.group == "adapter"):
        cells = [
            bench.measure(bench.sets[name], method, {"epochs": epochs}, metric=metric)
            for name, epochs in EPOCHS.items()
            for metric in ("A_T", "task_given")
        ]
        rows.append([method, *show(cells)])
    table(["method", "CUB-200", "task given", "CIFAR-100", "task given"], rows)


TABLES: dict[str, Callable[[Bench], None]] = {
    "methods": table_of_methods,
    "grids": table_of_grids,
    "inputs": table_of_inputs,
    "scales": table_of_scales,
    "standardized": table_standardized,
    "related": table_of_related,
    "last-batches": table_of_last_batches,
    "logits": table_of_logits,
    "adapters": table_of_adapters,
}


def run_tables(about: str | None, tables: dict[str, Callable[[Bench], None]]) -> None:
    """The command line of a script that prints tables."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tables", default=",".join(tables))
    options = parser.parse_args()
    bench = Bench(options.features, options.out, options.jobs)
    for name in options.tables.split(","):
        tables[name](bench)


if __name__ == "__main__":
    run_tables(__doc__, TABLES)
