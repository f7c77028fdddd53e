"""Feature sets in shards: a folder of feature files, read as one set, and never loaded as a whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from taer.features.files import mapped_tensors, read_header, split_header, write_rows
from taer.features.set import FeatureSet
from taer.files import written_whole
from taer.rows import StackedRows
from taer.storage import files_in


def find_shards(folder: str) -> list[str]:
    """The feature files in a folder, sorted by name."""
    return files_in(folder, ".safetensors")


def read_shards(folder: str, paths: list[str]) -> FeatureSet:
    """One feature set from all shards. A shard may lack training or test samples, but all must have the same classes."""
    headers = [read_header(path) for path in paths]
    tensors = [mapped_tensors(path) for path in paths]
    (train_x, *_), first = tensors[0], headers[0]
    for path, header, (x, _, test_x, _) in zip(paths, headers, tensors, strict=True):
        for key in ("classes", "dataset", "backbone", "preprocess", "weights"):
            if header.get(key) != first.get(key):
                raise ValueError(f"{path}: another {key} than {paths[0]}; the shards of a folder are one data set")
        for part in (x, test_x):
            if part.shape[1:] != train_x.shape[1:] or part.dtype != train_x.dtype:
                raise ValueError(
                    f"{path}: features of {part.shape[1:]} {part.dtype}, "
                    f"but {paths[0]} has {train_x.shape[1:]} {train_x.dtype}"
                )
    classes, meta = split_header(paths[0], first)
    xs, ys, test_xs, test_ys = zip(*tensors, strict=True)
    return FeatureSet(
        StackedRows(*xs),
        np.concatenate(ys),
        StackedRows(*test_xs),
        np.concatenate(test_ys),
        classes=classes,
        meta=meta,
        name=folder.rstrip("/").rpartition("/")[2],
    )


def save_shards(features: FeatureSet, folder: Path, shard_rows: int) -> None:
    """Write the training rows, then the test rows, in files of at most ``shard_rows``; the folder is written atomically."""
    if shard_rows < 1:
        raise ValueError(f"a shard needs at least one row, got {shard_rows}")
    if folder.exists():
        raise ValueError(f"{folder}: exists already")
    n_train, n_test = len(features.train_y), len(features.test_y)
    shards = [(range(at, min(at + shard_rows, n_train)), range(0)) for at in range(0, n_train, shard_rows)]
    shards += [(range(0), range(at, min(at + shard_rows, n_test))) for at in range(0, n_test, shard_rows)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(folder) as partial:
        partial.mkdir()
        for number, (train, test) in enumerate(shards):
            write_rows(features, partial / f"{number:06}.safetensors", train, test)
