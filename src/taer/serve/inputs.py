"""What a client may send, and how it becomes features: limits, the bodies of requests, labels, images."""

from __future__ import annotations

import base64
import binascii
import io
import threading
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
from msgspec import Meta, Struct

from taer.features.images import FORMATS, open_image, to_rgb, upright
from taer.origin import Origin
from taer.serve import traces

MAX_BODY = 16 << 20  # bytes of a request
MAX_VECTORS = 1024
MAX_WIDTH = 16_384
MAX_IMAGES = 16
MAX_IMAGE_BYTES = 11_000_000  # fits into a request in base64
MAX_TEXTS = 64
MAX_WHY = 16  # samples whose answers are explained in one request
MAX_TEXT = 10_000  # characters
MAX_LABEL = 100  # characters
MAX_PENDING = 100_000  # examples that wait to be learned
MAX_PURGED = 1000  # examples in one request
MAX_NAMED = 5000  # inputs of the inbox that are compared, or named or dismissed in one request
SIDE = 1024  # pixels of the longer side; backbones use fewer
_COPY_SIDE = 512  # of the copy that is kept with an example
_MAX_PIXELS = 25_000_000  # of a file that is decoded as a whole; HEIC photographs of telephones have 24.5
_MAX_REDUCED = 64_000_000  # of a JPEG file that is decoded at a half, a quarter or an eighth of its size
_ALLOWED = ("PNG", "JPEG", "WEBP", "HEIF", "AVIF", "GIF", "BMP")
_turn = threading.BoundedSemaphore(2)  # images that are decoded at the same time


class Backbone(Protocol):
    """A frozen model: images as RGB ``PIL.Image`` objects, or texts, to one row of features each."""

    name: str
    kind: Literal["image", "text"]

    @property
    def origin(self) -> Origin | None:
        """The origin that is recorded in a head."""

    def __call__(self, items: Sequence[Any], /) -> np.ndarray: ...


class BadInput(Exception):
    """Invalid input of a client, with an explanation."""


def check_label(label: str | int, classes: np.ndarray | None) -> str:
    """A name that can be shown: not empty, not too long, nothing invisible; a number if the classes are numbers."""
    label = str(label).strip()
    if not label or len(label) > MAX_LABEL or not label.isprintable():
        raise BadInput(f"label: expected 1 to {MAX_LABEL} printable characters")
    if label in (".", ".."):  # a class has an address, and there these mean another one
        raise BadInput(f"label: {label} cannot be the name of a class")
    if classes is not None and classes.dtype.kind != "U":
        try:
            if str(np.array([label]).astype(classes.dtype)[0]) != label:
                raise ValueError
        except (ValueError, OverflowError):
            raise BadInput(f"label: the classes of this head are numbers, and {label!r} is not one") from None
    return label


# The bodies of requests

Vector = Annotated[list[float], Meta(min_length=1, max_length=MAX_WIDTH)]
Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_LABEL)]
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Label = Annotated[
    Name | Whole, Meta(description="A name; a number, as number or string, if the classes are numbers.")
]
Id = Annotated[int, Meta(ge=1, le=2**63 - 1)]


class Items(Struct, forbid_unknown_fields=True, kw_only=True):
    """Samples of exactly one kind."""

    vectors: Annotated[list[Vector], Meta(max_length=MAX_VECTORS)] = []
    images: Annotated[
        list[str],
        Meta(max_length=MAX_IMAGES, description="Image files (PNG, JPEG, WebP, HEIC, AVIF, GIF, BMP) in base64."),
    ] = []
    texts: Annotated[list[Text], Meta(max_length=MAX_TEXTS)] = []

    @property
    def count(self) -> int:
        return max(len(self.vectors), len(self.images), len(self.texts))

    def check(self) -> None:
        if sum(len(kind) > 0 for kind in (self.vectors, self.images, self.texts)) != 1:
            raise BadInput("send exactly one of vectors, images and texts, and at least 1 of it")


class PredictRequest(Items):
    top: Annotated[int, Meta(ge=1, le=1000, description="How many classes to list, the likeliest first.")] = 5
    preview: Annotated[
        bool, Meta(description="A look at something unfinished, which drift and metrics do not count.")
    ] = False
    why: Annotated[
        bool,
        Meta(description=f"Give the reasons for each answer. At most {MAX_WHY} samples, and not with every head."),
    ] = False

    def check(self) -> None:
        super().check()
        if self.why and self.count > MAX_WHY:
            raise BadInput(
                f"why: {self.count} samples were sent, and at most {MAX_WHY} answers are explained at once"
            )


class ExamplesRequest(Items):
    label: Label


class DescribeRequest(Items, kw_only=True):
    labels: Annotated[list[Label], Meta(min_length=1, max_length=MAX_VECTORS)]
    texts: Annotated[
        list[Text], Meta(max_length=MAX_VECTORS, description="A name or a sentence for each label.")
    ] = []

    def check(self) -> None:
        super().check()
        if self.count != len(self.labels):
            raise BadInput(f"labels: expected one for each description, got {len(self.labels)} and {self.count}")


class LabelRequest(Struct, forbid_unknown_fields=True):
    label: Label


class NameOneRequest(LabelRequest, forbid_unknown_fields=True):
    count: ClassVar[int] = 1


