"""A frozen backbone as a step of a scikit-learn pipeline."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from taer.features.backbones import Backbone, find_backbone
from taer.features.backbones.base import Encoder
from taer.features.images import decode_image
from taer.features.sources.base import Kind
from taer.origin import Origin


class Extractor(TransformerMixin, BaseEstimator):
    """Turns texts or images into features with a frozen backbone. There is nothing to fit.

    The model is loaded when it is first needed. Clones share it, so cross-validation loads it once.

    Parameters
    ----------
    backbone : str
        A name that ``taer backbones`` lists; ``hf:owner/model`` or ``hf:path/to/folder``; a ``.onnx`` file.
    weights : path, optional
        A file with the weights of a named backbone, when they cannot be downloaded.

    Examples
    --------
    >>> import taer
    >>> taer.Extractor("minilm").transform(["I lost my card"]).shape  # doctest: +SKIP
    (1, 384)
    """

    def __init__(self, backbone: str, *, weights: str | os.PathLike[str] | None = None) -> None:
        self.backbone = backbone
        self.weights = weights

    @property
    def kind(self) -> Kind:
        """What it reads: ``"image"`` or ``"text"``."""
        return self._find().kind

    @property
    def origin_(self) -> Origin:
        """The backbone, where its weights came from with their hash, and its preprocessing."""
        return self._find().origin

    def fit(self, X: Sequence[Any] | None = None, y: Any = None) -> Self:
        """Fit nothing, but find the backbone, so that a wrong name raises here."""
        self._find()
        return self

    def transform(self, X: Sequence[Any]) -> np.ndarray:
        """One row of features per item.

        Parameters
        ----------
        X : sequence
            Texts, or images: paths, contents of image files as bytes, or ``PIL.Image`` objects in RGB.
        """
        if isinstance(X, str | bytes | os.PathLike) or not len(X):
            raise ValueError(f"expected a list of {self.kind}s, at least one; got {X!r:.80}")
        found, encode = self._find(), _encoder(*self._key())
        read = _image if found.kind == "image" else _text
        blocks = []
        for start in range(0, len(X), encode.batch_size):
            batch = [X[row] for row in range(start, min(start + encode.batch_size, len(X)))]
            blocks.append(np.asarray(encode([found.prepare(read(item)) for item in batch]), np.float32))
        return np.concatenate(blocks)

    def _key(self) -> tuple[str, str | None]:
        return self.backbone, None if self.weights is None else os.fspath(self.weights)

    def _find(self) -> Backbone:
        return _found(*self._key())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.two_d_array, tags.input_tags.string = False, True
        return tags


@lru_cache(maxsize=4)
def _found(name: str, weights: str | None) -> Backbone:
    return find_backbone(name, weights=None if weights is None else Path(weights))


@lru_cache(maxsize=4)
def _encoder(name: str, weights: str | None) -> Encoder:
    return _found(name, weights).load()


def _text(item: Any) -> str:
    if not isinstance(item, str):
        raise ValueError(f"expected texts, got a {type(item).__name__}")
    return str(item)


def _image(item: Any) -> Any:
    if hasattr(item, "convert"):  # a PIL.Image
        return item.convert("RGB")
    if not isinstance(item, bytes | str | os.PathLike):
        raise ValueError(f"expected images as paths, bytes or PIL images, got a {type(item).__name__}")
    name = "an image" if isinstance(item, bytes) else os.fspath(item)
    try:
        return decode_image(item if isinstance(item, bytes) else Path(item).read_bytes())
    except Exception as error:  # decoders raise whatever they like on damaged files
        raise ValueError(f"{name}: cannot be read ({error})") from None
