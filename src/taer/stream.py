"""Protocols: how the classes of a data set arrive, task after task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
NAMED_ORDERS = ("1993", "icarl")


@dataclass(frozen=True)
class TaskData:
    """The samples of one task; features that lie in files are read only where they are indexed."""

    classes: tuple[int, ...]
    X_train: np.ndarray | Rows
    y_train: np.ndarray
    X_test: np.ndarray | Rows
    y_test: np.ndarray


@dataclass(frozen=True)
class Stream:
    """A feature set cut into tasks of disjoint classes."""

    features: FeatureSet
    tasks: tuple[tuple[int, ...], ...]

    @property
    def order(self) -> tuple[int, ...]:
        """All classes, in the order in which they arrive."""
        return tuple(label for task in self.tasks for label in task)

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[TaskData]:
        for classes in self.tasks:
            train = np.flatnonzero(np.isin(self.features.train_y, classes))
            test = np.flatnonzero(np.isin(self.features.test_y, classes))
            yield TaskData(
                classes,
                select(self.features.train_x, train),
                np.asarray(self.features.train_y[train]),
                select(self.features.test_x, test),
                np.asarray(self.features.test_y[test]),
            )


def class_stream(
    features: FeatureSet, tasks: int = 10, first: int | None = None, order: int | str | Sequence[int] = 0
) -> Stream:
    """Cut a feature set into tasks.

    Parameters
    ----------
    features : FeatureSet
    tasks : int
        Number of tasks of equal size. With ``first``, the number of tasks after the first one.
    first : int, optional
        Number of classes in the first task (the paper's second protocol has half of them); the others are
        split equally into ``tasks``.
    order : int, str or sequence of int
        A seed (the order of ``torch.manual_seed(seed); torch.randperm(n)``, reproduced without torch), the name
        of a published order (``"1993"``: UCIR and PyCIL; ``"icarl"``: iCaRL's, for 100 classes), or all class
        numbers in order.

    Examples
    --------
    >>> import taer
    >>> stream = taer.class_stream(taer.load_features(), tasks=5)
    >>> len(stream), len(stream.tasks[0])
    (5, 20)
    """
    n_classes = len(features.classes)
    arriving = class_order(order, n_classes)
    if tasks < 1:
        raise ValueError(f"a stream needs at least one task, got {tasks}")
    if first is not None and not 0 < first < n_classes:
        raise ValueError(f"the first task must have 1 … {n_classes - 1} of the {n_classes} classes, got {first}")
    start = first or 0
    if (n_classes - start) % tasks:
        remaining = f"the {n_classes - start} remaining" if first else f"{n_classes}"
        possible = [str(n) for n in range(1, n_classes - start + 1) if (n_classes - start) % n == 0]
        raise ValueError(
            f"{remaining} classes do not divide into {tasks} equal tasks, but into {', '.join(possible[:12])}"
        )
    size = (n_classes - start) // tasks
    cuts = [(at, at + size) for at in range(start, n_classes, size)]
    if first:
        cuts.insert(0, (0, first))
    return Stream(features, tuple(tuple(arriving[a:b]) for a, b in cuts))


def class_order(order: int | str | Sequence[int], n_classes: int) -> list[int]:
    """All class numbers in the order that a seed, a name or a list describes; see :func:`class_stream`."""
    if isinstance(order, int | np.integer):
        return _torch_randperm(int(order), n_classes)
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
