"""The thread that makes the examples of a service agree with Label Studio's annotations, and lets it learn."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from taer.serve.database import StorageFailed
from taer.serve.inputs import Backbone, BadInput, decode, features_of, read_image, small_copy
from taer.serve.label_studio.annotations import Annotation, Annotations
from taer.serve.label_studio.interface import Interface
from taer.serve.label_studio.tool import Tool, Unreachable
from taer.serve.learner import Busy
from taer.serve.service import Service
from taer.serve.serving import Conflict, Missing, Unavailable
from taer.serve.tasks import Refused

AGAIN = 5.0  # seconds until what could not be done now is tried again
_log = logging.getLogger("taer.serve")
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]  # of something that Label Studio has


class AnnotationBody(Struct):
    """An annotation as Label Studio sends it."""

    id: Number
    task: Number
    updated_at: Annotated[datetime, Meta(tz=True)]
    result: list[dict[str, Any]] = []
    was_cancelled: bool = False  # skipped


class AnnotatedTask(Struct):
    """A task of an export."""

    id: Number
    data: dict[str, Any]
    annotations: list[AnnotationBody] = []


def as_said(shown: Interface, project: int, annotation: AnnotationBody, data: dict[str, Any]) -> Annotation:
    """What an annotation says; no label if it was skipped, or has nothing that can be learned."""
    label = item = None
    try:
        label = None if annotation.was_cancelled else shown.label(annotation.result)
        item = None if label is None else shown.item(data)
    except BadInput as error:
        label = None
        _log.warning("Label Studio: annotation %d is not learned: %s", annotation.id, error)
    updated = annotation.updated_at.timestamp()
    return Annotation(annotation.id, project, annotation.task, updated, label, item, shown.kind)


class Teacher:
    """Applies annotations one by one: a new one is added, a changed one corrected, a deleted one unlearned.

    Parameters
    ----------
    every : int
        How many new examples are learned as one task.
    """

    def __init__(self, service: Service, tool: Tool, every: int) -> None:
        self.service, self.tool = service, tool
        self.annotations = Annotations(service.store)
        self._every = every
        self._wake, self._stopping = threading.Event(), threading.Event()
        # A project all of whose annotations are to be read.
        self._training: tuple[int, Interface] | None = None
        self._now = False  # whether to learn, however few examples wait
        self._told: set[str] = set()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Wait for what is being done. The rest is done after the next start."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def notice(self) -> None:
        """Something was written down."""
        self._wake.set()

    def train(self, project: int, shown: Interface) -> None:
        """Compare with all annotations of the project, then learn what waits."""
        self._training = project, shown
        self._wake.set()

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            settled = False
            try:
                settled = self.settle()
            except Exception:
                _log.exception("Label Studio: annotations could not be applied, which is tried again")
            if not self._stopping.is_set():
                self._wake.wait(None if settled else AGAIN)

    def settle(self) -> bool:
        """Do all that can be done now; returns whether that is everything."""
        settled = self._compare()
        for annotation in self.annotations.changed():
            if self._stopping.is_set():
                return False
            settled = self._try(annotation) and settled
        return self._learn() and settled

    def _compare(self) -> bool:
        if self._training is None:
            return True
        (project, shown), before = self._training, self.annotations.known()
        if not self.tool.has_key:
            self._tell("annotations made while this service was off are read only with an access token (--key)")
        else:
            try:
                tasks = msgspec.convert(self.tool.annotated(project), list[AnnotatedTask])
            except (Unreachable, BadInput, msgspec.ValidationError) as error:
                self._tell(f"the annotations of project {project} cannot be read now: {error}")
                return False
            said = [as_said(shown, project, found, task.data) for task in tasks for found in task.annotations]
            self.annotations.put(said)
            self.annotations.delete(before - {annotation.id for annotation in said})
        self._training, self._now = None, True
        return True

    def _try(self, annotation: Annotation) -> bool:
        """Returns False if it is to be tried again."""
        try:
            self._apply(annotation)
        except (Busy, StorageFailed, Unavailable, Unreachable) as error:
            self._tell(f"annotation {annotation.id} waits: {str(error) or 'a task is being learned'}")
            return False
        except (BadInput, Conflict, Missing, Refused) as error:
            _log.warning("Label Studio: annotation %d is not learned: %s", annotation.id, error)
            self.annotations.done(annotation)
        except Exception:
            _log.exception("Label Studio: annotation %d could not be applied, which is tried again", annotation.id)
            return False  # the others are applied all the same
        return True

    def _apply(self, annotation: Annotation) -> None:
        service, label = self.service, annotation.label
        example = None
        if annotation.example is not None:
            with suppress(Missing):  # purged, or of a version that another went back from
                example = service.example(annotation.example)
        if example is None and label is not None:
            if annotation.item is None:
                raise BadInput("its text or image is not known any more; submit it again")
            X, sources = self.features(annotation.kind, [annotation.item])
            service.add_examples(
                label, X, sources, lambda db, made: self.annotations.became(annotation, db, made[0])
            )
            return
        if example is not None and example.label != label:
            service.correct(example.id, label)
        self.annotations.done(annotation)

    def features(self, kind: str, items: list[str]) -> tuple[np.ndarray, list[str] | list[bytes]]:
        """Features of texts, or of images by their addresses, and each as it is stored with an example."""
        backbone = self.check_kind(kind)
        if kind == "text":
            return features_of(backbone, items, self.service.width), items
        images = [decode(item) if item.startswith("data:") else read_image(self.tool.image(item)) for item in items]
        return features_of(backbone, images, self.service.width), [small_copy(image) for image in images]

    def check_kind(self, kind: str) -> Backbone:
        """The backbone for texts or images. Raises BadInput if it is for the other."""
        backbone = self.service.backbone
        if backbone is None or backbone.kind != kind:
            has = (
                "no backbone"
                if backbone is None
                else f"the backbone {backbone.name}, which is for {backbone.kind}s"
            )
            raise BadInput(
                f"the project shows {kind}s, and this service has {has}; start it with another --backbone"
            )
        return backbone

    def _learn(self) -> bool:
        waiting = self.service.n_pending
        if waiting == 0 or (waiting < self._every and not self._now):
            self._now = False
            return True
        try:
            self.service.learn()
        except (Busy, StorageFailed) as error:
            self._tell(f"{waiting} examples wait: {str(error) or 'a task is being learned'}")
            return False
        except (Conflict, Refused) as error:
            _log.warning("Label Studio: %d examples wait: %s", waiting, error)
        self._now = False
        return True

    def _tell(self, told: str) -> None:
        """Log something that may repeat every few seconds, once."""
        if told not in self._told:
            self._told = {*self._told, told} if len(self._told) < 100 else {told}
            _log.warning("Label Studio: %s", told)
