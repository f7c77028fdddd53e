"""The shapes of requests and answers, which are also what the OpenAPI page shows."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, model_validator

from taer.serve.inputs import (
    MAX_IMAGE_BYTES,
    MAX_IMAGES,
    MAX_LABEL,
    MAX_PENDING,
    MAX_TEXT,
    MAX_TEXTS,
    MAX_VECTORS,
    MAX_WIDTH,
)

Number = Annotated[StrictFloat, Field(allow_inf_nan=False)]
# A list is left at the first mistake: a million of them would take seconds to note, and one is told.
Vector = Annotated[list[Number], Field(min_length=1, max_length=MAX_WIDTH, fail_fast=True)]
Image = Annotated[str, Field(min_length=1, max_length=MAX_IMAGE_BYTES * 4 // 3 + 100)]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]

_KINDS = ("vectors", "images", "texts")


class Items(BaseModel):
    """Samples of exactly one kind."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"oneOf": [{"required": [kind]} for kind in _KINDS]}
    )

    vectors: Annotated[list[Vector], Field(min_length=1, max_length=MAX_VECTORS, fail_fast=True)] = []
    images: Annotated[
        list[Image], Field(min_length=1, max_length=MAX_IMAGES, description="Image files in base64.")
    ] = []
    texts: Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)] = []

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(kind in self.model_fields_set for kind in _KINDS) != 1:
            raise ValueError("send exactly one of vectors, images and texts")
        return self


class PredictRequest(Items):
    top: Annotated[int, Field(ge=1, le=1000, description="How many classes to list, the likeliest first.")] = 5


class ExamplesRequest(Items):
    label: Annotated[str, Field(min_length=1, max_length=MAX_LABEL, description="The class of all of them.")]


class Problem(BaseModel):
    """What was wrong, in a sentence."""

    detail: str


class ClassProbability(BaseModel):
    label: str
    probability: float


class Prediction(BaseModel):
    label: str
    probabilities: list[ClassProbability]


class Predictions(BaseModel):
    version: int
    predictions: list[Prediction]


class Added(BaseModel):
    ids: list[int]
    waiting: Annotated[int, Field(description=f"Examples that wait to be learned, at most {MAX_PENDING}.")]


class Discarded(BaseModel):
    discarded: int


class ClassEntry(BaseModel):
    label: str
    task: Annotated[int | None, Field(description="The task that first brought it; null while it waits.")]
    examples: int
    held_back: int
    waiting: int


class BackboneEntry(BaseModel):
    name: str
    kind: Literal["image", "text"]


class Classes(BaseModel):
    version: int
    width: int | None
    backbone: BackboneEntry | None
    learning: bool
    classes: Annotated[list[ClassEntry], Field(description="In order of learning, then those that wait.")]


class Changes(BaseModel):
    """What the task did to the classes that were there before."""

    sentence: str
    forgotten: list[Any]
    moved: list[Any] | None
    compared: int
    changed: int


class VersionEntry(BaseModel):
    version: int
    parent: int
    created: str
    method: str
    classes: int
    new_classes: list[str]
    examples: int
    held_back: int
    accuracy: Annotated[float | None, Field(description="On the examples held back, of this version's classes.")]
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
    cells: Annotated[list[Cell], Field(description="Those that are not zero, on the examples held back.")]


class Health(BaseModel):
    status: Literal["ok"]
    version: int
    learning: bool
