"""Backbones so simple that a test can afford them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from taer.origin import Origin


class Pixels:
    """The simplest backbone: eight by eight gray pixels."""

    name, kind, origin = "pixels", "image", None

    def __call__(self, items: Sequence[Any]) -> np.ndarray:
        return np.stack(
            [np.asarray(image.convert("L").resize((8, 8)), np.float32).ravel() / 255 for image in items]
        )


class Letters:
    """The simplest text backbone: how often each of the first letters occurs."""

    name, kind, origin = "letters", "text", Origin("letters", "sha256:1e77")

    def __call__(self, items: Sequence[Any]) -> np.ndarray:
        return np.array([[text.count(letter) for letter in "abcdef"] for text in items], np.float32)
