"""Extraction of features, in chunks. A finished chunk is on disk, so an interrupted extraction can be resumed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import zipfile
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed

from taer import __version__
from taer.extras import reason
from taer.features.backbones import Backbone, find_backbone
from taer.features.files import inputs_tensor, read_feature_file, read_header, write_feature_file
from taer.features.set import FeatureSet
from taer.features.sources import Part, Source, open_source
from taer.files import written_whole
from taer.parallel import Shared, device_share, on_cluster, sharing
from taer.threads import cores

CHUNK = 256  # items per file of finished work; a kill loses at most these
_AHEAD = 4  # batches decoded in advance; more would only take memory

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
    progress: Progress | None = None,
) -> FeatureSet:
    """Run a frozen backbone over a data set once and store its features in one file.

    Finished chunks are in ``OUT.parts`` until the file is complete. If the call is interrupted, the same call
    continues where it stopped, and the file is bit-identical. If ``out`` already has these features, nothing is
    computed. Inside :func:`taer.cluster` the chunks are computed on the cluster's GPUs, or on its nodes if there are
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
    fingerprint = _hash(data.digest, list(data.classes), model.name, model.weights, preprocess)
    if out.exists():
        _check_finished(out, fingerprint, skip_bad)
        return read_feature_file(str(out))
    out.parent.mkdir(parents=True, exist_ok=True)
    parts_folder = Path(f"{out}.parts")
    workers: _Here | _OnCluster
    if on_cluster():
        workers = _OnCluster(data, model, backbone, weights, skip_bad, half)
    else:
        workers = _Here(data, model, skip_bad, half)
    job = _Job(data, parts_folder / _hash(fingerprint, workers.engine)[:16], skip_bad, progress)
    job.run(workers)
    job.assemble(
        out,
        {
            "dataset": data.name,
            "backbone": model.name,
            "preprocess": preprocess,
            "weights": model.weights,
            "licence": data.license,
            "engine": workers.engine,
            "extraction": fingerprint,
            "created": f"{datetime.now(UTC):%Y-%m-%d} by taer {__version__}",
        },
    )
    shutil.rmtree(parts_folder)
    return read_feature_file(str(out))


def _check_finished(out: Path, fingerprint: str, skip_bad: bool) -> None:
    """Raise unless the file has the requested features: hours of work must never be overwritten."""
    meta = read_header(out)
    if meta.get("extraction") != fingerprint:
        raise ValueError(
            f"{out}: already holds other features ({meta.get('dataset')} by {meta.get('backbone')}); "
            "remove it or choose another file"
        )
    if meta["skipped"] != "0" and not skip_bad:
        raise ValueError(
            f"{out}: lacks {meta['skipped']} items that could not be read; "
            "accept that with skip_bad=True, or remove the file"
        )


Chunk = tuple[str, range]  # a part and some of its rows


class Encoded(NamedTuple):
    """The features of a chunk, and the rows that could be read."""

    chunk: Chunk
    features: np.ndarray
    rows: np.ndarray


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
        self.chunks: list[Chunk] = [
            (name, rows)
            for name, part in self.parts.items()
            for rows in (range(start, min(start + CHUNK, len(part))) for start in range(0, len(part), CHUNK))
        ]
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str, rows: range) -> Path:
        return self.folder / f"{name}-{rows.start:09}.npz"

    def run(self, workers: _Here | _OnCluster) -> None:
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

    def assemble(self, out: Path, meta: dict[str, str]) -> None:
        """Write the feature file from the chunks, one at a time."""
        labels: dict[str, np.ndarray] = {}
        inputs: dict[str, list[str]] = {}
        widths = set()
        for name, part in self.parts.items():
            kept = [np.empty(0, np.int64)]
            for path in self._paths(name):
                with np.load(path) as chunk:
                    kept.append(chunk["rows"])
                    if len(chunk["rows"]):
                        widths.add(chunk["features"].shape[1])
            rows = np.concatenate(kept)
            labels[name], inputs[name] = part.labels[rows], [part.where(row) for row in rows.tolist()]
            if len(part) and not len(rows):
                raise ValueError(f"{self.data.name}: not one item of the {name} part could be read")
        skipped = self.total - sum(map(len, labels.values()))
        (width,) = widths
        write_feature_file(
            out,
            {**meta, "skipped": str(skipped)},
            self.data.classes,
            {
                f"{name}.x": ((len(labels[name]), width), np.dtype(np.float32), self._features(name))
                for name in self.parts
            }
            | {f"{name}.y": (labels[name].shape, np.dtype(np.int64), [labels[name]]) for name in self.parts}
            | inputs_tensor(inputs),
        )

    def _paths(self, part: str) -> list[Path]:
        return [self.path(name, rows) for name, rows in self.chunks if name == part]

    def _features(self, part: str) -> Iterator[np.ndarray]:
        for path in self._paths(part):
            with np.load(path) as chunk:
                yield chunk["features"]


