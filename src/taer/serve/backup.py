"""A consistent snapshot of a service's folder, taken while the service runs."""

from __future__ import annotations

import sqlite3
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path

from taer.files import written_whole
from taer.serve.failures import in_words
from taer.serve.store import version_file


def back_up(folder: Path, out: Path) -> tuple[int, list[int]]:
    """Write the database and its versions to a tar file, atomically.

    The copy of the database is a snapshot. The files of its versions were written before their rows, and never change,
    so they can be read afterwards. Returns the number of versions in the copy, and the versions whose file is missing.
    """
    database = folder / "taer.db"
    if not database.is_file():
        raise ValueError(f"{folder}: not the folder of a service: it has no taer.db")
    if out.exists():
        raise ValueError(f"{out}: is there already; a backup is never written over")
    with (
        tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.", ignore_cleanup_errors=True) as work,
        written_whole(out, sync=True) as partial,
    ):
        copy = Path(work) / "taer.db"
        versions = _copy(database, copy)
        missing = [version for version in versions if not version_file(folder, version).is_file()]
        with tarfile.open(partial, "w") as archive:
            archive.add(copy, "taer.db")
            for version in versions:
                if version not in missing:
                    source = version_file(folder, version)
                    archive.add(source, f"versions/{source.name}")
    return len(versions) - len(missing), missing


def _copy(database: Path, copy: Path) -> list[int]:
    """Copy a database that others may be writing to; returns the versions in the copy."""
    try:
        address = f"{database.absolute().as_uri()}?mode=rw"  # never makes one
        with (
            closing(sqlite3.connect(address, uri=True, timeout=30)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
            ((found,), *_) = target.execute("PRAGMA quick_check(1)")
            if found != "ok":
                raise sqlite3.DatabaseError(" ".join(str(found).split()))
            return [version for (version,) in target.execute("SELECT version FROM versions ORDER BY version")]
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{database}: cannot be copied: {in_words(error, database.parent)}") from None
