"""Where the time of TaER goes: the parts of a task on the clock, and the functions of its steps by their own time."""

from __future__ import annotations

import cProfile
import pstats
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import taer
from benchmarks.lib.measuring import Problem
from taer.heads import base
from taer.heads.descent.base import DescentHead
from taer.heads.descent.loop import Loop
from taer.heads.descent.memory import MemoryHead
from taer.heads.embedding import Standardize

PARTS: dict[str, list[tuple[Any, str]]] = {
    "steps": [(Loop, "descend")],
    "one look at the old columns": [(DescentHead, "_log_partition")],
    "memory": [(MemoryHead, "_remember"), (MemoryHead, "_old_samples")],
    "input map": [(Standardize, "fit"), (Standardize, "__call__"), (Standardize, "apply")],
    "start of new columns": [(DescentHead, "_means_of_new")],
    "checks of the input": [(base, "check_features"), (base, "check_labels"), (base, "check_params")],
}


class Stopwatch:
    """Processor seconds of named functions, without those of other named functions that they call."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self.inner: list[float] = []

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def run(*arguments: Any, **options: Any) -> Any:
            started = time.process_time()
            self.inner.append(0.0)
            try:
                return function(*arguments, **options)
            finally:
                whole = time.process_time() - started
                self.spent[part] += whole - self.inner.pop()
                if self.inner:
                    self.inner[-1] += whole

        return run


def _watched(run: Callable[..., Any], *arguments: Any, **options: Any) -> Counter[str]:
    """Seconds of each part during a call; "the rest" is what no part took."""
    watch = Stopwatch()
    with ExitStack() as patches:
        for part, members in PARTS.items():
            for owner, name in members:
                patches.enter_context(patch.object(owner, name, watch.timed(part, getattr(owner, name))))
        watch.timed("the rest", run)(*arguments, **options)
    return watch.spent


def clocked_part(part: str, run: Callable[[], Any]) -> float:
    """Seconds of one part during a call."""
    return _watched(run)[part]


def _learn(problem: Problem, **params: Any) -> None:
    head = taer.TaER(random_state=0, epochs=1, **params)
    for X, y in problem.tasks:
        head.partial_fit(X, y)


def parts(problem: Problem, **params: Any) -> dict[str, float]:
    """Seconds of a task, by part."""
    spent = _watched(_learn, problem, **params)
    return {part: spent[part] / len(problem.tasks) for part in (*PARTS, "the rest")}


def functions(problem: Problem, most: int = 8, **params: Any) -> list[tuple[str, float]]:
    """The functions with the largest share of the time under cProfile, which makes calls look dearer than they are."""
    profiler = cProfile.Profile(time.process_time)
    profiler.runcall(_learn, problem, **params)
    entries: Any = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    whole = sum(entry[2] for entry in entries.values())
    ranked = sorted(entries.items(), key=lambda item: -item[1][2])[:most]
    return [(_readable(*key), entry[2] / whole) for key, entry in ranked]


def _readable(file: str, line: int, name: str) -> str:
    return f"`{name.strip('<>')}`" if file == "~" else f"`{Path(file).stem}.{name}`"
