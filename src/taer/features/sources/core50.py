"""CORe50 at 128 × 128, from its zip archive or the unpacked folder."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from taer.features.images import decode_image
from taer.features.sources.archives import download
from taer.features.sources.base import Part, Source, digest, file_hashes, files_digest

URL = "http://bias.csr.unibo.it/maltoni/download/core50/core50_128x128.zip"
CHECKSUM = "md5:745f3373fed08d69343f1058ee559e13"
REMEDY = "Fetch core50_128x128.zip on another machine and pass it, or the folder it unpacks to, as root=PATH"
TEST_SESSIONS = (3, 7, 10)
_CATEGORIES = (
    "plug adapter", "mobile phone", "scissors", "light bulb", "can",
    "glass", "ball", "marker", "cup", "remote control",
)  # fmt: skip
Opened = tuple[list[str], str, Callable[[str], bytes]]
_NAME = re.compile(r"(?:^|/)s(\d+)/o(\d+)/[^/]+\.png$")


def open_core50(root: Path | None) -> Source:
    """Fifty objects, five per category, in eleven sessions; sessions 3, 7 and 10 are the test part."""
    path = root or download("core50", URL, CHECKSUM, REMEDY)
    names, content, read = _zipped(path) if path.is_file() else _unzipped(path)
    places = [tuple(map(int, _NAME.search(name).groups())) for name in names]  # type: ignore[union-attr]
    if not names or any(not 1 <= item <= 50 for _, item in places):
        raise ValueError(f"{path}: no CORe50 here: expected s1/o1/*.png to s11/o50/*.png. {REMEDY}")

    def part(for_test: bool) -> Part:
        rows = [row for row, (session, _) in enumerate(places) if (session in TEST_SESSIONS) == for_test]
        return _part(path, [names[row] for row in rows], [places[row][1] - 1 for row in rows], read)

    classes = tuple(f"{_CATEGORIES[item // 5]} {item % 5 + 1}" for item in range(50))
    return Source("core50", "image", classes, part(False), part(True), content, "CC BY 4.0, Lomonaco and Maltoni")


def _part(path: Path, names: list[str], labels: list[int], read: Callable[[str], bytes]) -> Part:
    return Part(
        np.array(labels, np.int64),
        lambda row: decode_image(read(names[row])),
        lambda row: f"{path}/{names[row]}",
    )


def _zipped(path: Path) -> Opened:
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path}: not a whole zip archive ({error}). {REMEDY}") from None
    sums = {entry.filename: entry.CRC for entry in archive.infolist() if _NAME.search(entry.filename)}
    names = sorted(sums)
    # the archive's own checksums stand for the content: hashing 12 GB would take too long
    return names, digest(f"{name} {sums[name]}".encode() for name in names), archive.read


def _unzipped(path: Path) -> Opened:
    found = (file.relative_to(path).as_posix() for file in path.rglob("*.png"))
    names = sorted(name for name in found if _NAME.search(name))
    return (
        names,
        files_digest(path, file_hashes([path / name for name in names])),
        lambda name: (path / name).read_bytes(),
    )
