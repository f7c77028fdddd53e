"""Frozen models that turn an image or a text into a vector."""

from __future__ import annotations

from pathlib import Path

from taer.features.backbones.base import Backbone
from taer.features.backbones.named import NAMED
from taer.features.sources.base import Kind

__all__ = ["NAMED", "Backbone", "find_backbone"]


def find_backbone(name: str, kind: Kind, weights: Path | None = None) -> Backbone:
    """The backbone of that name for images or texts; see :func:`taer.extract` for what it may be."""
    if weights is not None and name not in NAMED:
        raise ValueError(f"weights go with a named backbone ({', '.join(NAMED)}); {name} is not one")
    if name in NAMED:
        backbone = NAMED[name].find(weights)
    elif name.startswith("hf:") and kind == "text":
        from taer.features.backbones.sentences import find_hub_sentence_encoder

        backbone = find_hub_sentence_encoder(name.removeprefix("hf:"))
    elif name.startswith("hf:"):
        from taer.features.backbones.hub import find_vision_model

        backbone = find_vision_model(name.removeprefix("hf:"))
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
    if backbone.kind != kind:
        fitting = [entry.name for entry in NAMED.values() if entry.kind == kind]
        raise ValueError(f"{name} reads {backbone.kind}s, the data are {kind}s; try {', '.join(fitting)}")
    return backbone
