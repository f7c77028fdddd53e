"""Feature sets from arrays and common formats: ``.npz``, ``.npy``, Parquet with embeddings."""

from __future__ import annotations

import math
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from taer.containers import by_position
from taer.extras import reason, require
from taer.features.files import save_feature_file
from taer.features.limits import check_unpacked
from taer.features.parquet import open_parquet, read_table, readable
from taer.features.set import FeatureSet

_NAMES = ("X_train", "y_train", "X_test", "y_test")


def features_from_arrays(
    X_train: ArrayLike,
    y_train: ArrayLike,
    X_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    name: str = "features",
    backbone: str = "unknown",
    license: str = "unknown",
) -> FeatureSet:
    """Make a feature set from arrays, and write it to the feature file ``out`` if given.

    Labels may be names or numbers. The sorted labels become the names of the classes. Without test samples the test
    part is empty.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    >>> pets = taer.features_from_arrays(X[:4], ["cat", "dog", "cat", "dog"], X[4:], ["dog", "cat"])
    >>> pets.classes, pets.train_y.tolist(), pets.test_y.tolist()
    (('cat', 'dog'), [0, 1, 0, 1], [1, 0])
    """
    train_x, train_labels = _floating(X_train), _labels(y_train, "y_train")
    if X_test is None and y_test is None:
        X_test, y_test = train_x[:0], train_labels[:0]
    elif X_test is None or y_test is None:
        raise ValueError(f"{name}: X_test and y_test are given together, or neither")
    test_labels = _labels(y_test, "y_test")
    for which, labels in (("y_train", train_labels), ("y_test", test_labels)):
        if labels.ndim != 1 or labels.dtype == object:
            raise ValueError(
                f"{name}: {which} must be a list of names or numbers, got {labels.dtype} {labels.shape}"
            )
    classes, train_ids = np.unique(train_labels, return_inverse=True)
    if unknown := sorted(set(np.unique(test_labels).tolist()) - set(classes.tolist())):
        raise ValueError(f"{name}: test labels that the training part lacks: {unknown[:5]}")
    features = FeatureSet(
        train_x,
        train_ids.astype(np.int64),
        _floating(X_test),
        np.searchsorted(classes, test_labels).astype(np.int64),
        classes=tuple(map(str, classes)),
        meta={"dataset": name, "backbone": backbone, "licence": license},
        name=name,
    )
    if out is not None:
        save_feature_file(features, Path(out))
    return features


def read_npz(path: Path) -> FeatureSet:
    """``X_train, y_train`` and, if there is a test part, ``X_test, y_test`` in one file."""
    try:
        with zipfile.ZipFile(path) as archive:
            _check_arrays(path, archive)
        with np.load(path, allow_pickle=False) as file:
            names = _present(path, [key for key in _NAMES if key in file])
            arrays = [file[key] for key in names]
    except Exception as error:  # numpy and zipfile raise many types for damaged archives
        if str(path) in str(error):
            raise
        raise ValueError(f"{path}: not a readable .npz file, or truncated ({reason(error)})") from None
    return features_from_arrays(*arrays, name=path.stem)


def _present(place: Path, names: list[str], suffix: str = "") -> list[str]:
    """The names of the arrays that are there, checked: the test part may be missing, but not half of it."""
    wanted = _NAMES if {"X_test", "y_test"} & set(names) else _NAMES[:2]
    if missing := [f"{name}{suffix}" for name in wanted if name not in names]:
        raise ValueError(
            f"{place}: lacks {', '.join(missing)}; expected {', '.join(f'{name}{suffix}' for name in _NAMES)}, "
            "the last two only if there is a test part"
        )
    return list(wanted)


def _check_arrays(path: Path, archive: zipfile.ZipFile) -> None:
    """Raise if the arrays of an archive are larger in memory than their bytes, or far larger than the archive."""
    total = 0
    for member in archive.infolist():
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            # zipfile would unpack it all at once
            raise ValueError("compressed in a way that numpy does not write")
        with archive.open(member) as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
        size = math.prod(shape) * dtype.itemsize
        if size > member.file_size:
            raise ValueError(f"{member.filename} claims {size:,} bytes and has {member.file_size:,}")
        total += size
    check_unpacked(path, total)


def open_npy(path: Path) -> np.ndarray:
    """The array in a ``.npy`` file, memory-mapped."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a header that is no Python raises whatever its parser does
        raise ValueError(f"{path}: not a readable .npy file ({reason(error)})") from None


def read_npy(path: Path) -> FeatureSet:
    """A folder with ``X_train.npy, y_train.npy`` and, if there is a test part, ``X_test.npy, y_test.npy``."""
    folder = path if path.is_dir() else path.parent
    here = [name for name in _NAMES if (folder / f"{name}.npy").is_file()]
    arrays = [open_npy(folder / f"{name}.npy") for name in _present(folder, here, ".npy")]
    return features_from_arrays(*arrays, name=folder.resolve().name)


def read_parquet(path: Path) -> FeatureSet:
    """Columns ``embedding`` (lists of equal length), ``label`` and, if given, ``split`` (``train`` or ``test``).

    Without a split all rows are for training.
    """
    file = open_parquet(path)
    names = file.schema_arrow.names
    if missing := [name for name in ("embedding", "label") if name not in names]:
        raise ValueError(
            f"{path}: no column {', '.join(missing)}; a feature table has embedding, label and perhaps split, "
            f"this one has {', '.join(names)}"
        )
    _check_vectors(path, file.schema_arrow.field("embedding").type)
    table = read_table(path, ["embedding", "label", *(["split"] if "split" in names else [])])
    with readable(path):  # texts are decoded only here
        labels = np.array(table["label"].to_pylist())
        splits = np.array(table["split"].to_pylist() if "split" in names else ["train"] * len(labels))
        column = table["embedding"].combine_chunks()
        values = np.asarray(column.flatten())
        lengths = np.asarray(column.value_lengths()) if hasattr(column, "value_lengths") else None
    width = len(values) // max(1, len(column))
    if (
        column.null_count
        or len(values) != width * len(column)
        or (lengths is not None and (lengths != width).any())
    ):
        raise ValueError(f"{path}: embeddings must all have the same length, with none missing")
    if strange := sorted(map(str, set(splits.tolist()) - {"train", "test"})):
        raise ValueError(f"{path}: split must say train or test, got {', '.join(strange[:5])}")
    vectors, train = values.reshape(len(column), width), splits == "train"
    test = () if train.all() else (vectors[~train], labels[~train])
    return features_from_arrays(vectors[train], labels[train], *test, name=path.stem)


def _check_vectors(path: Path, kind: Any) -> None:
    types = require("pyarrow.types", "text")
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not is_list or not (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)):
        raise ValueError(f"{path}: embedding must be a column of lists of numbers, got {kind}")


def _labels(values: ArrayLike, which: str) -> np.ndarray:
    """An array of labels. Columns of tables hold names as objects."""
    labels = np.asarray(by_position(values, which))
    names = labels.dtype == object and all(isinstance(label, str) for label in labels.flat)
    return labels.astype(str) if names else labels


def _floating(values: ArrayLike) -> np.ndarray:
    array = np.asanyarray(by_position(values, "features"))  # a memory map stays one
    return array.astype(np.float32) if np.issubdtype(array.dtype, np.integer) else array
