"""The operations of a service on its folder and its current version."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taer.heads import Head, make_head
from taer.serve.drift import Drift
from taer.serve.inputs import MAX_PENDING, Backbone, BadInput, check_label
from taer.serve.learner import Learner
from taer.serve.purge import Purged, purge
from taer.serve.recovery import look_at_versions, newest_that_loads
from taer.serve.relearn import relearn as relearn_all
from taer.serve.serving import Answers, Conflict, Serving
from taer.serve.store import Example, Store, Version, only_one
from taer.serve.tasks import describe

RECOMMENDED = "bayes"  # the default head of a new folder
_log = logging.getLogger("taer.serve")


class Missing(Exception):
    """There is no such version, class or example."""


class Service:
    """A folder, its current version, and the process that learns.

    Parameters
    ----------
    folder : Path
        Folder of examples and versions; created if it does not exist.
    backbone : Backbone, optional
        Backbone for images or texts; without one the service accepts vectors.
    first : Head, optional
        The first version of an empty folder, with ``held_back`` samples of its classes for the accuracy.
    method : str, optional
        Name of the head for a folder without one; by default the recommended head.
    relearn : bool
        Whether to learn all stored examples again, with this backbone and this head.
    """

    def __init__(
        self,
        folder: Path,
        backbone: Backbone | None = None,
        first: Head | None = None,
        held_back: tuple[np.ndarray, list[str]] | None = None,
        method: str | None = None,
        relearn: bool = False,
    ) -> None:
        self._method = method or RECOMMENDED
        make_head(self._method)  # a wrong name is told at the start
        folder.mkdir(parents=True, exist_ok=True)
        self._here = only_one(folder, "serve")
        with only_one(folder, "learner", wait=True):  # the learner of a server that was killed ends by itself
            self.store = Store(folder)
            self.store.tidy()
            self.notices = look_at_versions(self.store)  # what whoever starts the service should know
            if relearn:
                self.notices.append(relearn_all(self.store, backbone, method))
        self.backbone = backbone
        self.learner = Learner(folder)
        self.drift = Drift(self.store)
        self.is_new = not self.store.versions()
        if first is not None and self.is_new:
            self._import(first, held_back)
        self._serving = newest_that_loads(self.store, self.notices)
        self._check_eyes(self._serving.version)
        self._adding = threading.Lock()
        self.n_pending = sum(self.store.count_pending().values())

    def close(self) -> None:
        self.learner.stop()
        self.drift.save()
        self.store.close()
        self._here.close()

    @property
    def serving(self) -> Serving:
        return self._serving

    def _import(self, head: Head, held_back: tuple[np.ndarray, list[str]] | None) -> None:
        X, labels = held_back or (np.empty((0, 0)), [])
        examples = [Example(0, label, np.asarray(x, np.float32)) for x, label in zip(X, labels, strict=True)]
        report = describe(None, head, examples) | {"seconds": None, "examples": 0, "backbone": self._eyes}
        self.store.add_version(head, 0, report, brought=examples)

    @property
    def _eyes(self) -> str | None:
        return self.backbone.name if self.backbone else None

    def _check_eyes(self, version: int) -> None:
        taught = self.store.backbone(version)
        if taught and self._eyes and taught != self._eyes:
            raise Conflict(
                f"version {version} was taught with the backbone {taught}, and this service has {self._eyes}; start it "
                "with that one, or learn all stored examples again with this one (--relearn)"
            )

    @property
    def width(self) -> int | None:
        """The length of a vector; None while anything goes."""
        head = self._serving.head
        return head.n_features_in_ if head is not None else self.store.width()

    # Answers

    def predict(self, X: np.ndarray, *, preview: bool = False) -> Answers:
        answers = self._serving.answer(X)
        if not preview:
            self.drift.count(len(X), int(answers.unknown.sum()))
        return answers

    def classes(self) -> list[dict[str, Any]]:
        """Classes in order of learning, then those with waiting examples only."""
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

    def example(self, number: int) -> Example:
        """An example that waits or belongs to the current version."""
        found = self.store.example(number, self._serving.version)
        if found is None:
            raise Missing(f"there is no example {number}")
        return found

    def version(self, number: int) -> Version:
        found = [known for known in self.store.versions() if known.version == number]
        if not found:
            raise Missing(f"there is no version {number}")
        return found[0]

    # Examples

    def add_examples(
        self, label: str | int, X: np.ndarray, sources: Sequence[str | bytes] | None = None
    ) -> list[int]:
        """Store examples of a class; they wait for the next task."""
        label = self._checked(label)
        with self._adding:
            width = self.width
            if width is not None and X.shape[1] != width:
                raise BadInput(f"vectors: expected {width} numbers in each, got {X.shape[1]}")
            if self.n_pending + len(X) > MAX_PENDING:
                raise Conflict(f"{self.n_pending} examples wait to be learned, and {MAX_PENDING} may; learn first")
            ids = self.store.add_examples(label, X, sources)
            self.n_pending += len(X)
        self.learner.start()  # there will be a task to learn
        return ids

    def discard_pending(self) -> int:
        with self.learner.exclusively(), self._adding:
            count = self.store.discard_pending()
            self.n_pending = 0
        return count

    def correct(self, number: int, label: str | int | None) -> Version | None:
        """Change the label of an example, or delete it with None. Returns the new version; None for a waiting example."""
        new = None if label is None else self._checked(label)
        example = self.example(number)
        if example.version is not None:
            if new == example.label:
                raise Conflict(f"example {number} is of {new} already")
            return self._do("relabel", number=number, label=new) if new else self._do("delete", number=number)
        with self.learner.exclusively(), self._adding:
            self.store.change_pending(number, new)
            self.n_pending = sum(self.store.count_pending().values())
        return None

    def purge(self, ids: Sequence[int]) -> Purged:
        """Delete examples permanently, with all versions that were learned from them."""
        with self.learner.exclusively():
            try:
                purged = purge(self.store, sorted(set(ids)))
            except KeyError as error:
                raise Missing(f"there is no example {error.args[0]}; nothing was deleted") from None
            with self._adding:
                self._look()
        return purged

    # Classes

    def rename(self, label: str, new: str | int) -> Version:
        return self._do("rename", label=self._known(label), new=self._checked(new))

    def forget(self, label: str) -> Version:
        return self._do("forget", label=self._known(label))

    def _known(self, label: str) -> str:
        if label not in {known for known, _ in self._serving.classes}:
            raise Missing(f"there is no class {label}")
        if waiting := self.store.count_pending().get(label):
            are = "1 example of it waits" if waiting == 1 else f"{waiting} examples of it wait"
            raise Conflict(f"{label}: {are} to be learned; learn or discard first")
        return label

    def _checked(self, label: str | int) -> str:
        head = self._serving.head
        return check_label(label, None if head is None else head.classes_)

    # Versions

    def learn(self) -> Version:
        """Learn all waiting examples as one task. The old version is used until the new one is complete."""
        origin = self.backbone.origin if self.backbone else None
        return self._do("learn", method=self._method, backbone=self._eyes, origin=origin)

    def _do(self, task: str, **options: Any) -> Version:
        version = self.learner.do(task, **options)
        with self._adding:
            self._look()
        return self.version(version)

    def _look(self) -> None:
        """Load the current version from disk."""
        self._serving = Serving.load(self.store, self.store.current())
        self.n_pending = sum(self.store.count_pending().values())

    def go_to(self, version: int) -> None:
        """Switch to another version; 0 is the empty one."""
        if version:
            self.version(version)
            self._check_eyes(version)
        with self.learner.exclusively():
            try:
                serving = Serving.load(self.store, version)
            except (ValueError, OSError) as error:
                _log.error("version %d cannot be loaded: %s", version, error)
                raise Conflict(
                    f"the file of version {version} is missing or damaged; nothing was changed"
                ) from None
            with self._adding:
                self.store.go_to(version)
                self._serving = serving
