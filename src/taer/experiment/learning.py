"""Learning the tasks of a stream: each at once or, if their ends are not marked, in batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np

from taer.heads import Head
from taer.heads.descent.watch import Tell, each_epoch
from taer.rows import Rows, row_chunks
from taer.stream import Stream, TaskData

ANYTIME = 20  # measurements over a stream whose tasks are not marked


@dataclass
class Learning:
    """A head that learns a stream, and its accuracy on the classes seen, also between the batches of a task."""

    head: Head
    stream: Stream
    X_test: np.ndarray | Rows
    y_test: np.ndarray
    # Training samples so far, and the accuracy then.
    measured: list[tuple[int, float]] = field(default_factory=list)
    learned: int = 0  # training samples

    def __post_init__(self) -> None:
        self._every = -(-sum(len(self.stream.train_rows(t)) for t in range(len(self.stream))) // ANYTIME)

    def learn(self, task: TaskData, tell: Tell | None = None) -> float:
        """The seconds it takes to learn a task. The accuracy after its last batch is left to the caller."""
        with nullcontext() if tell is None else each_epoch(tell):
            return self._learn(task)

    def _learn(self, task: TaskData) -> float:
        seconds = 0.0
        end = self.learned + len(task.y_train)
        for X, y in self._batches(task):
            started = time.perf_counter()
            self.head.partial_fit(X, y)
            seconds += time.perf_counter() - started
            before, self.learned = self.learned, self.learned + len(y)
            if self.learned < end and self.learned // self._every > before // self._every:
                self.measured.append((self.learned, self._accuracy()))
        return seconds

    def _batches(self, task: TaskData) -> Iterator[tuple[np.ndarray | Rows, np.ndarray]]:
        if self.stream.batch is None:
            yield task.X_train, task.y_train
            return
        for start in range(0, len(task.y_train), self.stream.batch):
            part = np.arange(start, min(start + self.stream.batch, len(task.y_train)))
            yield task.X_train[part], task.y_train[part]

    def _accuracy(self) -> float:
        """The accuracy on the test samples of the classes seen so far."""
        known = np.flatnonzero(np.isin(self.y_test, self.head.classes_))
        if not len(known):
            return 0.0
        parts = [known[rows] for rows in row_chunks(known, width=self.X_test.shape[1])]
        right = [self.head.predict(self.X_test[part]) == self.y_test[part] for part in parts]
        return float(np.mean(np.concatenate(right)))
