"""Other readings of the paper and of the methods it compares with, for the pages on reproduction and fidelity.

    python -m benchmarks.pages.reproduction --features DIR --out results --jobs 2 > readings.out.md
    python tools/fill_docs.py --some docs/evidence/fidelity.md readings.out.md
    python tools/fill_docs.py --some docs/evidence/reproduction.md readings.out.md

DIR holds cub200-resnet18.safetensors and cifar100-resnet18.safetensors. Runs are kept in --out and not run again.
--tables names some of the tables, separated by commas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import taer
from benchmarks.pages.fidelity import EPOCHS, RAW, Bench, run_tables, setting, show, table
from taer.experiment import Run, Spread, run_grid
from taer.heads.base import Task
from taer.heads.descent.loop import Batch, Plan, Samples
from taer.heads.descent.losses import TEMPERATURE, cross_entropy, old_task_blocks
from taer.memory import Herding
from taer.stream import class_stream

# A_T of official codes on these two feature files, seed 0, raw features, zero init; run on 2026-11-16 and quoted here.
OFFICIAL: list[tuple[str, str, dict[str, Any], float | None, float]] = [
    ("mammoth, ER", "er", {**RAW, "last_batch": "keep"}, 32.8, 23.3),
    ("mammoth, online EWC", "oewc", {**RAW, "last_batch": "keep"}, 8.8, 9.3),
    ("mammoth, GSS", "gss", {**RAW, "last_batch": "keep"}, 21.3, 24.1),
    ("iCaRL, herding", "icarl", {**RAW, "last_batch": "keep"}, None, 39.9),
    ("LUCIR's own training", "ucir", {"standardize": "none", "momentum": 0.0, "last_batch": "keep"}, 23.8, 32.0),
    ("SS-IL's own trainer", "ssil", {**RAW, "lr": 0.03, "last_batch": "keep"}, 33.9, 36.3),
    ("Deep SLDA", "slda", {"shrinkage": 1e-4}, 65.2, 62.6),
    ("FeCAM", "fecam", {}, 62.1, 66.0),
    ("RanPAC, 2,000 features", "ranpac", {"width": 2000}, 63.96, 63.25),
]


class BiCByTask(taer.zoo.BiC):
    """BiC with the weight of the distillation that mammoth has: one over the number of the task."""

    def _old_share(self, task: Task) -> float:
        return 1 / task.number if len(task.old) else 0.0


class LwFOverAll(taer.zoo.LwF):
    """LwF with the cross-entropy over all classes seen so far, as in mammoth, instead of those of the task."""

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        old_tasks, teacher = old_task_blocks(task, self.learning_order_), columns.copy()

        def gradient(scores: np.ndarray, batch: Batch) -> np.ndarray:
            kept = old_tasks.distillation(scores, batch.rows @ teacher.T) if len(task.old) else 0
            found = cross_entropy(scores, batch)
            found[:, old_tasks.columns] += self.lambda_old / TEMPERATURE * batch.weight[:, None] * kept
            return found

        return Plan(Samples(task.X, {"target": task.y}), gradient)


def table_of_official_codes(bench: Bench) -> None:
    print("### Beside the official codes\n")
    rows = []
    for code, method, params, *theirs in OFFICIAL:
        ours = [
            bench.measure(bench.sets[name], method, {"epochs": epochs, **params}, seeds=1)
            for name, epochs in EPOCHS.items()
        ]
        cells = [cell for pair in zip(theirs, ours, strict=True) for cell in pair]
        shown = ["–" if cell is None else f"{getattr(cell, 'mean', cell):.1f}" for cell in cells]
        rows.append([code, *shown, f"`{method}`", setting(params)])
    table(["code", "CUB-200", "ours", "CIFAR-100", "ours", "head", "parameters"], rows)


def table_of_other_readings(bench: Bench) -> None:
    print("### Where a paper and its public code differ\n")
    rows = []
    readings: list[tuple[str, str, str, dict[str, Any]]] = [
        ("BiC", "λ = old / all classes, its paper (`bic`)", "bic", {}),
        ("BiC", "λ = 1 / task, mammoth", "benchmarks.pages.reproduction:BiCByTask", {}),
        ("LwF", "cross-entropy over the classes of the task (`lwf`)", "lwf", {}),
        ("LwF", "cross-entropy over all classes so far, mammoth", "benchmarks.pages.reproduction:LwFOverAll", {}),
        ("GDumb", "greedy memory, its paper (`gdumb`)", "gdumb", {"epochs": 50}),
        ("GDumb", "reservoir", "gdumb", {"epochs": 50, "memory": "reservoir"}),
    ]
    for method, reading, head, params in readings:
        raw = bench.row(head, {**RAW, **params})
        scaled = bench.row(head, {**RAW, **params, "standardize": "scale"})
        rows.append([method, reading, *show(raw), *show(scaled)])
    table(["method", "reading", "CUB-200, raw", "CIFAR-100, raw", "CUB-200, scaled", "CIFAR-100, scaled"], rows)


def table_of_ucir(bench: Bench) -> None:
    """One class order, and five seeds of everything else: does a loop in torch learn the same as the head?"""
    print("### UCIR with momentum 0.9 on CUB-200\n")
    import torch

    from benchmarks.lib.torch_loops import Memory, ucir

    torch.set_num_threads(1)
    stream = class_stream(bench.sets["cub200-resnet18"], 10, None, seed=0)
    data, place = stream.features, np.argsort(stream.order)
    X, test_X = (np.asarray(rows[:], np.float32) for rows in (data.train_x, data.test_x))
    y, test_y = place[data.train_y], place[data.test_y]
    tasks = [(torch.tensor(X[y // 20 == task]), torch.tensor(y[y // 20 == task])) for task in range(10)]

    class Herded:
        """The memory of the head for the loop in torch."""

        def __init__(self) -> None:
            self.kept, self.rng = Herding(200), np.random.default_rng(0)

        def refill(self, X: Any, y: Any) -> None:
            self.kept.add(X.numpy(), y.numpy(), self.rng)
            self.X, self.y = torch.tensor(self.kept.X), torch.tensor(self.kept.y)

    memories: dict[str, Callable[[], Any]] = {
        "a loop in torch, ⌊200 / classes⌋ samples per class": Memory,
        "a loop in torch, 200 samples by herding": Herded,
    }
    found: dict[str, list[float]] = {name: [] for name in memories}
    for name, memory in memories.items():
        for seed in range(5):
            torch.manual_seed(seed)
            right = ucir(tasks, epochs=10, memory=memory())(torch.tensor(test_X)).numpy() == test_y
            found[name].append(100 * float(np.mean([right[test_y // 20 == task].mean() for task in range(10)])))
    for policy in ("greedy", "herding"):
        params = {"standardize": "none", "epochs": 10, "last_batch": "keep", "memory": policy}
        runs = [Run(stream, "ucir", params, seed) for seed in range(5)]
        results = [result for _, result, _ in run_grid(runs, bench.out, jobs=bench.jobs)]
        found[f"`ucir`, 200 samples, `memory={policy}`"] = [100 * result["A_T"] for result in results]
    rows = [[name, *(f"{value:.2f}" for value in values), str(Spread.of(values))] for name, values in found.items()]
    table(["", *(f"seed {seed}" for seed in range(5)), "mean"], rows)


def table_of_half_first(bench: Bench) -> None:
    print("### Table 2 under twelve readings\n")
    print("AIA on CIFAR-100 with half of the classes first, memory 2,000, one epoch.\n")
    cifar, rows = bench.sets["cifar100-resnet18"], []
    inits = (("zero", "all"), ("mean", "first"), ("mean", "all"), ("normalized-mean", "all"))
    for standardize in ("none", "center", "scale"):
        for init, when in inits:
            how = {"standardize": standardize, "init": init, "init_tasks": when, "epochs": 1, "memory_size": 2000}
            values = [bench.measure(cifar, "taer", how, tasks=n, first=50, metric="AIA") for n in (5, 10)]
            rows.append(["TaER", standardize, init, "first" if when == "first" else "every", *show(values)])
    how = {"standardize": "scale", "init": "zero", "epochs": 1}
    joint = [bench.measure(cifar, "joint", how, tasks=n, first=50, metric="AIA") for n in (5, 10)]
    rows.append(["joint", "scale", "zero", "every", *show(joint)])
    rows.append(["TaER, published", "", "", "", "68.86", "68.27"])
    table(["method", "`standardize`", "`init`", "of which tasks", "N = 5", "N = 10"], rows)


TABLES: dict[str, Callable[[Bench], None]] = {
    "official": table_of_official_codes,
    "readings": table_of_other_readings,
    "ucir": table_of_ucir,
    "half-first": table_of_half_first,
}

if __name__ == "__main__":
    run_tables(__doc__, TABLES)
