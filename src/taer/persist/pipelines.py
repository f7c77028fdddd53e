"""Pipelines on disk: the file of a head, plus the steps before it.

The header has a list of steps, each with its name, its kind and its description. Kinds are looked up in a fixed list,
never imported. A transformer is stored as its parameters and fitted attributes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler

from taer.features.extractor import Extractor
from taer.heads import Head
from taer.multilabel.model import MultiLabel
from taer.origin import Origin
from taer.persist import hub, multilabel
from taer.persist import save as heads
from taer.persist.encoding import Decoder, Encoder, decode_all
from taer.pipeline import Pipeline

_TRANSFORMERS = {
    kind.__name__: kind
    for kind in (MaxAbsScaler, MinMaxScaler, Normalizer, PCA, RobustScaler, StandardScaler, TruncatedSVD)
}
_FITTED = re.compile(r"[a-z]\w*_", re.ASCII)


def save_pipeline(pipeline: Pipeline, path: str | os.PathLike[str]) -> None:
    """Write a fitted pipeline to disk, atomically."""
    tensors: dict[str, np.ndarray] = {}
    steps: list[Any] = []
    for name, step in pipeline.steps:
        own, kind, described = _describe(name, step)
        tensors |= {f"{len(steps)}/{key}": array for key, array in own.items()}
        steps.append([name, kind, described])
    if steps[-1][1] not in ("head", "multi-label"):
        raise ValueError(f"the pipeline cannot be saved: its last step, {steps[-1][0]!r}, is not a head of taer")
    heads.write_described(path, heads.PIPELINE, tensors, {"steps": steps})


def load(path: str | os.PathLike[str]) -> Head | Pipeline | MultiLabel:
    """Load a head, a pipeline or a ``MultiLabel`` that ``save`` wrote, or ``hf:owner/name@revision`` from the hub.

    Its scores have the same bits, and it can go on learning. Nothing in the file is executed. A file that is truncated,
    altered, inconsistent, of another kind or of a newer format raises ``ValueError``, and so does a pipeline whose
    backbone has other weights on this machine. A head class of your own is found if its module has been imported, or if
    its package offers it in the entry point group ``taer.heads``.
    """
    if isinstance(path, str) and path.startswith(hub.SCHEME):
        path, _ = hub.fetch(path)
    readers: dict[str, Callable[..., Head | Pipeline | MultiLabel]] = {
        **heads.READERS,
        heads.PIPELINE: _restored,
        heads.MULTI_LABEL: multilabel.restored,
    }
    return heads.read_described(path, readers)


def _describe(name: str, step: Any) -> tuple[dict[str, np.ndarray], str, Any]:
    if isinstance(step, Head):
        tensors, header = heads.describe(step)
        return tensors, "head", header
    if isinstance(step, MultiLabel):
        tensors, header = multilabel.describe(step)
        return tensors, "multi-label", header
    if isinstance(step, Extractor):
        if not isinstance(step.backbone, str):
            raise ValueError(
                f"the pipeline cannot be saved: the backbone of its step {name!r} is code of your own; save the head, "
                "pipe[-1].save(path), and make the pipeline again with it"
            )
        weights = None if step.weights is None else os.fspath(step.weights)
        return {}, "extractor", [step.backbone, weights, list(step.origin_)]
    if step in (None, "passthrough"):
        return {}, "passthrough", None
    if type(step) not in _TRANSFORMERS.values():
        raise ValueError(
            f"the pipeline cannot be saved: its step {name!r} is a {type(step).__name__}; expected a head, an Extractor, "
            f"or one of {', '.join(_TRANSFORMERS)}"
        )
    encoder = Encoder()
    fitted = {key: value for key, value in vars(step).items() if _FITTED.fullmatch(key)}
    described = [
        {key: encoder.encode(value, f"{name}.{key}") for key, value in values.items()}
        for values in (step.get_params(deep=False), fitted)
    ]
    return encoder.tensors, type(step).__name__, described


def _restored(header: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Pipeline:
    steps = []
    for number, (name, kind, described) in enumerate(header["steps"]):
        prefix = f"{number}/"
        own = {key.removeprefix(prefix): array for key, array in tensors.items() if key.startswith(prefix)}
        steps.append((str(name), _step(kind, described, own)))
    if not isinstance(steps[-1][1], Head | MultiLabel):
        raise ValueError("its last step is not a head")
    return Pipeline(steps)


def _step(kind: str, described: Any, tensors: Mapping[str, np.ndarray]) -> Any:
    if kind == "head":
        return heads.restored(described, tensors)
    if kind == "multi-label":
        return multilabel.restored(described, tensors)
    if kind == "extractor":
        backbone, weights, origin = described
        extractor = Extractor(backbone, weights=weights)
        if difference := extractor.origin_.difference(Origin(*origin)):
            raise ValueError(f"here its extractor is another one: {difference}")
        return extractor
    if kind == "passthrough":
        return "passthrough"
    if kind not in _TRANSFORMERS:
        raise ValueError(f"{kind[:100]!r} is not a kind of step that taer writes")
    params, fitted = (decode_all(Decoder(tensors).decode, values) for values in described)
    step: BaseEstimator = _TRANSFORMERS[kind](**params)
    for key, value in fitted.items():
        if not _FITTED.fullmatch(key):
            raise ValueError(f"{key[:80]!r} is not the name of a fitted attribute")
        setattr(step, key, value)
    return step
