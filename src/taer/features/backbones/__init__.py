"""Frozen models that turn an image or a text into a vector."""

from __future__ import annotations

from pathlib import Path

from taer.features.backbones.base import Backbone
from taer.features.backbones.named import NAMED
from taer.features.sources.base import Kind

__all__ = ["NAMED", "Backbone", "find_backbone"]


def find_backbone(name: str, kind: Kind | None = None, weights: Path | None = None) -> Backbone:
    """Find a backbone by name; see :func:`taer.extract` for the names.

    ``kind`` is the required kind of input, images or texts. Without it the backbone decides: a Hugging Face model reads
    images if its files describe their preprocessing.
    """
    if weights is not None and name not in NAMED:
        raise ValueError(f"weights go with a named backbone ({', '.join(NAMED)}); {name} is not one")
    if name in NAMED:
        backbone = NAMED[name].find(weights)
    elif name.startswith("hf:"):
        from taer.features.backbones.hub import find_vision_model, reads_images
        from taer.features.backbones.sentences import find_hub_sentence_encoder

        model = name.removeprefix("hf:")
        as_images = reads_images(model) if kind is None else kind == "image"
        backbone = find_vision_model(model) if as_images else find_hub_sentence_encoder(model)
    elif name.endswith(".onnx"):
        from taer.features.backbones.onnx import find_onnx

        if not Path(name).is_file():
            raise ValueError(f"{name}: no such file")
        backbone = find_onnx(Path(name))
    else:
        raise ValueError(
            f"{name}: not a backbone. Expected {', '.join(NAMED)}, hf:owner/model, hf:path/to/folder, "
            "or a .onnx file"
        )
    if kind is not None and backbone.kind != kind:
        fitting = [entry.name for entry in NAMED.values() if entry.kind == kind]
        raise ValueError(f"{name} reads {backbone.kind}s, the data are {kind}s; try {', '.join(fitting)}")
    return backbone
