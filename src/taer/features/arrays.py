"""Feature sets from arrays and common formats: ``.npz``, ``.npy``, Parquet with embeddings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from taer.containers import by_position
from taer.extras import require
from taer.features.files import save_feature_file
from taer.features.set import FeatureSet

_NAMES = ("X_train", "y_train", "X_test", "y_test")


def features_from_arrays(
    X_train: ArrayLike,
    y_train: ArrayLike,
    X_test: ArrayLike,
    y_test: ArrayLike,
    *,
    out: str | os.PathLike[str] | None = None,
    name: str = "features",
    backbone: str = "unknown",
    license: str = "unknown",
) -> FeatureSet:
    """Make a feature set from arrays, and write it to the feature file ``out`` if given.

    Labels may be names or numbers. The sorted labels become the names of the classes.

    Examples
    --------
    >>> import numpy as np, taer
    >>> X = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    >>> pets = taer.features_from_arrays(X[:4], ["cat", "dog", "cat", "dog"], X[4:], ["dog", "cat"])
    >>> pets.classes, pets.train_y.tolist(), pets.test_y.tolist()
    (('cat', 'dog'), [0, 1, 0, 1], [1, 0])
    """
    train_labels, test_labels = _labels(y_train, "y_train"), _labels(y_test, "y_test")
    for which, labels in (("y_train", train_labels), ("y_test", test_labels)):
        if labels.ndim != 1 or labels.dtype == object:
            raise ValueError(
                f"{name}: {which} must be a list of names or numbers, got {labels.dtype} {labels.shape}"
            )
    classes, train_ids = np.unique(train_labels, return_inverse=True)
    if unknown := sorted(set(np.unique(test_labels).tolist()) - set(classes.tolist())):
        raise ValueError(f"{name}: test labels that the training part lacks: {unknown[:5]}")
    features = FeatureSet(
        _floating(X_train),
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
    """``X_train, y_train, X_test, y_test`` in one file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if missing := [key for key in _NAMES if key not in file]:
                raise ValueError(f"{path}: lacks {', '.join(missing)}")
            arrays = [file[key] for key in _NAMES]
    except Exception as error:  # numpy and zipfile raise many types for damaged archives
        if str(path) in str(error):
            raise
        raise ValueError(f"{path}: not a readable .npz file, or truncated ({error})") from None
    return features_from_arrays(*arrays, name=path.stem)


def read_npy(path: Path) -> FeatureSet:
    """A folder with ``X_train.npy, y_train.npy, X_test.npy, y_test.npy``; features are memory-mapped."""
    folder = path if path.is_dir() else path.parent
    arrays = []
    for name in _NAMES:
        file = folder / f"{name}.npy"
        if not file.is_file():
            raise ValueError(f"{folder}: lacks {file.name}; expected {', '.join(f'{key}.npy' for key in _NAMES)}")
        try:
            arrays.append(np.load(file, mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(f"{file}: not a readable .npy file ({error})") from None
    return features_from_arrays(*arrays, name=folder.resolve().name)


def read_parquet(path: Path) -> FeatureSet:
    """Columns ``embedding`` (lists of equal length), ``label``, and ``split`` (``train`` or ``test``)."""
    parquet = require("pyarrow.parquet", "text")
    try:
        file = parquet.ParquetFile(path)
    except Exception as error:  # pyarrow has many error types
        raise ValueError(f"{path}: not a readable Parquet file ({error})") from None
    wanted = ("embedding", "label", "split")
    if missing := [name for name in wanted if name not in file.schema_arrow.names]:
        raise ValueError(
            f"{path}: no column {', '.join(missing)}; a feature table has {', '.join(wanted)}, "
            f"this one has {', '.join(file.schema_arrow.names)}"
        )
    _check_vectors(path, file.schema_arrow.field("embedding").type)
    table = file.read(list(wanted))
    labels = np.array(table["label"].to_pylist())
    splits = np.array(table["split"].to_pylist())
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
    return features_from_arrays(vectors[train], labels[train], vectors[~train], labels[~train], name=path.stem)


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
