"""Decoding of image files, for ``taer extract`` and for the service."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from taer.extras import require

# Part of a backbone's preprocessing. Increase it whenever the same file is decoded to other pixels.
DECODER = "decode 3"
# Without a list Pillow tries every format, and runs Ghostscript on PostScript files.
FORMATS = {
    "PNG": "PNG",
    "JPEG": "JPEG",
    "WEBP": "WebP",
    "GIF": "GIF",
    "BMP": "BMP",
    "TIFF": "TIFF",
    "PPM": "PPM",
}


def decode_image(data: bytes) -> Any:
    """Decode an image to an RGB ``PIL.Image``: first frame, EXIF orientation applied, transparency on white.

    The whole file is read, so that a truncated file raises here.

    Examples
    --------
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGBA", (3, 2), (0, 0, 0, 0)).save(file, "PNG")
    >>> decode_image(file.getvalue()).getpixel((0, 0))
    (255, 255, 255)
    """
    return to_rgb(open_image(data))


def open_image(data: bytes, formats: Sequence[str] = tuple(FORMATS)) -> Any:
    """Open a ``PIL.Image`` without reading its pixels."""
    pillow = require("PIL.Image", "images")
    try:
        return pillow.open(io.BytesIO(data), formats=formats)
    except pillow.UnidentifiedImageError:
        *most, last = (FORMATS[format] for format in formats)
        raise ValueError(f"not a readable {', '.join(most)} or {last} file") from None


def to_rgb(image: Any) -> Any:
    """Apply the EXIF orientation, and put transparent images on white."""
    pillow, ops = require("PIL.Image", "images"), require("PIL.ImageOps", "images")
    upright = ops.exif_transpose(image)
    if upright.mode.startswith("I"):  # 16 bits of gray, which Pillow cuts off at 255
        upright = pillow.fromarray((np.clip(np.asarray(upright), 0, 65535) >> 8).astype(np.uint8))
    if upright.has_transparency_data:
        upright = upright.convert("RGBA")
        upright = pillow.alpha_composite(pillow.new("RGBA", upright.size, "white"), upright)
    return upright.convert("RGB")
