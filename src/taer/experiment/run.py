"""One run of a head over a stream, and its measurements."""

from __future__ import annotations

import ast
import hashlib
import inspect
import platform
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from taer import __version__, metrics
from taer.experiment.results import FORMAT, Result, file_name
from taer.heads import Head, find_head, make_head
from taer.heads.few import FewSamplesWarning
from taer.memory import Everything
from taer.rows import Rows, row_chunks, select
from taer.stream import Stream
from taer.threads import one_blas_thread


@dataclass(frozen=True)
class Run:
    """A head, its parameters and a seed on a stream: everything that determines a result."""

    stream: Stream
    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def head(self) -> Head:
        return make_head(self.method, **self.params, random_state=self.seed)

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "features": self.stream.features.fingerprint,
            "tasks": self.stream.tasks,
            "rows": self.stream.rows_digest,
            "method": self.method,
            "params": {name: _plain(value) for name, value in self.head().get_params().items()},
            "source": source_digest(self.method),
            "seed": _plain(self.seed),
        }

    @property
    def file_name(self) -> str:
        return file_name(self.identity)


def _plain(value: Any) -> Any:
    """A Python number for a numpy number, which JSON cannot encode."""
    return value.item() if isinstance(value, np.generic) else value


@cache
def source_digest(method: str) -> str:
    """Hash of the code of a head, its bases, and all code of this package that they import.

    So results of an edited method are never mixed with results from before. Comments, docstrings, formatting and the
    order of definitions do not count.
    """
    found: dict[str, ModuleType] = {}
    homes = {cls.__module__ for cls in find_head(method).__mro__ if issubclass(cls, Head)}  # also those of the user
    waiting = [sys.modules[home] for home in homes]
    while waiting:
        module = waiting.pop()
        if module.__name__ not in found:
            found[module.__name__] = module
            # What was imported from taer itself is known by the home of its value.
            used = {str(getattr(value, "__module__", "")) for value in vars(module).values()}
            waiting += [sys.modules[home] for home in used if home in homes or home.startswith("taer.")]
            waiting += _imports(inspect.getsource(module))
    definitions = sorted(text for module in found.values() for text in _definitions(inspect.getsource(module)))
    return hashlib.sha256("\n".join(definitions).encode()).hexdigest()


@cache  # heads share most of their modules
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _imports(source: str) -> list[ModuleType]:
    """The modules of this package that a module imports, or from which it imports something."""
    statements = [node for node in _parsed(source).body if isinstance(node, ast.ImportFrom) and not node.level]
    names = {f"{node.module}.{alias.name}" for node in statements for alias in node.names}
    names |= {str(node.module) for node in statements}
    return [sys.modules[name] for name in names if name.startswith("taer.") and name in sys.modules]


@cache
def _definitions(source: str) -> list[str]:
    """The statements of a module as trees, without imports, docstrings and help texts."""
    tree = _parsed(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "help"]
            if isinstance(node.func, ast.Name) and node.func.id == "param":
                del node.args[1:2]  # its help
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return [ast.dump(node) for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]


def execute(run: Run, on_task: Callable[[int, float], None] | None = None) -> Result:
    """Learn the stream task by task and measure after each; ``on_task`` is called with the task and its accuracy."""
    with one_blas_thread(), warnings.catch_warnings():  # one thread: the same bits for any number of workers
        warnings.simplefilter("ignore", FewSamplesWarning)  # few samples were asked for
        return _execute(run, on_task)


