"""The operations of a service on its folder and its current version."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from taer.answers import ClassEntry, Purged
from taer.files import make_folder
from taer.heads import Head, make_head
from taer.serve import traces
from taer.serve.database import StorageFailed, at_start
from taer.serve.inbox import Bounds, Inbox, clear
from taer.serve.inputs import MAX_PENDING, Backbone, BadInput, check_label
from taer.serve.learner import Ended, Learner
from taer.serve.published import publish
from taer.serve.purge import purge
from taer.serve.reasons import reasons
from taer.serve.serving import Answers, Conflict, Drift, Missing, Serving
from taer.serve.staging import Promote, Stage, Staged
from taer.serve.start import look_at_versions, newest_that_loads, untested
from taer.serve.start import relearn as relearn_all
from taer.serve.store import Example, Record, Store, Version, only_one
from taer.serve.tasks import Refused, describe

RECOMMENDED = "bayes"  # the default head of a new folder
_log = logging.getLogger("taer.serve")


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
    promote : {"auto", "ask", "if-not-worse"}
        Whether a learned version answers at once, waits as a candidate, or waits unless it is shown not to be worse.
    inbox : Bounds, optional
        How many unknown and uncertain inputs to keep, and for how long; by default none.
    learner : Learner, optional
        Who learns; by default a process of its own.
    errors : float, optional
        The largest share of answers without a person that may be wrong; by default nothing is promised.
    """

    several_labels = False  # whether a sample may have several

    def __init__(
        self,
        folder: Path,
        backbone: Backbone | None = None,
        first: Head | None = None,
        held_back: tuple[np.ndarray, list[str]] | None = None,
        method: str | None = None,
        relearn: bool = False,
        promote: Promote = "auto",
        inbox: Bounds | None = None,
        learner: Learner | None = None,
        errors: float | None = None,
    ) -> None:
        self._promote, self._errors = promote, errors
        self.method = method or RECOMMENDED
        make_head(self.method)  # a wrong name is told at the start
        self.backbone = backbone
        self._memory = threading.RLock()  # for what is known of the database: the version and the waiting examples
        self._serving: Serving | None = None  # None if it is to be read
        self._n_pending: int | None = None
        self.learner = learner or Learner(folder)
        with ExitStack() as opened:
            try:
                self._open(folder, opened, method, relearn, inbox)
                self._begin(first, held_back)
            except OSError as error:
                raise at_start(folder, error) from error
            self._opened = opened.pop_all()

    def _open(
        self, folder: Path, opened: ExitStack, method: str | None, relearn: bool, inbox: Bounds | None
    ) -> None:
        make_folder(folder)
        opened.enter_context(only_one(folder, "serve"))
        with only_one(folder, "learner", wait=True):  # the learner of a server that was killed ends by itself
            self.store = opened.enter_context(closing(Store(folder)))
            self.notices = self.store.tidy()  # what whoever starts the service should know
            self.store.to_file(all_of_it=True)
            self.notices += look_at_versions(self.store)
            if relearn:
                self.notices.append(relearn_all(self.store, self.backbone, method))
        self.drift = Drift(self.store)
        self.inbox = Inbox(self.store, inbox) if inbox else None
        if (inbox is None or relearn) and (gone := clear(self.store)):
            self.notices.append(
                f"the inbox {'is off' if inbox is None else 'begins again'}; {gone} inputs were deleted"
            )
        opened.callback(self.save)
        opened.callback(self.learner.stop)

    def _begin(self, first: Head | None, held_back: tuple[np.ndarray, list[str]] | None) -> None:
        self.is_new = not self.store.versions()
        if first is not None and self.is_new:
            self._import(first, held_back)
        self._serving = newest_that_loads(self.store, self.notices, self._errors)
        self.notices += untested(self.store, self._serving, self._promote)
        self._stage = Stage(self.store, self._errors)
        self._stage.look(self._serving)
        self._check_eyes(self._serving.version)
        self._publish()

    def close(self) -> None:
        self._opened.close()

    @property
    def name(self) -> str:
        """The name of the model for other programs."""
        return self.store.folder.resolve().name

    @property
    def serving(self) -> Serving:
        """The current version. Raises StorageFailed while it cannot be read."""
        return self._serving or self._read_serving()

    def _read_serving(self) -> Serving:
        with self._memory:
            if self._serving is None:
                self._serving = self._load_current()
            return self._serving

    def _load_current(self) -> Serving:
        current = self.store.current()
        try:
            return Serving.load(self.store, current, self._errors)
        except ValueError as error:
            _log.error("version %d cannot be loaded: %s", current, error)
            raise StorageFailed(
                f"the file of version {current} is missing or damaged; go to another version"
            ) from None

    @property
    def n_pending(self) -> int:
        """The number of waiting examples."""
        with self._memory:
            if self._n_pending is None:
                self._n_pending = sum(self.store.count_pending().values())
            return self._n_pending

    def _follow(self) -> None:
        """Read again what may have changed in the database. What cannot be read now is read when it is needed."""
        with self._memory:
            self._n_pending = None
            try:
                self._serving = self._load_current()  # until then the old one answers
            except OSError:
                self._serving = None
            self._stage.look(self._serving)
            self._publish()

    def _publish(self) -> None:
        """Tell replicas which version answers."""
        if self._serving is not None:
            publish(self.store, self._serving, self.name)

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
        head = self.serving.head
        return head.n_features_in_ if head is not None else self.store.width()

    # Answers

    def save(self) -> None:
        """Write to disk what may be lost: the counts of answers, and what arrived in the inbox."""
        self.drift.save()
        with self._memory:  # otherwise it might publish an older version after a newer one
            self._publish()  # which may have failed
        if self.inbox is not None:
            self.inbox.save()

    def predict(
        self,
        X: np.ndarray,
        sources: Sequence[str | bytes] | None = None,
        *,
        preview: bool = False,
        why: bool = False,
    ) -> Answers:
        serving = self.serving
        with traces.span("answer", head=self.store.folder.name, version=serving.version, samples=len(X)):
            answers = serving.answer(X)
        if why:
            answers = replace(answers, why=reasons(self.store, serving, X, answers.scores))
        if not preview:
            self.drift.count(answers.version, len(X), int(answers.unknown.sum()))
            self._stage.shadow(X, answers)
            if self.inbox is not None:
                self.inbox.offer(X, sources, answers)
        return answers

    def classes(self) -> list[ClassEntry]:
        """Classes in order of learning, then those with waiting examples only."""
        serving, pending = self.serving, self.store.count_pending()
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
        found = self.store.example(number, self.serving.version)
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
        self,
        label: str | int,
        X: np.ndarray,
        sources: Sequence[str | bytes] | None = None,
        record: Record | None = None,
    ) -> list[int]:
        """Store examples of a class; they wait for the next task. ``record`` as in the store."""
        label = self._checked(label)
        with self._memory:
            width, waiting = self.width, self.n_pending
            if width is not None and X.shape[1] != width:
                raise BadInput(f"vectors: expected {width} numbers in each, got {X.shape[1]}")
            if waiting + len(X) > MAX_PENDING:
                raise Conflict(f"{waiting} examples wait to be learned, and {MAX_PENDING} may; learn first")
            ids = self.store.add_examples(label, X, sources, record)
            self._n_pending = waiting + len(X)
        with suppress(OSError):  # there will be a task to learn, which tries again
            self.learner.start()
        return ids

    def name_inputs(self, numbers: Sequence[int], label: str | int) -> list[int]:
        """Make inputs of the inbox waiting examples, all or none; returns the numbers of the examples."""
        name, numbers = self._checked(label), list(dict.fromkeys(numbers))
        with self._memory:
            widths, taken = self.opened_inbox.widths(numbers), self.width
            for number in numbers:
                if number not in widths:
                    raise Missing(f"there is no input {number} in the inbox")
                taken = taken or widths[number]  # an empty service takes any width, and the same of all
                if widths[number] != taken:
                    raise Conflict(f"input {number} has {widths[number]} features, and {taken} were expected")
            if self.n_pending + len(numbers) > MAX_PENDING:
                raise Conflict(f"{self.n_pending} examples wait to be learned, and {MAX_PENDING} may; learn first")
            made = self.store.take_from_inbox(numbers, name)
            self._n_pending = None
        return made

    @property
    def opened_inbox(self) -> Inbox:
        if self.inbox is None:
            raise Missing("this service keeps no inbox; start it with --inbox ROWS")
        return self.inbox

    def discard_pending(self) -> int:
        with self.learner.exclusively(), self._memory:
            count = self.store.discard_pending()
            self._n_pending = 0
        return count

    def correct(self, number: int, label: str | int | None) -> Version | None:
        """Change the label of an example, or delete it with None. Returns the new version; None for a waiting example."""
        new = None if label is None else self._checked(label)
        with self.learner.exclusively():  # a task that ends now may learn an example that waited a moment ago
            example = self.example(number)
            if example.version is None:
                with self._memory:
                    self.store.change_pending(number, new)
                    self._n_pending = None
                return None
            if new == example.label:
                raise Conflict(f"example {number} is of {new} already")
            return self._do("relabel", number=number, label=new) if new else self._do("delete", number=number)

    def purge(self, ids: Sequence[int]) -> Purged:
        """Delete examples permanently, with all versions that were learned from them."""
        with self.learner.exclusively():
            try:
                return purge(self.store, sorted(set(ids)), self._eyes, self.width)
            except KeyError as error:
                raise Missing(f"there is no example {error.args[0]}; nothing was deleted") from None
            finally:
                self._follow()

    # Classes

    def rename(self, label: str, new: str | int) -> Version:
        with self.learner.exclusively():
            return self._do("rename", label=self._known(label), new=self._checked(new))

    def forget(self, label: str) -> Version:
        with self.learner.exclusively():
            return self._do("forget", label=self._known(label))

    def _known(self, label: str) -> str:
        if label not in {known for known, _ in self.serving.classes}:
            raise Missing(f"there is no class {label}")
        if waiting := self.store.count_pending().get(label):
            are = "1 example of it waits" if waiting == 1 else f"{waiting} examples of it wait"
            raise Conflict(f"{label}: {are} to be learned; learn or discard first")
        return label

    def _checked(self, label: str | int) -> str:
        head = self.serving.head
        return check_label(label, None if head is None else head.classes_)

    # Versions

    def learn(self) -> Version:
        """Learn all waiting examples as one task. The old version is used until the new one is complete."""
        origin = self.backbone.origin if self.backbone else None
        with self.learner.exclusively():
            return self._stage_or_use("learn", method=self.method, backbone=self._eyes, origin=origin)

    def describe(self, labels: Sequence[str | int], X: np.ndarray) -> Version:
        """Add classes by the vectors of their descriptions."""
        names = [self._checked(label) for label in labels]
        if twice := next((name for at, name in enumerate(names) if name in names[:at]), None):
            raise BadInput(f"labels: {twice} is described twice")
        with self.learner.exclusively():
            head = self.serving.head
            if head is None:
                raise Conflict("nothing was learned yet: add examples of some classes, then learn")
            if not hasattr(head, "describe"):
                raise Conflict(f"the head {head.name} takes no descriptions; the heads bayes and bayes-replay do")
            if X.shape[1] != head.n_features_in_:
                raise BadInput(f"vectors: expected {head.n_features_in_} numbers in each, got {X.shape[1]}")
            return self._stage_or_use("add_described", descriptions=dict(zip(names, X.tolist(), strict=True)))

    def _stage_or_use(self, task: str, **options: Any) -> Version:
        """Do a task that adds classes; the version answers at once or waits, as the service was told."""
        made = self._do(task, staged=self._promote != "auto", **options)
        if self._promote == "if-not-worse" and self.has_candidate:
            with suppress(OSError):  # what was learned is a candidate that a person can promote
                if self.candidate().comparison.not_worse:
                    self._promote_now()
        return made

    # Candidates

    @property
    def has_candidate(self) -> bool:
        return self._stage.occupied

    def candidate(self) -> Staged:
        """The version that waits to be promoted."""
        return self._stage.read(self.serving)

    def promote(self) -> list[Version]:
        """Let the candidate answer. Returns all versions."""
        with self.learner.exclusively():
            self._promote_now()
            return self.store.versions()

    def _promote_now(self) -> None:
        with self._memory:
            staged = self.candidate()
            self.store.go_to(staged.serving.version)
            self._serving = staged.serving
            self._publish()
            self._stage.leave()

    def reject(self) -> int:
        """Delete the candidate; its examples wait again. Returns how many wait."""
        with self.learner.exclusively(), self._memory:
            self._stage.reject()
            self._n_pending = None
            return self.n_pending

    def _do(self, task: str, **options: Any) -> Version:
        """Let the learning process do a task; call it inside ``learner.exclusively()``."""
        self._stage.check_free()
        before = self.store.current()
        try:
            with traces.span("learning", head=self.store.folder.name, task=task):
                made = self.learner.do(task, **options)
        except Ended:
            self._follow()
            if (now := self.store.candidate() or self.store.current()) == before:
                raise Refused("the learning process ended before the task was done; nothing was changed") from None
            return self.version(now)
        self._follow()
        return made

    def go_to(self, version: int) -> list[Version]:
        """Switch to another version; 0 is the empty one. Returns all versions."""
        with self.learner.exclusively():
            self._stage.check_free()
            if version:
                self.version(version)
                self._check_eyes(version)
            try:
                serving = Serving.load(self.store, version, self._errors)
            except ValueError as error:
                _log.error("version %d cannot be loaded: %s", version, error)
                raise Conflict(
                    f"the file of version {version} is missing or damaged; nothing was changed"
                ) from None
            versions = self.store.versions()
            with self._memory:
                self._check_width(serving)
                self.store.go_to(version)
                self._serving = serving
                self._publish()
        return versions

    def _check_width(self, serving: Serving) -> None:
        """Raise Conflict if the waiting examples could not be learned by the head of a version."""
        waits, taken = self.store.width(), serving.head and serving.head.n_features_in_
        if waits and taken and waits != taken:
            some = "1 waiting example has" if self.n_pending == 1 else f"{self.n_pending} waiting examples have"
            raise Conflict(
                f"{some} {waits} features and version {serving.version} takes {taken}; learn or discard them first; "
                "nothing was changed"
            )
