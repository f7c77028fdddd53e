"""Decoding of images in requests: large photos are scaled down, and memory is bounded."""

from __future__ import annotations

import base64
import binascii
import io
import threading
from typing import Any

from taer.features.images import FORMATS, open_image, to_rgb, upright
from taer.serve.inputs import MAX_IMAGE_BYTES, BadInput

SIDE = 1024  # pixels of the longer side; backbones use fewer
_KEPT_SIDE = 512  # of the copy that is kept with an example
_MAX_PIXELS = 25_000_000  # of a file that is decoded as a whole; HEIC photographs of telephones have 24.5
_MAX_REDUCED = 64_000_000  # of a JPEG file that is decoded at a half, a quarter or an eighth of its size
_ALLOWED = ("PNG", "JPEG", "WEBP", "HEIF", "AVIF", "GIF", "BMP")
_turn = threading.BoundedSemaphore(2)  # images that are decoded at the same time


def decode(text: str) -> Any:
    """An RGB image from base64, with or without the prefix of a data URL. Its size is checked before it is decoded."""
    try:
        content = base64.b64decode(text.partition(",")[2] if text.startswith("data:") else text, validate=True)
    except (binascii.Error, ValueError):
        raise BadInput("images: each must be an image file in base64") from None
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


def kept(image: Any) -> bytes:
    """A small JPEG file that is stored with an example, to show it and for another backbone later."""
    copy = image.copy()
    copy.thumbnail((_KEPT_SIDE, _KEPT_SIDE))
    file = io.BytesIO()
    copy.save(file, "JPEG", quality=95)
    return file.getvalue()
