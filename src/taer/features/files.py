"""Feature sets on disk: one data set seen by one frozen backbone.

The project's own format is one ``.safetensors`` file with the tensors ``train.x`` (n × d, floating),
``train.y`` (int64), ``test.x``, ``test.y`` and a header of strings: ``format`` = ``taer-features/1``,
``dataset``, ``backbone``, ``classes`` (a JSON list of names), and where the features came from
(``preprocess``, ``weights``, ``created``, ``licence``). It is memory-mapped and never executes anything.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "taer-features/1"
_TENSORS = ("train.x", "train.y", "test.x", "test.y")
_DTYPES = {"F16": np.float16, "F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32}
_CHUNK = 1 << 22  # values looked at in one go


@dataclass(frozen=True)
class FeatureSet:
    """Training and test features of a data set, with labels ``0 … len(classes) - 1``.

    Examples
    --------
    >>> import numpy as np
    >>> from taer import FeatureSet
    >>> X, y = np.eye(4), np.array([0, 0, 1, 1])
    >>> features = FeatureSet(X, y, X, y, classes=("cat", "dog"))
    >>> features.n_features
    4
    """

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
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
    """Read a feature set from a ``.safetensors`` or ``.npz`` file, or the embedded default for ``None``.

    An ``.npz`` file has the arrays ``X_train, y_train, X_test, y_test``; its labels may be names.

    Examples
    --------
    >>> import taer
    >>> digits = taer.load_features()
    >>> digits.name, len(digits.classes), digits.train_x.shape
    ('digits', 10, (1437, 64))
    """
    if path is None:
        return _digits()
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: no such file" if not path.exists() else f"{path}: not a file")
    readers = {".safetensors": _read_safetensors, ".npz": _read_npz}
    if path.suffix not in readers:
        raise ValueError(f"{path}: a feature file ends in {' or '.join(readers)}")
    return readers[path.suffix](path)


def save_features(features: FeatureSet, path: str | os.PathLike[str]) -> None:
    """Write a feature set in the project's format; the file appears whole or not at all.

    Examples
    --------
    >>> import tempfile, taer
    >>> from taer.features import save_features
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_features(taer.load_features(), folder + "/digits.safetensors")
    ...     taer.load_features(folder + "/digits.safetensors").train_x.shape
    (1437, 64)
    """
    from safetensors.numpy import save_file

    arrays = (features.train_x, features.train_y, features.test_x, features.test_y)
    tensors = dict(zip(_TENSORS, map(np.ascontiguousarray, arrays), strict=True))
    meta = {**features.meta, "format": FORMAT, "classes": json.dumps(features.classes)}
    partial = Path(f"{path}.partial")
    try:
        save_file(tensors, partial, metadata=meta)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _row_chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    step = max(1, _CHUNK // max(1, int(np.prod(array.shape[1:]))))
    for start in range(0, len(array), step):
        yield array[start : start + step]


def _read_safetensors(path: Path) -> FeatureSet:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:  # checks sizes, offsets and truncation
            meta = file.metadata() or {}
            names = set(file.keys())
    except SafetensorError as error:
        raise ValueError(f"{path}: not a feature file, or truncated ({error})") from None
    if meta.get("format") != FORMAT:
        raise ValueError(f"{path}: not a feature file: its header lacks format = {FORMAT}")
    if missing := [name for name in _TENSORS if name not in names]:
        raise ValueError(f"{path}: the feature file lacks {', '.join(missing)}")
    try:
        classes = tuple(json.loads(meta["classes"]))
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{path}: the header has no JSON list of class names") from None
    train_x, train_y, test_x, test_y = _mapped(path)
    meta = {key: value for key, value in meta.items() if key not in ("format", "classes")}
    return FeatureSet(train_x, train_y, test_x, test_y, classes=tuple(map(str, classes)), meta=meta, name=path.stem)


def _mapped(path: Path) -> list[np.ndarray]:
    """The four tensors as read-only views of the file; safetensors' own reader copies them into memory."""
    with path.open("rb") as file:
        header_size = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(header_size))
    arrays: list[np.ndarray] = []
    for name in _TENSORS:
        entry = header[name]
        if entry["dtype"] not in _DTYPES:
            raise ValueError(f"{path}: {name} has type {entry['dtype']}; expected one of {', '.join(_DTYPES)}")
        if 0 in entry["shape"]:
            raise ValueError(f"{path}: {name} is empty")
        start = 8 + header_size + entry["data_offsets"][0]
        arrays.append(np.memmap(path, _DTYPES[entry["dtype"]], "r", start, tuple(entry["shape"])))
    return arrays


def _read_npz(path: Path) -> FeatureSet:
    keys = ("X_train", "y_train", "X_test", "y_test")
    try:
        with np.load(path, allow_pickle=False) as file:
            if missing := [key for key in keys if key not in file]:
                raise ValueError(f"{path}: lacks {', '.join(missing)}")
            train_x, train_y, test_x, test_y = (file[key] for key in keys)
    except (OSError, ValueError, EOFError) as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{path}: not a readable .npz file ({error})") from None
    except Exception as error:  # zipfile raises its own family for damaged archives
        raise ValueError(f"{path}: not a readable .npz file, or truncated ({error})") from None
    classes, train_y = np.unique(train_y, return_inverse=True)
    if unknown := sorted(set(np.unique(test_y)) - set(classes)):
        raise ValueError(f"{path}: test labels that the training part lacks: {unknown[:5]}")
    test_y = np.searchsorted(classes, test_y)
    return FeatureSet(train_x, train_y, test_x, test_y, classes=tuple(map(str, classes)), meta={}, name=path.stem)


def _digits() -> FeatureSet:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    X, y = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        X.astype(np.float32), y, test_size=0.2, stratify=y, random_state=0
    )
    meta = {
        "dataset": "digits",
        "backbone": "pixels",
        "licence": "CC BY 4.0, E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits",
    }
    return FeatureSet(
        train_x, train_y, test_x, test_y, classes=tuple(map(str, range(10))), meta=meta, name="digits"
    )
