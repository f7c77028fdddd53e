"""The types of request bodies, which are also described in the OpenAPI page."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.json import schema_components

from taer.serve.inputs import (
    MAX_IMAGES,
    MAX_LABEL,
    MAX_PURGED,
    MAX_TEXT,
    MAX_TEXTS,
    MAX_VECTORS,
    MAX_WIDTH,
    BadInput,
)

Vector = Annotated[list[float], Meta(min_length=1, max_length=MAX_WIDTH)]
Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_LABEL)]
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Label = Annotated[
    Name | Whole, Meta(description="A name; a number, as number or string, if the classes are numbers.")
]
Id = Annotated[int, Meta(ge=1, le=2**63 - 1)]

_KINDS = ("vectors", "images", "texts")


class Items(Struct, forbid_unknown_fields=True, kw_only=True):
    """Samples of exactly one kind."""

    vectors: Annotated[list[Vector], Meta(max_length=MAX_VECTORS)] = []
    images: Annotated[
        list[str],
        Meta(max_length=MAX_IMAGES, description="Image files (PNG, JPEG, WebP, HEIC, AVIF, GIF, BMP) in base64."),
    ] = []
    texts: Annotated[list[Text], Meta(max_length=MAX_TEXTS)] = []

    def check(self) -> None:
        if sum(len(kind) > 0 for kind in (self.vectors, self.images, self.texts)) != 1:
            raise BadInput("send exactly one of vectors, images and texts, and at least 1 of it")


class PredictRequest(Items):
    top: Annotated[int, Meta(ge=1, le=1000, description="How many classes to list, the likeliest first.")] = 5
    preview: Annotated[
        bool, Meta(description="A look at something unfinished, which drift and metrics do not count.")
    ] = False


class ExamplesRequest(Items):
    label: Label


class LabelRequest(Struct, forbid_unknown_fields=True):
    label: Label


class PurgeRequest(Struct, forbid_unknown_fields=True):
    ids: Annotated[list[Id], Meta(min_length=1, max_length=MAX_PURGED)]


def schema(kind: type[Struct]) -> dict[str, Any]:
    """A kind of request as JSON Schema."""
    (_, components) = schema_components((kind,), ref_template="#/components/schemas/{name}")
    found: dict[str, Any] = components[kind.__name__]
    if issubclass(kind, Items):
        for name in _KINDS:
            found["properties"][name]["minItems"] = 1
            del found["properties"][name]["default"]
        found["oneOf"] = [{"required": [name]} for name in _KINDS]
    return found
