"""A candidate: a learned version that waits to be promoted, compared with the one in use."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from taer.answers import Candidate, Shadow
from taer.loop.compare import Comparison, compare
from taer.serve.database import StorageFailed
from taer.serve.serving import Answers, Conflict, Missing, Serving
from taer.serve.store import Example, Store
from taer.serve.tasks import matrix, names

Promote = Literal["auto", "ask", "if-not-worse"]
_SHOWN = 20  # examples whose answers differ
_log = logging.getLogger("taer.serve")


@dataclass(frozen=True)
class Staged:
    """The candidate, how it compares with the version in use, and how often they differ on what arrives."""

    serving: Serving
    current: int
    comparison: Comparison
    held_back: list[Example]
    counts: Shadow = field(default_factory=lambda: Shadow(answered=0, differ=0))
    _lock: threading.Lock = field(default_factory=threading.Lock)  # of the counts

    @classmethod
    def load(cls, store: Store, live: Serving, version: int, errors: float | None = None) -> Staged:
        """Both versions answer the held-out examples of the candidate and its ancestors."""
        serving = Serving.load(store, version, errors)
        assert serving.head is not None
        assert live.head is not None
        held_back = store.held_back(version)
        X = matrix(held_back) if held_back else np.empty((0, serving.head.n_features_in_), np.float32)
        return cls(
            serving, live.version, compare(live.head, serving.head, X, names(held_back, serving.head)), held_back
        )

    def shadow(self, X: np.ndarray, answered: Answers) -> None:
        """Let the candidate answer, too, and count how often the two differ. Never raises: nobody waits for it."""
        try:
            mine = self.serving.answer(X)
            differ = int((mine.classes[mine.best] != answered.classes[answered.best]).sum())
        except Exception:
            _log.exception("the candidate could not answer")
            return
        with self._lock:
            self.counts["answered"] += len(X)
            self.counts["differ"] += differ

    def described(self) -> Candidate:
        found = self.comparison
        return {
            "version": self.serving.version,
            "current": self.current,
            "sentence": found.sentence(),
            "not_worse": found.not_worse,
            "compared": found.compared,
            "before": found.before,
            "after": found.after,
            "at_least": found.at_least,
            "at_most": found.at_most,
            "new_classes": [str(label) for label in found.new_classes],
            "new_compared": found.new_compared,
            "new_accuracy": found.new_accuracy,
            "only_new_classes_win": not found.moved,
            "losing": [
                {"label": str(one.label), "examples": one.samples, "before": one.before, "after": one.after}
                for one in found.losing
            ],
            "differing": len(found.differing),
            "examples": [
                {
                    "id": self.held_back[one.row].id,
                    "truth": str(one.truth),
                    "before": str(one.before),
                    "after": str(one.after),
                    "text": source if isinstance(source := self.held_back[one.row].source, str) else None,
                }
                for one in found.differing[:_SHOWN]
            ],
            "shadow": self.counts.copy(),
        }


class Stage:
    """The place of the candidate; it is empty in most services."""

    def __init__(self, store: Store, errors: float | None = None) -> None:
        self._store, self._errors = store, errors
        self._lock = threading.RLock()
        self._staged: Staged | None = None  # None if there is none, or it is to be read
        self.occupied = False

    def look(self, live: Serving | None) -> None:
        """Read the candidate again, so that it can answer in the shadow; what cannot be read now is read when needed."""
        with self._lock, suppress(OSError):
            self._staged, self.occupied = None, True  # until the database says otherwise
            self.occupied = self._store.candidate() is not None
            if self.occupied and live is not None:
                self.read(live)

    def read(self, live: Serving) -> Staged:
        """Raises Missing if there is no candidate, StorageFailed if it cannot be read."""
        with self._lock:
            if self._staged is None:
                version = self._store.candidate()
                if version is None:
                    raise Missing("no version waits to be promoted")
                try:
                    self._staged = Staged.load(self._store, live, version, self._errors)
                except ValueError as error:
                    _log.error("version %d cannot be loaded: %s", version, error)
                    raise StorageFailed(f"the file of version {version} is missing or damaged; reject it") from None
            return self._staged

    def shadow(self, X: np.ndarray, answered: Answers) -> None:
        if (staged := self._staged) is not None:
            staged.shadow(X, answered)

    def check_free(self) -> None:
        """Raise Conflict while a candidate waits: two ways from one version would lose one of them."""
        if self.occupied and (version := self._store.candidate()) is not None:
            raise Conflict(f"version {version} waits to be promoted; promote or reject it first")

    def reject(self) -> None:
        version = self._store.candidate()
        if version is None:
            raise Missing("no version waits to be promoted")
        self._store.reject(version)
        self.leave()

    def leave(self) -> None:
        """The candidate was promoted or rejected."""
        with self._lock:
            self._staged, self.occupied = None, False
