"""Export of networks to ONNX, once per network; the files are in the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taer import __version__
from taer.extras import require
from taer.files import written_whole
from taer.storage import cache_folder
from taer.threads import cores

if TYPE_CHECKING:
    from torch import nn


class ExportFailed(Exception):
    """The exporter cannot handle an operation of this network, or its result is wrong."""


def open_session(model: bytes | Path, threads: int | None = None) -> Any:
    """An onnxruntime session that computes a batch on ``threads`` cores, or on all."""
    runtime = require("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    # spinning threads would take the cores that decode the next images
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.intra_op_num_threads = threads or cores()
    options.log_severity_level = 3
    gpu = [name for name in ("CUDAExecutionProvider",) if name in runtime.get_available_providers()]
    try:
        return runtime.InferenceSession(
            model if isinstance(model, bytes) else str(model), options, providers=[*gpu, "CPUExecutionProvider"]
        )
    except Exception as error:  # onnxruntime has its own error types
        raise ValueError(f"{model if isinstance(model, Path) else 'model'}: onnxruntime: {error}") from None


def exported_session(
    identity: str,
    build: Callable[[], nn.Module],
    example: np.ndarray,
    dynamic: Sequence[int] = (),
    threads: int | None = None,
) -> Any:
    """A session of the network that ``build`` returns and ``identity`` identifies.

    The export is in the user's cache, under a hash of the identity and of the versions of all packages involved. The
    network is built only if it is not in the cache. ``dynamic`` lists the input axes whose length may vary.
    """
    versions = [__version__, *(version(name) for name in ("torch", "transformers", "onnxscript"))]
    key = hashlib.sha256(json.dumps([identity, example.shape, str(example.dtype), versions]).encode()).hexdigest()
    path = cache_folder() / "onnx" / f"{key[:20]}.onnx"
    if path.is_file():
        with contextlib.suppress(ValueError):  # damaged on disk: exported again
            return open_session(path, threads)
    model = export(build(), example, dynamic)
    with contextlib.suppress(OSError):  # without a writable cache, export every time
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as partial:
            partial.write_bytes(model)
    return open_session(model, threads)


def export(module: nn.Module, example: np.ndarray, dynamic: Sequence[int] = ()) -> bytes:
    """Export the network to ONNX, and compare it with torch on two rows of the example."""
    import torch

    rows = torch.from_numpy(example)
    with torch.inference_mode():
        expected = module(rows[:2]).numpy()
    shapes = (dict.fromkeys(dynamic, torch.export.Dim.DYNAMIC),) if dynamic else None
    with tempfile.TemporaryDirectory() as folder, _silence():
        path = Path(folder) / "model.onnx"
        try:
            torch.onnx.export(
                module, (rows,), path, dynamo=True, external_data=False, verbose=False, dynamic_shapes=shapes
            )
        except Exception as error:
            raise ExportFailed(str(error)) from error
        model = path.read_bytes()
    session = open_session(model)
    found = np.asarray(session.run(None, {session.get_inputs()[0].name: example})[0])[:2]
    if not np.allclose(found, expected, rtol=1e-3, atol=1e-4):
        raise ExportFailed("onnxruntime and torch disagree on its output")
    return model


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Silence the exporter, which prints, logs and warns; this library prints nothing."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
