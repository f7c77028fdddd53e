"""Atomic writes of files and folders, and safetensors files that are checked before they are read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def written_whole(path: str | os.PathLike[str], *, sync: bool = False) -> Iterator[Path]:
    """Write a file or a folder atomically: yields a temporary path that is renamed to ``path`` at the end.

    After an error the temporary path is removed, and a file that was not there before is not there. With ``sync`` the
    file survives a loss of power once this returns.
    """
    path = Path(path)
    is_new = not path.exists()
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        if partial.is_file() and partial.stat().st_mode & 0o077 == 0:  # some writers create private files
            partial.chmod(0o666 & ~_umask())
        if sync:
            _sync(partial)
        os.replace(partial, path)
    except BaseException:
        _remove(partial)
        raise
    if sync:
        try:
            _sync(path.parent)
        except OSError:
            if is_new:
                _remove(path)
            raise


def make_folder(path: Path) -> None:
    """Make a folder and those above it; their entries survive a loss of power once this returns."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        _sync(path.parent)


def _remove(path: Path) -> None:
    """Remove what was written, if that is possible; the error that is being raised says more than another would."""
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextmanager
def open_safetensors(path: str | os.PathLike[str], refusal: str) -> Iterator[Any]:
    """Open a safetensors file. Raises ValueError(refusal) if its sizes and offsets do not fit its length."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(f"{refusal} ({error})") from None


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The strings in the header of a safetensors file."""
    with open_safetensors(path, f"{path}: not a safetensors file, or truncated") as file:
        return dict(file.metadata() or {})


def format_of(path: str | os.PathLike[str]) -> str:
    """The format that the header of a safetensors file names; an empty string for any other file."""
    try:
        return read_metadata(path).get("format", "")
    except ValueError:
        return ""
