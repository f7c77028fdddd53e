"""Heads whose units answer for one task at a time, so that the task of a sample has to be known, or guessed."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import entr, log_softmax

from taer.heads import exact
from taer.heads.adapter.base import AdapterHead
from taer.heads.adapter.network import Network
from taer.heads.base import Task, grown
from taer.heads.card import Card
from taer.heads.fitted import Fitted, Sizes, array
from taer.rows import select

GUESSING = Card(
    "adapter", old_scores="move", keeps="nothing", forgets="no", linear=False, exports=False, guesses_task=True
)
MASKS = {"masks_": array("tasks", "units", at_least=0, help="how far each unit is open in each task, from 0 to 1")}


class TaskHead(AdapterHead):
    """Every class belongs to a task, and the units answer for one task at a time.

    The task of a sample is guessed: it is the one whose prediction has the least entropy. The score of a class is its
    log probability among the classes of its own task, and those of other tasks than the guessed one lose the logarithm of
    the number of classes, which is enough to come after the best class of the guessed task. Among the classes of one task
    the scores are therefore those of a head that is given the task.

    A class that returns together with new ones is learned again as a class of the new task; without new ones, samples
    train the tasks that their classes belong to. A task of one class has no entropy, so it is guessed last.
    """

    fitted: ClassVar[dict[str, Fitted]] = {
        "tasks_": array("classes", types=("int64",), at_least=1, help="the task that each class belongs to")
    }

    def _open(self, task: Task) -> None:
        super()._open(task)
        if task.number == 1:
            self.tasks_: np.ndarray = np.zeros(0, np.int64)

    def _learn(self, task: Task) -> None:
        self._open(task)
        tasks = grown(self.tasks_, task.n_classes)
        if len(task.new):
            tasks[task.current] = task.number
        self.tasks_ = tasks
        for number in np.unique(tasks[task.y]).tolist():
            own = np.flatnonzero(tasks == number)
            members = np.flatnonzero(tasks[task.y] == number)
            X = task.X if len(members) == len(task.y) else select(task.X, members)
            part = Task(X, np.searchsorted(own, task.y[members]), 0, len(own), number)  # its classes from 0
            network = Network(self.hidden_.copy(), self.columns_[own], self._gates(part))
            self._train(part, network)
            self._store_task(part, network)
            columns = self.columns_.copy()
            columns[own] = exact.rounded(network.columns, self.dtype_)
            self.columns_ = columns

    def _train(self, task: Task, network: Network) -> None:
        """Learn the classes of one task, with a softmax over them alone."""
        self._loop().train(network, self._plan(task, network))

    def _is_new(self, task: Task) -> bool:
        """Whether a task is learned for the first time."""
        return task.number == self.n_tasks_

    def _gates(self, task: Task) -> np.ndarray:
        """The gates with which a task starts: those it has, or all open."""
        return np.ones(len(self.hidden_), self.dtype_) if self._is_new(task) else self._masks()[task.number - 1]

    def _masks(self) -> np.ndarray:
        """A copy of the masks of all tasks; all shut for one that is not yet learned."""
        known = getattr(self, "masks_", np.zeros((0, len(self.hidden_)), self.dtype_))
        return grown(known, self.n_tasks_)

    def _store_task(self, task: Task, network: Network) -> None:
        self.hidden_, self.masks_ = network.hidden, self._masks()
        self.masks_[task.number - 1] = network.gates

    def _scores(self, X: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        scores, units = np.empty((len(X), len(self.tasks_)), self.dtype_), self._units(X)
        numbers = np.unique(self.tasks_)
        entropies = np.full((len(X), len(numbers)), np.log(len(self.tasks_)))
        for place, number in enumerate(numbers.tolist()):
            own = np.flatnonzero(self.tasks_ == number)
            logs = log_softmax(self._answers(units, number, own).astype(np.float64), axis=1)
            scores[:, own] = logs
            if len(own) > 1:
                entropies[:, place] = entr(np.exp(logs)).sum(axis=1)
        guessed = numbers[entropies.argmin(axis=1)]
        scores -= np.log(len(self.tasks_)) * (self.tasks_ != guessed[:, None])
        return scores if classes is None else scores[:, classes]

    def _answers(self, units: np.ndarray, number: int, own: np.ndarray) -> np.ndarray:
        """Scores of the classes of a task, by the units as they are in that task."""
        return (units * self.masks_[number - 1]) @ self.columns_[own].T

    def _sizes(self) -> Sizes:
        return {**super()._sizes(), "tasks": self.n_tasks_}

    def _check_fitted(self) -> None:
        super()._check_fitted()
        if self.tasks_.max() > self.n_tasks_:
            raise ValueError(f"tasks_: expected tasks from 1 to {self.n_tasks_}")
