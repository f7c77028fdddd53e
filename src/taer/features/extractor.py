"""A frozen backbone as a step of a scikit-learn pipeline."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from taer.containers import items_of
from taer.features.backbones import Backbone, find_backbone
from taer.features.backbones.base import Encoder
from taer.features.backbones.own import own_encoder, own_origin
from taer.features.images import decode_image
from taer.features.sources.base import Kind
from taer.origin import Origin


class Extractor(TransformerMixin, BaseEstimator):
    """Turns texts or images into features with a frozen backbone. There is nothing to fit.

    The model is loaded when it is first needed. Clones share it, so cross-validation loads it once.

    Parameters
    ----------
    backbone : str, torch module or function
        A name that ``taer backbones`` lists; ``hf:owner/model`` or ``hf:path/to/folder``; a ``.onnx`` file. Or a model
        of your own: a torch module, which is set to evaluation, or a function from a list of items to an array with
        a row for each.
    weights : path, optional
        A file with the weights of a named backbone, when they cannot be downloaded.
    prepare : function, optional
        Only with a model of your own: called with each item, it returns what the model takes. Of a torch module, these
        are arrays or tensors of one shape, which are stacked.

    Examples
    --------
    >>> import taer
    >>> taer.Extractor("minilm").transform(["I lost my card"]).shape  # doctest: +SKIP
    (1, 384)
    >>> taer.Extractor(lambda texts: [[len(text), text.count("e")] for text in texts]).transform(["here", "there"])
    array([[4., 2.],
           [5., 2.]], dtype=float32)
    """

    def __init__(
        self,
        backbone: str | Callable[..., Any],
        *,
        weights: str | os.PathLike[str] | None = None,
        prepare: Callable[[Any], Any] | None = None,
    ) -> None:
        self.backbone = backbone
        self.weights = weights
        self.prepare = prepare

    @property
    def kind(self) -> Kind | None:
        """What it reads: ``"image"`` or ``"text"``; None for a model of your own, which may read anything."""
        return self._find(self.backbone).kind if isinstance(self.backbone, str) else None

    @property
    def origin_(self) -> Origin:
        """The backbone, where its weights came from with their hash, and its preprocessing."""
        if isinstance(self.backbone, str):
            return self._find(self.backbone).origin
        return own_origin(self.backbone, self.prepare)

    def fit(self, X: Collection[Any] | None = None, y: Any = None) -> Self:
        """Fit nothing, but find the backbone, so that a wrong name raises here."""
        if isinstance(self.backbone, str):
            self._find(self.backbone)
        elif not callable(self.backbone) or self.weights is not None:
            raise ValueError(
                "expected a name, with or without weights, or a torch module or a function without weights"
            )
        return self

    def transform(self, X: Collection[Any]) -> np.ndarray:
        """One row of features per item.

        Parameters
        ----------
        X : list, tuple, array, column, or table with one column
            Texts, or images: paths, contents of image files as bytes, or ``PIL.Image`` objects in RGB. For a model of
            your own, whatever it or ``prepare`` reads. Items are taken in their order, whatever the index of a column.
        """
        self.fit()
        items = enumerate(items_of(X, f"{self.kind or 'item'}s"))
        encode, prepare = self._model()
        blocks = []
        while batch := [prepare(row, item) for row, item in islice(items, encode.batch_size)]:
            blocks.append(np.asarray(encode(batch), np.float32))
        return np.concatenate(blocks)

    def _model(self) -> tuple[Encoder, Callable[[int, Any], Any]]:
        """The loaded model, and what makes its input of a row number and an item."""
        if not isinstance(self.backbone, str):
            own = self.prepare or (lambda item: item)
            return own_encoder(self.backbone), lambda row, item: own(item)
        found = self._find(self.backbone)
        read = _image if found.kind == "image" else _text
        return _encoder(*self._key(self.backbone)), lambda row, item: found.prepare(read(row, item))

    def _key(self, name: str) -> tuple[str, str | None]:
        return name, None if self.weights is None else os.fspath(self.weights)

    def _find(self, name: str) -> Backbone:
        if self.prepare is not None:
            raise ValueError(
                f"prepare is for a model of your own; {name} prepares its {_found(*self._key(name)).kind}s"
            )
        return _found(*self._key(name))

    def __sklearn_clone__(self) -> Self:
        """A clone with the same model: scikit-learn would copy a torch module, and nothing changes it."""
        return type(self)(**self.get_params(deep=False))

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


def _text(row: int, item: Any) -> str:
    if not isinstance(item, str):
        raise ValueError(f"expected texts, got a {type(item).__name__} in row {row}")
    return str(item)


def _image(row: int, item: Any) -> Any:
    if hasattr(item, "convert"):  # a PIL.Image
        return item.convert("RGB")
    if not isinstance(item, bytes | str | os.PathLike):
        raise ValueError(f"expected images as paths, bytes or PIL images, got a {type(item).__name__} in row {row}")
    name = f"the image in row {row}" if isinstance(item, bytes) else os.fspath(item)
    try:
        return decode_image(item if isinstance(item, bytes) else Path(item).read_bytes())
    except Exception as error:  # decoders raise whatever they like on damaged files
        raise ValueError(f"{name}: cannot be read ({error})") from None
