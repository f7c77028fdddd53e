"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: str | os.PathLike[str], *, sync: bool = False) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place at the end; after an error nothing is left of it.

    With ``sync`` the contents and the name are on disk when it ends, also after a loss of power.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        if partial.stat().st_mode & 0o077 == 0:  # some writers create private files, whatever the umask is
            partial.chmod(0o666 & ~_umask())
        if sync:
            _sync(partial)
        os.replace(partial, path)
        if sync:
            _sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


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