class NameRequest(LabelRequest, forbid_unknown_fields=True):
    ids: Annotated[list[Id], Meta(min_length=1, max_length=MAX_NAMED, description="Inputs of the inbox.")]

    @property
    def count(self) -> int:
        return len(self.ids)


class DismissRequest(Struct, forbid_unknown_fields=True):
    ids: Annotated[list[Id], Meta(min_length=1, max_length=MAX_NAMED, description="Inputs of the inbox.")]


class PurgeRequest(Struct, forbid_unknown_fields=True):
    ids: Annotated[list[Id], Meta(min_length=1, max_length=MAX_PURGED)]


# From samples to features


def with_sources(
    items: Items, backbone: Backbone | None, width: int | None, keep: bool = True
) -> tuple[np.ndarray, list[str] | list[bytes] | None]:
    """One row of features per item, and each text or image as it is stored; None for vectors."""
    if items.images:
        model = _model(backbone, "image")
        with traces.span("decode", samples=len(items.images)):
            pixels = [decode(text) for text in items.images]
        return features_of(model, pixels, width), [small_copy(image) for image in pixels] if keep else None
    if items.texts:
        return features_of(_model(backbone, "text"), items.texts, width), items.texts
    return vectors_to_matrix(items.vectors, width), None


def vectors_to_matrix(vectors: Sequence[Sequence[float]] | np.ndarray, width: int | None) -> np.ndarray:
    """Rows of equal width, finite in float32."""
    if len({len(vector) for vector in vectors}) != 1:
        raise BadInput("vectors: all must have the same length")
    if width is not None and len(vectors[0]) != width:
        raise BadInput(f"vectors: expected {width} numbers in each, got {len(vectors[0])}")
    with np.errstate(over="ignore"):
        matrix = np.array(vectors, np.float64).astype(np.float32)
    if not np.isfinite(matrix).all():
        raise BadInput("vectors: every number must be finite and fit in 32 bits")
    return matrix


def _model(backbone: Backbone | None, kind: str) -> Backbone:
    if backbone is None or backbone.kind != kind:
        raise BadInput(f"{kind}s: this service has no {kind} backbone; send vectors")
    return backbone


def features_of(backbone: Backbone, items: Sequence[Any], width: int | None) -> np.ndarray:
    """One row per text or decoded image, of the width that the head takes."""
    with traces.span("features", backbone=backbone.name, samples=len(items)):
        matrix = np.ascontiguousarray(backbone(items), np.float32)
    if width is not None and matrix.shape[1] != width:
        raise BadInput(
            f"the backbone {backbone.name} gives {matrix.shape[1]} features and this head takes {width}: "
            "it was taught with another backbone; send vectors"
        )
    if not np.isfinite(matrix).all():
        raise BadInput(f"the backbone {backbone.name} finds no finite features in this")
    return matrix


# Images: large photos are scaled down, and memory is bounded


def decode(text: str) -> Any:
    """An RGB image from base64, with or without the prefix of a data URL. Its size is checked before it is decoded."""
    try:
        content = base64.b64decode(text.partition(",")[2] if text.startswith("data:") else text, validate=True)
    except (binascii.Error, ValueError):
        raise BadInput("images: each must be an image file in base64") from None
    return read_image(content)


def read_image(content: bytes) -> Any:
    """An RGB image from the content of a file."""
    if len(content) > MAX_IMAGE_BYTES:
        raise BadInput(
            f"images: one of them has {len(content) / 1e6:.1f} MB, and a file may have "
            f"{MAX_IMAGE_BYTES / 1e6:.0f} MB; scale it down"
        )
    try:
        with _turn:
            return _scaled(content)
    except BadInput:
        raise
    except Exception:  # decoders of damaged files raise anything
        *most, last = (FORMATS[format] for format in _ALLOWED)
        raise BadInput(f"images: one of them is not a readable {', '.join(most)} or {last} file") from None


def _scaled(content: bytes) -> Any:
    try:
        image = open_image(content, _ALLOWED)
    except ValueError as error:
        raise BadInput(f"images: one of them is {error}") from None
    pixels = image.width * image.height
    # Only a JPEG file is read at a fraction of its size, and a progressive one is held as a whole all the same.
    reduced = image.format == "JPEG" and not image.info.get("progressive")
    if pixels > (_MAX_REDUCED if reduced else _MAX_PIXELS):
        raise BadInput(
            f"images: one of them has {pixels / 1e6:.0f} megapixels ({image.width} × {image.height}), and a photo may "
            f"have {_MAX_REDUCED / 1e6:.0f} as JPEG, any other file {_MAX_PIXELS / 1e6:.0f}; scale it down"
        )
    if max(image.size) > SIDE:
        if image.mode == "P":  # colors of a palette cannot be averaged
            image = image.convert("RGBA")
        if image.mode.startswith("I"):  # nor can 16 bits of gray
            image = upright(image)
        image.thumbnail((SIDE, SIDE))
    return to_rgb(image)


def small_copy(image: Any) -> bytes:
    """A small JPEG file that is stored with an example, to show it and for another backbone later."""
    copy = image.copy()
    copy.thumbnail((_COPY_SIDE, _COPY_SIDE))
    file = io.BytesIO()
    copy.save(file, "JPEG", quality=95)
    return file.getvalue()
