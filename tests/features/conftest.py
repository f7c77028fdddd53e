"""Small images and small models, made for each test."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

if find_spec("torch"):
    import torch

    torch.set_num_threads(1)  # tests run side by side, and threads that wait for each other take their time


def drawing(kind: str, rng: np.random.Generator, size: tuple[int, int] = (40, 30)):
    """A shape at a random place: one shape per class."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(image)
    left, top = rng.integers(1, 10, 2).tolist()
    box = (left, top, left + int(rng.integers(12, 20)), top + int(rng.integers(10, 18)))
    if kind == "circle":
        pen.ellipse(box, outline="black", width=2)
    elif kind == "square":
        pen.rectangle(box, outline="black", width=2)
    elif kind == "line":
        pen.line(box, fill="black", width=2)
    else:
        pen.rectangle(box, fill="black")
    return image


def write_drawings(
    root: Path, train: int = 6, test: int = 3, kinds: tuple[str, ...] = ("circle", "square")
) -> Path:
    rng = np.random.default_rng(0)
    for part, count in (("train", train), ("test", test)):
        for kind in kinds:
            folder = root / part / kind
            folder.mkdir(parents=True)
            for number in range(count):
                drawing(kind, rng).save(folder / f"{number:03}.png")
    return root


@pytest.fixture
def drawings(tmp_path: Path) -> Path:
    return write_drawings(tmp_path / "drawings")


@pytest.fixture(scope="session")
def tiny_onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution and its global average: 5 features of images of 16 × 16."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    kernel = np.random.default_rng(0).normal(size=(5, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["pixels", "kernel"], ["maps"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["maps"], ["positive"]),
        ],
        "tiny",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, 16, 16])],
        [helper.make_tensor_value_info("positive", TensorProto.FLOAT, ["n", 5, 16, 16])],
        [numpy_helper.from_array(kernel, "kernel")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path_factory.mktemp("onnx") / "tiny.onnx"
    onnx.save(model, path)
    return path
