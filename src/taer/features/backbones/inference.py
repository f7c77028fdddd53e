"""Running an image network: onnxruntime on the CPU, torch on a GPU.

On the CPU a network is exported once and run by onnxruntime, which folds batch norms and picks better
kernels: `benchmarks/extraction.py` has the figures. Every batch is padded to the same shape, so that what
comes out for an image never depends on how many others were in its batch.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taer.extras import reason, require
from taer.features.backbones.base import Encoder

if TYPE_CHECKING:
    from torch import nn

CPU_BATCH = 8  # as fast as 32 on two cores, and a quarter of the memory
GPU_BATCH = 128


def image_encoder(
    network: nn.Module, shape: tuple[int, int], mean: Sequence[float], std: Sequence[float]
) -> Encoder:
    """The fastest way here to run a network that takes normalised images, fed with 8-bit pixels."""
    device = torch_device()
    module = from_pixels(network, mean, std).eval()
    if device == "cpu" and find_spec("onnxruntime") and find_spec("onnxscript"):
        pixels = np.random.default_rng(0).integers(0, 256, (CPU_BATCH, *shape, 3), np.uint8)
        with contextlib.suppress(_ExportFailed):
            return OnnxEncoder(exported(module, pixels), CPU_BATCH)
    return TorchEncoder(module, device, CPU_BATCH if device == "cpu" else GPU_BATCH)


def torch_device() -> str:
    torch = require("torch", "images")
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


class TorchEncoder:
    """Pixels through a torch module."""

    def __init__(self, module: nn.Module, device: str, batch_size: int) -> None:
        import torch

        self._module = module.to(device)
        self._device = device
        self.batch_size = batch_size
        self.engine = f"torch {torch.__version__} on {device}"

    def __call__(self, items: Sequence[np.ndarray], /) -> np.ndarray:
        import torch

        pixels = torch.from_numpy(padded(items, self.batch_size)).to(self._device)
        with torch.inference_mode():
            return self._module(pixels).float().cpu().numpy()[: len(items)]


class OnnxEncoder:
    """Pixels through onnxruntime on all cores."""

    def __init__(self, model: bytes | Path, batch_size: int) -> None:
        runtime = require("onnxruntime", "onnx")
        options = runtime.SessionOptions()
        # threads that wait by spinning take the cores that decode the next images
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.intra_op_num_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
        options.log_severity_level = 3
        try:
            self._session = runtime.InferenceSession(
                model if isinstance(model, bytes) else str(model), options, providers=_providers(runtime)
            )
        except Exception as error:  # onnxruntime's own family
            raise ValueError(f"{model if isinstance(model, Path) else 'model'}: onnxruntime: {error}") from None
        self.inputs = self._session.get_inputs()
        self.batch_size = batch_size
        self.engine = f"onnxruntime {runtime.__version__} on {self._session.get_providers()[0]}"

    def __call__(self, items: Sequence[np.ndarray], /) -> np.ndarray:
        return self.run(padded(items, self.batch_size))[: len(items)]

    def run(self, batch: np.ndarray) -> np.ndarray:
        return np.asarray(self._session.run(None, {self.inputs[0].name: batch})[0])


def padded(items: Sequence[np.ndarray], batch_size: int) -> np.ndarray:
    """The images as one array, with black ones at the end up to the size of a batch."""
    batch = np.zeros((batch_size, *items[0].shape), items[0].dtype)
    for row, item in enumerate(items):
        batch[row] = item
    return batch


def _providers(runtime: Any) -> list[str]:
    gpu = [name for name in ("CUDAExecutionProvider",) if name in runtime.get_available_providers()]
    return [*gpu, "CPUExecutionProvider"]


def from_pixels(network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> nn.Module:
    """The network with normalisation as its first layer: images travel as bytes, a quarter of the memory."""
    import torch

    class FromPixels(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network
            self.mean, self.std = (
                torch.nn.Buffer(torch.tensor(values, dtype=torch.float32).view(1, -1, 1, 1))
                for values in (mean, std)
            )

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            scaled = pixels.permute(0, 3, 1, 2).float() / 255
            return self.network((scaled - self.mean) / self.std)

    return FromPixels()


class _ExportFailed(Exception):
    """The exporter does not know an operation of this network, or got it wrong."""


def pixel_graph(network: nn.Module, shape: tuple[int, int], mean: Sequence[float], std: Sequence[float]) -> bytes:
    """An ONNX model of a network that takes normalised images, from 8-bit pixels, for batches of any size."""
    require("onnxscript", "images")
    pixels = np.random.default_rng(0).integers(0, 256, (3, *shape, 3), np.uint8)
    try:
        return exported(from_pixels(network, mean, std).eval(), pixels, any_size=True)
    except _ExportFailed as error:
        raise ValueError(f"torch cannot write this network as ONNX ({reason(error)})") from None


def exported(module: nn.Module, pixels: np.ndarray, *, any_size: bool = False) -> bytes:
    """The network as an ONNX model for batches of this size, checked against torch on two images of noise."""
    import torch

    example = torch.from_numpy(pixels)
    with torch.inference_mode():
        expected = module(example[:2]).numpy()
    with tempfile.TemporaryDirectory() as folder, _silence():
        path = Path(folder) / "model.onnx"
        try:
            torch.onnx.export(
                module,
                (example,),
                path,
                dynamo=True,
                external_data=False,
                verbose=False,
                dynamic_shapes=({0: "samples"},) if any_size else None,
            )
        except Exception as error:
            raise _ExportFailed(str(error)) from error
        model = path.read_bytes()
    found = OnnxEncoder(model, len(pixels)).run(pixels[:2] if any_size else pixels)[:2]
    if not np.allclose(found, expected, rtol=1e-3, atol=1e-4):
        raise _ExportFailed("onnxruntime and torch disagree on its output")
    return model


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """The exporter talks on every channel; the library prints nothing."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
