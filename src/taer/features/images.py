"""Decoding of image files, for ``taer extract`` and for the service."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Iterator, Sequence
from functools import cache
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
    "HEIF": "HEIC",
    "AVIF": "AVIF",
    "GIF": "GIF",
    "BMP": "BMP",
    "TIFF": "TIFF",
    "PPM": "PPM",
}
MAX_PIXELS = 64_000_000  # of a file that is decoded as a whole, which takes up to half a gigabyte
_STRIP = 1 << 20  # pixels of a large image that are converted at once

# The first bytes of files that need more than every Pillow has, and what they need.
_NEEDS = {
    (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1"): (
        "a HEIC photograph, which needs pillow-heif: pip install 'taer[images]'"
    ),
    (b"avif", b"avis"): "an AVIF image, which needs Pillow 11.3 or newer: pip install --upgrade pillow",
}


def decode_image(data: bytes) -> Any:
    """Decode an image to an RGB ``PIL.Image``: first frame, EXIF orientation applied, transparency on white.

    The whole file is read, so that a truncated file raises here. An image with too many pixels is refused before any
    of them is decoded.

    Examples
    --------
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGBA", (3, 2), (0, 0, 0, 0)).save(file, "PNG")
    >>> decode_image(file.getvalue()).getpixel((0, 0))
    (255, 255, 255)
    """
    image = open_image(data)
    pixels = image.width * image.height
    if pixels > MAX_PIXELS:
        raise ValueError(
            f"an image of {pixels / 1e6:.0f} megapixels ({image.width} × {image.height}), and at most "
            f"{MAX_PIXELS / 1e6:.0f} are decoded; scale it down"
        )
    return to_rgb(image)


def open_image(data: bytes, formats: Sequence[str] = tuple(FORMATS)) -> Any:
    """Open a ``PIL.Image`` without reading its pixels."""
    pillow = require("PIL.Image", "images")
    _register_heif()
    pillow.init()
    try:
        return pillow.open(io.BytesIO(data), formats=[format for format in formats if format in pillow.OPEN])
    except pillow.DecompressionBombError:
        most = 2 * pillow.MAX_IMAGE_PIXELS / 1e6
        raise ValueError(f"an image of more than {most:.0f} megapixels; scale it down") from None
    except pillow.UnidentifiedImageError:
        raise ValueError(_unreadable(data, formats)) from None


@cache
def _register_heif() -> None:
    """Let Pillow read HEIC files, if the package for it is here."""
    if importlib.util.find_spec("pillow_heif"):
        require("pillow_heif", "images").register_heif_opener(thumbnails=False)


def _unreadable(data: bytes, formats: Sequence[str]) -> str:
    for brands, words in _NEEDS.items():
        if data[4:8] == b"ftyp" and data[8:12] in brands:
            return words
    *most, last = (FORMATS[format] for format in formats)
    return f"not a readable {', '.join(most)} or {last} file"


def to_rgb(image: Any) -> Any:
    """Apply the EXIF orientation, also to the image that is given, and put transparent images on white."""
    image = upright(image)
    return _on_white(image) if image.has_transparency_data else image.convert("RGB")


def upright(image: Any) -> Any:
    """Apply the EXIF orientation; 16 bits of gray become 8, because Pillow cuts them off at 255."""
    require("PIL.ImageOps", "images").exif_transpose(image, in_place=True)  # otherwise it copies every image
    if not image.mode.startswith("I"):
        return image
    pixels, gray = np.asarray(image), np.empty((image.height, image.width), np.uint8)
    for top, bottom in _strips(image):
        gray[top:bottom] = np.clip(pixels[top:bottom], 0, 65535) >> 8
    return require("PIL.Image", "images").fromarray(gray)


def _on_white(image: Any) -> Any:
    """In strips, because all copies of a large image together would take five times its size."""
    pillow = require("PIL.Image", "images")
    paper = pillow.new("RGB", image.size, "white")
    for top, bottom in _strips(image):
        strip = image.crop((0, top, image.width, bottom)).convert("RGBA")
        white = pillow.new("RGBA", strip.size, "white")
        paper.paste(pillow.alpha_composite(white, strip).convert("RGB"), (0, top))
    return paper


def _strips(image: Any) -> Iterator[tuple[int, int]]:
    """Ranges of rows."""
    rows = max(1, _STRIP // image.width)
    return ((top, min(top + rows, image.height)) for top in range(0, image.height, rows))
