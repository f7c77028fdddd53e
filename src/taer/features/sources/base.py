"""The interface of data sources: a training and a test part, readable item by item."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from taer.features.images import decode_image

Kind = Literal["image", "text"]


@dataclass(frozen=True)
class Part:
    """The training or the test part. ``read`` returns one item, and is called from many threads."""

    labels: np.ndarray
    read: Callable[[int], Any]
    where: Callable[[int], str]
    hash: Callable[[int], bytes] | None = None  # SHA-256 of an item's content, if the source knows it

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Source:
    """A data set that can be read item by item; ``digest`` changes whenever its content does.

    The test part may be empty. A source without labels has no classes, and all its items are in the test part.
    """

    name: str
    kind: Kind
    classes: tuple[str, ...]
    train: Part
    test: Part
    digest: str
    license: str = "see the data set's own terms"
    may_be_empty: bool = False
    skipped: int = 0  # rows of a table that a user left without a label

    def __post_init__(self) -> None:
        part, items = ("training", self.train) if self.classes else ("test", self.test)
        if not len(items) and not self.may_be_empty:
            raise ValueError(f"{self.name}: the {part} part is empty")


UNLABELED = -1
NOTHING = Part(np.empty(0, np.int64), lambda row: None, lambda row: "")  # a part without items


def files_part(
    paths: Sequence[Path], labels: Sequence[int] | None = None, hashes: Mapping[Path, bytes] | None = None
) -> Part:
    """Image files and their labels."""
    return Part(
        np.full(len(paths), UNLABELED, np.int64) if labels is None else np.array(labels, np.int64),
        lambda row: decode_image(paths[row].read_bytes()),
        lambda row: str(paths[row]),
        None if hashes is None else lambda row: hashes[paths[row]],
    )


def file_hashes(paths: Sequence[Path]) -> dict[Path, bytes]:
    """SHA-256 of the content of each file."""

    def one(path: Path) -> bytes:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(paths, pool.map(one, paths), strict=True))


def files_digest(root: Path, hashes: Mapping[Path, bytes]) -> str:
    """SHA-256 of names and contents, so that a copy of the data elsewhere has the same digest."""
    return digest(path.relative_to(root).as_posix().encode() + content for path, content in hashes.items())


def digest(pieces: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for piece in pieces:
        total.update(len(piece).to_bytes(8, "little"))
        total.update(piece)
    return total.hexdigest()


def split_by_name(names: Sequence[str], labels: Sequence[int], test_fraction: float) -> np.ndarray:
    """A mask of the test items: the given fraction of each class, chosen by a hash of the name.

    A class with a single item keeps it for training. The hash of a name does not depend on the other items, so a
    data set that grows mostly keeps its split, on every machine and without a seed.

    Examples
    --------
    >>> split_by_name(["a", "b", "c", "d"], [0, 0, 1, 1], 0.5).sum()
    np.int64(2)
    """
    if not 0 <= test_fraction < 1:
        raise ValueError(f"the test fraction must be below 1 and not negative, got {test_fraction:g}")
    order = sorted(range(len(names)), key=lambda row: hashlib.sha256(names[row].encode()).digest())
    members: dict[int, list[int]] = {}
    for row in order:
        members.setdefault(int(labels[row]), []).append(row)
    chosen = np.zeros(len(names), bool)
    for rows in members.values():
        count = max(1, round(test_fraction * len(rows))) if test_fraction else 0
        chosen[rows[: min(len(rows) - 1, count)]] = True
    return chosen
