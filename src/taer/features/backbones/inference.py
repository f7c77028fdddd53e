"""Running a network: onnxruntime on the CPU, torch on a GPU.

On the CPU a network is exported once and run by onnxruntime, which folds batch norms and chooses better
kernels; `benchmarks/speed/extraction.py` measures the difference. Every batch of images is padded to the same shape, so
that the features of an image never depend on the size of its batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from taer.extras import reason, require
from taer.features.backbones.base import Encoder
from taer.features.backbones.export import ExportFailed, export, exported_session

if TYPE_CHECKING:
    import torch
    from torch import nn

CPU_BATCH = 8  # as fast as 32 on two cores, and a quarter of the memory
GPU_BATCH = 128


def image_encoder(
    identity: str,
    build: Callable[[], nn.Module],
    shape: tuple[int, int],
    mean: Sequence[float],
    std: Sequence[float],
    half: bool = False,
) -> Encoder:
    """The fastest encoder on this machine for a network on normalized images, from 8-bit pixels.

    ``identity`` identifies the network that ``build`` returns, including its weights; see :func:`exported_session`.
    """
    pixels = np.random.default_rng(0).integers(0, 256, (CPU_BATCH, *shape, 3), np.uint8)
    return encoder_of(
        f"{identity}, pixels, {mean}, {std}", lambda: from_pixels(build(), mean, std), pixels, half=half
    )


def encoder_of(
    identity: str,
    build: Callable[[], nn.Module],
    example: np.ndarray,
    *,
    dynamic: Sequence[int] = (),
    threads: int | None = None,
    half: bool = False,
) -> OnnxEncoder | TorchEncoder:
    """The fastest encoder on this machine for batches like the example; ``threads`` as in :func:`open_session`."""
    device = torch_device()
    if half and device == "cpu":
        raise ValueError("half precision is for GPUs, and torch finds none here; leave half=True out")
    if device == "cpu" and find_spec("onnxruntime") and find_spec("onnxscript"):
        with contextlib.suppress(ExportFailed):
            session = exported_session(identity, lambda: build().eval(), example, dynamic, threads)
            return OnnxEncoder(session, len(example))
    return TorchEncoder(build().eval(), device, len(example) if device == "cpu" else GPU_BATCH, half)


def torch_device() -> str:
    torch = require("torch", "images")
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


class TorchEncoder:
    """Runs batches through a torch module. On a GPU, the next batch is copied while one is computed."""

    def __init__(self, module: nn.Module, device: str, batch_size: int, half: bool = False) -> None:
        import torch

        self._module = module.to(device)
        self._device, self._half = device, half
        self.batch_size = batch_size
        self.in_flight = 1 if device == "cpu" else 2
        self.engine = f"torch {torch.__version__} on {device}{', half precision' if half else ''}"

    def __call__(self, items: Sequence[np.ndarray], /) -> np.ndarray:
        import torch

        # only from pinned memory can a batch be copied while the GPU computes
        shape = (self.batch_size, *items[0].shape)
        batch = torch.zeros(shape, dtype=torch.uint8, pin_memory=self._device == "cuda")
        fill(batch.numpy(), items)
        return self._run(batch)[: len(items)]

    def run(self, batch: np.ndarray) -> np.ndarray:
        import torch

        return self._run(torch.from_numpy(batch))

    def _run(self, batch: torch.Tensor) -> np.ndarray:
        import torch

        with torch.inference_mode(), torch.autocast(self._device, torch.float16, enabled=self._half):
            return self._module(batch.to(self._device, non_blocking=True)).float().cpu().numpy()


class OnnxEncoder:
    """Runs batches through onnxruntime on all cores."""

    in_flight = 1

    def __init__(self, session: Any, batch_size: int) -> None:
        self._session = session
        self.inputs = session.get_inputs()
        self.batch_size = batch_size
        self.engine = f"onnxruntime {require('onnxruntime', 'onnx').__version__} on {session.get_providers()[0]}"

    def __call__(self, items: Sequence[np.ndarray], /) -> np.ndarray:
        return self.run(padded(items, self.batch_size))[: len(items)]

    def run(self, batch: np.ndarray) -> np.ndarray:
        return np.asarray(self._session.run(None, {self.inputs[0].name: batch})[0])


def padded(items: Sequence[np.ndarray], batch_size: int) -> np.ndarray:
    """The images as one array, padded with black images to the size of a batch."""
    batch = np.zeros((batch_size, *items[0].shape), items[0].dtype)
    fill(batch, items)
    return batch


def fill(batch: np.ndarray, items: Sequence[np.ndarray]) -> None:
    for row, item in enumerate(items):
        batch[row] = item


def from_pixels(network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> nn.Module:
    """The network with normalization as its first layer, so that images stay bytes, a quarter of the memory."""
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


def pixel_graph(network: nn.Module, shape: tuple[int, int], mean: Sequence[float], std: Sequence[float]) -> bytes:
    """An ONNX model from 8-bit pixels, for batches of any size, of a network on normalized images."""
    require("onnxscript", "images")
    pixels = np.random.default_rng(0).integers(0, 256, (3, *shape, 3), np.uint8)
    try:
        return export(from_pixels(network, mean, std).eval(), pixels, dynamic=(0,))
    except ExportFailed as error:
        raise ValueError(f"torch cannot write this network as ONNX ({reason(error)})") from None
