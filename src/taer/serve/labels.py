"""A service whose samples have several labels or none: the same folder, versions and learning, with other answers.

The label of an example is a cell such as ``late;refund``, in requests and in answers; see :mod:`taer.serve.label_tasks`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
from msgspec import Meta
from starlette.concurrency import run_in_threadpool

from taer.answers import Added, ClassEntry, LabelPredictions
from taer.files import format_of
from taer.heads import make_head
from taer.multilabel.model import MultiLabel
from taer.persist.save import MULTI_LABEL
from taer.serve import traces
from taer.serve.api import Api
from taer.serve.gate import Counters
from taer.serve.inputs import (
    MAX_TEXT,
    Backbone,
    BadInput,
    ExamplesRequest,
    PredictRequest,
    check_label,
    with_sources,
)
from taer.serve.label_tasks import JUDGED, SEPARATOR, cell, described, labels_of
from taer.serve.learner import Learner
from taer.serve.service import Service
from taer.serve.serving import Conflict
from taer.serve.store import Version

_MARK = "multi-label"  # a file in the folder
_CELL = (
    "The labels of these samples with ; between them, or ; alone for none. If not all labels were judged, | and those that "
    "were: late|damaged;late"
)


class LabelsRequest(ExamplesRequest):
    label: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT, description=_CELL)]


class LabelService(Service):
    """A service with a head of several labels.

    Parameters
    ----------
    folder : Path
        Folder of examples and versions; created if it does not exist.
    backbone : Backbone, optional
        Backbone for images or texts; without one the service accepts vectors.
    first : MultiLabel, optional
        The first version of an empty folder.
    method : str, optional
        Name of the head whose prior the labels share; by default ``bayes``.
    learner : Learner, optional
        Who learns; by default a process of its own.
    """

    several_labels = True

    def __init__(
        self,
        folder: Path,
        backbone: Backbone | None = None,
        first: Any = None,
        method: str | None = None,
        learner: Learner | None = None,
    ) -> None:
        if method is not None:
            MultiLabel(make_head(method)).template()  # which refuses a head that cannot have several labels
        if not has_several(folder) and any((folder / "versions").glob("*.safetensors")):
            raise ValueError(f"{folder}: its versions have one label per sample; start it without --multi-label")
        super().__init__(folder, backbone, first, method=method, learner=learner)
        (folder / _MARK).touch()  # until a version says so

    def _import(self, head: Any, held_back: tuple[np.ndarray, list[str]] | None) -> None:
        self.store.add_version(head, 0, described(head, []) | {"backbone": self._eyes})

    @property
    def model(self) -> MultiLabel | None:
        found: Any = self.serving.head
        return found

    def labels(self, X: np.ndarray, top: int) -> LabelPredictions:
        """The labels of each sample, and the likeliest labels whether they are in or not."""
        serving, model = self.serving, self.model
        if model is None:
            raise Conflict("nothing was learned yet: add examples, then learn")
        if X.shape[1] != model.n_features_in_:
            raise BadInput(f"vectors: expected {model.n_features_in_} numbers in each, got {X.shape[1]}")
        with traces.span("answer", head=self.store.folder.name, version=serving.version, samples=len(X)):
            inside = model.decision_function(X) >= 0
            shares = model.predict_proba(X)
        names = [str(label) for label in model.classes_]
        best = np.argsort(-shares, axis=1, kind="stable")[:, :top]
        return {
            "version": serving.version,
            "predictions": [
                {
                    "labels": [names[at] for at in np.flatnonzero(found).tolist()],
                    "probabilities": [{"label": names[at], "probability": float(share[at])} for at in order],
                }
                for found, share, order in zip(inside, shares, best.tolist(), strict=True)
            ],
        }

    def classes(self) -> list[ClassEntry]:
        """Labels in order of arrival, then those with waiting examples only."""
        model, version = self.model, self.serving.version
        learned, held, waiting = Counter[str](), Counter[str](), Counter[str]()
        for stored, (used, kept) in self.store.learned(version).items():
            for label in labels_of(stored)[0]:
                learned[label] += used
                held[label] += kept
        for stored, count in self.store.count_pending().items():
            inside, judged = labels_of(stored)
            waiting.update(
                dict.fromkeys(inside, count) | {label: 0 for label in judged or [] if label not in inside}
            )
        known = [] if model is None else [str(label) for label in model.classes_]
        return [
            {
                "label": label,
                "task": 1 if label in known else None,
                "examples": learned[label],
                "held_back": held[label],
                "waiting": waiting[label],
            }
            for label in [*known, *(label for label in waiting if label not in known)]
        ]

    def learn(self) -> Version:
        """Learn all waiting examples. The old version is used until the new one is complete."""
        origin = self.backbone.origin if self.backbone else None
        with self.learner.exclusively():
            return self._do("learn_labels", method=self.method, backbone=self._eyes, origin=origin)

    def _checked(self, label: str | int) -> str:
        """The labels of an example, each once, as they are stored."""
        inside, bar, judged = str(label).partition(JUDGED)
        names = [self._names(part) for part in (inside, judged)]
        if bar and not names[1]:
            raise BadInput(f"label: expected the labels that were judged after {JUDGED}")
        if bar and (strange := [name for name in names[0] if name not in names[1]]):
            raise BadInput(f"label: {strange[0]} is given, and not among those that were judged")
        if not bar and not names[0] and SEPARATOR not in inside:
            raise BadInput(f"label: expected labels with {SEPARATOR} between them, or {SEPARATOR} alone for none")
        return cell(names[0], names[1] if bar else None)

    def _names(self, text: str) -> list[str]:
        known = np.array(self.model.classes_) if self.model is not None else None
        found = [name.strip() for name in text.split(SEPARATOR) if name.strip()]
        return list(dict.fromkeys(check_label(name, known) for name in found))

    def correct(self, number: int, label: str | int | None) -> Version | None:
        if self.example(number).version is not None:
            _refuse("an example that was learned cannot be taken back; POST /purge deletes it with its versions")
        return super().correct(number, label)

    def rename(self, label: str, new: str | int) -> Version:
        _refuse("labels cannot be renamed")

    def forget(self, label: str) -> Version:
        _refuse("labels cannot be forgotten")

    def describe(self, labels: Sequence[str | int], X: np.ndarray) -> Version:
        _refuse("labels cannot be described")


def _refuse(why: str) -> NoReturn:
    raise Conflict(f"this service has several labels per sample: {why}")


def has_several(folder: Path) -> bool:
    """Whether a folder is that of such a service."""
    files = sorted((folder / "versions").glob("*.safetensors"), reverse=True)
    newest = next((found for found in map(format_of, files) if found), None)
    return (folder / _MARK).exists() if newest is None else newest == MULTI_LABEL


def add_labels(api: Api, service: LabelService, counters: Counters) -> None:
    """The endpoints that differ from those of a service with one label per sample."""

    async def predict(body: PredictRequest) -> LabelPredictions:
        """The labels of each sample: any number of them, or none."""
        found = await run_in_threadpool(_predict, service, body)
        if not body.preview:
            counters.samples.inc(len(found["predictions"]))
        return found

    def add(body: LabelsRequest) -> Added:
        """Add examples with their labels; they are on disk when this answers."""
        ids = service.add_examples(body.label, *with_sources(body, service.backbone, service.width))
        return {"ids": ids, "waiting": service.n_pending}

    api.add("POST", "/predict", predict, tag="use", problems=(409, 415))
    api.add("POST", "/examples", add, tag="teach", token=True, problems=(404, 409, 415, 503))


def _predict(service: LabelService, request: PredictRequest) -> LabelPredictions:
    if request.why:
        _refuse("it gives no reasons")
    X, _ = with_sources(request, service.backbone, service.width, keep=False)
    return service.labels(X, request.top)
