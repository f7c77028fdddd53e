"""Any Hugging Face model, by its id or from a local folder, with the preprocessing its own files describe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taer.extras import reason, require
from taer.features.backbones.base import Backbone, Encoder, ImageTransform, sha256_of
from taer.features.backbones.inference import image_encoder, pixel_graph

if TYPE_CHECKING:
    from torch import nn

_IMAGES = "preprocessor_config.json"  # in the folder of a model that reads images
_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")
_RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def model_folder(name: str) -> Path:
    """The folder with the files of a model; downloaded from the hub when ``name`` is not a local folder.

    ``owner/model@revision`` is that model at a commit, tag or branch.
    """
    if Path(name).is_dir():
        return Path(name)
    hub = require("huggingface_hub", "images")
    repository, _, revision = name.partition("@")
    try:
        return Path(hub.snapshot_download(repository, revision=revision or None, allow_patterns=_FILES))
    except Exception as error:  # the hub fails in many ways
        raise ValueError(
            f"hf:{name} is no local folder, and could not be downloaded from the hub ({reason(error)}). "
            "Fetch the model's folder on another machine and pass it as hf:path/to/folder, "
            "or use efficientnet-lite0 (images) or minilm (texts), whose weights come with pip"
        ) from None


def origin_of(name: str, folder: Path) -> str:
    """Where a model came from: with the commit, if the hub's cache, which names folders after it, has the files."""
    if Path(name).is_dir() or folder.parent.name != "snapshots":
        return f"hf:{name}"
    return f"hf:{name.partition('@')[0]}@{folder.name}"


def weights_of(folder: Path) -> str:
    """SHA-256 of the weights. Only ``.safetensors`` files are read, because other formats can run code."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(
            f"{folder}: no .safetensors weights here; older formats are not read, because they can run code"
        )
    return sha256_of(files)


def reads_images(name: str) -> bool:
    return (model_folder(name) / _IMAGES).is_file()


def config_of(folder: Path) -> str:
    """SHA-256 of the configuration of a transformers model."""
    return sha256_of([folder / "config.json"])


def find_vision_model(name: str) -> Backbone:
    """A vision model of transformers: ViT, DeiT, DINOv2, CLIP, SigLIP, ConvNeXt, ResNet and their like."""
    require("transformers", "images")
    folder = model_folder(name)
    transform, weights = read_transform(folder), weights_of(folder)

    def load(half: bool = False) -> Encoder:
        identity = f"hf {weights} {config_of(folder)}"
        return image_encoder(identity, lambda: _pooled(folder), transform.crop, transform.mean, transform.std, half)

    def graph() -> bytes:
        return pixel_graph(_pooled(folder), transform.crop, transform.mean, transform.std)

    return Backbone(
        f"hf:{name}",
        "image",
        f"{transform}; the model's pooled image feature",
        f"{origin_of(name, folder)} sha256:{weights}",
        transform,
        load,
        graph,
    )


def read_transform(folder: Path) -> ImageTransform:
    """The image processor of a model as a transform of 8-bit pixels."""
    if not (folder / _IMAGES).is_file():
        raise ValueError(f"{folder}: no {_IMAGES}, so nobody knows what images this model expects")
    transformers = require("transformers", "images")
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    except Exception as error:  # configurations go wrong in many ways
        raise ValueError(f"{folder}: its {_IMAGES} was not understood ({reason(error)})") from None

    def setting(name: str) -> Any:
        value: Any = getattr(processor, name, None)
        return dict(value) if hasattr(value, "keys") else value

    if setting("do_rescale") is False or abs(float(setting("rescale_factor") or 0) * 255 - 1) > 1e-4:
        raise ValueError(f"{folder}: images are expected to be scaled by 1/255, got {setting('rescale_factor')}")
    size, crop = setting("size") or {}, setting("crop_size") if setting("do_center_crop") else None
    square = _side(size)
    resize: int | tuple[int, int] | None = square
    if crop_share := setting("crop_pct"):  # ConvNeXt: small images are cut from larger ones
        if not isinstance(square, int):
            raise ValueError(f"{folder}: crop_pct needs a size with a shortest edge")
        crop = {"height": square, "width": square}
        resize = int(square / crop_share) if square < 384 else (square, square)
    if not setting("do_resize"):
        resize = None
    target = _side(crop) if crop else square
    height_width = (target, target) if isinstance(target, int) else target
    if height_width is None:
        raise ValueError(f"{folder}: its {_IMAGES} names no size")
    normalize = setting("do_normalize")
    return ImageTransform(
        resize,
        height_width,
        _RESAMPLE[int(setting("resample") or 0)],
        tuple(setting("image_mean")) if normalize else (0.0,) * 3,
        tuple(setting("image_std")) if normalize else (1.0,) * 3,
        round_margins=False,
    )


def _side(size: dict[str, int | None] | None) -> int | tuple[int, int] | None:
    size = size or {}
    if shortest := size.get("shortest_edge"):
        return int(shortest)
    if (height := size.get("height")) and (width := size.get("width")):
        return int(height), int(width)
    return None


def _pooled(folder: Path) -> nn.Module:
    """The model with one vector per image: its projection (CLIP, SigLIP), its class token, or its pool."""
    import torch
    from transformers import AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    except Exception as error:
        raise ValueError(f"{folder}: transformers cannot load this model ({reason(error)})") from None

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            if hasattr(self.model, "get_image_features"):
                features = self.model.get_image_features(pixel_values=images)
                return features if isinstance(features, torch.Tensor) else features.pooler_output
            output = self.model(pixel_values=images)
            tokens = output.last_hidden_state
            if tokens.ndim == 3 and hasattr(getattr(self.model, "embeddings", None), "cls_token"):
                return tokens[:, 0]
            if getattr(output, "pooler_output", None) is not None:
                return output.pooler_output.flatten(1)
            return tokens.mean(1) if tokens.ndim == 3 else tokens.mean((2, 3))

    return Pooled()


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not readable as JSON ({error})") from None
