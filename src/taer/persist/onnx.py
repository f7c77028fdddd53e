"""Export of heads to ONNX, to run them without Python."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from taer import __version__
from taer.extras import require
from taer.features.backbones import find_backbone
from taer.files import written_whole
from taer.heads import Head, name_of

_OPSET = 17
_OLDEST = 13  # opset; the operations used here have not changed since
_IR_VERSION = 8  # readable by runtimes since 2022


def export_onnx(head: Head, path: str | os.PathLike[str], backbone: str | os.PathLike[str] | None = None) -> None:
    """Write one graph from features to ``probabilities``, ``label`` and ``novelty``.

    The columns of ``probabilities`` are in the order of ``head.classes_``; the model's metadata has their names
    as a JSON list (``classes``), and in order of learning (``learning_order``). A sample is unknown unless its
    ``novelty`` is at most the ``threshold`` of the metadata or, if its class has one, that of ``class_thresholds`` (JSON
    pairs of class and number). Both are there if the head has them.

    Parameters
    ----------
    head : Head
        A linear head, or a closed-form head without a full covariance per class.
    path : path
        The ``.onnx`` file to write.
    backbone : path or str, optional
        An ``.onnx`` file whose first output is the features; the graph then starts at its inputs. Or the name of a
        backbone for images; the graph then starts at ``pixels`` (n × height × width × 3, 8 bits), which are images
        after the resizing and cropping that its metadata describe (``preprocess``).
    """
    onnx = _onnx()
    head = copy.copy(head)  # a consistent state, even if another thread teaches it now
    properties = _properties(head)
    if backbone is None:
        model = _graph(head, _OPSET)
    elif Path(backbone).suffix == ".onnx":
        model = _behind(_read(Path(backbone)), str(backbone), head)
    else:
        found = find_backbone(str(backbone))
        if found.graph is None:
            raise ValueError(f"{found.name} reads {found.kind}s; only backbones for images have an ONNX form here")
        head._check_origin(found.origin)
        model = _behind(onnx.load_from_string(found.graph()), found.name, head)
        properties["preprocess"] = found.preprocess
    onnx.helper.set_model_props(model, properties)
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:  # the checker and shape inference have their own error types
        raise ValueError(f"the graph is not valid ONNX: {error}") from None
    with written_whole(path) as partial:
        onnx.save(model, partial, format="protobuf")


def _onnx() -> Any:
    require("onnx.compose", "onnx")
    return require("onnx", "onnx")


class Graph:
    """Nodes and weights of a graph, added from the inputs on; values are referred to by name."""

    def __init__(self) -> None:
        self.onnx = _onnx()
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def add(self, kind: str, *inputs: str | np.ndarray, name: str | None = None, **attributes: Any) -> str:
        """Add an operation on values or constants; returns the name of its output."""
        names = [self._constant(value) if isinstance(value, np.ndarray) else value for value in inputs]
        name = name or f"{kind}{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, names, [name], **attributes))
        return name

    def cast(self, value: str, dtype: Any) -> str:
        return self.add("Cast", value, to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def _constant(self, array: np.ndarray) -> str:
        name = f"weight{len(self.weights)}"
        self.weights.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name


def _graph(head: Head, version: int) -> Any:
    onnx = _onnx()
    graph = Graph()
    dtype = np.dtype(head.dtype_)
    # Scores are computed in float64, returned in the type of the features, and divided by a temperature.
    scores = graph.cast(head._graph(graph), dtype)
    temperature = np.array(getattr(head, "temperature_", 1.0), dtype)
    graph.add("Div", scores, temperature, name="scores")
    names, kind = head.classes_, onnx.helper.np_dtype_to_tensor_dtype(dtype)
    label = onnx.TensorProto.STRING if names.dtype.kind == "U" else onnx.TensorProto.INT64
    labels = [name.encode() for name in names.tolist()] if names.dtype.kind == "U" else names.astype(np.int64)
    graph.add("Softmax", "scores", axis=-1, name="probabilities")
    graph.add("Gather", "classes", graph.add("ArgMax", "scores", axis=-1, keepdims=0), name="label")
    novelty = head._novelty_graph(graph, "probabilities")
    graph.add("Cast", novelty, to=kind, name="novelty")
    value = onnx.helper.make_tensor_value_info
    described = onnx.helper.make_graph(
        graph.nodes,
        "taer",
        [value("features", kind, ["samples", head.n_features_in_])],
        [
            value("probabilities", kind, ["samples", len(names)]),
            value("label", label, ["samples"]),
            value("novelty", kind, ["samples"]),
        ],
        [*graph.weights, onnx.helper.make_tensor("classes", label, [len(names)], labels)],
    )
    opset = onnx.helper.make_opsetid("", version)
    return onnx.helper.make_model(described, producer_name="taer", opset_imports=[opset], ir_version=_IR_VERSION)


def _read(path: Path) -> Any:
    onnx = _onnx()
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    try:
        backbone = onnx.load(path)
        onnx.checker.check_model(backbone)
        backbone.graph.output[0]
    except Exception as error:
        raise ValueError(f"{path}: not an ONNX model ({error})") from None
    return backbone


def _behind(backbone: Any, name: str, head: Head) -> Any:
    """The head's graph after the backbone's, with only the outputs of the head."""
    onnx = _onnx()
    features = backbone.graph.output[0]
    width = head.n_features_in_
    shape = [dimension.dim_value for dimension in features.type.tensor_type.shape.dim]
    if len(shape) != 2 or shape[1] not in (0, width):
        raise ValueError(f"{name}: gives features of shape {shape}, and the head takes n × {width}")
    version = max(item.version for item in backbone.opset_import if item.domain in ("", "ai.onnx"))
    try:
        if version < _OLDEST:
            backbone = onnx.version_converter.convert_version(backbone, _OLDEST)
        graph = _graph(head, max(version, _OLDEST))
        graph.ir_version = backbone.ir_version = max(backbone.ir_version, _IR_VERSION)
        return onnx.compose.merge_models(
            onnx.compose.add_prefix(backbone, "backbone/", rename_inputs=False, rename_outputs=False),
            onnx.compose.add_prefix(graph, "head/", rename_inputs=False, rename_outputs=False),
            io_map=[(features.name, "features")],
            outputs=["probabilities", "label", "novelty"],
        )
    except Exception as error:
        raise ValueError(f"{name}: the head does not fit behind this graph ({error})") from None


def _properties(head: Head) -> dict[str, str]:
    found = {
        "classes": json.dumps(head.classes_.tolist(), ensure_ascii=False),
        "learning_order": json.dumps([label for label, _ in head.learning_order_], ensure_ascii=False),
        "head": name_of(type(head)),
        "taer": __version__,
    }
    if hasattr(head, "threshold_"):
        found["threshold"] = json.dumps(head.threshold_)
    if own := getattr(head, "class_thresholds_", None):
        found["class_thresholds"] = json.dumps(list(own.items()), ensure_ascii=False)
    return found
