"""How time grows with the number of old classes, of samples, and the width: TaER, the torch loop, the products alone."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

import taer
from benchmarks.lib import torch_loops
from benchmarks.lib.measuring import Clocked, Problem
from benchmarks.lib.profiling import clocked_part
from benchmarks.speed.comparisons import BATCH, STEPS, Products
from taer.report import figures

Task = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Growth:
    """Processor seconds of each repeat, by line and by the number that grows."""

    title: str
    label: str
    unit: str
    x: Sequence[int]
    lines: dict[str, list[list[float]]] = field(default_factory=dict)

    def medians(self, line: str) -> list[float]:
        return [statistics.median(seconds) for seconds in self.lines[line]]


def _task(first: int, n_classes: int, samples: int, width: int) -> Task:
    rng = np.random.default_rng(first)
    y = first + np.arange(samples) % n_classes
    return rng.normal(size=(samples, width)).astype(np.float32) / np.sqrt(width, dtype=np.float32), y


def _taer(old: Task, steps_alone: bool) -> Callable[[Task], float]:
    """Seconds of a task after an earlier one, which is learned only once."""
    before = taer.TaER(epochs=1, lr=1.0, standardize="none", init="zero", random_state=0).fit(*old)

    def seconds(task: Task) -> float:
        head = copy.deepcopy(before)
        if steps_alone:
            return clocked_part("steps", lambda: head.partial_fit(*task))
        started = time.process_time()
        head.partial_fit(*task)
        return time.process_time() - started

    return seconds


def _torch(old: Task, steps_alone: bool) -> Callable[[Task], float]:
    # 200 samples fill the memory; the last class among them makes columns for all
    old = old[0][-200:], old[1][-200:]

    def seconds(task: Task) -> float:
        tasks = Clocked([(torch.tensor(X), torch.tensor(y)) for X, y in (old, task)])
        torch_loops.taer(tasks, lr=1.0)
        return time.process_time() - tasks.asked

    return seconds


def _products(old: Task, steps_alone: bool) -> Callable[[Task], float]:
    def seconds(task: Task) -> float:
        products = Products(Problem([(old[0][:0], old[1][:0]), task], *task), STEPS["taer"])
        started = time.process_time()
        products.run(1)
        return time.process_time() - started

    return seconds


SIDES = {"taer": _taer, "torch loop": _torch, "products alone": _products}


def _grown(
    growth: Growth, sizes: Callable[[int], tuple[int, int, int]], repeats: int, a_step: bool = False
) -> Growth:
    """Each side in turn: seconds of a task in one epoch, or of one of its steps."""
    cases = []
    for n_old, samples, width in map(sizes, growth.x):
        old, task = _task(0, n_old, max(n_old, 200), width), _task(n_old, 10, samples, width)
        cases.append(({name: side(old, a_step) for name, side in SIDES.items()}, task))
    growth.lines.update({name: [[] for _ in cases] for name in SIDES})
    for _ in range(repeats):
        for at, (sides, task) in enumerate(cases):
            for name, seconds in sides.items():
                growth.lines[name][at].append(seconds(task) / (-(-len(task[0]) // BATCH) if a_step else 1))
    return growth


def measure(repeats: int, quick: bool) -> list[Growth]:
    classes, samples = (10, 32, 100, 320, 1000, 3200, 10_000), (100, 320, 1000, 3200, 10_000, 32_000, 100_000)
    widths = (16, 64, 128, 256, 512, 1024, 4096)
    if quick:
        classes, samples, widths = classes[:4:3], samples[:4:3], widths[:4:3]
    return [
        _grown(Growth("a step", "old classes", "µs", classes), lambda n: (n, 6400, 384), repeats, a_step=True),
        _grown(Growth("a task of one epoch", "samples", "ms", samples), lambda n: (10, n, 384), repeats),
        _grown(Growth("a task of one epoch", "features", "ms", widths), lambda n: (10, 3200, n), repeats),
    ]


@figures._styled
def picture(growths: Sequence[Growth]) -> figures.Picture:
    """One panel for each, on log axes; medians, with the range of the repeats as a band."""
    from matplotlib.ticker import NullLocator

    figure, axes = figures._figure(len(growths), 3, (2.4, 2.1), (0.75, 0.1, 0.35, 0.55))
    colors = dict(zip(SIDES, (figures._INK, *figures._COLORS), strict=False))
    for ax, growth in zip(axes, growths, strict=True):
        scale = {"µs": 1e6, "ms": 1e3}[growth.unit]
        for marker, (name, repeats) in zip(figures._MARKERS, growth.lines.items(), strict=False):
            ax.plot(growth.x, scale * np.array(growth.medians(name)), color=colors[name], marker=marker,
                    label=name, linewidth=2.2 if name == "taer" else 1.4)  # fmt: skip
            ax.fill_between(growth.x, scale * np.min(repeats, axis=1), scale * np.max(repeats, axis=1),
                            color=colors[name], alpha=0.12, linewidth=0)  # fmt: skip
        ax.set(xscale="log", yscale="log", title=growth.title, xlabel=growth.label, ylabel=growth.unit)
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xticks(growth.x[::2], [f"{value:,}" for value in growth.x[::2]])
    axes[0].legend(loc="upper left", fontsize=8)
    return figures._finish(figure, "growth", "Growth", "")
