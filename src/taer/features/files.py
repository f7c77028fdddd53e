"""Feature sets on disk: one data set seen by one frozen backbone.

The project's own format is one ``.safetensors`` file with the tensors ``train.x`` (n × d, floating),
``train.y`` (int64), ``test.x``, ``test.y`` and a header of strings: ``format`` = ``taer-features/1``,
``dataset``, ``backbone``, ``classes`` (a JSON list of names), and where the features came from
(``preprocess``, ``weights``, ``created``, ``licence``). It is memory-mapped and never executes anything. A
folder of such files is one feature set in shards, in the order of their names; see :mod:`taer.features.shards`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from taer.features.storage import MappedArray, is_address, is_folder, local_path
from taer.rows import Rows

FORMAT = "taer-features/1"
_TENSORS = ("train.x", "train.y", "test.x", "test.y")
_DTYPES = {"F16": np.float16, "F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32}
_CHUNK = 1 << 22  # values looked at in one go


@dataclass(frozen=True)
class FeatureSet:
    """Training and test features of a data set, with labels ``0 … len(classes) - 1``.

    The features are arrays, memory-mapped ones, or :class:`~taer.rows.Rows`, of which only what is indexed is read.

    Examples
    --------
    >>> import numpy as np
    >>> from taer import FeatureSet
    >>> X, y = np.eye(4), np.array([0, 0, 1, 1])
    >>> features = FeatureSet(X, y, X, y, classes=("cat", "dog"))
    >>> features.n_features
    4
    """

    train_x: np.ndarray | Rows
    train_y: np.ndarray
    test_x: np.ndarray | Rows
    test_y: np.ndarray
    classes: tuple[str, ...]
    meta: Mapping[str, str] = field(default_factory=dict)
    name: str = "features"

    def __post_init__(self) -> None:
        for split, x, y in (("train", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            if x.ndim != 2 or y.ndim != 1 or len(x) != len(y):
                raise ValueError(
                    f"{self.name}: {split} features must be n × d with n labels, got shapes {x.shape} and {y.shape}"
                )
            if not len(x):
                raise ValueError(f"{self.name}: the {split} part is empty")
            if not np.issubdtype(x.dtype, np.floating):
                raise ValueError(f"{self.name}: {split} features must be floating point, got {x.dtype}")
            if not np.issubdtype(y.dtype, np.integer):
                raise ValueError(f"{self.name}: {split} labels must be integers, got {y.dtype}")
            if y.min() < 0 or y.max() >= len(self.classes):
                raise ValueError(
                    f"{self.name}: {split} labels must lie in 0 … {len(self.classes) - 1} "
                    f"({len(self.classes)} classes), got {y.min()} … {y.max()}"
                )
            for rows in _row_chunks(x):
                if not np.isfinite(rows).all():
                    raise ValueError(f"{self.name}: {split} features contain NaN or infinite values")
        if self.train_x.shape[1] != self.test_x.shape[1]:
            raise ValueError(
                f"{self.name}: train and test features differ in width, "
                f"{self.train_x.shape[1]} and {self.test_x.shape[1]}"
            )

    @property
    def n_features(self) -> int:
        return int(self.train_x.shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the features, labels and class names: what makes two sets the same data."""
        digest = hashlib.sha256(json.dumps(self.classes).encode())
        for array in (self.train_x, self.train_y, self.test_x, self.test_y):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            for rows in _row_chunks(array):
                digest.update(np.ascontiguousarray(rows).data)
        return digest.hexdigest()


def load_features(path: str | os.PathLike[str] | None = None) -> FeatureSet:
    """Read a feature set from a file or folder, or the embedded default for ``None``.

    A ``.safetensors`` file is the project's own format. An ``.npz`` file has the arrays ``X_train, y_train,
    X_test, y_test``; a folder has them as ``.npy`` files. A ``.parquet`` file has the columns ``embedding``,
    ``label`` and ``split`` (train or test). In all three the labels may be names. A folder of ``.safetensors``
    files is one set in shards. An address that fsspec knows (``s3://…``) is copied to a local cache first.

    Examples
    --------
    >>> import taer
    >>> sketches = taer.load_features()
    >>> sketches.name, len(sketches.classes), len(sketches.train_x), len(sketches.test_x)
    ('sketches100', 100, 8000, 2000)
    """
    from taer.features import arrays
    from taer.features.shards import find_shards, read_shards

    if path is None:
        return _read_safetensors(str(Path(__file__).parent / "data" / "sketches100.safetensors"))
    address = str(path)
    if is_folder(address):
        if shards := find_shards(address):
            return read_shards(address, shards)
        if is_address(address):
            raise ValueError(f"{address}: a folder without .safetensors files")
        return arrays.read_npy(Path(address))
    suffix = Path(address).suffix
    readers = {".npz": arrays.read_npz, ".npy": arrays.read_npy, ".parquet": arrays.read_parquet}
    here = Path(local_path(address))
    if not here.is_file():
        raise ValueError(f"{address}: no such file" if not here.exists() else f"{address}: not a file")
    if suffix == ".safetensors":
        return _read_safetensors(address)
    if suffix not in readers:
        raise ValueError(f"{address}: a feature file ends in .safetensors or {' or '.join(readers)}")
    return readers[suffix](here)


