"""The one way from the bytes of an image file to pixels, for ``taer extract`` and for the service."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from taer.extras import require

# Part of what a backbone says of its preprocessing: raise it whenever the same file gives other pixels.
DECODER = "decode 3"
# Without a list Pillow tries all it knows, and hands PostScript to Ghostscript, a program of its own.
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
    """An RGB ``PIL.Image``: upright as its EXIF data say, the first frame, and white where it is transparent.

    Read to the end, so that a file that was cut shows here.

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
    """A ``PIL.Image`` whose size is known and whose pixels were not read yet."""
    pillow = require("PIL.Image", "images")
    try:
        return pillow.open(io.BytesIO(data), formats=formats)
    except pillow.UnidentifiedImageError:
        *most, last = (FORMATS[format] for format in formats)
        raise ValueError(f"not a readable {', '.join(most)} or {last} file") from None


def to_rgb(image: Any) -> Any:
    """Upright as its EXIF data say, and white where it is transparent."""
    pillow, ops = require("PIL.Image", "images"), require("PIL.ImageOps", "images")
    upright = ops.exif_transpose(image)
    if upright.mode.startswith("I"):  # 16 bits of gray, which Pillow cuts off at 255
        upright = pillow.fromarray((np.clip(np.asarray(upright), 0, 65535) >> 8).astype(np.uint8))
    if upright.has_transparency_data:
        upright = upright.convert("RGBA")
        upright = pillow.alpha_composite(pillow.new("RGBA", upright.size, "white"), upright)
    return upright.convert("RGB")
