"""Statistics of a task in blocks of rows. Blocks are computed where joblib's settings say, and added in order."""

from __future__ import annotations

from typing import Any

import numpy as np
from joblib import Parallel, delayed

from taer.heads.task import Task
from taer.parallel import Shared, on_cluster
from taer.rows import SelectedRows, row_chunks
from taer.statistics import ClassStatistics
from taer.threads import one_blas_thread

_CHUNKS = 32  # chunks per block; a block is one job
_PIECES = 2  # pieces per chunk, so that their float64 copies fit into the cache


def collect(embedding: Any, task: Task, before: ClassStatistics | None = None, **kind: bool) -> ClassStatistics:
    """The statistics ``before`` plus those of the embedded samples of a task; ``per_class`` or ``diagonal`` ones."""
    shared, X, y, weight = Shared(embedding), task.X, task.y, task.weight
    calls = (
        delayed(_statistics_of)(shared, _sent(X, part), y[part], None if weight is None else weight[part], kind)
        for part in row_chunks(X, width=-(-X.shape[1] // _CHUNKS))
    )
    statistics: Any = before
    for block in Parallel(return_as="generator")(calls):
        statistics = block if statistics is None else statistics + block
    collected: ClassStatistics = statistics
    return collected


def _sent(X: Any, part: slice) -> Any:
    """What is sent to a worker for these rows: the rows themselves, or their place in a file that it opens."""
    rows = SelectedRows(X, np.arange(part.start, part.stop))
    return np.asarray(rows) if on_cluster() and isinstance(rows.X, np.ndarray) else rows


def _statistics_of(
    embedding: Shared, X: Any, y: np.ndarray, weight: np.ndarray | None, kind: dict[str, bool]
) -> ClassStatistics:
    """Statistics of one block, on one thread, so that every machine computes the same bits."""
    pieces = row_chunks(X, width=_PIECES * X.shape[1])
    # sort by class before the rows are widened to float64
    sorted_chunks = (rows.start + np.argsort(y[rows], kind="stable") for rows in pieces)
    chunks = (
        (embedding.value(X[rows]), y[rows], None if weight is None else weight[rows]) for rows in sorted_chunks
    )
    with one_blas_thread():
        return ClassStatistics.of_chunks(chunks, y, **kind)
