"""Feature files that grow: what an earlier file has, by the hash of its content, is not computed again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from taer.features.files import (
    HASHES,
    Tensor,
    inputs_tensor,
    mapped_tensors,
    read_hashes,
    read_header,
    write_feature_file,
)
from taer.features.sources import Part, Source
from taer.features.sources.base import NOTHING, UNLABELED
from taer.origin import Origin

_ROWS = 1024  # in one piece of a file


@dataclass(frozen=True)
class Finished:
    """The rows of a part that could be read, and their features in pieces, from the beginning at each call."""

    rows: np.ndarray
    width: int
    blocks: Callable[[], Iterator[np.ndarray]]


def write_parts(out: Path, meta: Mapping[str, str], data: Source, finished: Mapping[str, Finished]) -> None:
    """Write a feature file of the items that could be read."""
    parts = {"train": data.train, "test": data.test}
    for name, part in parts.items():
        if len(part) and not len(finished[name].rows):
            raise ValueError(f"{data.name}: not one item of the {name} part could be read")
    width = max(done.width for done in finished.values())
    skipped = sum(len(part) - len(finished[name].rows) for name, part in parts.items())
    tensors: dict[str, Tensor] = {}
    for name, part in parts.items():
        rows, labels = finished[name].rows, part.labels[finished[name].rows]
        tensors[f"{name}.x"] = ((len(rows), width), np.dtype(np.float32), finished[name].blocks())
        tensors[f"{name}.y"] = (labels.shape, np.dtype(np.int64), [labels])
        if part.hash is not None:
            tensors[f"{name}.{HASHES}"] = ((len(rows), 32), np.dtype(np.uint8), [_hashes(part, rows)])
    inputs = {name: [part.where(row) for row in finished[name].rows.tolist()] for name, part in parts.items()}
    write_feature_file(out, {**meta, "skipped": str(skipped)}, data.classes, tensors | inputs_tensor(inputs))


def _hashes(part: Part, rows: Iterable[int]) -> np.ndarray:
    assert part.hash is not None
    return np.frombuffer(b"".join(part.hash(int(row)) for row in rows), np.uint8).reshape(-1, 32)


@dataclass(frozen=True)
class Earlier:
    """The features of an earlier file, by the hash of the item."""

    path: Path
    features: tuple[np.ndarray, np.ndarray]  # of the training and of the test part, memory-mapped
    places: Mapping[bytes, tuple[int, int]]  # part and row

    @classmethod
    def open(cls, path: Path, origin: Origin) -> Earlier:
        """An error if the file is of another backbone, or has no hashes."""
        found = Origin.of(read_header(path))
        if found is None or (difference := origin.difference(found)):
            what = "of no known backbone" if found is None else difference
            raise ValueError(f"{path}: nothing can be appended to these features: {what}")
        hashes = read_hashes(path)
        if not hashes:
            raise ValueError(f"{path}: has no hashes of its items, so what is new is not known; extract them all")
        train, _, test, _ = mapped_tensors(str(path))
        places = {
            row.tobytes(): (part, number)
            for part, name in enumerate(("train", "test"))
            for number, row in enumerate(hashes.get(name, ()))
        }
        return cls(path, (train, test), places)

    def missing(self, data: Source) -> Source:
        """The items that the file lacks, without labels; those of the training part come first."""
        new = [(part, row) for part in (data.train, data.test) for row in self._new(part)]
        part = Part(
            np.full(len(new), UNLABELED, np.int64),
            lambda row: new[row][0].read(new[row][1]),
            lambda row: new[row][0].where(new[row][1]),
        )
        return Source(data.name, data.kind, (), NOTHING, part, data.digest, may_be_empty=True)

    def _new(self, part: Part) -> list[int]:
        if not len(part):
            return []
        if part.hash is None:
            raise ValueError("append=True is for tables of texts and folders of images")
        return [row for row in range(len(part)) if part.hash(row) not in self.places]

    def completed(self, data: Source, finished: Mapping[str, Finished]) -> dict[str, Finished]:
        """All items of a source: those of the file, and those of :meth:`missing`, which are finished now."""
        done, taken = finished["test"], 0
        kept = set(done.rows.tolist())
        fresh = iter(range(sum(len(self._new(part)) for part in (data.train, data.test))))
        parts = {}
        for name, part in (("train", data.train), ("test", data.test)):
            new = {row: next(fresh) for row in self._new(part)}
            rows = [row for row in range(len(part)) if row not in new or new[row] in kept]
            plan = [None if row in new else self.places[_hash_of(part, row)] for row in rows]
            width = max(done.width, self.features[0].shape[1])
            parts[name] = Finished(np.array(rows, np.int64), width, _Mixed(self.features, plan, done, taken))
            taken += plan.count(None)
        return parts


def _hash_of(part: Part, row: int) -> bytes:
    assert part.hash is not None
    return part.hash(row)


@dataclass(frozen=True)
class _Mixed:
    """Rows of an earlier file and new ones, in pieces. ``plan`` has the place of each row, or None for the next new one."""

    features: tuple[np.ndarray, np.ndarray]
    plan: list[tuple[int, int] | None]
    new: Finished
    skip: int  # new rows that belong to the part before

    def __call__(self) -> Iterator[np.ndarray]:
        fresh = islice(chain.from_iterable(self.new.blocks()), self.skip, None)
        for at in range(0, len(self.plan), _ROWS):
            places = self.plan[at : at + _ROWS]
            yield np.stack(
                [next(fresh) if place is None else self.features[place[0]][place[1]] for place in places]
            )
