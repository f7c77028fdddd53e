"""The endpoints that Label Studio calls, below ``/label-studio``."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypedDict

import numpy as np
from msgspec import Meta, Struct
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taer.heads import make_head
from taer.serve.api import Api
from taer.serve.inputs import MAX_TEXTS, BadInput
from taer.serve.label_studio.interface import Interface
from taer.serve.label_studio.teacher import AnnotationBody, Number, Teacher, as_said
from taer.serve.label_studio.tool import Unreachable
from taer.serve.serving import Answers, Conflict

PATH = "/label-studio"
_PAGE = 30  # tasks that are asked for first, as many as Label Studio shows at once
_MAX_TASKS = 20_000  # in one request; Label Studio does not wait until the features of more are extracted
_log = logging.getLogger("taer.serve")
_EXAMPLE = (
    '<View><Text name="ticket" value="$text"/><Choices name="topic" toName="ticket">'
    '<Choice value="card"/><Choice value="rate"/></Choices></View>'
)
Config = Annotated[str, Meta(description="The labeling interface.", examples=[_EXAMPLE])]


class SetupRequest(Struct):
    """A project that connects, or looks whether it is connected."""

    project: Annotated[
        str,
        Meta(
            max_length=100, description="Its number, and after a dot when it was made.", examples=["1.1795012911"]
        ),
    ]
    schema: Config


class Task(Struct):
    id: Number
    data: dict[str, Any] = {}
    total_annotations: int = 0


class TasksRequest(Struct):
    """Tasks to predict, which are also those to choose from."""

    tasks: Annotated[list[Task], Meta(max_length=_MAX_TASKS, examples=[[{"id": 1, "data": {"text": "abc"}}]])]
    label_config: Config


class Project(Struct):
    id: Number
    label_config: str = ""


class Event(Struct):
    """What happened in Label Studio. Which fields there are depends on the action."""

    action: str
    project: Project | None = None
    annotation: AnnotationBody | list[AnnotationBody] | None = None
    task: Task | list[Task] | None = None
    annotations: list[Task] = []  # of which only the numbers are known
    tasks: list[Task] = []


class Status(TypedDict):
    status: str


class Setup(TypedDict):
    model_version: str


class Versions(TypedDict):
    versions: list[str]


class TaskPrediction(TypedDict):
    result: Annotated[list[dict[str, Any]], "The choice with its probability; empty if it is left open."]
    score: Annotated[float, "What should be labeled next has the lowest one."]
    model_version: str


class TaskPredictions(TypedDict):
    results: Annotated[
        list[list[TaskPrediction]], "One list per task: one prediction, or none if the task cannot be read."
    ]


class Backend:
    """Label Studio's side of a service."""

    def __init__(self, teacher: Teacher) -> None:
        self._teacher = teacher
        self._service = teacher.service

    @property
    def _version(self) -> str:
        return _named(self._service.serving.version)

    def add_to(self, api: Api) -> None:
        """Add the endpoints. Each needs a token, so that Label Studio says at once if it has a wrong one."""

        def health_of_backend() -> Status:
            """Whether the backend is up."""
            return {"status": "UP"}

        def setup(body: SetupRequest) -> Setup:
            """Whether the project can be learned from, and the version that answers."""
            with _told():
                number = body.project.partition(".")[0]
                if not (number.isascii() and number.isdigit()):
                    raise BadInput(f"project: expected its number, got {body.project!r}")
                shown = Interface.of(body.schema)
                self._teacher.check_kind(shown.kind)
                self._teacher.annotations.check_project(int(number))
            return {"model_version": self._version}

        def model_versions() -> Versions:
            """The version that answers."""
            return {"versions": [self._version]}

        def predict_tasks(body: TasksRequest) -> TaskPredictions:
            """A choice for each task, unless it looks like none, and a score to sort tasks by."""
            with _told():
                return {"results": self.predict(Interface.of(body.label_config), body.tasks)}

        def webhook(body: Event) -> Status:
            """Write down what was annotated, changed or deleted; it is learned soon after."""
            with _told():
                self.happened(body)
            return {"status": "ok"}

        more: dict[str, Any] = {"tag": "label studio", "token": True}
        api.add("GET", f"{PATH}/health", health_of_backend, role="read", **more)
        api.add("GET", f"{PATH}/versions", model_versions, role="read", **more)
        api.add("POST", f"{PATH}/setup", setup, role="read", problems=(409, 415), **more)
        api.add("POST", f"{PATH}/predict", predict_tasks, role="read", problems=(409, 415, 503), **more)
        api.add("POST", f"{PATH}/webhook", webhook, problems=(409, 415, 503), **more)

    def predict(self, shown: Interface, tasks: list[Task]) -> list[list[TaskPrediction]]:
        self._teacher.check_kind(shown.kind)
        rows, X = self._features(shown, tasks)
        results: list[list[TaskPrediction]] = [[] for _ in tasks]
        if not rows:
            return results
        answers = None if self._service.serving.head is None else self._service.predict(X, preview=True)
        # The version of the answers, which may be older than the current one by now.
        name = _named(answers.version if answers else 0)
        scores = self._order(X, answers, [tasks[row].total_annotations == 0 for row in rows])
        for place, row in enumerate(rows):
            label, probability = (None, 0.0) if answers is None else _best(answers, place)
            result = [shown.answer(label, probability)] if label in shown.choices and label is not None else []
            results[row] = [{"result": result, "score": float(scores[place]), "model_version": name}]
        return results

    def _features(self, shown: Interface, tasks: list[Task]) -> tuple[list[int], np.ndarray]:
        """Which tasks can be read, and their features."""
        rows: list[int] = []
        found: list[np.ndarray] = []
        if shown.kind == "text":
            texts = {row: text for row, task in enumerate(tasks) if (text := self._read(shown, task)) is not None}
            rows, items = list(texts), list(texts.values())
            for start in range(0, len(items), MAX_TEXTS):
                found.append(self._teacher.features("text", items[start : start + MAX_TEXTS])[0])
        else:
            for row, task in enumerate(tasks):
                address = self._read(shown, task)
                try:
                    if address is not None:
                        found.append(self._teacher.features("image", [address])[0])
                        rows.append(row)
                except (BadInput, Unreachable) as error:
                    _log.warning("Label Studio: task %d has no prediction: %s", task.id, error)
        return rows, np.concatenate(found) if found else np.empty((0, 0), np.float32)

    def _read(self, shown: Interface, task: Task) -> str | None:
        try:
            return shown.item(task.data)
        except BadInput as error:
            _log.warning("Label Studio: task %d has no prediction: %s", task.id, error)
            return None

    def _order(self, X: np.ndarray, answers: Answers | None, unlabeled: list[bool]) -> np.ndarray:
        """Scores by which tasks are sorted: below a half those to label next, in this order; then the least sure ones.

        So scores of different requests can be compared, too.
        """
        sure = np.zeros(len(X)) if answers is None else _sureness(answers)
        scores = 0.5 + 0.5 * sure
        pool = np.flatnonzero(unlabeled)
        n = min(_PAGE, len(pool) // 2)
        head: Any = self._service.serving.head or make_head(self._service.method)
        if n and hasattr(head, "suggest"):
            chosen = pool[head.suggest(X[pool], n)]
            scores[chosen] = 0.5 * np.arange(len(chosen)) / len(chosen)
        return scores

    def happened(self, event: Event) -> None:
        if event.project is None:
            if event.action.startswith(("ANNOTATION", "TASK")):
                raise BadInput("the webhook comes without its payload; switch on 'Send payload' in Label Studio")
            return
        self._teacher.annotations.check_project(event.project.id)
        match event.action:
            case "ANNOTATION_CREATED" | "ANNOTATIONS_CREATED" | "ANNOTATION_UPDATED":
                shown = Interface.of(event.project.label_config)
                data = {task.id: task.data for task in _listed(event.task)}
                self._teacher.annotations.put(
                    [
                        as_said(shown, event.project.id, one, data.get(one.task, {}))
                        for one in _listed(event.annotation)
                    ]
                )
            case "ANNOTATIONS_DELETED":
                self._teacher.annotations.delete([one.id for one in event.annotations])
            case "TASKS_DELETED":
                self._teacher.annotations.delete(tasks=[task.id for task in event.tasks])
            case "START_TRAINING":
                self._teacher.train(event.project.id, Interface.of(event.project.label_config))
            case _:
                return
        self._teacher.notice()

    def behind(self, app: ASGIApp) -> ASGIApp:
        """The application for a program that knows Basic authentication only: the password is the token."""

        async def door(scope: Scope, receive: Receive, send: Send) -> None:
            async def watched() -> Message:
                message = await receive()
                if message["type"] == "lifespan.startup":
                    self._teacher.start()
                elif message["type"] == "lifespan.shutdown":
                    await run_in_threadpool(self._teacher.stop)  # before the service closes its database
                return message

            if scope["type"] == "lifespan":
                await app(scope, watched, send)
                return
            if scope["path"].startswith(f"{PATH}/"):
                given = [
                    (name, _as_bearer(value) if name == b"authorization" else value)
                    for name, value in scope["headers"]
                ]
                scope = {**scope, "headers": given}
                if scope["path"] == f"{PATH}/webhook" and b"authorization" not in dict(given):
                    _log.warning(
                        "Label Studio: its webhook came without a token, so nothing is learned from it: in Settings, "
                        "Webhooks, add the header Authorization with the value Bearer TOKEN"
                    )
            await app(scope, receive, send)

        return door


@contextmanager
def _told() -> Iterator[None]:
    """Label Studio shows only the status of a refusal, so its reason goes to the log, too."""
    try:
        yield
    except (BadInput, Conflict) as error:
        _log.warning("Label Studio: %s", error)
        raise


def _named(version: int) -> str:
    return f"taer-{version}"


def _best(answers: Answers, row: int) -> tuple[str | None, float]:
    """The label of a sample and its probability; no label if it looks like no class."""
    best = answers.best[row]
    return None if answers.unknown[row] else str(answers.classes[best]), float(answers.probabilities[row, best])


def _sureness(answers: Answers) -> np.ndarray:
    """The lead of the best class over the second in probability; nothing is sure of what looks like no class."""
    best = np.sort(answers.probabilities, axis=1)
    lead: np.ndarray = best[:, -1] - best[:, -2] if best.shape[1] > 1 else best[:, -1]
    return np.where(answers.unknown, 0.0, lead)


def _listed(found: Any) -> list[Any]:
    return [] if found is None else found if isinstance(found, list) else [found]


def _as_bearer(header: bytes) -> bytes:
    kind, _, given = header.partition(b" ")
    if kind.lower() != b"basic":
        return header
    try:
        return b"Bearer " + base64.b64decode(given, validate=True).partition(b":")[2]
    except binascii.Error:
        return header
