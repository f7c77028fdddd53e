"""CIFAR-100 from its binary or its python archive, packed or unpacked."""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from taer.extras import require
from taer.features.sources.archives import download
from taer.features.sources.base import Part, Source, digest

URL = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
CHECKSUM = "md5:03b5dce01913d631647c71ecec9e9cb8"
REMEDY = (
    "Fetch cifar-100-binary.tar.gz or cifar-100-python.tar.gz on another machine and pass it, "
    "or the folder it unpacks to, as root=PATH"
)
_ROW = 2 + 3 * 32 * 32  # coarse label, fine label, then the red, green and blue planes


def open_cifar100(root: Path | None) -> Source:
    """All images with their fine labels. A download takes the binary archive, because it cannot contain code."""
    path = root or download("cifar100", URL, CHECKSUM, REMEDY)
    members = _archive_members(path) if path.is_file() else _folder_members(path)

    def member(name: str) -> bytes:
        if name not in members:
            raise ValueError(f"{path}: lacks {name} of CIFAR-100. {REMEDY}")
        return members[name]

    if "train.bin" in members:
        names = member("fine_label_names.txt").decode(errors="replace").split()
        parts = [_binary(member(f"{part}.bin"), f"{path}/{part}.bin") for part in ("train", "test")]
    elif "meta" in members:
        names = _names(_unpickle(members["meta"], f"{path}/meta"), f"{path}/meta")
        parts = [_python(member(part), f"{path}/{part}") for part in ("train", "test")]
    else:
        raise ValueError(f"{path}: neither the binary nor the python form of CIFAR-100. {REMEDY}")
    for _, labels in parts:
        if labels.min() < 0 or labels.max() >= len(names):
            raise ValueError(
                f"{path}: labels must lie in 0 … {len(names) - 1}, got {labels.min()} … {labels.max()}"
            )
    train, test = (
        _part(pixels, labels, name) for (pixels, labels), name in zip(parts, ("train", "test"), strict=True)
    )
    content = digest(array.tobytes() for part in parts for array in part)
    return Source("cifar100", "image", tuple(names), train, test, content, "see the CIFAR-100 page")


def _part(pixels: np.ndarray, labels: np.ndarray, name: str) -> Part:
    image = require("PIL.Image", "images")
    return Part(labels, lambda row: image.fromarray(pixels[row]), lambda row: f"cifar100 {name} image {row}")


def _archive_members(path: Path) -> dict[str, bytes]:
    try:
        with tarfile.open(path) as tar:
            files = [member for member in tar if member.isfile()]
            return {Path(file.name).name: tar.extractfile(file).read() for file in files}  # type: ignore[union-attr]
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ValueError(f"{path}: not a whole tar archive ({error}). {REMEDY}") from None


def _folder_members(path: Path) -> dict[str, bytes]:
    wanted = ("train.bin", "test.bin", "fine_label_names.txt", "train", "test", "meta")
    for folder in (path, path / "cifar-100-binary", path / "cifar-100-python"):
        if found := {name: (folder / name).read_bytes() for name in wanted if (folder / name).is_file()}:
            return found
    raise ValueError(f"{path}: no CIFAR-100 here. {REMEDY}")


def _binary(data: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    if not data or len(data) % _ROW:
        raise ValueError(f"{where}: truncated: rows have {_ROW} bytes, the file has {len(data)}")
    rows = np.frombuffer(data, np.uint8).reshape(-1, _ROW)
    return _pixels(rows[:, 2:]), rows[:, 1].astype(np.int64)


def _python(data: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    content = _unpickle(data, where)
    try:
        pixels = _pixels(np.asarray(content["data"], np.uint8))
        labels = np.asarray(content["fine_labels"], np.int64)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{where}: lacks the images or fine labels of CIFAR-100 ({error})") from None
    if labels.shape != (len(pixels),) or not len(pixels):
        raise ValueError(f"{where}: expected a label for each of {len(pixels)} images, got {labels.shape}")
    return pixels, labels


def _names(meta: dict[str, Any], where: str) -> list[str]:
    names = meta.get("fine_label_names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{where}: lacks the names of the classes, a list fine_label_names")
    return names


def _pixels(planes: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


class _ArraysOnly(pickle.Unpickler):
    """Reads plain containers and numpy arrays; any other name in a pickle raises an error and is not imported.

    A pickle is a program that may call any function. Those of CIFAR need only these three names.
    """

    _ALLOWED: ClassVar = {
        ("multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        home = "multiarray" if module in ("numpy.core.multiarray", "numpy._core.multiarray") else module
        if (home, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which a data set has no use for")
        return self._ALLOWED[home, name]


def _unpickle(data: bytes, where: str) -> dict[str, Any]:
    try:
        content = _ArraysOnly(io.BytesIO(data), encoding="latin1").load()
    except Exception as error:  # a damaged pickle can fail in any way
        raise ValueError(f"{where}: not a CIFAR-100 file: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{where}: not a CIFAR-100 file: expected a dictionary, got {type(content).__name__}")
    return content
