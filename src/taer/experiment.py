"""One run of a head over a stream; a grid of runs; results on disk, resumed for free.

A finished run is one small JSON file named by the hash of what decides its result, with a checksum of all it holds.
It is written under a temporary name and renamed, so a killed grid loses only the runs in flight.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from taer import __version__, metrics
from taer.parallel import Shared, end_with, on_cluster
from taer.features import FeatureSet
from taer.heads import HEADS, make_head
from taer.heads.base import Head
from taer.heads.sgd import one_blas_thread
from taer.memory import Everything
from taer.rows import Rows, select
from taer.stream import Stream

FORMAT = "taer-run/3"
_IDENTITY = ("format", "features", "tasks", "method", "params", "source", "seed")  # decide a result
_SMALL = 1 << 30  # bytes of features that are sent to the nodes of a cluster; larger ones are opened there
Result = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A head, its parameters and a seed on a stream: everything that decides a result."""

    stream: Stream
    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def head(self) -> Head:
        return make_head(self.method, **self.params, random_state=self.seed)

    @property
    def identity(self) -> dict[str, Any]:
        features = self.stream.features
        return {
            "format": FORMAT,
            "features": features.fingerprint,
            "tasks": self.stream.tasks,
            "method": self.method,
            "params": {name: _plain(value) for name, value in self.head().get_params().items()},
            "source": source_digest(self.method),
            "seed": _plain(self.seed),
        }

    @property
    def file_name(self) -> str:
        return file_name(self.identity)


def file_name(result: Mapping[str, Any]) -> str:
    """The name of a result's file: of other runs, and of runs of an edited method, it is another."""
    return f"{result['method']}-{_hash({name: result[name] for name in _IDENTITY})[:20]}.json"


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """A number of Python's for one of numpy's, which JSON does not know."""
    return value.item() if isinstance(value, np.generic) else value


@cache
def source_digest(method: str) -> str:
    """Hash of the modules of a head and its bases, and of those of ours that they use.

    An edited method therefore never shows the numbers of the method it was before.
    """
    found: dict[str, ModuleType] = {}
    waiting = [sys.modules[cls.__module__] for cls in HEADS[method].__mro__ if cls.__module__.startswith("taer.")]
    while waiting:
        module = waiting.pop()
        if module.__name__ not in found:
            found[module.__name__] = module
            homes = {str(getattr(value, "__module__", "")) for value in vars(module).values()}
            waiting += [sys.modules[home] for home in homes if home.startswith("taer.")]
    sources = "".join(inspect.getsource(found[name]) for name in sorted(found))
    return hashlib.sha256(sources.encode()).hexdigest()


def execute(run: Run, on_task: Callable[[int, float], None] | None = None) -> Result:
    """Learn the stream task by task and measure after each; ``on_task`` is told the task and its accuracy."""
    with one_blas_thread():  # the same bits whatever the number of workers
        return _execute(run, on_task)


