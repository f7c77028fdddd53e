"""The base class of heads with separate outputs per task, which must know or guess the task of a sample."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import entr, log_softmax

from taer.heads import exact
from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.fitted import Fitted, Sizes, array
from taer.heads.numerics import grown
from taer.rows import select
from taer.zoo.shared.adapter import AdapterHead
from taer.zoo.shared.adapter_network import Network

GUESSING = Card(
    "adapter", old_scores="move", keeps="nothing", forgets="no", linear=False, exports=False, guesses_task=True
)
MASKS = {
    "masks_": array("tasks", "units", at_least=0, help="gate of each unit in each task, from 0 (shut) to 1 (open)")
}


class TaskHead(AdapterHead):
    """Every class belongs to one task, and each task has its own outputs.

    The task of a sample is guessed: it is the one whose prediction has the lowest entropy. The score of a class is its
    log probability among the classes of its own task. For all tasks except the guessed one, the logarithm of the number
    of classes is subtracted, which puts them below the best class of the guessed task. Among the classes of one task the
    scores are therefore those of a head that knows the task.

    A known class that arrives together with new ones is learned again as a class of the new task. Without new classes,
    samples train the tasks that their classes belong to. A task with one class has no entropy, so it is guessed last.
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
            network = Network(self.hidden_.copy(), self.weights_[own], self._gates(part))
            network = self._train(part, network)
            # if units were added
            columns = np.pad(self.weights_, [(0, 0), (0, len(network.hidden) - len(self.hidden_))])
            self._store_task(part, network)
            columns[own] = exact.rounded(network.columns, self.dtype_)
            self.weights_ = columns

    def _train(self, task: Task, network: Network) -> Network:
        """Learn the classes of one task, with a softmax over them alone; returns the network, which may have grown."""
        self._loop().train(network, self._plan(task, network))
        return network

    def _is_new(self, task: Task) -> bool:
        """Whether a task is learned for the first time."""
        return task.number == self.n_tasks_

    def _gates(self, task: Task) -> np.ndarray:
        """The gates at the start of a task: its own if it was learned before, otherwise all open."""
        return np.ones(len(self.hidden_), self.dtype_) if self._is_new(task) else self._masks()[task.number - 1]

    def _masks(self) -> np.ndarray:
        """A copy of the masks of all tasks; zeros for a task that is not yet learned."""
        known = getattr(self, "masks_", np.zeros((0, len(self.hidden_)), self.dtype_))
        return grown(known, self.n_tasks_)

    def _store_task(self, task: Task, network: Network) -> None:
        added = len(network.hidden) - len(self.hidden_)
        self.hidden_, self.masks_ = network.hidden, np.pad(self._masks(), [(0, 0), (0, added)])
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
        """Scores of the classes of a task, with the gates of that task."""
        return exact.products(units * self.masks_[number - 1], self.weights_[own])

    def _sizes(self) -> Sizes:
        return {**super()._sizes(), "tasks": self.n_tasks_}

    def _check_fitted(self) -> None:
        super()._check_fitted()
        if self.tasks_.max() > self.n_tasks_:
            raise ValueError(f"tasks_: expected tasks from 1 to {self.n_tasks_}")
