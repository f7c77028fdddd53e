"""Extraction: resumed, repeated, damaged, interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
import taer
from taer.features import encoding
from taer.features.backbones.inference import OnnxEncoder
from tests.features.conftest import write_drawings
from tests.walks import follow, traced


@pytest.fixture
def out(tmp_path):
    return tmp_path / "features.safetensors"


@pytest.fixture
def encoded(monkeypatch):
    """Counts the images that go through the model."""
    seen = []
    run = OnnxEncoder.run
    monkeypatch.setattr(OnnxEncoder, "run", lambda self, batch: seen.append(len(batch)) or run(self, batch))
    return seen


def test_features_of_every_image_in_order(drawings, tiny_onnx, out):
    from PIL import Image

    from taer.features.backbones import find_backbone

    features = taer.extract(drawings, str(tiny_onnx), out)
    assert (features.train_x.shape, features.test_x.shape) == ((12, 5), (6, 5))
    assert features.train_x.dtype == np.float32
    assert features.classes == ("circle", "square")
    backbone = find_backbone(str(tiny_onnx), "image")
    paths = sorted(drawings.glob("train/*/*.png"))
    expected = backbone.load()([backbone.prepare(Image.open(paths[7]))])
    np.testing.assert_array_equal(features.train_x[7], expected[0])
    assert features.meta["dataset"] == "drawings"
    assert features.meta["backbone"] == "tiny.onnx"
    assert "sha256:" in features.meta["weights"]
    assert features.meta["skipped"] == "0"
    assert not Path(f"{out}.parts").exists()


def test_running_again_does_nothing(drawings, tiny_onnx, out, encoded):
    taer.extract(drawings, str(tiny_onnx), out)
    before, state = len(encoded), out.stat()
    calls = []
    again = taer.extract(drawings, str(tiny_onnx), out, progress=lambda *done: calls.append(done))
    assert len(encoded) == before
    assert calls == []
    assert out.stat().st_mtime_ns == state.st_mtime_ns
    assert again.train_x.shape == (12, 5)


def test_a_file_with_other_features_is_not_overwritten(drawings, tiny_onnx, out):
    taer.extract(drawings, str(tiny_onnx), out)
    content = out.read_bytes()
    next(drawings.glob("train/circle/*.png")).unlink()
    with pytest.raises(ValueError, match=r"already holds other features \(drawings by tiny.onnx\)"):
        taer.extract(drawings, str(tiny_onnx), out)
    assert out.read_bytes() == content


def test_two_batches_in_flight_stay_in_order(drawings, tiny_onnx, tmp_path, monkeypatch):
    """As on a GPU, the second of two batches may finish first."""
    one = taer.extract(drawings, str(tiny_onnx), tmp_path / "one.safetensors")
    run, together = OnnxEncoder.run, threading.Barrier(2, timeout=60)

    def slow_first(self, batch):
        if together.wait() == 0:
            time.sleep(0.05)
        return run(self, batch)

    monkeypatch.setattr(OnnxEncoder, "in_flight", 2)
    monkeypatch.setattr(OnnxEncoder, "run", slow_first)
    monkeypatch.setattr(encoding, "CHUNK", 3)  # six batches: three pairs
    two = taer.extract(drawings, str(tiny_onnx), tmp_path / "two.safetensors")
    np.testing.assert_array_equal(two.train_x, one.train_x)
    np.testing.assert_array_equal(two.test_x, one.test_x)


def test_progress_ends_at_the_total(drawings, tiny_onnx, out, monkeypatch):
    monkeypatch.setattr(encoding, "CHUNK", 4)
    calls = []
    taer.extract(drawings, str(tiny_onnx), out, progress=lambda done, total: calls.append((done, total)))
    assert calls[0] == (0, 18)
    assert calls[-1] == (18, 18)
    assert calls == sorted(calls)


SLOW_RUN = """
import sys, time
from taer import cli
from taer.features import encoding
from taer.features.backbones.inference import OnnxEncoder
encoding.CHUNK = 8
run = OnnxEncoder.run
OnnxEncoder.run = lambda self, batch: time.sleep(0.2) or run(self, batch)
cli.main(sys.argv[1:])
"""


def test_killed_half_way_and_resumed(tmp_path, tiny_onnx, monkeypatch, encoded):
    """`kill -9` loses only the unfinished chunk; the file is bit-identical to one without a kill."""
    images = write_drawings(tmp_path / "many", train=40, test=10)
    killed, whole = tmp_path / "killed.safetensors", tmp_path / "whole.safetensors"
    arguments = ["extract", str(images), "--backbone", str(tiny_onnx), "--out"]
    process = subprocess.Popen([sys.executable, "-c", SLOW_RUN, *arguments, str(killed)], stderr=subprocess.DEVNULL)
    parts = Path(f"{killed}.parts")
    deadline = time.monotonic() + 300
    while len(list(parts.rglob("*.npz"))) < 4 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not killed.exists()
    finished = {path: path.stat().st_mtime_ns for path in parts.rglob("*.npz")}
    assert 4 <= len(finished) < 13

    monkeypatch.setattr(encoding, "CHUNK", 8)
    taer.extract(images, str(tiny_onnx), whole)
    all_batches = len(encoded)
    encoded.clear()
    calls = []
    taer.extract(images, str(tiny_onnx), killed, progress=lambda done, total: calls.append(done))
    assert calls[0] == 8 * len(finished)
    assert len(encoded) == all_batches - len(finished)
    assert killed.read_bytes() == whole.read_bytes()


def test_a_chunk_cut_short_is_computed_again(drawings, tiny_onnx, out, monkeypatch, tmp_path):
    monkeypatch.setattr(encoding, "CHUNK", 4)

    def stop(done, total):
        if done >= 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        taer.extract(drawings, str(tiny_onnx), out, progress=stop)
    chunk = sorted(Path(f"{out}.parts").rglob("*.npz"))[0]
    chunk.write_bytes(chunk.read_bytes()[:100])
    taer.extract(drawings, str(tiny_onnx), out)
    taer.extract(drawings, str(tiny_onnx), tmp_path / "whole.safetensors")
    assert out.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


def test_corrupt_image(drawings, tiny_onnx, out, tmp_path):
    whole = taer.extract(drawings, str(tiny_onnx), tmp_path / "whole.safetensors")
    bad = sorted(drawings.glob("train/circle/*.png"))[2]
    bad.write_bytes(bad.read_bytes()[:60])
    with pytest.raises(ValueError, match=rf"{bad}: cannot be read .*skip_bad=True"):
        taer.extract(drawings, str(tiny_onnx), out)
    features = taer.extract(drawings, str(tiny_onnx), out, skip_bad=True)
    assert features.meta["skipped"] == "1"
    np.testing.assert_array_equal(features.train_x, np.delete(whole.train_x, 2, axis=0))
    np.testing.assert_array_equal(features.train_y, np.delete(whole.train_y, 2))
    with pytest.raises(ValueError, match="lacks 1 items that could not be read"):
        taer.extract(drawings, str(tiny_onnx), out)


def test_a_chunk_that_lacks_bad_images_is_not_enough_without_leave(drawings, tiny_onnx, out, monkeypatch):
    monkeypatch.setattr(encoding, "CHUNK", 4)
    sorted(drawings.glob("train/circle/*.png"))[0].write_bytes(b"no image")

    def stop(done, total):
        if done >= 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        taer.extract(drawings, str(tiny_onnx), out, skip_bad=True, progress=stop)
    with pytest.raises(ValueError, match="cannot be read"):
        taer.extract(drawings, str(tiny_onnx), out)


def test_what_was_finished_before_a_corrupt_image_is_kept(drawings, tiny_onnx, out, monkeypatch, encoded):
    monkeypatch.setattr(encoding, "CHUNK", 4)
    bad = sorted(drawings.glob("test/square/*.png"))[-1]
    bad.write_bytes(b"no image")
    with pytest.raises(ValueError, match="cannot be read"):
        taer.extract(drawings, str(tiny_onnx), out)
    encoded.clear()
    features = taer.extract(drawings, str(tiny_onnx), out, skip_bad=True)
    assert len(encoded) == 1  # only the chunk with the bad image
    assert len(features.test_x) == 5


def test_a_part_without_a_single_readable_image(drawings, tiny_onnx, out):
    for path in drawings.glob("test/*/*.png"):
        path.write_bytes(b"no image")
    with pytest.raises(ValueError, match="not one item of the test part could be read"):
        taer.extract(drawings, str(tiny_onnx), out, skip_bad=True)


def test_images_of_every_mode(tmp_path, tiny_onnx, out):
    from PIL import Image

    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        for mode in ("L", "RGBA", "P", "CMYK", "1"):
            folder = tmp_path / "modes" / part / mode
            folder.mkdir(parents=True)
            image = Image.fromarray(rng.integers(0, 256, (20, 30, 3), np.uint8)).convert(mode)
            image.save(folder / ("a.jpg" if mode == "CMYK" else "a.png"))
    assert len(taer.extract(tmp_path / "modes", str(tiny_onnx), out).train_x) == 5


def test_texts_through_minilm(tmp_path, out):
    table = tmp_path / "pets.csv"
    rows = ["the cat sleeps,cat,train", "my kitten purrs,cat,train", "the dog barks,dog,train", "a puppy,dog,train"]
    table.write_text("\n".join(["text,label,split", *rows, "kittens,cat,test", "a barking dog,dog,test"]))
    features = taer.extract(table, "minilm", out, split_column="split")
    assert features.train_x.shape == (4, 384)
    nearest = (features.test_x @ features.train_x.T).argmax(1)
    np.testing.assert_array_equal(features.train_y[nearest], features.test_y)


def test_wrong_names(drawings, tiny_onnx, tmp_path):
    with pytest.raises(ValueError, match=r"ends in \.safetensors"):
        taer.extract(drawings, str(tiny_onnx), tmp_path / "features.bin")
    (tmp_path / "other.safetensors").write_bytes(b"something else")
    with pytest.raises(ValueError, match="not a feature file"):
        taer.extract(drawings, str(tiny_onnx), tmp_path / "other.safetensors")


def test_another_split_is_not_the_same_extraction(cli, backbones, tmp_path):
    (tmp_path / "t.csv").write_text("text,label\naab,a\nab,a\ncd,c\nccd,c\n")
    command = ("extract", "t.csv", "--backbone", "letters", "--out", "t.safetensors")
    assert "2 train, 2 test" in cli(*command, "--test-fraction", 0.5)[1]
    assert "already holds other features" in cli(*command)[2]


def test_the_walk_of_images_to_features_is_walked(drawings, tiny_onnx, cli):
    call = ("extract", drawings, "--backbone", tiny_onnx, "--out", "x.safetensors")
    follow("Images to a feature file", traced(lambda: cli(*call)))
