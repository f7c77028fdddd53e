"""What may come in: bounds on sizes and counts, and the way from what a client sends to feature vectors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np

MAX_BODY = 16 << 20  # bytes of a request
MAX_VECTORS = 1024
MAX_WIDTH = 16_384
MAX_IMAGES = 16
MAX_IMAGE_BYTES = 4 << 20
MAX_IMAGE_SIDE = 4096
MAX_TEXTS = 64
MAX_TEXT = 10_000  # characters
MAX_LABEL = 100  # characters
MAX_PENDING = 100_000  # examples that wait to be learned

_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")


class Backbone(Protocol):
    """A frozen model: images as RGB ``PIL.Image`` objects, or texts, to one row of features each."""

    name: str
    kind: Literal["image", "text"]

    def __call__(self, items: Sequence[Any], /) -> np.ndarray: ...


class BadInput(Exception):
    """Something a client sent is wrong, and the message says what."""


def vectors_to_matrix(vectors: Sequence[Sequence[float]], width: int | None) -> np.ndarray:
    """Rows of one width, finite in float32."""
    if len({len(vector) for vector in vectors}) != 1:
        raise BadInput("vectors: all must have the same length")
    if width is not None and len(vectors[0]) != width:
        raise BadInput(f"vectors: expected {width} numbers in each, got {len(vectors[0])}")
    with np.errstate(over="ignore"):
        matrix = np.array(vectors, np.float64).astype(np.float32)
    if not np.isfinite(matrix).all():
        raise BadInput("vectors: every number must be finite and fit in 32 bits")
    return matrix


def images_to_matrix(images: Sequence[str], backbone: Backbone | None, width: int | None) -> np.ndarray:
    if backbone is None or backbone.kind != "image":
        raise BadInput("images: this service has no image backbone; send vectors")
    return _features(backbone, [_decode(text) for text in images], width)


def texts_to_matrix(texts: Sequence[str], backbone: Backbone | None, width: int | None) -> np.ndarray:
    if backbone is None or backbone.kind != "text":
        raise BadInput("texts: this service has no text backbone; send vectors")
    return _features(backbone, list(texts), width)


def _features(backbone: Backbone, items: list[Any], width: int | None) -> np.ndarray:
    matrix = np.ascontiguousarray(backbone(items), np.float32)
    if width is not None and matrix.shape[1] != width:
        raise BadInput(
            f"the backbone {backbone.name} gives {matrix.shape[1]} features and this head takes {width}: "
            "it was taught with another backbone; send vectors"
        )
    if not np.isfinite(matrix).all():
        raise BadInput(f"the backbone {backbone.name} finds no finite features in this")
    return matrix


def _decode(text: str) -> Any:
    """An image from base64, with or without the prefix of a data URL; its size is checked before its pixels."""
    from taer.features.images import TooLarge, decode_image

    try:
        content = base64.b64decode(text.partition(",")[2] if text.startswith("data:") else text, validate=True)
    except (binascii.Error, ValueError):
        raise BadInput("images: each must be an image file in base64") from None
    if len(content) > MAX_IMAGE_BYTES:
        raise BadInput(f"images: a file may have {MAX_IMAGE_BYTES >> 20} MiB")
    try:
        return decode_image(content, _FORMATS, MAX_IMAGE_SIDE)
    except TooLarge as error:
        raise BadInput(f"images: {error}") from None
    except Exception:  # decoders of damaged files raise anything
        raise BadInput("images: one of them is not a readable PNG, JPEG, WebP, GIF or BMP file") from None


def check_label(label: str) -> str:
    """A name that can be shown: not empty, not too long, nothing invisible."""
    label = label.strip()
    if not label or len(label) > MAX_LABEL or not label.isprintable():
        raise BadInput(f"label: expected 1 to {MAX_LABEL} printable characters")
    return label
