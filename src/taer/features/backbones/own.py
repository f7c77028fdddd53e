"""A backbone that the user holds in memory: a torch module, or a function from items to an array."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from taer.containers import readable
from taer.features.backbones.base import Encoder
from taer.origin import Origin

_BATCH = 32


def own_encoder(backbone: Callable[..., Any]) -> Encoder:
    """The encoder of a torch module, which is set to evaluation, or of a function."""
    return _ModuleEncoder(backbone) if _is_module(backbone) else _FunctionEncoder(backbone)


def own_origin(backbone: Callable[..., Any], prepare: Callable[[Any], Any] | None) -> Origin:
    """Names of the backbone and of what prepares its items; of a module also a hash of its weights."""
    weights = f"sha256:{_hash(backbone)}" if _is_module(backbone) else ""
    return Origin(_name(backbone), weights, "" if prepare is None else _name(prepare))


class _FunctionEncoder:
    """Calls a function with a list of items."""

    engine, batch_size, in_flight = "a function", _BATCH, 1

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, items: Sequence[Any], /) -> np.ndarray:
        return as_features(self._function(list(items)), len(items))


class _ModuleEncoder:
    """Runs stacked items through a torch module, on the device and in the precision of its weights."""

    batch_size, in_flight = _BATCH, 1

    def __init__(self, module: Any) -> None:
        import torch

        self._module = module.eval()
        self._like = next(module.parameters(), torch.empty(0))
        self.engine = f"torch {torch.__version__} on {self._like.device}"

    def __call__(self, items: Sequence[Any], /) -> np.ndarray:
        import torch

        batch = torch.stack([torch.as_tensor(item) for item in items]).to(self._like.device)
        if batch.is_floating_point():
            batch = batch.to(self._like.dtype)
        with torch.inference_mode():
            return as_features(self._module(batch), len(items))


def as_features(output: Any, n_items: int) -> np.ndarray:
    """The output of a backbone as float32, checked to have one row per item."""
    if not hasattr(output, "__len__"):
        raise ValueError(f"the backbone returned a {type(output).__name__}; expected an array, one row per item")
    rows = np.asarray(readable(output, "features"), np.float32)
    if rows.ndim != 2 or len(rows) != n_items:
        raise ValueError(
            f"the backbone returned an array of shape {rows.shape} for {n_items} items; expected one row per item"
        )
    return rows


def _is_module(backbone: Any) -> bool:
    torch = sys.modules.get("torch")  # without it there are no modules
    return torch is not None and isinstance(backbone, torch.nn.Module)


def _hash(module: Any) -> str:
    total = hashlib.sha256()
    for name, values in module.state_dict().items():
        array = np.ascontiguousarray(readable(values, name))
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        total.update(array.data)
    return total.hexdigest()


def _name(function: Any) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', None) or 'builtins'}:{named.__qualname__}"
