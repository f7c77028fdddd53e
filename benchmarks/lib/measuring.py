"""What the comparisons share: a problem, sides that are measured in turn, and a check that both learned the same.

Import this module first: it sets one thread for every library that multiplies matrices.
"""

from __future__ import annotations

import os

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before numpy and torch

import datetime
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_info

torch.set_num_threads(1)

TOLERANCE = 1.5  # points of accuracy by which two sides may differ, means over the repeats
Predict = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Problem:
    """Tasks of ten classes each, and a test set of all of them."""

    tasks: list[tuple[np.ndarray, np.ndarray]]
    test_X: np.ndarray
    test_y: np.ndarray

    def first(self, n_tasks: int) -> Problem:
        tasks = self.tasks[:n_tasks]
        seen = np.isin(self.test_y, np.concatenate([y for _, y in tasks]))
        return Problem(tasks, self.test_X[seen], self.test_y[seen])

    def tensors(self) -> list[tuple[Any, Any]]:
        return [(torch.tensor(X), torch.tensor(y)) for X, y in self.tasks]

    def together(self) -> tuple[np.ndarray, np.ndarray]:
        X, y = zip(*self.tasks, strict=True)
        return np.concatenate(X), np.concatenate(y)


def gaussian_classes(n_tasks: int, per_task: int, width: int, noise: float = 4.0) -> Problem:
    """Ten Gaussian classes a task, so near to each other that no method gets all of them right."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(10 * n_tasks, width)).astype(np.float32)

    def sample(labels: np.ndarray) -> np.ndarray:
        rows: np.ndarray = centers[labels] + noise * rng.normal(size=(len(labels), width)).astype(np.float32)
        return rows / np.sqrt(width, dtype=np.float32)

    labels = [np.repeat(np.arange(10 * at, 10 * at + 10), per_task // 10) for at in range(n_tasks)]
    test = np.repeat(np.arange(10 * n_tasks), 1000 // n_tasks)
    return Problem([(sample(y), y) for y in labels], sample(test), test)


@dataclass
class Side:
    """One of the things compared: processor seconds and test accuracy of each repeat."""

    seconds: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def accuracy(self) -> float:
        return statistics.mean(self.accuracies)

    def __str__(self) -> str:
        return f"{self.median:.3f} ({min(self.seconds):.3f}–{max(self.seconds):.3f})"


def in_turn(runs: Mapping[str, Callable[[int], Predict]], problem: Problem, repeats: int) -> dict[str, Side]:
    """Each run with the seeds 0, 1, …, measured in turn so that noise falls on all alike.

    Processor time, which other work on the machine disturbs least.
    """
    sides = {name: Side() for name in runs}
    for seed in range(repeats):
        for name, run in runs.items():
            torch.manual_seed(seed)
            started = time.process_time()
            predict = run(seed)
            sides[name].seconds.append(time.process_time() - started)
            right = predict(problem.test_X) == problem.test_y
            sides[name].accuracies.append(100 * float(right.mean()))
    return sides


def equally_good(sides: dict[str, Side]) -> dict[str, Side]:
    """The sides, if they learned the same; otherwise the run ends."""
    found = {name: round(side.accuracy, 2) for name, side in sides.items()}
    if max(found.values()) - min(found.values()) > TOLERANCE:
        raise SystemExit(f"the sides do not learn the same: accuracies {found}, at most {TOLERANCE} points apart")
    return sides


class Clocked(Sequence[Any]):
    """Tasks that note when each is asked for, so that the last one can be timed inside any loop over them."""

    def __init__(self, tasks: Sequence[Any]) -> None:
        self.tasks, self.asked = tasks, 0.0

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, at: Any) -> Any:
        return self.tasks[at]

    def __iter__(self) -> Iterator[Any]:
        for task in self.tasks:
            self.asked = time.process_time()
            yield task


def table(header: str, rows: Sequence[str]) -> str:
    """Markdown: the first column to the left, all others to the right."""
    columns = header.count("|")
    return "\n".join([f"| {header} |", "|---|" + "---:|" * columns, *(f"| {row} |" for row in rows)])


def check_threads() -> None:
    """Every library that multiplies matrices has one thread, or the run ends."""
    threads = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
    if torch.get_num_threads() != 1 or set(threads.values()) != {1}:
        raise SystemExit(f"one thread is wanted everywhere: import benchmarks.lib.measuring first; found {threads}")


def machine() -> str:
    """Processors, versions and the date."""
    names = [line.split(":")[1].strip() for line in _cpu_lines() if line.startswith("model name")]
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scikit-learn", "torch", "avalanche-lib"))
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores ({names[0] if names else platform.processor()}), no GPU, Python "
        f"{platform.python_version()}, {libraries}, {datetime.date.today()}, load {load:.1f} at the start"
    )


def _cpu_lines() -> list[str]:
    info = Path("/proc/cpuinfo")
    return info.read_text().splitlines() if info.exists() else []