def save_features(features: FeatureSet, path: str | os.PathLike[str], *, shard_rows: int | None = None) -> None:
    """Write a feature set in the project's format; the file appears whole or not at all.

    With ``shard_rows``, ``path`` is a folder of shards with at most so many rows each.

    Examples
    --------
    >>> import tempfile, taer
    >>> from taer.features import save_features
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_features(taer.load_features(), folder + "/copy.safetensors")
    ...     len(taer.load_features(folder + "/copy.safetensors").train_x)
    8000
    """
    if shard_rows is not None:
        from taer.features.shards import save_shards

        save_shards(features, Path(path), shard_rows)
        return
    path = Path(path)
    if path.suffix != ".safetensors":
        raise ValueError(f"{path}: a feature file is written as .safetensors")
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent}: no such folder")
    write_rows(features, path, range(len(features.train_y)), range(len(features.test_y)))


def write_rows(features: FeatureSet, path: Path, train: range, test: range) -> None:
    """Write some of the training and some of the test samples to a feature file."""
    arrays = (features.train_x, features.train_y, features.test_x, features.test_y)
    tensors: dict[str, Tensor] = {
        name: ((len(rows), *array.shape[1:]), array.dtype, _row_chunks(array, rows))
        for name, array, rows in zip(_TENSORS, arrays, (train, train, test, test), strict=True)
    }
    write_feature_file(path, features.meta, features.classes, tensors)


Tensor = tuple[tuple[int, ...], np.dtype[Any], Iterable[np.ndarray]]


def write_feature_file(
    path: Path, meta: Mapping[str, str], classes: Sequence[str], tensors: Mapping[str, Tensor]
) -> None:
    """Write a feature file from pieces, so that it may be larger than the memory; it appears whole or not.

    A tensor is its shape, its type and its rows in order. The layout is that of safetensors: the length of
    the header, the header in JSON, the bytes of the tensors.
    """
    codes = {np.dtype(kind): code for code, kind in _DTYPES.items()}
    header: dict[str, Any] = {"__metadata__": {**meta, "format": FORMAT, "classes": json.dumps(list(classes))}}
    end = 0
    order = sorted(_TENSORS, key=lambda name: -tensors[name][1].itemsize)  # so that every tensor is aligned
    for name in order:
        shape, dtype, _ = tensors[name]
        if dtype not in codes:
            raise ValueError(f"{path}: {name} has type {dtype}; expected one of {', '.join(map(str, codes))}")
        start, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": codes[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of 8
    partial = Path(f"{path}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in order:
                _, dtype, rows = tensors[name]
                for block in rows:
                    file.write(np.ascontiguousarray(block, dtype).data)
            if file.tell() != 8 + len(text) + end:
                raise ValueError(f"{path}: the rows given do not fill the shapes announced")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def read_header(path: str | os.PathLike[str]) -> dict[str, str]:
    """The strings of a feature file's header, without looking at its tensors."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(local_path(str(path)), framework="numpy") as file:  # checks sizes, offsets and truncation
            meta = dict(file.metadata() or {})
            names = set(file.keys())
    except SafetensorError as error:
        raise ValueError(f"{path}: not a feature file, or truncated ({error})") from None
    if meta.get("format") != FORMAT:
        raise ValueError(f"{path}: not a feature file: its header lacks format = {FORMAT}")
    if missing := [name for name in _TENSORS if name not in names]:
        raise ValueError(f"{path}: the feature file lacks {', '.join(missing)}")
    return meta


def _row_chunks(array: np.ndarray | Rows, rows: range | None = None) -> Iterator[np.ndarray]:
    rows = range(len(array)) if rows is None else rows
    step = max(1, _CHUNK // max(1, math.prod(array.shape[1:])))
    for start in range(rows.start, rows.stop, step):
        yield array[start : min(start + step, rows.stop)]


def _read_safetensors(path: str) -> FeatureSet:
    meta = read_header(path)
    train_x, train_y, test_x, test_y = mapped_tensors(path)
    classes, meta = split_header(path, meta)
    return FeatureSet(train_x, train_y, test_x, test_y, classes=classes, meta=meta, name=Path(path).stem)


def split_header(path: str, meta: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The names of the classes, and what else a header says."""
    try:
        classes = json.loads(meta["classes"])
    except (KeyError, ValueError, RecursionError):
        classes = None
    if not isinstance(classes, list) or not all(isinstance(name, str | int | float) for name in classes):
        raise ValueError(f"{path}: the header has no JSON list of class names")
    return tuple(map(str, classes)), {key: value for key, value in meta.items() if key not in ("format", "classes")}


def mapped_tensors(path: str) -> list[np.ndarray]:
    """The four tensors as read-only views of the file; safetensors' own reader copies them into memory."""
    address = path if is_address(path) else os.path.abspath(path)  # other processes may be elsewhere
    with open(local_path(address), "rb") as file:
        header_size = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(header_size))
    arrays: list[np.ndarray] = []
    for name in _TENSORS:
        entry = header[name]
        if entry["dtype"] not in _DTYPES:
            raise ValueError(f"{path}: {name} has type {entry['dtype']}; expected one of {', '.join(_DTYPES)}")
        start = 8 + header_size + entry["data_offsets"][0]
        arrays.append(MappedArray.open(address, _DTYPES[entry["dtype"]], start, tuple(entry["shape"])))
    return arrays
