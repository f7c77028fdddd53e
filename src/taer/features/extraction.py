"""Extraction of features, in chunks. A finished chunk is on disk, so an interrupted extraction can be resumed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from taer import __version__
from taer.features.append import Earlier, Finished, write_parts
from taer.features.backbones import find_backbone
from taer.features.encoding import Here, Workers, chunks_of
from taer.features.files import read_feature_file, read_header
from taer.features.set import FeatureSet
from taer.features.sources import Source, open_source
from taer.files import written_whole
from taer.parallel import on_cluster

Progress = Callable[[int, int], None]


def extract(
    source: str | os.PathLike[str],
    backbone: str,
    out: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    weights: str | os.PathLike[str] | None = None,
    test_fraction: float | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
    skip_bad: bool = False,
    half: bool = False,
    append: bool = False,
    progress: Progress | None = None,
) -> FeatureSet:
    """Run a frozen backbone over a data set once and store its features in one file.

    Finished chunks are in ``OUT.parts`` until the file is complete. If the call is interrupted, the same call
    continues where it stopped, and the file is bit-identical. If ``out`` already has these features, nothing is
    computed. Inside :func:`taer.ray_cluster` the chunks are computed on the cluster's GPUs, or on its nodes if there are
    none, with the same result.

    Parameters
    ----------
    source
        ``cifar100``, ``cub200``, ``core50``; a folder of images (``train/CLASS/*`` and ``test/CLASS/*``, or
        ``CLASS/*`` with a ``test_fraction``); a ``.csv`` or ``.parquet`` table of texts; ``hf:owner/name``. A folder
        of images without subfolders, or a table without a column ``label``, gives unlabeled features, for
        predicting.
    backbone
        A name that ``taer backbones`` lists; ``hf:owner/model`` or ``hf:path/to/folder``; a ``.onnx`` file.
    out
        The feature file to write, ``.safetensors``.
    root
        Where a named data set already is: its archive, or the folder it unpacks to.
    weights
        A file with the weights of a named backbone, when they cannot be downloaded.
    test_fraction
        The fraction of each class set aside for test, when the data set has no split of its own.
    text_column, label_column, split_column
        Columns of a table; ``text`` and ``label`` unless given.
    skip_bad
        Skip items that cannot be read, instead of stopping. The file's header has their number.
    half
        Compute in half precision (float16), on a GPU. The last digits of the features differ, so the file's header
        records it.
    append
        If ``out`` has features of this backbone, keep those of items that it knows by the hash of their content, and
        compute only new ones: for a table or a folder of images that grew.
    progress
        Called as ``progress(done, total)`` during the extraction.

    Examples
    --------
    >>> import taer
    >>> taer.extract("photos", "efficientnet-lite0", "photos.safetensors")  # doctest: +SKIP
    """
    out = Path(out)
    if out.suffix != ".safetensors":
        raise ValueError(f"{out}: a feature file ends in .safetensors")
    data = open_source(
        source,
        root=root,
        test_fraction=test_fraction,
        text_column=text_column,
        label_column=label_column,
        split_column=split_column,
    )
    model = find_backbone(backbone, data.kind, None if weights is None else Path(weights))
    preprocess = f"{model.preprocess}; half precision" if half else model.preprocess
    sizes = [len(data.train), len(data.test)]
    fingerprint = _hash(data.digest, sizes, list(data.classes), model.name, model.weights, preprocess)
    parts_folder, earlier = Path(f"{out}.parts"), None
    if out.exists():
        if not append or read_header(out).get("extraction") == fingerprint:
            _check_finished(out, fingerprint, skip_bad)
            shutil.rmtree(parts_folder, ignore_errors=True)  # if an earlier call could not
            return read_feature_file(str(out))
        earlier = Earlier.open(out, model.origin._replace(preprocess=preprocess))
    out.parent.mkdir(parents=True, exist_ok=True)
    todo = data if earlier is None else earlier.missing(data)
    workers: Workers
    if on_cluster():
        from taer.features.cluster_encoding import OnCluster

        workers = OnCluster(todo, model, backbone, weights, skip_bad, half)
    else:
        workers = Here(todo, model, skip_bad, half)
    job = _Job(todo, parts_folder / _hash(fingerprint, workers.engine, append)[:16], skip_bad, progress)
    job.run(workers)
    meta = {
        "dataset": data.name,
        "backbone": model.name,
        "preprocess": preprocess,
        "weights": model.weights,
        "licence": data.license,
        "engine": workers.engine,
        "extraction": fingerprint,
        "created": f"{datetime.now(UTC):%Y-%m-%d} by taer {__version__}",
    }
    write_parts(out, meta, data, job.finished() if earlier is None else earlier.completed(data, job.finished()))
    shutil.rmtree(parts_folder)
    return read_feature_file(str(out))


def _check_finished(out: Path, fingerprint: str, skip_bad: bool) -> None:
    """Raise unless the file has the requested features: hours of work must never be overwritten."""
    meta = read_header(out)
    if meta.get("extraction") != fingerprint:
        raise ValueError(
            f"{out}: already holds other features ({meta.get('dataset')} by {meta.get('backbone')}); "
            "remove it or choose another file; if its items are among these, append=True adds what is new"
        )
    if meta["skipped"] != "0" and not skip_bad:
        raise ValueError(
            f"{out}: lacks {meta['skipped']} items that could not be read; "
            "accept that with skip_bad=True, or remove the file"
        )


@dataclass
class _Job:
    """One extraction. Finished chunks are in the folder, one file per chunk."""

    data: Source
    folder: Path
    skip_bad: bool
    progress: Progress | None

    def __post_init__(self) -> None:
        self.parts = {"train": self.data.train, "test": self.data.test}
        self.total = sum(map(len, self.parts.values()))
        self.chunks = chunks_of(self.data)
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str, rows: range) -> Path:
        return self.folder / f"{name}-{rows.start:09}.npz"

    def run(self, workers: Workers) -> None:
        """Compute the chunks that are missing."""
        missing = [(name, rows) for name, rows in self.chunks if not self._finished(name, rows)]
        done = self.total - sum(len(rows) for _, rows in missing)

        def tell(items: int) -> None:
            nonlocal done
            done += items
            if self.progress:
                self.progress(done, self.total)

        tell(0)
        for chunk, features, rows in workers.encoded(missing, tell):
            _write_chunk(self.path(*chunk), features, rows)

    def _finished(self, name: str, rows: range) -> bool:
        """Whether a chunk is on disk and complete. A chunk without its bad items counts only with ``skip_bad``."""
        path = self.path(name, rows)
        if not path.exists() or not zipfile.is_zipfile(path):
            return False
        with np.load(path) as chunk:
            return self.skip_bad or len(chunk["rows"]) == len(rows)

    def finished(self) -> dict[str, Finished]:
        """The rows of each part that could be read, and their features from the chunks, one at a time."""
        return {name: self._finished_part(name) for name in self.parts}

    def _finished_part(self, part: str) -> Finished:
        paths = [self.path(name, rows) for name, rows in self.chunks if name == part]
        kept, width = [np.empty(0, np.int64)], 0
        for path in paths:
            with np.load(path) as chunk:
                kept.append(chunk["rows"])
                width = max(width, chunk["features"].shape[1])
        return Finished(np.concatenate(kept), width, partial(_blocks, paths))


def _blocks(paths: list[Path]) -> Iterator[np.ndarray]:
    for path in paths:
        with np.load(path) as chunk:
            if len(chunk["rows"]):
                yield chunk["features"]


def _write_chunk(path: Path, features: np.ndarray, rows: np.ndarray) -> None:
    """Write a chunk atomically, even if several processes compute the same chunk."""
    with written_whole(path, sync=True) as partial, partial.open("wb") as file:
        np.savez(file, features=features, rows=rows)


def _hash(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
