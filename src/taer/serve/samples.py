"""From the samples in a request to feature vectors, and to the copies that are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from taer.serve.images import decode, kept
from taer.serve.inputs import Backbone, BadInput
from taer.serve.requests import Items


def to_matrix(items: Items, backbone: Backbone | None, width: int | None) -> np.ndarray:
    """One row of features per item."""
    return with_sources(items, backbone, width, keep=False)[0]


def with_sources(
    items: Items, backbone: Backbone | None, width: int | None, keep: bool = True
) -> tuple[np.ndarray, list[str] | list[bytes] | None]:
    """One row of features per item, and each text or image as it is stored; None for vectors."""
    if items.images:
        model = _model(backbone, "image")
        pixels = [decode(text) for text in items.images]
        return _features(model, pixels, width), [kept(image) for image in pixels] if keep else None
    if items.texts:
        return _features(_model(backbone, "text"), items.texts, width), items.texts
    return vectors_to_matrix(items.vectors, width), None


def vectors_to_matrix(vectors: Sequence[Sequence[float]] | np.ndarray, width: int | None) -> np.ndarray:
    """Rows of equal width, finite in float32."""
    if len({len(vector) for vector in vectors}) != 1:
        raise BadInput("vectors: all must have the same length")
    if width is not None and len(vectors[0]) != width:
        raise BadInput(f"vectors: expected {width} numbers in each, got {len(vectors[0])}")
    with np.errstate(over="ignore"):
        matrix = np.array(vectors, np.float64).astype(np.float32)
    if not np.isfinite(matrix).all():
        raise BadInput("vectors: every number must be finite and fit in 32 bits")
    return matrix


def _model(backbone: Backbone | None, kind: str) -> Backbone:
    if backbone is None or backbone.kind != kind:
        raise BadInput(f"{kind}s: this service has no {kind} backbone; send vectors")
    return backbone


def _features(backbone: Backbone, items: list[Any], width: int | None) -> np.ndarray:
    matrix = np.ascontiguousarray(backbone(items), np.float32)
    if width is not None and matrix.shape[1] != width:
        raise BadInput(
            f"the backbone {backbone.name} gives {matrix.shape[1]} features and this head takes {width}: "
            "it was taught with another backbone; send vectors"
        )
    if not np.isfinite(matrix).all():
        raise BadInput(f"the backbone {backbone.name} finds no finite features in this")
    return matrix
