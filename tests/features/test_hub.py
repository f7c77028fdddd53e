"""Named backbones from a server that speaks the protocol of the Hugging Face hub."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from safetensors.torch import save_file

from taer.features import load_features
from taer.features.backbones import find_backbone
from taer.features.backbones.networks import VisionTransformer
from tests.features.test_backbones import randomised

REPOSITORIES = {
    "vit-small": ("timm/vit_small_patch16_224.augreg_in21k_ft_in1k", 384, 6),
    "deit-tiny": ("timm/deit_tiny_patch16_224.fb_in1k", 192, 3),
}


class Hub(BaseHTTPRequestHandler):
    """One repository with one file: its commit and checksum in the headers, its content on request."""

    def __init__(self, *args, repository: str, file: Path, **kwargs) -> None:
        self.repository, self.file = repository, file
        super().__init__(*args, **kwargs)

    def do_HEAD(self) -> bytes | None:
        if self.path.partition("?")[0] != f"/{self.repository}/resolve/main/model.safetensors":
            self.send_error(404)
            return None
        content = self.file.read_bytes()
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


@pytest.mark.slow
@pytest.mark.parametrize("name", REPOSITORIES)
def test_one_command_gets_the_weights_from_the_hub_and_extracts(name, drawings, tmp_path):
    """With random weights of the published layout."""
    repository, width, heads = REPOSITORIES[name]
    weights = tmp_path / "weights" / "model.safetensors"
    weights.parent.mkdir()
    state = randomised(VisionTransformer(width, heads)).state_dict()
    save_file({**state, "head.weight": torch.zeros(10, width), "head.bias": torch.zeros(10)}, weights)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Hub, repository=repository, file=weights))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(tmp_path / "hub")}
    out = tmp_path / "features.safetensors"
    command = [sys.executable, "-m", "taer", "extract", str(drawings), "--backbone", name, "--out", str(out)]
    try:
        done = subprocess.run(
            command, env={**os.environ, **here, "HF_HUB_OFFLINE": "0"}, capture_output=True, text=True, check=False
        )
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == 0, done.stderr
    features = load_features(out)
    backbone = find_backbone(name, "image", weights)
    assert features.meta["weights"].startswith(f"hf:{repository} sha256:")
    assert features.meta["preprocess"] == backbone.preprocess
    from PIL import Image

    first = sorted((drawings / "train").glob("*/*.png"))[0]
    expected = backbone.load()([backbone.prepare(Image.open(first).convert("RGB"))])[0]
    closest = np.abs(features.train_x[:].astype(np.float32) - expected).max(axis=1).min()
    assert closest < 2e-3 * np.abs(expected).max()  # stored as float16
