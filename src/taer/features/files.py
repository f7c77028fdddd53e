"""Feature sets on disk: one data set seen by one frozen backbone.

The project's own format is one ``.safetensors`` file with the tensors ``train.x`` (n × d, floating),
``train.y`` (int64), ``test.x``, ``test.y`` and a header of strings: ``format`` = ``taer-features/1``,
``dataset``, ``backbone``, ``classes`` (a JSON list of names), and where the features came from
(``preprocess``, ``weights``, ``created``, ``licence``). A tensor ``inputs`` (JSON in bytes) may name the image or the row
of a table of each sample, and ``train.hash`` and ``test.hash`` have the SHA-256 of its content. The test part may be
empty. A file without labels has no classes, no training samples, and -1 for every label. Files are memory-mapped, and
reading one never executes code. A folder of such files is one feature set in shards, sorted by name; see
:mod:`taer.features.shards`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taer.features.set import FeatureSet
from taer.files import open_safetensors, written_whole
from taer.rows import Rows, row_chunks
from taer.storage import MappedArray, is_url, local_path

FORMAT = "taer-features/1"
_TENSORS = ("train.x", "train.y", "test.x", "test.y")
_DTYPES = {"F16": np.float16, "F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32}
_INPUTS = "inputs"
HASHES = "hash"


def save_feature_file(features: FeatureSet, path: Path) -> None:
    """Write a feature set to one file, atomically."""
    if path.suffix != ".safetensors":
        raise ValueError(f"{path}: a feature file is written as .safetensors")
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent}: no such folder")
    write_rows(features, path, range(len(features.train_y)), range(len(features.test_y)))


def write_rows(features: FeatureSet, path: Path, train: range, test: range) -> None:
    """Write some of the training and some of the test samples to a feature file."""
    arrays = (features.train_x, features.train_y, features.test_x, features.test_y)
    tensors: dict[str, Tensor] = {
        name: ((len(rows), *array.shape[1:]), array.dtype, _blocks(array, rows))
        for name, array, rows in zip(_TENSORS, arrays, (train, train, test, test), strict=True)
    }
    write_feature_file(path, features.meta, features.classes, tensors)


Tensor = tuple[tuple[int, ...], np.dtype[Any], Iterable[np.ndarray]]


def write_feature_file(
    path: Path, meta: Mapping[str, str], classes: Sequence[str], tensors: Mapping[str, Tensor]
) -> None:
    """Write a feature file in pieces, so that it may be larger than memory; the write is atomic.

    A tensor is given by its shape, its type and its rows in order. The layout is that of safetensors: the length of
    the header, the header in JSON, the bytes of the tensors.
    """
    codes = {np.dtype(kind): code for code, kind in _DTYPES.items()} | {np.dtype(np.uint8): "U8"}
    header: dict[str, Any] = {"__metadata__": {**meta, "format": FORMAT, "classes": json.dumps(list(classes))}}
    end = 0
    order = sorted(tensors, key=lambda name: -tensors[name][1].itemsize)  # so that every tensor is aligned
    for name in order:
        shape, dtype, _ = tensors[name]
        if dtype not in codes:
            raise ValueError(f"{path}: {name} has type {dtype}; expected one of {', '.join(map(str, codes))}")
        start, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": codes[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of 8
    with written_whole(path) as partial, partial.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            _, dtype, rows = tensors[name]
            for block in rows:
                file.write(np.ascontiguousarray(block, dtype).data)
        if file.tell() != 8 + len(text) + end:
            raise ValueError(f"{path}: the rows given do not fill the shapes announced")


def read_header(path: str | os.PathLike[str]) -> dict[str, str]:
    """The strings in a feature file's header; the tensors are not read."""
    with open_safetensors(local_path(str(path)), f"{path}: not a feature file, or truncated") as file:
        meta, names = dict(file.metadata() or {}), set(file.keys())
    if meta.get("format") != FORMAT:
        raise ValueError(f"{path}: not a feature file: its header lacks format = {FORMAT}")
    if missing := [name for name in _TENSORS if name not in names]:
        raise ValueError(f"{path}: the feature file lacks {', '.join(missing)}")
    return meta


def inputs_tensor(inputs: Mapping[str, Sequence[str]]) -> dict[str, Tensor]:
    """The tensor that names the samples of each part."""
    content = np.frombuffer(json.dumps(inputs, ensure_ascii=False).encode(), np.uint8)
    return {_INPUTS: (content.shape, content.dtype, [content])}


def read_hashes(path: Path) -> dict[str, np.ndarray]:
    """The SHA-256 of each sample's image or text, by part, as rows of 32 bytes; empty if the file has none."""
    with open_safetensors(path, f"{path}: not a feature file, or truncated") as file:
        names = {part: f"{part}.{HASHES}" for part in ("train", "test")}
        return {part: file.get_tensor(name) for part, name in names.items() if name in file.keys()}  # noqa: SIM118


def read_inputs(path: str | os.PathLike[str], part: str, count: int) -> list[str]:
    """The image or table row of each sample of a part; if not recorded, the name of the file and the row number."""
    if os.path.isfile(path) and str(path).endswith(".safetensors"):
        with open_safetensors(path, f"{path}: not a feature file, or truncated") as file:
            content = file.get_tensor(_INPUTS).tobytes() if _INPUTS in file.keys() else b"{}"  # noqa: SIM118
        try:
            names = json.loads(content).get(part)
        except (ValueError, AttributeError, RecursionError):
            names = None
        if isinstance(names, list) and len(names) == count:
            return [str(name) for name in names]
    return [f"{path} row {row + 1}" for row in range(count)]


def _blocks(array: np.ndarray | Rows, rows: range) -> Iterator[np.ndarray]:
    for part in row_chunks(rows, width=math.prod(array.shape[1:])):
        yield array[rows[part].start : rows[part].stop]


def read_feature_file(path: str) -> FeatureSet:
    """The feature set in a file of the project's format."""
    meta = read_header(path)
    train_x, train_y, test_x, test_y = mapped_tensors(path)
    classes, meta = split_header(path, meta)
    return FeatureSet(train_x, train_y, test_x, test_y, classes=classes, meta=meta, name=Path(path).stem)


def split_header(path: str, meta: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The class names in a header, and its other entries."""
    try:
        classes = json.loads(meta["classes"])
    except (KeyError, ValueError, RecursionError):
        classes = None
    if not isinstance(classes, list) or not all(isinstance(name, str | int | float) for name in classes):
        raise ValueError(f"{path}: the header has no JSON list of class names")
    return tuple(map(str, classes)), {key: value for key, value in meta.items() if key not in ("format", "classes")}


def mapped_tensors(path: str) -> list[np.ndarray]:
    """The four tensors as read-only views of the file; safetensors' own reader copies them into memory."""
    place = path if is_url(path) else os.path.abspath(path)  # other processes may have another working directory
    with open(local_path(place), "rb") as file:
        header_size = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(header_size))
    arrays: list[np.ndarray] = []
    for name in _TENSORS:
        entry = header[name]
        if entry["dtype"] not in _DTYPES:
            raise ValueError(f"{path}: {name} has type {entry['dtype']}; expected one of {', '.join(_DTYPES)}")
        start = 8 + header_size + entry["data_offsets"][0]
        arrays.append(MappedArray.open(place, _DTYPES[entry["dtype"]], start, tuple(entry["shape"])))
    return arrays
