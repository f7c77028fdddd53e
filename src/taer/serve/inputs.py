"""Limits on the sizes and numbers of inputs, with readable error messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np

from taer.origin import Origin

MAX_BODY = 16 << 20  # bytes of a request
MAX_VECTORS = 1024
MAX_WIDTH = 16_384
MAX_IMAGES = 16
MAX_IMAGE_BYTES = 11_000_000  # fits into a request in base64
MAX_TEXTS = 64
MAX_TEXT = 10_000  # characters
MAX_LABEL = 100  # characters
MAX_PENDING = 100_000  # examples that wait to be learned
MAX_PURGED = 1000  # examples in one request


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
