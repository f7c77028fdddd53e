"""One run of a head over a stream, and its measurements."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from taer import __version__, metrics
from taer.experiment.callback import Callback
from taer.experiment.digest import source_digest
from taer.experiment.learning import Learning
from taer.experiment.results import FORMAT, Result, file_name
from taer.heads import Head, find_head, make_head
from taer.heads.few import FewSamplesWarning
from taer.memory import Everything, Memory
from taer.rows import Rows, row_chunks, select
from taer.stream import Stream
from taer.threads import one_blas_thread


@dataclass(frozen=True)
class Run:
    """A head, its parameters and a seed on a stream: everything that determines a result.

    On a stream whose tasks are not marked, samples come once: heads that have ``epochs`` then learn each batch in one pass,
    unless ``params`` says otherwise.
    """

    stream: Stream
    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    tuned: Mapping[str, Any] | None = None  # how some of the parameters were chosen; see ``tuning.py``

    def head(self) -> Head:
        head = make_head(self.method, **self.params, random_state=self.seed)
        once = self.stream.batch is not None and "epochs" not in self.params and "epochs" in head.get_params()
        return head.set_params(epochs=1) if once else head

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "features": self.stream.features.fingerprint,
            "stream": self.stream.kind,
            "tasks": self.stream.tasks,
            "rows": self.stream.rows_digest,
            "method": self.method,
            "params": {name: _plain(value) for name, value in self.head().get_params().items()},
            "source": source_digest(self.method),
            "seed": _plain(self.seed),
            **({} if self.tuned is None else {"tuned": self.tuned}),
        }

    @property
    def file_name(self) -> str:
        return file_name(self.identity)


def _plain(value: Any) -> Any:
    """A Python number for a numpy number, which JSON cannot encode."""
    return value.item() if isinstance(value, np.generic) else value


def execute(run: Run, callback: Callback | None = None) -> Result:
    """Learn the stream task by task and measure after each."""
    with one_blas_thread(), warnings.catch_warnings():  # one thread: the same bits for any number of workers
        warnings.simplefilter("ignore", FewSamplesWarning)  # few samples were asked for
        return _execute(run, callback)


def _execute(run: Run, callback: Callback | None) -> Result:
    head, tests = run.head(), _Tests.of(run.stream)
    learning = Learning(head, run.stream, tests.X, tests.order[tests.y])
    scores = np.empty((len(tests.y), 0), np.float32)  # of all test samples, columns in order of learning
    # Scores of old classes that never move do when samples of these classes return.
    moving = not head.frozen or run.stream.returning or run.stream.batch is not None
    phases: list[_Phase] = []
    if callback:
        callback.on_start(run)
    for t, task in enumerate(run.stream):
        replayed = getattr(head, "memory_", None)
        seconds = learning.learn(task, partial(callback.on_epoch, run, t) if callback else None)
        scores = _score_tests(head, tests.X, scores[:, :0] if moving else scores, tests.order[tests.task_of <= t])
        answers = _Answers.of(head, tests, t, scores)
        phases.append(
            _Phase(
                samples=len(task.y_train),
                seconds=seconds,
                head_bytes=sum(part.nbytes for part in _columns(head).values()),
                task_accuracies=metrics.task_accuracies(answers.y_true, answers.y_pred, answers.task_of),
                accuracy=float(np.mean(answers.y_true == answers.y_pred)),
                decomposition=metrics.decompose(answers.scores, answers.y_true, answers.task_of)._asdict(),
                ece=metrics.expected_calibration_error(answers.probabilities, answers.y_true),
                old_mass=_old_mass(head, tests, answers, t, replayed) if t else {},
                **_novelties(head, tests, answers, scores),
            )
        )
        learning.measured.append((sum(phase.samples for phase in phases), phases[-1].accuracy))
        if callback:
            callback.on_task(run, t, phases[-1].told(len(answers.task_of)))
    result = _result(run, head, tests, answers, phases, learning.measured)
    if callback:
        callback.on_end(run, result)
    return result


@dataclass(frozen=True)
class _Tests:
    """The test samples of a stream, sorted by class. Classes are numbered in the order of learning."""

    X: np.ndarray | Rows
    y: np.ndarray
    order: np.ndarray  # classes of the feature set, in the order of learning
    task_of: np.ndarray  # the task of each class
    place: np.ndarray  # the number of each class of the feature set; too large if it never arrives

    @classmethod
    def of(cls, stream: Stream) -> _Tests:
        features, order = stream.features, np.array(stream.order)
        task_of = np.repeat(np.arange(len(stream)), [len(task) for task in stream.tasks])
        place = np.full(len(features.classes), len(order))
        place[order] = np.arange(len(order))
        y = place[np.asarray(features.test_y)]
        tested = np.argsort(y, kind="stable")[: (y < len(order)).sum()]  # without classes that never arrive
        if len(untested := np.setdiff1d(task_of, task_of[y[tested]])):
            raise ValueError(f"task {untested[0] + 1} has no test samples, so there is no accuracy of it")
        return cls(select(features.test_x, tested), y[tested], order, task_of, place)


@dataclass(frozen=True)
class _Answers:
    """What a head answers after a task for the test samples of classes it knows."""

    y_true: np.ndarray
    y_pred: np.ndarray
    scores: np.ndarray
    probabilities: np.ndarray
    task_of: np.ndarray  # the task of each known class

    @classmethod
    def of(cls, head: Head, tests: _Tests, t: int, scores: np.ndarray) -> _Answers:
        task_of = tests.task_of[tests.task_of <= t]
        n_known = np.searchsorted(tests.y, len(task_of))
        known = scores[:n_known]
        return cls(tests.y[:n_known], known.argmax(axis=1), known, head._probabilities(known), task_of)


@dataclass(frozen=True)
class _Phase:
    """Measurements of learning one task, and of the answers after it."""

    samples: int
    seconds: float
    head_bytes: int
    task_accuracies: np.ndarray
    accuracy: float
    decomposition: dict[str, float]
    ece: float
    old_mass: dict[str, float]
    rejection: metrics.Rejection
    novelty_auroc: float | None  # detection of classes not yet learned

    def told(self, n_classes: int) -> dict[str, float]:
        """What a callback is told."""
        return {
            "accuracy": self.accuracy,
            "ece": self.ece,
            "seconds": self.seconds,
            "samples": float(self.samples),
            "classes": float(n_classes),
        }


def _old_mass(head: Head, tests: _Tests, answers: _Answers, t: int, replayed: Memory | None) -> dict[str, float]:
    """The probability on old classes, for test samples of these and for the samples that were replayed."""
    old = answers.task_of < t
    mass = {"test": metrics.old_mass(answers.probabilities[: np.searchsorted(tests.y, old.sum())], old)}
    if replayed is not None and len(replayed) and not isinstance(replayed, Everything):
        mass["memory"] = metrics.old_mass(head.predict_proba(replayed.X), old[tests.place[head.classes_]])
    return mass


def _novelties(head: Head, tests: _Tests, answers: _Answers, scores: np.ndarray) -> dict[str, Any]:
    """How well novelty finds classes not yet learned, and the answers without the most novel samples."""
    novelty, n_known = head._novelty_of(tests.X, scores), len(answers.y_true)
    limit = float(np.quantile(novelty[:n_known], 0.95))
    if head._own_novelty:
        with suppress(ValueError):  # while no class has two samples
            limit = head.novelty_threshold()
    return {
        "rejection": metrics.rejection(novelty[:n_known], answers.y_true == answers.y_pred, limit),
        "novelty_auroc": metrics.novelty_auroc(novelty[:n_known], novelty[n_known:]),
    }


def _result(
    run: Run,
    head: Head,
    tests: _Tests,
    answers: _Answers,
    phases: list[_Phase],
    anytime: list[tuple[int, float]],
) -> Result:
    """The result of a run, from its phases and the answers after the last one."""
    features, rows = run.stream.features, [phase.task_accuracies for phase in phases]
    matrix, accuracies = metrics.accuracy_matrix(rows), [phase.accuracy for phase in phases]
    return {
        **run.identity,  # type: ignore[typeddict-item]
        **_home(run),
        "name": features.name,
        "meta": dict(features.meta),
        "shots": run.stream.shots,
        "samples": [phase.samples for phase in phases],
        "classes": [features.classes[label] for label in tests.order],
        "A_T": metrics.average_accuracy(matrix),
        "AIA": metrics.average_incremental_accuracy(np.array(accuracies)),
        "last": accuracies[-1],
        **_base_and_new(answers),
        **_continual(matrix, anytime),
        "returning": [len(run.stream.classes_of(t)) - len(new) for t, new in enumerate(run.stream.tasks)],
        "class_accuracy": metrics.task_accuracies(
            answers.y_true, answers.y_pred, np.arange(len(tests.order))
        ).tolist(),
        "accuracy_matrix": [row.tolist() for row in rows],
        "phase_accuracy": accuracies,
        "preserved_accuracy": metrics.preserved_accuracy(answers.scores, answers.y_true, answers.task_of).tolist(),
        "old_mass": {
            of: [phase.old_mass[of] for phase in phases if of in phase.old_mass] for of in ("test", "memory")
        },
        "decomposition": [phase.decomposition for phase in phases],
        "ece": [phase.ece for phase in phases],
        "novelty_auroc": [phase.novelty_auroc for phase in phases[:-1]],
        "coverage": [phase.rejection.coverage for phase in phases],
        "selective_accuracy": [phase.rejection.accuracy for phase in phases],
        "confusion": metrics.confusion_matrix(answers.y_true, answers.y_pred, np.arange(len(tests.order))).tolist(),
        "seconds": [phase.seconds for phase in phases],
        "head_bytes": [phase.head_bytes for phase in phases],
        "memory_samples": len(getattr(head, "memory_", ())),
        "memory_bytes": _kept_bytes(head),
        "versions": {"taer": __version__, "numpy": np.__version__, "python": platform.python_version()},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _continual(matrix: np.ndarray, anytime: list[tuple[int, float]]) -> dict[str, Any]:
    """Measurements over the whole stream."""
    samples, accuracies = np.array(anytime).T
    return {
        "forgetting": metrics.forgetting(matrix),
        "backward_transfer": metrics.backward_transfer(matrix),
        "forward_transfer": metrics.forward_transfer(matrix, np.zeros(len(matrix))),
        "A_AUC": metrics.anytime_accuracy(samples, accuracies),
        "anytime": anytime,
    }


def _base_and_new(answers: _Answers) -> dict[str, Any]:
    """Measurements after the last task, of classes of the first task and of later ones."""
    later = answers.task_of[answers.y_true] > 0
    base = metrics.accuracy_among(answers.y_true, answers.y_pred, ~later)
    new = metrics.accuracy_among(answers.y_true, answers.y_pred, later)
    return {
        "base": base,
        "new": new,
        "harmonic": None if base is None or new is None else metrics.harmonic_mean(base, new),
        "ece_new": None
        if new is None
        else metrics.expected_calibration_error(answers.probabilities[later], answers.y_true[later]),
    }


def _home(run: Run) -> dict[str, str]:
    """The module of a named head from outside the package. The import path of a class says it by itself."""
    module = find_head(run.method).__module__
    return {} if ":" in run.method or module.startswith("taer.") else {"module": module}


def _columns(head: Head) -> dict[str, np.ndarray]:
    """The stored weight vectors and offsets of a linear head."""
    return {name: head._state()[name] for name in ("weights_", "offsets_")} if head.card.linear else {}


def _kept_bytes(head: Head) -> int:
    """Bytes that a head keeps besides its columns: exemplars, statistics, penalties."""
    others = {"classes_", "arrival_", "embedding_", *_columns(head)}
    return sum(_bytes_of(value) for name, value in head._state().items() if name not in others)


def _bytes_of(value: Any) -> int:
    """The size of an array, or of a value that is stored as arrays."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    return sum(array.nbytes for array in value.to_arrays().values()) if hasattr(value, "to_arrays") else 0


def _score_tests(head: Head, X: np.ndarray | Rows, before: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Scores of all test samples, classes in order of learning; those that are known ``before`` are not computed again."""
    wanted = order[before.shape[1] :]
    parts = row_chunks(X, width=max(X.shape[1], len(wanted)))
    added = np.concatenate([head.scores(X[rows], wanted) for rows in parts])
    return np.hstack([before, added])
