"""Atomic writes of files and folders, and safetensors files that are checked before they are read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def written_whole(path: str | os.PathLike[str], *, sync: bool = False, private: bool = False) -> Iterator[Path]:
    """Write a file or a folder atomically: yields a temporary path that is renamed to ``path`` at the end.

    After an error the temporary path is removed, and a file that was not there before is not there. With ``sync`` the
    file survives a loss of power once this returns. A ``private`` one can be read by its owner only.
    """
    path = Path(path)
    is_new = not path.exists()
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        if private:
            partial.chmod(0o600)
        elif partial.is_file() and partial.stat().st_mode & 0o077 == 0:  # some writers create private files
            partial.chmod(0o666 & ~_umask())
        if sync:
            to_disk(partial)
        os.replace(partial, path)
    except BaseException:
        _remove(partial)
        raise
    if sync:
        try:
            to_disk(path.parent)
        except OSError as error:
            if not is_new:
                error.strerror = (
                    f"{error.strerror}; the new file is there, but a loss of power may bring the old one back"
                )
                raise
            _remove(path)
            raise


@contextmanager
def written_together(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Write files and folders of these names: yields a temporary folder, whose contents replace those in ``folder``.

    After an error all of them are as they were. A kill while they are moved, which is a moment, may leave some of each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    new, old = folder / ".new.partial", folder / ".old.partial"
    try:
        for place in (new, old):
            _remove(place)  # what an earlier call could not remove
            place.mkdir()
        yield new
        _exchange(folder, new, old, names)
    except BaseException:
        _remove(new)
        with suppress(OSError):
            old.rmdir()  # unless moving back failed, too: then it has what was there
        raise
    _remove(new)
    _remove(old)


def _exchange(folder: Path, new: Path, old: Path, names: Sequence[str]) -> None:
    """Move entries of ``folder`` to ``old`` and those of ``new`` to ``folder``; all of them, or none."""
    moved: list[tuple[Path, Path]] = []
    try:
        for name in names:
            for source, target in ((folder / name, old / name), (new / name, folder / name)):
                if source.exists():
                    source.rename(target)
                    moved.append((source, target))
    except OSError:
        for source, target in reversed(moved):
            target.rename(source)
        raise


def make_folder(path: Path) -> None:
    """Make a folder and those above it; their entries survive a loss of power once this returns."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        to_disk(path.parent)


def make_private(path: Path) -> None:
    """Make an empty file that only its owner can read, unless there is a file."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


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


def to_disk(path: Path) -> None:
    """What was written to a file, or changed in the entries of a folder, survives a loss of power."""
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