def _execute(run: Run, on_task: Callable[[int, float], None] | None) -> Result:
    head, features, order = run.head(), run.stream.features, np.array(run.stream.order)
    task_of_all = np.repeat(np.arange(len(run.stream)), [len(task) for task in run.stream.tasks])
    place = np.full(len(features.classes), len(order))  # classes are renumbered in order of learning
    place[order] = np.arange(len(order))
    y_test = place[np.asarray(features.test_y)]
    tested = np.argsort(y_test, kind="stable")[: (y_test < len(order)).sum()]  # without classes that never arrive
    X_test, y_test = select(features.test_x, tested), y_test[tested]
    if len(untested := np.setdiff1d(task_of_all, task_of_all[y_test])):
        raise ValueError(f"task {untested[0] + 1} has no test samples, so there is no accuracy of it")
    rows, phases, seconds, parts, mass = [], [], [], [], {"test": [], "memory": []}  # type: ignore[var-annotated]
    head_bytes: list[int] = []
    samples: list[int] = []
    errors: list[float] = []  # calibration errors
    detection: list[float | None] = []  # AUROC for classes not yet learned
    answered: list[metrics.Rejection] = []
    scores = np.empty((len(y_test), 0), np.float32)  # of all test samples, columns in order of learning
    for t, task in enumerate(run.stream):
        replayed = getattr(head, "memory_", None)
        started = time.perf_counter()
        head.partial_fit(task.X_train, task.y_train)
        seconds.append(time.perf_counter() - started)
        samples.append(len(task.y_train))
        head_bytes.append(sum(part.nbytes for part in head.linear() or ()))

        task_of = task_of_all[task_of_all <= t]
        scores = _score_tests(head, X_test, scores, order[: len(task_of)])
        n_past, n_known = np.searchsorted(y_test, [(task_of < t).sum(), len(task_of)])
        y_true, known = y_test[:n_known], scores[:n_known]
        y_pred, probabilities = known.argmax(axis=1), head.probabilities(known)
        rows.append(metrics.task_accuracies(y_true, y_pred, task_of))
        phases.append(float(np.mean(y_true == y_pred)))
        parts.append(metrics.decompose(known, y_true, task_of)._asdict())
        errors.append(metrics.expected_calibration_error(probabilities, y_true))
        if t:
            old = (task_of < t)[place[head.classes_]]
            mass["test"].append(metrics.old_mass(probabilities[:n_past], task_of < t))
            if replayed is not None and len(replayed) and not isinstance(replayed, Everything):
                mass["memory"].append(metrics.old_mass(head.predict_proba(replayed.X), old))
        novelty = head.novelty_of(X_test, scores)
        limit = float(np.quantile(novelty[:n_known], 0.95))
        if head.own_novelty:
            with suppress(ValueError):  # while no class has two samples
                limit = head.novelty_threshold()
        answered.append(metrics.rejection(novelty[:n_known], y_true == y_pred, limit))
        if t + 1 < len(run.stream):
            detection.append(metrics.novelty_auroc(novelty[:n_known], novelty[n_known:]))
        if on_task:
            on_task(t, phases[-1])

    later = task_of_all[y_true] > 0
    base = metrics.accuracy_among(y_true, y_pred, ~later)
    new = metrics.accuracy_among(y_true, y_pred, later)
    matrix, memory = metrics.accuracy_matrix(rows), getattr(head, "memory_", ())
    return {
        **run.identity,  # type: ignore[typeddict-item]
        **_home(run),
        "name": features.name,
        "meta": dict(features.meta),
        "shots": run.stream.shots,
        "samples": samples,
        "classes": [features.classes[label] for label in order],
        "A_T": metrics.average_accuracy(matrix),
        "AIA": metrics.average_incremental_accuracy(np.array(phases)),
        "last": phases[-1],
        "base": base,
        "new": new,
        "harmonic": None if base is None or new is None else metrics.harmonic_mean(base, new),
        "ece_new": metrics.expected_calibration_error(probabilities[later], y_true[later])
        if new is not None
        else None,
        "forgetting": metrics.forgetting(matrix),
        "backward_transfer": metrics.backward_transfer(matrix),
        "accuracy_matrix": [row.tolist() for row in rows],
        "phase_accuracy": phases,
        "preserved_accuracy": metrics.preserved_accuracy(known, y_true, task_of).tolist(),
        "old_mass": mass,
        "decomposition": parts,
        "ece": errors,
        "novelty_auroc": detection,
        "coverage": [each.coverage for each in answered],
        "selective_accuracy": [each.accuracy for each in answered],
        "confusion": metrics.confusion_matrix(y_true, y_pred, np.arange(len(order))).tolist(),
        "seconds": seconds,
        "head_bytes": head_bytes,
        "memory_samples": len(memory),
        "memory_bytes": _kept_bytes(head),
        "versions": {"taer": __version__, "numpy": np.__version__, "python": platform.python_version()},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _home(run: Run) -> dict[str, str]:
    """The module of a named head from outside the package. The import path of a class says it by itself."""
    module = find_head(run.method).__module__
    return {} if ":" in run.method or module.startswith("taer.") else {"module": module}


def _kept_bytes(head: Head) -> int:
    """Bytes that a head keeps besides its columns: exemplars, statistics, penalties."""
    others = {"classes_", "numbers_", "embedding_", *(("columns_", "offsets_") if head.card.linear else ())}
    return sum(_bytes_of(value) for name, value in head.state().items() if name not in others)


def _bytes_of(value: Any) -> int:
    """The size of an array, or of a value that is stored as arrays."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    return sum(array.nbytes for array in value.to_arrays().values()) if hasattr(value, "to_arrays") else 0


def _score_tests(head: Head, X: np.ndarray | Rows, before: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Scores of all test samples, classes in order of learning; if old scores never change, only new ones are computed."""
    wanted = order[before.shape[1] :] if head.card.frozen else order
    parts = row_chunks(X, width=max(X.shape[1], len(wanted)))
    added = np.concatenate([head.scores(X[rows], wanted) for rows in parts])
    return np.hstack([before, added]) if head.card.frozen else added
