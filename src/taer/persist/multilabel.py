"""A :class:`~taer.multilabel.model.MultiLabel` on disk: one ``.safetensors`` file, as for a head."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import clone

from taer.heads import Head, name_of
from taer.heads.bayes.state import Prior
from taer.heads.embedding import Normalize
from taer.heads.params import check_params
from taer.multilabel.model import Frame, Labels, MultiLabel
from taer.multilabel.thresholds import BINS
from taer.origin import Origin
from taer.persist import save as heads
from taer.persist.encoding import Decoder, Encoder, decode_all

_STATE: dict[str, tuple[type, ...]] = {
    "n_features_in_": (int,),
    "classes_": (list,),
    "pool_": (np.ndarray,),
    "slope_": (float,),
    "form_": (str,),
}
_OPTIONAL: dict[str, tuple[type, ...]] = {"feature_names_in_": (np.ndarray,), "feature_origin_": (Origin,)}


def save_labels(model: MultiLabel, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to disk, atomically."""
    heads.write_described(path, heads.MULTI_LABEL, *describe(model))


def load_head(path: str | os.PathLike[str]) -> Head | MultiLabel:
    """Load a head of either kind."""
    return heads.read_described(path, {**heads.READERS, heads.MULTI_LABEL: restored})


def describe(model: MultiLabel) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The tensors of a model, and a header with everything else."""
    if not hasattr(model, "classes_"):
        raise ValueError("this MultiLabel has learned nothing yet, so there is nothing to save")
    encoder, template = Encoder(), model.template()
    params = {name: encoder.encode(value, f"params.{name}") for name, value in template.get_params().items()}
    state = {name: getattr(model, name) for name in (*_STATE, *_OPTIONAL) if hasattr(model, name)}
    return encoder.tensors, {
        "head": [name_of(type(template)), params],
        "state": {name: encoder.encode(value, name) for name, value in state.items()},
        "frame": [encoder.encode(value, f"frame.{name}") for name, value in vars(model.frame_).items()],
        "labels": encoder.encode(model.labels_.to_arrays(), "labels"),
    }


def restored(header: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> MultiLabel:
    """The inverse of :func:`describe`; raises ValueError for a state that is not one of a model."""
    decode = Decoder(tensors).decode
    name, params = header["head"]
    template = heads.kind_of(name)(**decode_all(decode, params))
    check_params(template)
    model = MultiLabel(clone(template))
    state = decode_all(decode, header["state"])
    for key, value in state.items():
        if not isinstance(value, {**_STATE, **_OPTIONAL}.get(key, ())):
            raise ValueError(f"{key[:80]!r} is not an attribute of a MultiLabel, or of another type")
    if missing := _STATE.keys() - state.keys():
        raise ValueError(f"{min(missing)} is missing")
    frame = Frame(*(decode(value) for value in header["frame"]))
    model.__dict__ |= {**state, "frame_": frame, "labels_": Labels(**decode(header["labels"]))}
    _check(model)
    return model


def _check(model: MultiLabel) -> None:
    width, labels = model.n_features_in_, model.classes_
    if width < 1 or not labels or len(set(labels)) < len(labels) or len({type(label) for label in labels}) > 1:
        raise ValueError("classes_: expected each label once, all of one type")
    frame = model.frame_
    if not isinstance(frame.prior, Prior) or not isinstance(frame.embedding, Normalize):
        raise ValueError("frame: expected a prior and a normalization")
    for part in (frame.prior, frame.embedding, model.labels_):
        part.check(width, len(labels))
    for name, value, shape in (("center", frame.center, (width,)), ("pool_", model.pool_, (2, BINS))):
        if value.shape != shape or value.dtype != np.float64 or not np.isfinite(value).all():
            raise ValueError(f"{name}: expected finite numbers of the shape {shape}")
    if not 0 < model.slope_ < np.inf or model.form_ not in ("lists", "indicator", "sparse"):
        raise ValueError("slope_, form_: expected a number above zero, and a form of labels")
    if (origin := getattr(model, "feature_origin_", None)) is not None:
        origin.check()
