"""The version that answers, and the few things that can be done to it."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from taer.heads import Head
from taer.serve.inputs import MAX_PENDING, Backbone, BadInput, check_label
from taer.serve.learner import Learner, describe
from taer.serve.store import Example, Store, Version, only_one

_log = logging.getLogger("taer.serve")


class Conflict(Exception):
    """What was asked does not fit the state of the service, and the message says why."""


@dataclass(frozen=True)
class Serving:
    """A version and its head; replaced as a whole, never changed, so a request sees one version."""

    version: int
    head: Head | None

    @property
    def classes(self) -> list[tuple[str, int]]:
        """Classes and their tasks, in order of learning."""
        return [] if self.head is None else [(str(label), task) for label, task in self.head.learning_order_]


class Service:
    """A folder, the head that answers from it, and the process that learns for it.

    Parameters
    ----------
    folder : Path
        Examples and versions; made if it does not exist.
    backbone : Backbone, optional
        What turns images or texts into vectors; without one the service takes vectors.
    first : Head, optional
        The first version of an empty folder, with ``held_back`` samples of its classes to measure on.
    """

    def __init__(
        self,
        folder: Path,
        backbone: Backbone | None = None,
        first: Head | None = None,
        held_back: tuple[np.ndarray, list[str]] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._here = only_one(folder, "serve")
        self.notices: list[str] = []  # what whoever starts the service should know about its folder
        with only_one(folder, "learner", wait=True):  # the learner of a server that was killed ends by itself
            self.store = Store(folder)
            self.store.tidy()
            self._look_at_versions()
        self.backbone = backbone
        self.learner = Learner(folder)
        self.is_new = not self.store.versions()
        if first is not None and self.is_new:
            self._import(first, held_back)
        self._serving = self._newest_that_loads()
        self._adding = threading.Lock()
        self.n_pending = sum(self.store.count_pending().values())

    def close(self) -> None:
        self.learner.stop()
        self.store.close()
        self._here.close()

    @property
    def serving(self) -> Serving:
        return self._serving

    def _load(self, version: int) -> Serving:
        return Serving(version, self.store.load(version))

    def _look_at_versions(self) -> None:
        """With versions and no database, rebuild the history; say which files no row of the database knows."""
        files, folder = self.store.files(), self.store.folder
        if files and self.store.is_empty():
            known = self._history_of(files)
            if not known:
                raise ValueError(f"{folder}: taer.db is missing, and no file in versions/ can be loaded")
            self.store.rebuild(known)
            self.notices.append(
                f"taer.db was missing or empty; its history was rebuilt from {len(known)} files in versions/. "
                "Examples are not in them: those that waited or were held back are lost unless a backup has them"
            )
        if strays := sorted(set(files) - {version.version for version in self.store.versions()}):
            names = ", ".join(map(str, strays[:10])) + (", …" if len(strays) > 10 else "")
            self.notices.append(f"files in versions/ that do not count, left alone: {names}")

    def _history_of(self, files: list[int]) -> list[Version]:
        """What heads tell of themselves; the parent of one is the last that had learned all but its last task."""
        found: list[Version] = []
        learned: dict[int, tuple[int, list[Any]]] = {}  # tasks, and classes in order
        for number in files:
            try:
                head = self.store.load(number)
            except (ValueError, OSError):
                continue
            assert head is not None
            before = [entry for entry in head.learning_order_ if entry.task < head.n_tasks_]
            parents = [known for known, had in learned.items() if had == (head.n_tasks_ - 1, before)]
            parent = parents[-1] if parents else 0
            report = describe(self.store.load(parent), head, []) | {"seconds": None, "examples": 0}
            found.append(Version(number, parent, self.store.made(number), report))
            learned[number] = head.n_tasks_, list(head.learning_order_)
        return found

    def _newest_that_loads(self) -> Serving:
        """The current version; if its file is missing or damaged, the newest one that can be loaded."""
        current = self.store.current()
        try:
            return self._load(current)
        except (ValueError, OSError) as error:
            reason = str(error)
        for known in reversed(self.store.versions()):
            try:
                serving = self._load(known.version)
            except (ValueError, OSError):
                continue
            self.store.go_to(known.version)
            self.notices.append(f"version {current} cannot be loaded ({reason}); version {known.version} answers")
            return serving
        raise ValueError(f"none of the versions can be loaded: {reason}. Restore a copy made by taer backup")

    def _import(self, head: Head, held_back: tuple[np.ndarray, list[str]] | None) -> None:
        X, labels = held_back or (np.empty((0, 0)), [])
        examples = [Example(0, label, np.asarray(x, np.float32)) for x, label in zip(X, labels, strict=True)]
        report = describe(None, head, examples) | {"seconds": None, "examples": 0}
        self.store.add_version(head, 0, report, brought=examples)

    @property
    def width(self) -> int | None:
        """The length of a vector; None while anything goes."""
        head = self._serving.head
        return head.n_features_in_ if head is not None else self.store.width()

    def add_examples(self, label: str, X: np.ndarray) -> list[int]:
        """Put examples of a class on disk; they wait there for the next task."""
        label = check_label(label)
        head = self._serving.head
        if head is not None and head.classes_.dtype.kind != "U":
            try:
                if str(np.array([label]).astype(head.classes_.dtype)[0]) != label:
                    raise ValueError
            except (ValueError, OverflowError):
                raise BadInput(f"label: the classes of this head are numbers, and {label!r} is not one") from None
        with self._adding:
            width = self.width
            if width is not None and X.shape[1] != width:
                raise BadInput(f"vectors: expected {width} numbers in each, got {X.shape[1]}")
            if self.n_pending + len(X) > MAX_PENDING:
                raise Conflict(f"{self.n_pending} examples wait to be learned, and {MAX_PENDING} may; learn first")
            ids = self.store.add_examples(label, X)
            self.n_pending += len(X)
        self.learner.start()  # there will be a task to learn
        return ids

    def discard_pending(self) -> int:
        with self.learner.exclusively(), self._adding:
            count = self.store.discard_pending()
            self.n_pending = 0
        return count

    def learn(self) -> Version:
        """One task from what waits; the head answers from the old version until the new one is whole."""
        version = self.learner.learn()
        with self._adding:
            self._serving = self._load(self.store.current())
            self.n_pending = sum(self.store.count_pending().values())
        return self._described(version)

    def go_to(self, version: int) -> None:
        """Answer from another version, 0 for the empty one."""
        if version and version not in {known.version for known in self.store.versions()}:
            raise KeyError(version)
        with self.learner.exclusively():
            try:
                serving = self._load(version)
            except (ValueError, OSError) as error:
                _log.error("version %d cannot be loaded: %s", version, error)
                raise Conflict(
                    f"the file of version {version} is missing or damaged; nothing was changed"
                ) from None
            with self._adding:
                self.store.go_to(version)
                self._serving = serving

    def _described(self, version: int) -> Version:
        return next(known for known in self.store.versions() if known.version == version)

    def predict(self, X: np.ndarray) -> tuple[int, Head, np.ndarray, np.ndarray]:
        """The version that answered, its head, the labels, and the probabilities in the order of its classes."""
        serving = self._serving
        if serving.head is None:
            raise Conflict("nothing was learned yet: add examples, then learn")
        if X.shape[1] != serving.head.n_features_in_:
            raise BadInput(f"vectors: expected {serving.head.n_features_in_} numbers in each, got {X.shape[1]}")
        return serving.version, serving.head, *serving.head.predict_with_proba(X)

    def classes(self) -> list[dict[str, Any]]:
        """Classes in the order they were learned, then those that wait to be."""
        serving, pending = self._serving, self.store.count_pending()
        learned = self.store.learned(serving.version)
        known = {label for label, _ in serving.classes}
        rows = [*serving.classes, *((label, None) for label in pending if label not in known)]
        return [
            {
                "label": label,
                "task": task,
                "examples": learned.get(label, (0, 0))[0],
                "held_back": learned.get(label, (0, 0))[1],
                "waiting": pending.get(label, 0),
            }
            for label, task in rows
        ]
