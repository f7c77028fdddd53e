"""Any image model in an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from taer.features.backbones.base import Backbone, Encoder, ImageTransform, sha256_of
from taer.features.backbones.export import open_session
from taer.features.backbones.hub import read_transform
from taer.features.backbones.inference import CPU_BATCH, OnnxEncoder, padded

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def find_onnx(path: Path) -> Backbone:
    """A model whose first input is a batch of images, n × 3 × height × width in float32.

    The preprocessing is read from a ``preprocessor_config.json`` next to the file, as Hugging Face's exporters write
    it. The default is that of ImageNet: resize to 8/7 of the input, crop, ImageNet's mean and standard deviation. The
    features are the first output, pooled over positions or its first token.
    """
    encoder = OnnxEncoder(open_session(path), CPU_BATCH)  # cheap to open, and the input shape is in the file
    shape = list(encoder.inputs[0].shape)
    if len(shape) != 4 or shape[1] != 3 or encoder.inputs[0].type != "tensor(float)":
        raise ValueError(
            f"{path}: its input {encoder.inputs[0].name} is {encoder.inputs[0].type} {shape}; "
            "expected images, tensor(float) [n, 3, height, width]"
        )
    if (path.parent / "preprocessor_config.json").is_file():
        transform = read_transform(path.parent)
    else:
        height, width = (side if isinstance(side, int) else 224 for side in shape[2:])
        transform = ImageTransform(round(max(height, width) * 8 / 7), (height, width), "bilinear", _MEAN, _STD)
    if isinstance(shape[0], int):
        encoder.batch_size = shape[0]

    def load(half: bool = False) -> Encoder:
        if half:
            raise ValueError(f"{path}: an ONNX file has the precision it was written with; leave half=True out")
        return _Normalized(encoder, transform)

    weights = f"{path.name} sha256:{sha256_of([path])}"
    return Backbone(path.name, "image", f"{transform}; the first output", weights, transform, load)


class _Normalized:
    """Normalizes pixels for the model, and pools its output to one vector per image."""

    def __init__(self, encoder: OnnxEncoder, transform: ImageTransform) -> None:
        self._encoder = encoder
        mean, std = (np.array(values, np.float32).reshape(1, 3, 1, 1) for values in (transform.mean, transform.std))
        self._scale, self._shift = 1 / (255 * std), mean / std
        self.batch_size, self.engine, self.in_flight = encoder.batch_size, encoder.engine, encoder.in_flight

    def __call__(self, items: Sequence[np.ndarray], /) -> np.ndarray:
        pixels = padded(items, self.batch_size).transpose(0, 3, 1, 2).astype(np.float32, order="C")
        output = self._encoder.run(pixels * self._scale - self._shift)[: len(items)]
        if output.ndim == 4:
            return output.mean((2, 3))
        return output[:, 0] if output.ndim == 3 else output
