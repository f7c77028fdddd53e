"""The one way from the bytes of an image file to pixels, for ``taer extract`` and for the service."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from taer.extras import require

# Part of what a backbone says of its preprocessing: raise it whenever the same file gives other pixels.
DECODER = "decode 2"
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


class TooLarge(ValueError):
    """A side has more pixels than allowed."""


def decode_image(data: bytes, formats: Sequence[str] = tuple(FORMATS), max_side: int | None = None) -> Any:
    """An RGB ``PIL.Image``: upright as its EXIF data say, the first frame, and white where it is transparent.

    Read to the end, so that a file that was cut shows here. The sides are checked before the pixels are read.

    Examples
    --------
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGBA", (3, 2), (0, 0, 0, 0)).save(file, "PNG")
    >>> decode_image(file.getvalue()).getpixel((0, 0))
    (255, 255, 255)
    """
    pillow, ops = require("PIL.Image", "images"), require("PIL.ImageOps", "images")
    try:
        image = pillow.open(io.BytesIO(data), formats=formats)
    except pillow.UnidentifiedImageError:
        *most, last = (FORMATS[format] for format in formats)
        raise ValueError(f"not a readable {', '.join(most)} or {last} file") from None
    if max_side is not None and max(image.size) > max_side:
        raise TooLarge(f"a side may have {max_side} pixels, got {image.width} × {image.height}")
    upright = ops.exif_transpose(image)
    if upright.has_transparency_data:
        upright = upright.convert("RGBA")
        upright = pillow.alpha_composite(pillow.new("RGBA", upright.size, "white"), upright)
    return upright.convert("RGB")
