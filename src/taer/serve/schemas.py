"""The types of answers, which are also described in the OpenAPI page."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from taer.serve.inputs import MAX_PENDING


class Problem(BaseModel):
    """A description of the error."""

    detail: str


class ClassProbability(BaseModel):
    label: str
    probability: float


class Prediction(BaseModel):
    label: str
    probabilities: list[ClassProbability]
    novelty: Annotated[
        float, Field(description="How little it looks like any class; only the order means anything.")
    ]
    unknown: Annotated[bool, Field(description="Whether its novelty is above the threshold: something new?")]


class Predictions(BaseModel):
    version: int
    threshold: Annotated[
        float | None, Field(description="The novelty above which an answer is unknown; null while none is known.")
    ]
    predictions: list[Prediction]


class Added(BaseModel):
    ids: list[int]
    waiting: Annotated[int, Field(description=f"Examples that wait to be learned, at most {MAX_PENDING}.")]


class Discarded(BaseModel):
    discarded: int


class ExampleEntry(BaseModel):
    id: int
    label: str
    version: Annotated[int | None, Field(description="The version that learned it; null while it waits.")]
    held_back: bool
    kind: Literal["vector", "text", "image"]
    text: Annotated[str | None, Field(description="The text it came as.")]


class Examples(BaseModel):
    examples: Annotated[list[ExampleEntry], Field(description="In order of arrival.")]
    next: Annotated[int | None, Field(description="Ask again with after=next for more; null at the end.")]


class OneExample(ExampleEntry):
    vector: list[float]
    image: Annotated[str | None, Field(description="A small copy of the image it came as: JPEG in base64.")]


class Corrected(BaseModel):
    version: Annotated[int | None, Field(description="The new version; null if it only waited to be learned.")]


class Purged(BaseModel):
    examples: Annotated[
        list[int], Field(description="Examples that are gone, with those that had been taken out before.")
    ]
    versions: Annotated[list[int], Field(description="Versions that had learned them, which are gone as well.")]
    current: int
    waiting: Annotated[
        int, Field(description="Examples that wait, with those that the purged versions had learned.")
    ]
    notices: Annotated[
        list[str],
        Field(description="Undone examples that wait again; files that could not be deleted yet, and why."),
    ]


class ClassEntry(BaseModel):
    label: str
    task: Annotated[int | None, Field(description="The task that first brought it; null while it waits.")]
    examples: int
    held_back: int
    waiting: int


class BackboneEntry(BaseModel):
    name: str
    kind: Literal["image", "text"]
    drawings: Annotated[bool, Field(description="Whether the page offers a sheet to draw on.")]


class Classes(BaseModel):
    version: int
    width: int | None
    backbone: BackboneEntry | None
    learning: bool
    classes: Annotated[list[ClassEntry], Field(description="In order of learning, then those that wait.")]


class Changes(BaseModel):
    """The effect of the task on the classes that were known before."""

    sentence: str
    forgotten: list[Any]
    moved: list[Any] | None
    compared: int
    changed: int


class VersionEntry(BaseModel):
    version: int
    parent: int
    created: str
    edit: Annotated[str | None, Field(description="What was corrected; null for a task that was learned.")] = None
    backbone: Annotated[str | None, Field(description="The backbone that its examples were seen with.")] = None
    method: str
    classes: int
    new_classes: list[str]
    examples: int
    held_back: int
    accuracy: Annotated[float | None, Field(description="On held-out examples of this version's classes.")]
    seconds: float | None
    changes: Changes | None
    warnings: Annotated[
        list[str], Field(description="What may be wrong with the task, such as too few examples.")
    ] = []


class History(BaseModel):
    current: int
    versions: list[VersionEntry]


class Cell(BaseModel):
    truth: str
    answer: str
    count: int


class Confusion(BaseModel):
    version: int
    classes: Annotated[list[str], Field(description="In order of learning.")]
    cells: Annotated[list[Cell], Field(description="Those that are not zero, on held-out examples.")]


class Hour(BaseModel):
    start: Annotated[str, Field(description="In UTC.")]
    answered: int
    unknown: int


class Drift(BaseModel):
    """A fraction of unknown answers well above the expected one means that new kinds of samples arrive."""

    answered: int
    unknown: int
    fraction: Annotated[float | None, Field(description="Of the answers that were unknown; null without answers.")]
    expected: Annotated[float, Field(description="The fraction that samples of known classes reach.")]
    hours: Annotated[list[Hour], Field(description="Those with answers, the oldest first.")]


class Health(BaseModel):
    status: Literal["ok"]
    version: int
    learning: bool
