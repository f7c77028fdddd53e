"""Feature sets on disk, in the project's format and in others: :func:`load_features` and :func:`save_features`."""

from __future__ import annotations

import os
from pathlib import Path

from taer.features.arrays import read_npy, read_npz, read_parquet
from taer.features.files import read_feature_file, save_feature_file
from taer.features.set import FeatureSet
from taer.features.shards import find_shards, read_shards, save_shards
from taer.storage import is_folder, is_url, local_path


def load_features(path: str | os.PathLike[str] | None = None, *, labeled: bool = True) -> FeatureSet:
    """Read a feature set from a file or folder, or the embedded default for ``None``.

    A ``.safetensors`` file is the project's own format. An ``.npz`` file has the arrays ``X_train, y_train,
    X_test, y_test``; a folder has them as ``.npy`` files. A ``.parquet`` file has the columns ``embedding``,
    ``label`` and ``split`` (train or test). In all three the labels may be names. A folder of ``.safetensors``
    files is one set in shards. A URL that fsspec can open (``s3://…``) is copied to a local cache first.
    With ``labeled=False``, sets without labels are allowed; ``taer extract`` writes them for unlabeled data.

    Examples
    --------
    >>> import taer
    >>> sketches = taer.load_features()
    >>> sketches.name, len(sketches.classes), len(sketches.train_x), len(sketches.test_x)
    ('sketches100', 100, 8000, 2000)
    """
    features = _read(path)
    if labeled and not features.classes:
        raise ValueError(f"{path}: its samples have no labels; such features are for predicting")
    return features


def _read(path: str | os.PathLike[str] | None) -> FeatureSet:
    if path is None:
        return read_feature_file(str(Path(__file__).parent / "data" / "sketches100.safetensors"))
    place = str(path)
    if is_folder(place):
        if shards := find_shards(place):
            return read_shards(place, shards)
        if is_url(place):
            raise ValueError(f"{place}: a folder without .safetensors files")
        return read_npy(Path(place))
    suffix = Path(place).suffix
    readers = {".npz": read_npz, ".npy": read_npy, ".parquet": read_parquet}
    here = Path(local_path(place))
    if not here.is_file():
        raise ValueError(f"{place}: no such file" if not here.exists() else f"{place}: not a file")
    if suffix == ".safetensors":
        return read_feature_file(place)
    if suffix not in readers:
        raise ValueError(f"{place}: a feature file ends in .safetensors or {' or '.join(readers)}")
    return readers[suffix](here)


def save_features(features: FeatureSet, path: str | os.PathLike[str], *, shard_rows: int | None = None) -> None:
    """Write a feature set in the project's format, atomically.

    With ``shard_rows``, ``path`` is a folder of shards with at most that many rows each.

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
        save_shards(features, Path(path), shard_rows)
    else:
        save_feature_file(features, Path(path))