def _execute(run: Run, on_task: Callable[[int, float], None] | None) -> Result:
    head, features, order = run.head(), run.stream.features, np.array(run.stream.order)
    task_of_all = np.repeat(np.arange(len(run.stream)), [len(task) for task in run.stream.tasks])
    place = np.argsort(order)  # classes are renumbered in the order of learning
    y_test = place[np.asarray(features.test_y)]
    X_test, y_test = select(features.test_x, np.argsort(y_test, kind="stable")), np.sort(y_test)
    if len(untested := np.setdiff1d(task_of_all, task_of_all[y_test])):
        raise ValueError(f"task {untested[0] + 1} has no test samples, so there is no accuracy of it")
    rows, phases, seconds, parts, mass = [], [], [], [], {"test": [], "memory": []}  # type: ignore[var-annotated]
    head_bytes: list[int] = []
    errors: list[float] = []  # of calibration
    detection: list[float | None] = []  # of classes not yet learned
    scores = np.empty((len(y_test), 0), np.float32)  # of all test samples, columns in the order of learning
    for t, task in enumerate(run.stream):
        replayed = getattr(head, "memory_", None)
        started = time.perf_counter()
        head.partial_fit(task.X_train, task.y_train)
        seconds.append(time.perf_counter() - started)
        head_bytes.append(
            sum(getattr(head, name).nbytes for name in ("coef_", "intercept_") if hasattr(head, name))
        )

        task_of = task_of_all[task_of_all <= t]
        scores = _score_tests(head, X_test, scores, place[head.classes_].argsort())
        n_past, n_known = np.searchsorted(y_test, [(task_of < t).sum(), len(task_of)])
        y_true, known = y_test[:n_known], scores[:n_known]
        y_pred, probabilities = known.argmax(axis=1), head._probabilities(known)
        rows.append(metrics.task_accuracies(y_true, y_pred, task_of))
        phases.append(float(np.mean(y_true == y_pred)))
        parts.append(metrics.decompose(known, y_true, task_of)._asdict())
        errors.append(metrics.expected_calibration_error(probabilities, y_true))
        if t:
            old = (task_of < t)[place[head.classes_]]
            mass["test"].append(metrics.old_mass(probabilities[:n_past], task_of < t))
            if replayed is not None and len(replayed) and not isinstance(replayed, Everything):
                mass["memory"].append(metrics.old_mass(head.predict_proba(replayed.X), old))
        if t + 1 < len(run.stream):
            novelty = np.concatenate([head._novelty(X_test[part], scores[part]) for part in head._chunks(X_test)])
            detection.append(metrics.novelty_auroc(novelty[:n_known], novelty[n_known:]))
        if on_task:
            on_task(t, phases[-1])

    matrix, memory = metrics.accuracy_matrix(rows), getattr(head, "memory_", ())
    return {
        **run.identity,
        "name": features.name,
        "meta": dict(features.meta),
        "classes": [features.classes[label] for label in order],
        "A_T": metrics.average_accuracy(matrix),
        "AIA": metrics.average_incremental_accuracy(np.array(phases)),
        "forgetting": metrics.forgetting(matrix),
        "backward_transfer": metrics.backward_transfer(matrix),
        "accuracy_matrix": [row.tolist() for row in rows],
        "phase_accuracy": phases,
        "preserved_accuracy": metrics.preserved_accuracy(known, y_true, task_of).tolist(),
        "old_mass": mass,
        "decomposition": parts,
        "ece": errors,
        "novelty_auroc": detection,
        "confusion": metrics.confusion_matrix(y_true, y_pred, np.arange(len(order))).tolist(),
        "seconds": seconds,
        "head_bytes": head_bytes,
        "memory_samples": len(memory),
        "memory_bytes": _kept_bytes(head),
        "versions": {"taer": __version__, "numpy": np.__version__, "python": platform.python_version()},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _kept_bytes(head: Head) -> int:
    """Bytes of what a head keeps besides the columns that answer: exemplars, statistics, penalties."""
    columns = {"classes_", "coef_", "intercept_", "mean_", "scale_", "shift_", "stretch_"}
    kept = (value for name, value in vars(head).items() if name.endswith("_") and name not in columns)
    return sum(getattr(value, "nbytes", 0) for value in kept)


def _score_tests(head: Head, X: np.ndarray | Rows, before: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Scores of all test samples; where old ones never change, only those of new classes are computed."""
    if not head.frozen_scores:
        return np.concatenate(list(head._score_chunks(X)))[:, columns]
    new = columns[before.shape[1] :]
    added = [head._scores(X[rows], new) for rows in head._chunks(X)]  # type: ignore[call-arg]
    return np.hstack([before, np.concatenate(added)])


def run_grid(
    runs: Sequence[Run],
    out: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    fresh: bool = False,
    on_task: Callable[[Run, int, float], None] | None = None,
) -> Iterator[tuple[Run, Result, bool]]:
    """Yield each run with its result as it is found on disk or finished, and whether it came from disk.

    Only what is missing in ``out`` is run: in ``jobs`` processes, or as joblib's settings say, which may be on a
    cluster (:func:`taer.cluster`). ``on_task`` is told of the tasks of a run when they are run one by one. A run
    that fails does not stop the others; the error at the end says which ones did.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    missing = []
    for run in runs:
        stored = None if fresh else read_result(folder / run.file_name)
        if stored is None:
            missing.append(run)
        else:
            yield run, stored, True
    failed = []
    for run, outcome in _outcomes(missing, jobs, on_task):
        if isinstance(outcome, ValueError):
            failed.append(f"{run.method}, run {run.seed + 1}: {outcome}")
        else:
            if outcome["source"] != source_digest(run.method):
                raise ValueError(
                    f"{run.method}: the code of a node is not that of this machine; install the same taer on all"
                )
            write_result(folder, outcome)
            yield run, outcome, False
    if failed:
        more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
        raise ValueError(
            f"{len(failed)} of {len(runs)} runs failed, the others are kept in {folder}. {'; '.join(failed[:3])}{more}"
        )


def _outcomes(
    missing: list[Run], jobs: int | None, on_task: Callable[[Run, int, float], None] | None
) -> Iterator[tuple[Run, Result | ValueError]]:
    """What became of each run, in any order."""
    from joblib import Parallel, delayed, effective_n_jobs

    if not on_cluster() and (effective_n_jobs(jobs) == 1 or len(missing) < 2):
        for run in missing:
            tell = None if on_task is None else lambda t, a, run=run: on_task(run, t, a)
            yield run, _attempt(run, tell)
        return
    features = {id(run.stream.features): _shared(run.stream.features) for run in missing}
    calls = (
        delayed(_numbered)(
            number, features[id(run.stream.features)], run.stream.tasks, run.method, run.params, run.seed
        )
        for number, run in enumerate(missing)
    )
    # Processes of our own end with this one; those of a cluster are not ours.
    own: dict[str, Any] = {} if on_cluster() else {"initializer": end_with, "initargs": (os.getpid(),)}
    for number, outcome in Parallel(n_jobs=jobs, return_as="generator_unordered", **own)(calls):
        yield missing[number], outcome


def _shared(features: FeatureSet) -> Shared:
    bytes_in_all = sum(math.prod(x.shape) * x.dtype.itemsize for x in (features.train_x, features.test_x))
    return Shared(features, by_path=bytes_in_all > _SMALL)


def _numbered(number: int, features: Shared, tasks: Any, *rest: Any) -> tuple[int, Result | ValueError]:
    return number, _attempt(Run(Stream(features.value, tasks), *rest))


def _attempt(run: Run, on_task: Callable[[int, float], None] | None = None) -> Result | ValueError:
    try:
        return execute(run, on_task)
    except ValueError as error:
        return error


def write_result(folder: Path, result: Result) -> Path:
    """Keep a result on disk: the file appears whole or not at all."""
    path = folder / file_name(result)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        partial.write_text(json.dumps({**result, "sha256": _hash(result)}))
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def read_result(path: Path) -> Result | None:
    """A stored result; nothing if it is absent, damaged, edited, or the result of another run than its name says."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        whole = result.pop("sha256") == _hash(result) and file_name(result) == path.name
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError):  # any JSON, or none
        return None
    return result if whole and result["format"] == FORMAT else None


def summarise(results: Iterable[Result]) -> list[dict[str, Any]]:
    """One row per method: mean, deviation over the runs (n - 1 in the divisor) and values, in percent."""
    by_method: dict[str, list[Result]] = {}
    for result in results:
        by_method.setdefault(result["method"], []).append(result)
    return [
        {
            "method": method,
            "A_T": _statistics([100 * result["A_T"] for result in group]),
            "AIA": _statistics([100 * result["AIA"] for result in group]),
            "ECE": _statistics([100 * result["ece"][-1] for result in group]),
            "novelty_AUROC": _statistics(
                [100 * value for result in group if (value := mean_auroc(result)) is not None]
            ),
            "seconds": float(np.mean([sum(result["seconds"]) for result in group])),
            "memory_samples": float(np.mean([result["memory_samples"] for result in group])),
            "memory_bytes": float(np.mean([result["memory_bytes"] for result in group])),
        }
        for method, group in by_method.items()
    ]


def mean_auroc(result: Result) -> float | None:
    """Mean over the tasks before the last of how well classes not yet learned are told from known ones."""
    values = [value for value in result["novelty_auroc"] if value is not None]
    return float(np.mean(values)) if values else None


def _statistics(values: list[float]) -> dict[str, Any]:
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)) if values else None, "std": deviation, "values": values}
