"""Heads as ONNX graphs, to be run without Python."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from taer import __version__
from taer.audit import linear_map
from taer.heads import HEADS, Head
from taer.heads.gaussians import GaussianHead
from taer.heads.ncm import NCM
from taer.heads.rff_lda import RFFLDA
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
        A linear head, or one in closed form without a full covariance per class.
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


class Graph:
    """Nodes and weights of a graph that is written down from its inputs on; a value is known by its name."""

    def __init__(self) -> None:
        self.onnx = _onnx()
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def add(self, kind: str, *inputs: str | np.ndarray, name: str | None = None, **attributes: Any) -> str:
        """One more operation, on values or constants; returns its value."""
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


def _graph(head: Head) -> Any:
    onnx = _onnx()
    graph = Graph()
    dtype = _add_scores(graph, head)
    names, kind = head.classes_, onnx.helper.np_dtype_to_tensor_dtype(dtype)
    label = onnx.TensorProto.STRING if names.dtype.kind == "U" else onnx.TensorProto.INT64
    labels = [name.encode() for name in names.tolist()] if names.dtype.kind == "U" else names.astype(np.int64)
    graph.add("Softmax", "scores", axis=-1, name="probabilities")
    graph.add("Gather", "classes", graph.add("ArgMax", "scores", axis=-1, keepdims=0), name="label")
    value = onnx.helper.make_tensor_value_info
    described = onnx.helper.make_graph(
        graph.nodes,
        "taer",
        [value("features", kind, ["samples", head.n_features_in_])],
        [value("probabilities", kind, ["samples", len(names)]), value("label", label, ["samples"])],
        [*graph.weights, onnx.helper.make_tensor("classes", label, [len(names)], labels)],
    )
    opset = onnx.helper.make_opsetid("", _OPSET)
    return onnx.helper.make_model(described, producer_name="taer", opset_imports=[opset], ir_version=_IR_VERSION)


def _add_scores(graph: Graph, head: Any) -> np.dtype[Any]:
    """From ``features`` to ``scores``; returns the type of both."""
    columns = linear_map(head)
    if columns is not None:
        graph.add("Gemm", "features", *columns, transB=1, name="scores")
        return columns[0].dtype
    dtype = np.dtype(getattr(head, "dtype_", np.float32))
    if isinstance(head, LinearStatisticsHead) and type(head)._scores is LinearStatisticsHead._scores:
        exact = graph.add("Gemm", _add_embedding(graph, head), head.coef_, head.intercept_, transB=1)
    elif isinstance(head, NCM):
        exact = _add_nearest_mean(graph, head)
    elif isinstance(head, GaussianHead):
        exact = _add_gaussians(graph, head)
    else:
        raise ValueError(f"{type(head).__name__} has no ONNX form here")
    # These heads solve in float64, answer in the type of the features, and have a temperature.
    graph.add("Div", graph.cast(exact, dtype), np.array(head.temperature_, dtype), name="scores")
    return dtype


def _add_embedding(graph: Graph, head: StatisticsHead) -> str:
    """What ``head._embed`` does, in float64."""
    rows = graph.cast("features", np.float64)
    if head.normalize_ == "sqrt-l2":
        rows = graph.add("Mul", graph.add("Sign", rows), graph.add("Sqrt", graph.add("Abs", rows)))
    if head.normalize_ != "none":
        rows = _add_unit_rows(graph, rows)
    if isinstance(head, RanPAC):
        projected = graph.add("MatMul", graph.cast(rows, head.dtype_), head.projection_.astype(head.dtype_))
        rows = graph.cast(graph.add("Relu", projected), np.float64)
    if isinstance(head, RFFLDA):
        waves = graph.add("MatMul", graph.cast(rows, head.dtype_), head.frequencies_.astype(head.dtype_))
        waves = graph.add("Cos", graph.add("Add", waves, head.phases_.astype(head.dtype_)))
        rows = graph.add("Mul", graph.cast(waves, np.float64), np.array(np.sqrt(2 / head.width)))
    return rows


def _add_unit_rows(graph: Graph, rows: str) -> str:
    """Rows at unit length; a row of zeros stays."""
    squares = graph.add("ReduceSum", graph.add("Mul", rows, rows), np.array([1]), keepdims=1)
    return graph.add("Div", rows, graph.add("Max", graph.add("Sqrt", squares), np.array(1e-300)))


def _add_nearest_mean(graph: Graph, head: NCM) -> str:
    rows, offsets = _add_embedding(graph, head), -0.5 * np.square(head.means_).sum(axis=1)
    if head.metric == "cosine":
        rows, offsets = _add_unit_rows(graph, rows), np.zeros(len(head.means_))
    return graph.add("Gemm", rows, head.means_, offsets, transB=1)


def _add_gaussians(graph: Graph, head: GaussianHead) -> str:
    """A linear part for all classes, and for each block what the covariances of its classes add."""
    rows = _add_embedding(graph, head)
    linear = graph.add("Gemm", rows, head.coef_, head.intercept_, transB=1)
    if not head.directions_.shape[1]:
        return linear
    short, nu = graph.cast(rows, np.float32), head.strength_ * head.n_features_in_
    order, parts, rank = [], [], head.directions_.shape[1]
    for block in np.unique(head.block_):
        members = np.flatnonzero(head.block_ == block)
        space = graph.add(
            "MatMul", short, np.linalg.inv(head.factors_[block].astype(np.float64)).T.astype(np.float32)
        )
        directions = head.directions_[members].astype(np.float32)
        centres = np.einsum("crd,cd->cr", directions, head.centres_[members]).ravel()
        along = graph.add("Gemm", space, directions.reshape(-1, head.n_features_in_), -centres, transB=1)
        variances = (head.spectra_[members] + nu) / (head.sizes_[members] + nu)[:, None]
        weights = (0.5 - 0.5 / variances).astype(np.float32).ravel()
        weighted = graph.add("Mul", graph.add("Mul", along, along), weights)
        by_class = graph.add("Reshape", weighted, np.array([-1, len(members), rank]))
        summed = graph.cast(graph.add("ReduceSum", by_class, np.array([2]), keepdims=0), np.float64)
        ratio = graph.add("Sub", summed, 0.5 * np.log(variances.astype(np.float64)).sum(axis=1))
        parts.append(graph.add("Mul", ratio, np.array(head.betas_[block])))
        order.append(members)
    quadratic = graph.add("Concat", *parts, axis=1)
    quadratic = graph.add("Gather", quadratic, np.argsort(np.concatenate(order)), axis=1)
    return graph.add("Add", linear, quadratic)


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
