"""The backbones of ``taer extract`` for the service: from an image or a text to a row of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from taer.features.backbones import Backbone, find_backbone
from taer.heads import Head


def find(name: str, head: Head | None = None) -> Loaded:
    """Find a backbone by its name in ``taer extract``, and load it, so that errors occur at the start.

    Raises ValueError if the head has learned features of another backbone.
    """
    found = find_backbone(name)
    if head is not None:
        head.check_origin(found.origin)
    return Loaded(found)


class Loaded:
    def __init__(self, found: Backbone) -> None:
        self.name, self.origin = found.name, found.origin
        self.kind: Literal["image", "text"] = found.kind
        self._prepare, self._encode = found.prepare, found.load()

    def __call__(self, items: Sequence[Any], /) -> np.ndarray:
        prepared = [self._prepare(item) for item in items]
        size = self._encode.batch_size
        batches = [self._encode(prepared[start : start + size]) for start in range(0, len(prepared), size)]
        return np.concatenate(batches)
