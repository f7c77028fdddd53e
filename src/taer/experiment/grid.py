"""A grid of runs. Runs with results on disk are skipped, so a killed grid loses only its unfinished runs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from taer.experiment.callback import Callback
from taer.experiment.digest import source_digest
from taer.experiment.results import Result, read_result, write_result
from taer.experiment.run import Run, execute
from taer.features import FeatureSet
from taer.heads import Head, find_head
from taer.parallel import Shared, end_with, on_cluster
from taer.stream import Stream
from taer.threads import cores, use_threads

_SMALL = 1 << 30  # bytes of features that are sent to the nodes of a cluster; larger files are opened there


def run_grid(
    runs: Sequence[Run],
    out: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    fresh: bool = False,
    callback: Callback | None = None,
) -> Iterator[tuple[Run, Result, bool]]:
    """Yield each run with its result, and whether the result came from disk, in the order in which they finish.

    Runs without a result in ``out`` are run, in ``jobs`` processes or where joblib's settings say, for example on a
    cluster (:func:`taer.ray_cluster`). If runs are run one by one, ``callback`` follows them. A run
    that fails does not stop the others; the error at the end lists the failed runs.
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
    for run, outcome in _outcomes(missing, jobs, callback):
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
    missing: list[Run], jobs: int | None, callback: Callback | None
) -> Iterator[tuple[Run, Result | ValueError]]:
    """The outcome of each run, in any order."""
    from joblib import Parallel, delayed, effective_n_jobs

    workers = min(effective_n_jobs(jobs), len(missing))
    if not on_cluster() and workers < 2:
        for run in missing:
            yield run, _attempt(run, callback)
        return
    features = {id(run.stream.features): _shared(run.stream.features) for run in missing}
    calls = (
        delayed(_numbered)(
            number,
            find_head(run.method),
            features[id(run.stream.features)],
            (run.stream.tasks, run.stream.rows, run.stream.shots, run.stream.kind, run.stream.batch),
            run.method,
            run.params,
            run.seed,
            run.tuned,
        )
        for number, run in enumerate(missing)
    )
    own: dict[str, Any] = {}  # what is true of our own processes, but not of those of a cluster
    if not on_cluster():
        own = {"n_jobs": workers, "initializer": _begin, "initargs": (os.getpid(), max(1, cores() // workers))}
    for number, outcome in Parallel(return_as="generator_unordered", **own)(calls):
        yield missing[number], outcome


def _begin(parent: int, threads: int) -> None:
    end_with(parent)
    use_threads(threads)


def _shared(features: FeatureSet) -> Shared:
    bytes_in_all = sum(math.prod(x.shape) * x.dtype.itemsize for x in (features.train_x, features.test_x))
    return Shared(features, by_path=bytes_in_all > _SMALL)


def _numbered(
    number: int, kind: type[Head], features: Shared, protocol: tuple[Any, ...], *rest: Any
) -> tuple[int, Result | ValueError]:
    """The class is sent with the run: a process that unpickles it imports its module, which registers the head."""
    return number, _attempt(Run(Stream(features.value, *protocol), *rest))


def _attempt(run: Run, callback: Callback | None = None) -> Result | ValueError:
    try:
        return execute(run, callback)
    except ValueError as error:
        return error
