"""The interface of backbones, and the preprocessing of images."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from taer.features.images import DECODER
from taer.features.sources.base import Kind
from taer.origin import Origin

_STRIP = 16  # largest ratio of the sides of an image; of a longer strip only the middle is used


class Encoder(Protocol):
    """A loaded model. ``engine`` is the runtime: features of two runtimes differ in their last bits."""

    engine: str
    batch_size: int
    in_flight: int  # batches that may be computed at the same time: two keep a GPU busy

    def __call__(self, items: Sequence[Any], /) -> np.ndarray: ...


@dataclass(frozen=True)
class Backbone:
    """A frozen model that is found but not loaded, so that finished work is recognized without loading it."""

    name: str
    kind: Kind
    preprocess: str
    weights: str
    prepare: Callable[[Any], Any]
    load: Callable[..., Encoder]  # half=True: in half precision, on a GPU
    graph: Callable[[], bytes] | None = None  # an ONNX model from a batch of prepared images to their features

    @property
    def origin(self) -> Origin:
        return Origin(self.name, self.weights, self.preprocess)


@dataclass(frozen=True)
class ImageTransform:
    """Resize, then crop the center, on 8-bit pixels with Pillow's filters.

    ``resize`` is the length of the shorter side, or (height, width); ``crop`` is (height, width). The margins
    of a crop that cannot be centered are rounded as torchvision does, or cut as transformers does. Mean and standard
    deviation are of pixels in 0 … 1; the encoder applies them. Of a strip more than 16 times as long as wide only
    the middle is used, so that no shape of an image needs more memory than a few inputs of the network.

    Examples
    --------
    >>> transform = ImageTransform(256, (224, 224), "bilinear", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    >>> print(transform)
    decode 3, resize 256 bilinear, crop 224 × 224, mean 0.485 0.456 0.406, std 0.229 0.224 0.225
    >>> from PIL import Image
    >>> transform(Image.new("RGB", (640, 480))).shape
    (224, 224, 3)
    """

    resize: int | tuple[int, int] | None
    crop: tuple[int, int]
    resample: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    round_margins: bool = True

    def __call__(self, image: Any) -> np.ndarray:
        from PIL import Image

        if isinstance(self.resize, int):
            image = _middle(image)
        width, height = image.size
        if isinstance(self.resize, int):
            short = min(width, height)
            # cut, not rounded, as torchvision and transformers both do
            new = (int(self.resize * width / short), int(self.resize * height / short))
        elif self.resize is not None:
            new = self.resize[::-1]
        else:
            new = (width, height)
        if new != (width, height):
            image = image.resize(new, Image.Resampling[self.resample.upper()])
        left, top = (self._margin(new[axis] - self.crop[1 - axis]) for axis in (0, 1))
        if new != self.crop[::-1]:
            image = image.crop((left, top, left + self.crop[1], top + self.crop[0]))
        return np.asarray(image)

    def _margin(self, excess: int) -> int:
        return round(excess / 2) if self.round_margins else excess // 2

    def __str__(self) -> str:
        resize = self.resize if isinstance(self.resize, int) else " × ".join(map(str, self.resize or ()))
        mean, std = (" ".join(f"{value:.6g}" for value in values) for values in (self.mean, self.std))
        steps = [f"resize {resize} {self.resample}"] if self.resize else []
        return ", ".join([DECODER, *steps, f"crop {self.crop[0]} × {self.crop[1]}", f"mean {mean}", f"std {std}"])


def _middle(image: Any) -> Any:
    """The image without the ends of a long strip: resized, 1 × 4096 pixels would be 256 × 1,048,576."""
    width, height = image.size
    most = _STRIP * min(width, height)
    if max(width, height) <= most:
        return image
    left, top = (max(0, side - most) // 2 for side in (width, height))
    return image.crop((left, top, left + min(width, most), top + min(height, most)))


def sha256_of(paths: Sequence[Path]) -> str:
    """One hash of several files, in the given order."""
    total = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(io.DEFAULT_BUFFER_SIZE * 128):
                total.update(block)
    return total.hexdigest()
