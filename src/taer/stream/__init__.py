"""Protocols: how the classes of a data set arrive, task after task."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from taer.features import FeatureSet
from taer.rows import Rows, select

# The order of iCaRL's public code, kept by GDumb and PODNet; for data sets of 100 classes.
_ICARL = (
    "87 0 52 58 44 91 68 97 51 15 94 92 10 72 49 78 61 14 8 86 84 96 18 24 32 45 88 11 4 67 69 66 77 47 79 93 "
    "29 50 57 83 17 81 41 12 37 59 25 20 80 73 1 28 6 46 62 82 53 9 31 75 38 63 33 74 27 22 36 3 16 21 60 19 70 "
    "90 89 43 5 42 65 76 40 30 23 85 2 95 56 48 71 64 98 13 99 7 34 55 54 26 35 39"
)
NAMED_ORDERS = ("natural", "1993", "icarl")


@dataclass(frozen=True)
class TaskData:
    """The samples of one task. Features in files are read only when they are indexed."""

    classes: tuple[int, ...]
    X_train: np.ndarray | Rows
    y_train: np.ndarray
    X_test: np.ndarray | Rows
    y_test: np.ndarray


@dataclass(frozen=True)
class Stream:
    """A feature set cut into tasks. A class belongs to the task in which it is first seen, and may return later."""

    features: FeatureSet
    tasks: tuple[tuple[int, ...], ...]
    rows: tuple[tuple[int, ...], ...] | None = None  # training samples of each task; None: all of its classes'
    shots: int | None = None  # samples per class after the first task, if they were drawn
    kind: str = "tasks"  # or one of those of :func:`taer.make_stream`
    batch: int | None = None  # number of samples that are learned at once, if the ends of tasks are not marked

    @property
    def order(self) -> tuple[int, ...]:
        """All classes, in the order in which they arrive."""
        return tuple(label for task in self.tasks for label in task)

    @cached_property
    def rows_digest(self) -> str | None:
        """A digest of the training samples of each task; None if each task has all samples of its classes."""
        return None if self.rows is None else rows_digest(self.rows, in_order=self.batch is not None)

    @cached_property
    def returning(self) -> bool:
        """Whether a task has samples of classes of earlier ones."""
        return any(len(self.classes_of(t)) > len(self.tasks[t]) for t in range(len(self)))

    def classes_of(self, t: int) -> tuple[int, ...]:
        """The classes with training samples in a task, also those seen before."""
        if self.rows is None:
            return self.tasks[t]
        return tuple(np.unique(np.asarray(self.features.train_y)[list(self.rows[t])]).tolist())

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[TaskData]:
        for t, classes in enumerate(self.tasks):
            train = self.train_rows(t)
            test = np.flatnonzero(np.isin(self.features.test_y, classes))
            yield TaskData(
                classes,
                select(self.features.train_x, train),
                np.asarray(self.features.train_y[train]),
                select(self.features.test_x, test),
                np.asarray(self.features.test_y[test]),
            )

    def train_rows(self, t: int) -> np.ndarray:
        """Row numbers of the training samples of a task."""
        if self.rows is not None:
            return np.array(self.rows[t], np.int64)
        return np.flatnonzero(np.isin(self.features.train_y, self.tasks[t]))


def class_stream(
    features: FeatureSet,
    tasks: int = 10,
    first: int | None = None,
    order: int | str | Sequence[int] = 0,
    shots: int | None = None,
    seed: int = 0,
) -> Stream:
    """Cut a feature set into tasks.

    Parameters
    ----------
    features : FeatureSet
    tasks : int
        Number of tasks of equal size. With ``first``, the number of tasks after the first one.
    first : int, optional
        Number of classes in the first task (the paper's second protocol has half of them). The others are spread
        over ``tasks`` as evenly as possible, larger tasks first.
    order : int, str or sequence of int
        A seed (the order of ``torch.manual_seed(seed); torch.randperm(n)``, reproduced without torch), ``"natural"``
        (by class number), the name of a published order (``"1993"``: UCIR and PyCIL; ``"icarl"``: iCaRL's, for 100
        classes), or all class numbers in order.
    shots : int, optional
        Training samples per class after the first task, which has all of its samples. A class with fewer gives all.
    seed : int
        Random seed for these samples. With the same seed, the samples of fewer shots are a subset of those of more.

    Examples
    --------
    >>> import taer
    >>> stream = taer.class_stream(taer.load_features(), tasks=5)
    >>> len(stream), len(stream.tasks[0])
    (5, 20)
    >>> stream = taer.class_stream(taer.load_features(), first=60, tasks=8, order="natural", shots=5)
    >>> [len(task.y_train) for task in stream][:3]
    [4800, 25, 25]
    """
    n_classes = len(features.classes)
    arriving = class_order(order, n_classes)
    if tasks < 1:
        raise ValueError(f"a stream needs at least one task, got {tasks}")
    if first is not None and not 0 < first < n_classes:
        raise ValueError(f"the first task must have 1 … {n_classes - 1} of the {n_classes} classes, got {first}")
    if first is not None and tasks > n_classes - first:
        raise ValueError(
            f"the {n_classes - first} classes after the first task are too few for {tasks} tasks; take fewer tasks"
        )
    if first is None and n_classes % tasks:
        possible = [str(n) for n in range(1, n_classes + 1) if n_classes % n == 0]
        raise ValueError(
            f"{n_classes} classes do not divide into {tasks} equal tasks, but into {', '.join(possible[:12])}; "
            "with a number of classes for the first task, the others are spread as evenly as possible"
        )
    cut = [arriving] if first is None else [arriving[:first], arriving[first:]]
    parts = [*cut[:-1], *(part.tolist() for part in np.array_split(cut[-1], tasks))]
    stream = Stream(features, tuple(tuple(part) for part in parts))
    return stream if shots is None else _with_shots(stream, shots, seed)


def _with_shots(stream: Stream, shots: int, seed: int) -> Stream:
    if shots < 1:
        raise ValueError(f"a class needs at least one sample, got {shots} shots")
    labels = np.asarray(stream.features.train_y)
    later = [
        sorted(row for label in task for row in _drawn(np.flatnonzero(labels == label), label, shots, seed))
        for task in stream.tasks[1:]
    ]
    rows = (tuple(stream.train_rows(0).tolist()), *(tuple(drawn) for drawn in later))
    return Stream(stream.features, stream.tasks, rows, shots)


def _drawn(rows: np.ndarray, label: int, shots: int, seed: int) -> list[int]:
    """Draw samples of a class. Each class has its own generator, so the order of classes does not matter."""
    drawn: list[int] = np.random.default_rng([seed, label]).permutation(rows)[:shots].tolist()
    return drawn


def sample_stream(
    features: FeatureSet,
    sessions: Sequence[Sequence[int]],
    *,
    kind: str = "tasks",
    batch: int | None = None,
    order: Sequence[int] = (),
) -> Stream:
    """A stream whose tasks have exactly these training samples, given by their rows in ``train.x``.

    The classes of a task are those of its samples that no earlier task had, sorted or as in ``order``; each task needs
    one. With ``batch``, so many samples are learned at once, in the given order. Test samples of classes without a
    training sample are left out.

    Examples
    --------
    >>> import taer
    >>> stream = taer.sample_stream(taer.load_features(), [range(0, 160), range(160, 165)])
    >>> [len(task) for task in stream.tasks]
    [2, 1]
    """
    labels = np.asarray(features.train_y)
    place, seen = {label: at for at, label in enumerate(order)}, set[int]()
    tasks: list[tuple[int, ...]] = []
    rows: list[tuple[int, ...]] = []
    for t, session in enumerate(sessions):
        numbers = np.unique(np.asarray(session, np.int64))
        if not len(numbers):
            raise ValueError(f"session {t} has no rows; each session needs at least one")
        if numbers[0] < 0 or numbers[-1] >= len(labels):
            wrong = numbers[0] if numbers[0] < 0 else numbers[-1]
            raise ValueError(
                f"session {t} names row {wrong}, but {features.name} has the training rows 0 … {len(labels) - 1}"
            )
        if len(numbers) < len(session):
            raise ValueError(f"session {t} names a row twice; each row may be given once")
        new = set(np.unique(labels[numbers]).tolist()) - seen
        if not new:
            raise ValueError(
                f"session {t} has only classes of earlier sessions; each session needs a new one, so add its rows to "
                "another session"
            )
        seen |= new
        tasks.append(tuple(sorted(new, key=lambda label: (place.get(label, label), label))))
        rows.append(tuple((numbers if batch is None else np.asarray(session)).tolist()))
    if not tasks:
        raise ValueError("there are no sessions; expected at least one")
    return Stream(features, tuple(tasks), tuple(rows), None, kind, batch)


def read_sessions(path: str | os.PathLike[str]) -> list[list[int]]:
    """The sessions in a JSON file ``{"sessions": {"0": [rows of train.x], "1": …}}``, in order."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        sessions = json.loads(text)["sessions"]
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (ValueError, RecursionError, KeyError, TypeError):
        sessions = None
    if not isinstance(sessions, Mapping) or not sessions:
        raise ValueError(f'{path}: expected JSON such as {{"sessions": {{"0": [rows of train.x], "1": …}}}}')
    if set(sessions) != {str(t) for t in range(len(sessions))}:
        raise ValueError(f"{path}: expected sessions named 0 … {len(sessions) - 1}, got {', '.join(sessions)[:60]}")
    ordered = [sessions[str(t)] for t in range(len(sessions))]
    for t, rows in enumerate(ordered):
        if not isinstance(rows, list) or not all(type(row) is int and abs(row) < 2**63 for row in rows):
            raise ValueError(f"{path}: session {t} must be a list of row numbers")
    return ordered


def rows_digest(rows: Sequence[Sequence[int]], in_order: bool = False) -> str:
    """A digest of the rows of each task that does not depend on their order, unless that matters."""
    listed = [list(task) if in_order else sorted(task) for task in rows]
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def class_order(order: int | str | Sequence[int], n_classes: int) -> list[int]:
    """All class numbers in the order given by a seed, a name or a list; see :func:`class_stream`."""
    if isinstance(order, int | np.integer):
        return _torch_randperm(int(order), n_classes)
    if isinstance(order, str) and order == "natural":
        return list(range(n_classes))
    if isinstance(order, str) and order == "1993":
        permutation: list[int] = np.random.RandomState(1993).permutation(n_classes).tolist()
        return permutation
    if isinstance(order, str) and order == "icarl":
        order = list(map(int, _ICARL.split()))
    if isinstance(order, str):
        raise ValueError(f"unknown class order {order!r}; there are {', '.join(NAMED_ORDERS)}")
    listed: list[Any] = np.asarray(order).tolist()
    if sorted(listed) != list(range(n_classes)):
        raise ValueError(
            f"a class order must have each of 0 … {n_classes - 1} once, got {len(listed)} entries {listed[:5]}…"
        )
    return listed


def _torch_randperm(seed: int, n: int) -> list[int]:
    """``torch.manual_seed(seed); torch.randperm(n)``: the same Mersenne twister, and Fisher-Yates from the left."""
    twister = np.random.RandomState(seed)
    permutation = list(range(n))
    for i in range(n - 1):
        j = i + int.from_bytes(twister.bytes(4), "little") % (n - i)
        permutation[i], permutation[j] = permutation[j], permutation[i]
    return permutation
