"""Local files, which are memory-mapped, and URLs, which are copied to a local cache once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from taer.extras import reason, require
from taer.files import written_whole


def cache_folder() -> Path:
    """The folder of downloads."""
    return Path(require("pooch", "images").os_cache("taer"))


def is_url(path: Any) -> bool:
    """Whether this is a URL for fsspec (``s3://…``, ``gs://…``, ``https://…``) and not a path."""
    return "://" in str(path)


def local_path(path: str) -> str:
    """The path itself or, for a URL, the path of a local copy, which is refreshed only when the file has changed."""
    if not is_url(path):
        return path
    try:
        files, inner = require("fsspec", "cluster").url_to_fs(path)
        version = hashlib.sha256(f"{path} {files.ukey(inner)}".encode()).hexdigest()[:20]
        copy = cache_folder() / "features" / version / inner.rpartition("/")[2]
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(copy) as partial:
                files.get_file(inner, str(partial))
    except Exception as error:  # every store has errors of its own
        raise _refusal(path, error) from None
    return str(copy)


def files_in(folder: str, suffix: str) -> list[str]:
    """Paths or URLs of the files in a folder that have this suffix, sorted by name."""
    if not is_url(folder):
        return sorted(map(str, Path(folder).glob(f"*{suffix}")))
    try:
        files, inner = require("fsspec", "cluster").url_to_fs(folder)
        return sorted(map(files.unstrip_protocol, files.glob(f"{inner.rstrip('/')}/*{suffix}")))
    except Exception as error:
        raise _refusal(folder, error) from None


def is_folder(path: str) -> bool:
    if not is_url(path):
        return Path(path).is_dir()
    try:
        files, inner = require("fsspec", "cluster").url_to_fs(path)
        return bool(files.isdir(inner))
    except Exception as error:
        raise _refusal(path, error) from None


def _refusal(path: str, error: Exception) -> ValueError:
    if isinstance(error, FileNotFoundError):
        return ValueError(f"{path}: no such file")
    return ValueError(f"{path}: cannot be read ({reason(error)})")


class MappedArray(np.memmap):
    """A read-only array in a file. It is pickled as the path or URL of the file, without the data."""

    source: tuple[Any, ...] | None = None

    @classmethod
    def open(cls, path: str, dtype: Any, offset: int, shape: tuple[int, ...]) -> np.ndarray:
        """Map a part of a file, given by its path or URL."""
        if 0 in shape:
            return np.empty(shape, dtype)  # an empty array cannot be mapped
        array = cls(local_path(path), dtype, "r", offset, shape)
        array.source = (path, np.dtype(dtype), offset, shape)
        mapped: np.ndarray = array
        return mapped

    def __array_finalize__(self, parent: Any) -> None:
        super().__array_finalize__(parent)
        self.source = None  # a view shows another part of the file

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.source is None:
            return np.asarray(self).__reduce_ex__(protocol)
        return MappedArray.open, self.source