class _Here:
    """Runs the encoder in this process, while threads read the items of the next batches."""

    def __init__(self, data: Source, model: Backbone, skip_bad: bool, half: bool) -> None:
        self._parts, self._prepare, self._skip_bad = (
            {"train": data.train, "test": data.test},
            model.prepare,
            skip_bad,
        )
        self._encoder = model.load(half=half)
        self.engine = self._encoder.engine

    def encoded(self, chunks: Sequence[Chunk], tell: Callable[[int], None]) -> Iterator[Encoded]:
        """Yield chunk by chunk; ``tell`` is called after each batch."""
        size, in_flight = self._encoder.batch_size, self._encoder.in_flight
        batches = [
            [(name, rows[start : start + size]) for start in range(0, len(rows), size)] for name, rows in chunks
        ]
        reading = (partial(self._read, name, row) for name, rows in chunks for row in rows)
        with contextlib.closing(_in_order(reading, cores(), _AHEAD * size)) as items:
            computing = (
                partial(self._encode, self._good(name, rows, items)) for chunk in batches for name, rows in chunk
            )
            with contextlib.closing(_in_order(computing, in_flight, in_flight)) as results:
                for chunk, of_chunk in zip(chunks, batches, strict=True):
                    kept: list[int] = []
                    features = []
                    for (_, rows), (good, block) in zip(of_chunk, results, strict=False):
                        kept += good
                        features.append(block)
                        tell(len(rows))
                    yield Encoded(chunk, _concatenated(features), np.array(kept, np.int64))

    def _read(self, part: str, row: int) -> Any:
        try:
            return self._prepare(self._parts[part].read(row))
        except Exception as error:  # decoders raise whatever they like on damaged files
            return _Unreadable(reason(error), isinstance(error, FileNotFoundError))

    def _good(self, part: str, rows: range, items: Iterator[Any]) -> list[tuple[int, Any]]:
        """The items of the next batch that could be read, with their rows."""
        batch = zip(rows, items, strict=False)
        return [(row, item) for row, item in batch if self._is_good(self._parts[part], row, item)]

    def _encode(self, good: list[tuple[int, Any]]) -> tuple[list[int], np.ndarray | None]:
        if not good:
            return [], None
        rows, items = zip(*good, strict=True)
        return list(rows), np.asarray(self._encoder(items), np.float32)

    def _is_good(self, part: Part, row: int, item: Any) -> bool:
        if not isinstance(item, _Unreadable):
            return True
        if item.is_missing:  # not damaged data, but another machine or a missing disk
            raise ValueError(f"{part.where(row)}: {item.why}; the data must lie on a path that every worker sees")
        if self._skip_bad:
            return False
        raise ValueError(
            f"{part.where(row)}: cannot be read ({item.why}). Repair or remove it and start again, or leave "
            "such items out with skip_bad=True, which goes on from what is finished"
        )


class _OnCluster:
    """Runs one encoder per GPU, or per node if there are no GPUs."""

    def __init__(
        self,
        data: Source,
        model: Backbone,
        backbone: str,
        weights: str | os.PathLike[str] | None,
        skip_bad: bool,
        half: bool,
    ) -> None:
        identity = (model.name, model.weights, model.preprocess)
        path = None if weights is None else Path(weights)
        self._order = Shared((data, backbone, path, identity, skip_bad, half))
        self._share = device_share()
        with sharing(self._share):
            (self.engine,) = Parallel()([delayed(_engine_there)(self._order)])

    def encoded(self, chunks: Sequence[Chunk], tell: Callable[[int], None]) -> Iterator[Encoded]:
        calls = (delayed(_encoded_there)(self._order, chunk) for chunk in chunks)
        with sharing(self._share):
            results = Parallel(return_as="generator_unordered")(calls)
        for engine, encoded in results:
            if engine != self.engine:
                raise ValueError(
                    f"workers differ: {engine} and {self.engine}; install the same packages on all nodes"
                )
            yield encoded
            tell(len(encoded.chunk[1]))


_loaded: dict[str, Any] = {}  # the encoder of this worker process


def _worker(order: Shared) -> _Here:
    data, backbone, weights, identity, skip_bad, half = order.value
    key = json.dumps([data.digest, identity, skip_bad, half])
    if _loaded.get("key") != key:
        model = find_backbone(backbone, data.kind, weights)
        if (model.name, model.weights, model.preprocess) != identity:
            raise ValueError(
                f"{backbone}: a worker finds {model.weights}, but the extraction was started with {identity[1]}"
            )
        _loaded.update(key=key, worker=_Here(data, model, skip_bad, half))
    worker: _Here = _loaded["worker"]
    return worker


def _engine_there(order: Shared) -> str:
    return _worker(order).engine


def _encoded_there(order: Shared, chunk: Chunk) -> tuple[str, Encoded]:
    worker = _worker(order)
    (encoded,) = worker.encoded([chunk], lambda items: None)
    return worker.engine, encoded


@dataclass(frozen=True)
class _Unreadable:
    why: str
    is_missing: bool


def _in_order(calls: Iterable[Callable[[], Any]], threads: int, ahead: int) -> Generator[Any]:
    """The results of the calls, in order. Threads run the next calls while the caller waits for the current one."""
    pool = ThreadPoolExecutor(threads)
    todo = iter(calls)
    try:
        pending: deque[Future[Any]] = deque(pool.submit(call) for call in islice(todo, ahead))
        while pending:
            yield pending.popleft().result()
            pending.extend(pool.submit(call) for call in islice(todo, 1))
    finally:
        pool.shutdown(cancel_futures=True)


def _concatenated(blocks: Sequence[np.ndarray | None]) -> np.ndarray:
    found = [block for block in blocks if block is not None]
    return np.concatenate(found) if found else np.zeros((0, 0), np.float32)


def _write_chunk(path: Path, features: np.ndarray, rows: np.ndarray) -> None:
    """Write a chunk atomically, even if several processes compute the same chunk."""
    with written_whole(path, sync=True) as partial, partial.open("wb") as file:
        np.savez(file, features=features, rows=rows)


def _hash(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
