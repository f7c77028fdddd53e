"""The current version, its predictions, and how many of them were unknown in each hour."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from taer.answers import Hour, Why
from taer.heads import Head
from taer.heads.unknowns import above
from taer.multilabel.model import MultiLabel
from taer.serve.database import Database, StorageFailed
from taer.serve.inputs import BadInput
from taer.serve.store import Store
from taer.serve.tasks import matrix
from taer.serve.trust import Promise, known_examples, promised, without_a_person

FALSE_ALARMS = 0.05  # fraction of samples of known classes that are marked unknown
_HOUR = 3600
_Place = tuple[int, int]  # hour since 1970, and version
_log = logging.getLogger("taer.serve")
_ENOUGH = 20  # held-out examples from which a threshold is computed


class Missing(Exception):
    """There is no such version, class or example."""


class Unavailable(Exception):
    """The head does not answer now, for the reason in the message."""


class Conflict(ValueError):
    """The request does not fit the state of the service."""


@dataclass(frozen=True)
class Answers:
    """The predictions of a version for some samples."""

    version: int
    threshold: float | None
    classes: np.ndarray
    scores: np.ndarray
    best: np.ndarray  # of each sample the place of its class in classes
    probabilities: np.ndarray
    novelty: np.ndarray
    unknown: np.ndarray
    automatic: np.ndarray | None  # which need no person; None if nothing is promised
    why: list[Why] | None = None  # if it was asked for


@dataclass(frozen=True)
class Serving:
    """A version and its head. It is replaced as a whole and never changed, so a request sees one version."""

    version: int
    head: Head | None
    threshold: float | None  # the novelty above which an answer is unknown
    limits: np.ndarray | None  # the same for each class of classes_, some of which may have one of their own
    promise: Promise | None = None  # about answers without a person

    @classmethod
    def load(cls, store: Store, version: int, errors: float | None = None) -> Serving:
        """A version, with at most this share of ``errors`` among answers that need no person; None: nothing is promised."""
        head = store.load(version)
        if head is None or isinstance(head, MultiLabel):
            return cls(version, head, None, None)
        found = cls.of(version, head, _threshold(head, store, version))
        return replace(found, promise=promised(head, known_examples(store, version, head), errors))

    @classmethod
    def of(cls, version: int, head: Head | None, threshold: float | None) -> Serving:
        if head is None or threshold is None:
            return cls(version, head, None, None)
        own = getattr(head, "class_thresholds_", {})
        return cls(
            version, head, threshold, np.array([own.get(label, threshold) for label in head.classes_.tolist()])
        )

    @property
    def classes(self) -> list[tuple[str, int]]:
        """Classes and their tasks, in order of learning."""
        if isinstance(self.head, MultiLabel):
            return [(str(label), 1) for label in self.head.classes_]
        return [] if self.head is None else [(str(label), task) for label, task in self.head.learning_order_]

    def answer(self, X: np.ndarray) -> Answers:
        head = self.head
        if head is None:
            raise Conflict("nothing was learned yet: add examples, then learn")
        if X.shape[1] != head.n_features_in_:
            raise BadInput(f"vectors: expected {head.n_features_in_} numbers in each, got {X.shape[1]}")
        scores, novelty = head._scores_with_novelty(X)
        best = scores.argmax(axis=1)
        unknown = above(novelty, np.inf if self.limits is None else self.limits[best])
        return Answers(
            self.version,
            self.threshold,
            head.classes_,
            scores,
            best,
            head._probabilities(scores),
            novelty,
            unknown,
            without_a_person(head, scores, novelty, unknown),
        )


def _threshold(head: Head, store: Store, version: int) -> float | None:
    """The head's own threshold, else one from its stored novelties, else one from enough held-out examples."""
    if hasattr(head, "threshold_"):
        return head.threshold_
    try:
        return head.novelty_threshold(false_alarms=FALSE_ALARMS)
    except ValueError:
        held_back = known_examples(store, version, head)
        return head.novelty_threshold(matrix(held_back), FALSE_ALARMS) if len(held_back) >= _ENOUGH else None


class Drift:
    """The number of unknown answers of each version per hour. Counts are in memory; :meth:`save` adds them to those on
    disk.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._answered: Counter[_Place] = Counter()
        self._unknown: Counter[_Place] = Counter()

    def count(self, version: int, answered: int, unknown: int) -> None:
        place = int(time.time()) // _HOUR, version
        with self._lock:
            self._answered[place] += answered
            self._unknown[place] += unknown

    def save(self) -> None:
        """Add the counts to those on disk. If that fails they stay in memory, for the next time."""
        with self._saving:
            rows = self._unsaved()
            try:
                self._write(rows)
            except StorageFailed as error:
                _log.warning("the counts of answers were not saved, and will be later: %s", error)
                return
            with self._lock:
                self._answered -= Counter({(hour, version): answered for hour, version, answered, _ in rows})
                self._unknown -= Counter({(hour, version): unknown for hour, version, _, unknown in rows})

    def _unsaved(self) -> list[tuple[int, int, int, int]]:
        with self._lock:
            return [(*place, answered, self._unknown[place]) for place, answered in self._answered.items()]

    def _write(self, rows: list[tuple[int, int, int, int]]) -> None:
        if rows:
            with self._database.transaction() as db:
                db.executemany(
                    "INSERT INTO answers VALUES (?, ?, ?, ?) ON CONFLICT (hour, version) DO UPDATE SET "
                    "answered = answered + excluded.answered, unknown = unknown + excluded.unknown",
                    rows,
                )

    def hours(self, last: int) -> list[Hour]:
        """The recent hours that have answers, the oldest first."""
        counts = self._counts(int(time.time()) // _HOUR - last, None)
        return [
            Hour(
                start=datetime.fromtimestamp(hour * _HOUR, UTC).isoformat(timespec="minutes"),
                answered=answered,
                unknown=unknown,
            )
            for hour, answered, unknown in counts
        ]

    def of_version(self, version: int) -> list[tuple[int, int]]:
        """The answers of a version and the unknown ones among them, hour by hour."""
        return [(answered, unknown) for _, answered, unknown in self._counts(0, version)]

    def _counts(self, after: int, version: int | None) -> list[tuple[int, int, int]]:
        """Hours with answers, of one version or of all."""
        self.save()
        answered, unknown = Counter[int](), Counter[int]()
        with self._saving:  # so that nothing is counted twice
            stored = self._database.rows(
                "SELECT hour, version, answered, unknown FROM answers WHERE hour > ? AND (? IS NULL OR version = ?)",
                after,
                version,
                version,
            )
            for hour, by, count, strange in [*stored, *self._unsaved()]:
                if hour > after and version in (None, by):
                    answered[hour] += count
                    unknown[hour] += strange
        return [(hour, answered[hour], unknown[hour]) for hour in sorted(answered)]
