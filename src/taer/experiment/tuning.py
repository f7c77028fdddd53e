"""Choosing parameters by a grid, on training samples alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from taer.experiment.results import Result
from taer.experiment.run import Run
from taer.features import FeatureSet
from taer.rows import select
from taer.stream import Stream, sample_stream

HELD_OUT = 5  # one of so many training samples of a class is asked, the others are learned
ON = ("held-out", "first-task")


@dataclass(frozen=True)
class Trial:
    """A run on training samples alone for each candidate, and the run that they decide about."""

    run: Run  # with the parameters that are not tried
    candidates: tuple[Mapping[str, Any], ...]
    on: str

    def runs(self) -> list[Run]:
        """None if there is nothing to choose."""
        if len(self.candidates) < 2:
            return []
        stream = trial_stream(self.run.stream, self.on, self.run.seed)
        return [replace(self.run, stream=stream, params={**self.run.params, **each}) for each in self.candidates]

    def chosen(self, results: Sequence[Result]) -> Run:
        """The run with the parameters of the highest accuracy at the end of the trial; the first of equal ones."""
        found = [result["last"] for result in results]
        best = self.candidates[int(np.argmax(found)) if found else 0]
        tried = [[dict(each), accuracy] for each, accuracy in zip(self.candidates, found, strict=False)]
        tuned = {"on": self.on, "chosen": dict(best), "tried": tried} if found else None
        return replace(self.run, params={**self.run.params, **best}, tuned=tuned)


def trial_stream(stream: Stream, on: str, seed: int = 0) -> Stream:
    """A stream of training samples of another one, in which some of them are the test part.

    Parameters
    ----------
    stream : Stream
        Its test part is never read.
    on : {'held-out', 'first-task'}
        ``held-out``: all tasks, without a fifth of the training samples of each class, which are asked. ``first-task``:
        the same with the samples of the first task alone, whose classes arrive in tasks of two or more, at most as many
        tasks as the stream has. So nothing of a later task is used.
    seed : int
        Random seed for the samples that are asked.
    """
    if on not in ON:
        raise ValueError(f"parameters are chosen on {' or '.join(ON)}, got {on!r}")
    features, labels = stream.features, np.asarray(stream.features.train_y)
    sessions = [stream.train_rows(t) for t in range(len(stream))]
    if on == "first-task":
        sessions = _recut(stream, sessions[0], labels)
    rows, rng = np.concatenate(sessions), np.random.default_rng([seed, 51])
    asked = np.concatenate([_fifth(rows[labels[rows] == label], rng) for label in np.unique(labels[rows])])
    if lone := [t for t, session in enumerate(sessions) if not np.isin(labels[session], labels[asked]).any()]:
        raise ValueError(
            f"every class of task {lone[0] + 1} has a single training sample, so none can be held out; choose on the first "
            "task alone (--on first-task)"
        )
    tried = FeatureSet(
        features.train_x,
        labels,
        select(features.train_x, asked),
        labels[asked],
        features.classes,
        features.meta,
        f"{features.name}, training samples alone",
    )
    learned = [session[~np.isin(session, asked)].tolist() for session in sessions]
    return sample_stream(tried, learned, kind=stream.kind, batch=stream.batch, order=stream.order)


def _fifth(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Samples of a class that are asked; none of a single one."""
    asked: np.ndarray = rng.permutation(rows)[: -(-len(rows) // HELD_OUT) if len(rows) > 1 else 0]
    return asked


def _recut(stream: Stream, rows: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    """The samples of the first task, by tasks of some of its classes."""
    classes = np.array(stream.tasks[0])
    tasks = np.array_split(classes, max(1, min(len(stream), len(classes) // 2)))
    return [rows[np.isin(labels[rows], task)] for task in tasks]
