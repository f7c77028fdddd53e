"""Named backbones from a server that speaks the protocol of the Hugging Face hub."""

from __future__ import annotations

import functools
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from safetensors.torch import save_file

from taer.features import FeatureSet, load_features, save_features
from taer.features.backbones import find_backbone
from taer.features.backbones.networks import VisionTransformer
from tests.features.test_backbones import randomised

REPOSITORIES = {
    "vit-small": ("timm/vit_small_patch16_224.augreg_in21k_ft_in1k", 384, 6),
    "deit-tiny": ("timm/deit_tiny_patch16_224.fb_in1k", 192, 3),
}


class Hub(BaseHTTPRequestHandler):
    """Files by path: each with its commit and checksum in the headers, its content on request."""

    def __init__(self, *args, files: dict[str, bytes], **kwargs) -> None:
        self.files = files
        super().__init__(*args, **kwargs)

    def do_HEAD(self) -> bytes | None:
        content = self.files.get(self.path.partition("?")[0])
        if content is None:
            self.send_error(404)
            return None
        self.send_response(200)
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return content

    def do_GET(self) -> None:
        if content := self.do_HEAD():
            self.wfile.write(content)

    def log_message(self, *args) -> None:
        pass


@contextmanager
def serving(files):
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Hub, files=files))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def weights_of(name, path):
    """Random weights of the published layout, and where the hub has them."""
    repository, width, heads = REPOSITORIES[name]
    path.parent.mkdir()
    state = randomised(VisionTransformer(width, heads)).state_dict()
    save_file({**state, "head.weight": torch.zeros(10, width), "head.bias": torch.zeros(10)}, path)
    return {f"/{repository}/resolve/main/model.safetensors": path.read_bytes()}


def run(command, tmp_path, address):
    here = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "0"}
    here["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    done = subprocess.run(
        [sys.executable, *command], env={**os.environ, **here}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", REPOSITORIES)
def test_one_command_gets_the_weights_from_the_hub_and_extracts(name, drawings, tmp_path):
    weights, out = tmp_path / "weights" / "model.safetensors", tmp_path / "features.safetensors"
    with serving(weights_of(name, weights)) as address:
        run(["-m", "taer", "extract", str(drawings), "--backbone", name, "--out", str(out)], tmp_path, address)
    features = load_features(out)
    backbone = find_backbone(name, "image", weights)
    assert features.meta["weights"].startswith(f"hf:{REPOSITORIES[name][0]} sha256:")
    assert features.meta["preprocess"] == backbone.preprocess
    from PIL import Image

    first = sorted((drawings / "train").glob("*/*.png"))[0]
    expected = backbone.load()([backbone.prepare(Image.open(first).convert("RGB"))])[0]
    closest = np.abs(features.train_x[:].astype(np.float32) - expected).max(axis=1).min()
    assert closest < 2e-3 * np.abs(expected).max()  # stored as float16


def tiny_cifar100(classes):
    """The binary archive of CIFAR-100 with a few classes: two images of each for training, one for testing."""
    pixels = np.random.default_rng(0).integers(0, 256, (3 * classes, 3072), dtype=np.uint8)
    labels = np.arange(3 * classes, dtype=np.uint8) % classes
    rows = [bytes([0, label]) + image.tobytes() for label, image in zip(labels, pixels, strict=True)]
    parts = {"train.bin": b"".join(rows[classes:]), "test.bin": b"".join(rows[:classes])}
    parts["fine_label_names.txt"] = "\n".join(f"class{c}" for c in range(classes)).encode()
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in parts.items():
            member = tarfile.TarInfo(f"cifar-100-binary/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


@pytest.mark.slow
def test_the_paper_gets_data_and_weights_and_extracts_what_is_missing(tmp_path):
    """Figure 6 with a single missing column: images and weights come from the network, then its runs."""
    archive, labels = tiny_cifar100(20), np.arange(60) % 20
    (tmp_path / "features").mkdir()
    for seed, backbone in enumerate(("vit-tiny", "vit-small", "vit-base", "resnet18")):
        meta = {"dataset": "cifar100", "backbone": backbone}
        X = np.random.default_rng(seed).normal(size=(60, 8)).astype(np.float32)
        names = tuple(f"class{c}" for c in range(20))
        known = FeatureSet(X[:40], labels[:40], X[40:], labels[40:], classes=names, meta=meta)
        save_features(known, tmp_path / "features" / f"{backbone}.safetensors")
    served = weights_of("deit-tiny", tmp_path / "weights" / "model.safetensors")
    with serving({**served, "/tiny.tar.gz": archive}) as address:
        code = (
            f"from taer.features.sources import cifar100; cifar100.URL = '{address}/tiny.tar.gz'; "
            f"cifar100.CHECKSUM = 'sha256:{hashlib.sha256(archive).hexdigest()}'; from taer.cli import main; main()"
        )
        options = ["--features", str(tmp_path / "features"), "--out", str(tmp_path / "results"), "--seeds", "1"]
        out = run(["-c", code, "paper", "figure6", "--extract", "--jobs", "1", *options], tmp_path, address)
    assert "missing" not in out
    made = load_features(tmp_path / "features" / "cifar100-deit-tiny.safetensors")
    assert (made.n_features, len(made.train_y), len(made.test_y)) == (192, 40, 20)
    assert made.meta["weights"].startswith("hf:timm/deit_tiny")
    assert len(list((tmp_path / "results").glob("*.json"))) == 5 * 4
