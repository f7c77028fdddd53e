"""The backbones of ``taer extract``, as the service uses them: raw image or text in, row of features out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from taer.serve.inputs import Backbone


def find(name: str) -> Backbone:
    """A backbone by the name that ``taer extract`` knows it by; loaded now, so that mistakes show at the start."""
    from taer.features.backbones import NAMED, find_backbone

    return _Loaded(find_backbone(name, NAMED[name].kind if name in NAMED else "image"))


class _Loaded:
    def __init__(self, found: Any) -> None:
        self.name: str = found.name
        self.kind: Literal["image", "text"] = found.kind
        self._prepare, self._encode = found.prepare, found.load()

    def __call__(self, items: Sequence[Any], /) -> np.ndarray:
        prepared = [self._prepare(item) for item in items]
        size = self._encode.batch_size
        batches = [self._encode(prepared[start : start + size]) for start in range(0, len(prepared), size)]
        return np.concatenate(batches)
