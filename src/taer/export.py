"""Linear heads as ONNX graphs, to be run without Python."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from taer import __version__
from taer.audit import linear_map
from taer.heads import HEADS, Head
from taer.heads.ridge import RanPAC
from taer.heads.statistical import LinearStatisticsHead, StatisticsHead

_OPSET = 17
_IR_VERSION = 8  # what runtimes since 2022 read


def export_onnx(head: Head, path: str | os.PathLike[str], backbone: str | os.PathLike[str] | None = None) -> None:
    """Write one graph from features to ``probabilities`` and ``label``.

    The columns of ``probabilities`` are in the order of ``head.classes_``; the model's metadata has their names
    as a JSON list (``classes``), and in order of learning (``learning_order``).

    Parameters
    ----------
    head : Head
        A head whose scores are linear in the features.
    path : path
        The ``.onnx`` file; it appears whole or not at all.
    backbone : path, optional
        An ``.onnx`` file whose first output is the features; the graph then starts at its inputs.
    """
    onnx = _onnx()
    model = _graph(head)
    if backbone is not None:
        model = _behind(backbone, model, head.n_features_in_)
    onnx.helper.set_model_props(model, _properties(head))
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:  # the checker and shape inference raise families of their own
        raise ValueError(f"the graph is not valid ONNX: {error}") from None
    partial = Path(f"{path}.partial")
    try:
        onnx.save(model, partial, format="protobuf")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _onnx() -> Any:
    try:
        import onnx
        import onnx.compose
    except ImportError:
        raise ValueError("exporting needs the onnx package: pip install 'taer[onnx]'") from None
    return onnx


def _graph(head: Head) -> Any:
    onnx = _onnx()
    nodes, weights, features, width = _score_nodes(head)
    names = head.classes_
    label = onnx.TensorProto.STRING if names.dtype.kind == "U" else onnx.TensorProto.INT64
    labels = [name.encode() for name in names.tolist()] if names.dtype.kind == "U" else names.astype(np.int64)
    node, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [
            *nodes,
            node("Softmax", ["scores"], ["probabilities"], axis=-1),
            node("ArgMax", ["scores"], ["best"], axis=-1, keepdims=0),
            node("Gather", ["classes", "best"], ["label"]),
        ],
        "taer",
        [value("features", features, ["samples", width])],
        [value("probabilities", features, ["samples", len(names)]), value("label", label, ["samples"])],
        [
            *(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in weights.items()),
            onnx.helper.make_tensor("classes", label, [len(names)], labels),
        ],
    )
    opset = onnx.helper.make_opsetid("", _OPSET)
    return onnx.helper.make_model(graph, producer_name="taer", opset_imports=[opset], ir_version=_IR_VERSION)


def _score_nodes(head: Head) -> tuple[list[Any], dict[str, np.ndarray], int, int]:
    """Nodes from ``features`` to ``scores``, their weights, and the type and width of the features."""
    onnx = _onnx()
    node, kind_of = onnx.helper.make_node, onnx.helper.np_dtype_to_tensor_dtype
    columns = linear_map(head)
    if columns is not None:
        gemm = node("Gemm", ["features", "coef", "intercept"], ["scores"], transB=1)
        weights = {"coef": columns[0], "intercept": columns[1]}
        return [gemm], weights, kind_of(columns[0].dtype), columns[0].shape[1]
    if not _is_linear_after_projection(head):
        raise ValueError(f"{type(head).__name__} is not linear in its features, so it has no ONNX form here")
    # These heads solve in float64 and answer in the type of the features.
    kind = kind_of(np.dtype(head.dtype_))
    weights = {"coef": head.coef_, "intercept": head.intercept_}
    weights["temperature"] = np.array(head.temperature_, head.dtype_)
    nodes, last = [], "features"
    if isinstance(head, RanPAC):
        weights["projection"] = head.projection_.astype(head.dtype_)
        nodes = [
            node("MatMul", ["features", "projection"], ["projected"]),
            node("Relu", ["projected"], ["rectified"]),
        ]
        last = "rectified"
    nodes += [
        node("Cast", [last], ["embedded"], to=onnx.TensorProto.DOUBLE),
        node("Gemm", ["embedded", "coef", "intercept"], ["exact"], transB=1),
        node("Cast", ["exact"], ["raw"], to=kind),
        node("Div", ["raw", "temperature"], ["scores"]),
    ]
    return nodes, weights, kind, head.n_features_in_


def _is_linear_after_projection(head: Any) -> TypeGuard[LinearStatisticsHead]:
    plain = isinstance(head, LinearStatisticsHead) and type(head)._scores is LinearStatisticsHead._scores
    known = plain and (isinstance(head, RanPAC) or type(head)._embed is StatisticsHead._embed)
    return known and head.normalize_ == "none"


def _behind(path: str | os.PathLike[str], head: Any, width: int) -> Any:
    """The head's graph after a backbone's, with only the head's outputs."""
    onnx = _onnx()
    if not Path(path).is_file():
        raise ValueError(f"{path}: no such file")
    try:
        backbone = onnx.load(path)
        onnx.checker.check_model(backbone)
        features = backbone.graph.output[0]
    except Exception as error:
        raise ValueError(f"{path}: not an ONNX model ({error})") from None
    shape = [dimension.dim_value for dimension in features.type.tensor_type.shape.dim]
    if len(shape) != 2 or shape[1] not in (0, width):
        raise ValueError(f"{path}: gives features of shape {shape}, and the head takes n × {width}")
    version = max(item.version for item in backbone.opset_import if item.domain in ("", "ai.onnx"))
    head = onnx.version_converter.convert_version(head, version) if version != _OPSET else head
    head.ir_version = backbone.ir_version
    try:
        return onnx.compose.merge_models(
            onnx.compose.add_prefix(backbone, "backbone/", rename_inputs=False, rename_outputs=False),
            onnx.compose.add_prefix(head, "head/", rename_inputs=False, rename_outputs=False),
            io_map=[(features.name, "features")],
            outputs=["probabilities", "label"],
        )
    except Exception as error:
        raise ValueError(f"{path}: the head does not fit behind this graph ({error})") from None


def _properties(head: Head) -> dict[str, str]:
    return {
        "classes": json.dumps(head.classes_.tolist(), ensure_ascii=False),
        "learning_order": json.dumps([label for label, _ in head.learning_order_], ensure_ascii=False),
        "head": {kind: name for name, kind in HEADS.items()}.get(type(head), type(head).__name__),
        "taer": __version__,
    }
